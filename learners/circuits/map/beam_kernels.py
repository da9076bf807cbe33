"""Hill climbing with a beam of samples, up to WIDTH samples in parallel."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learners.circuits.map.local_search_kernels import (
    SMALLEST_ROOT,
    WIDTH,
    BlockRoom,
    leaf_edges,
    neighbour_values,
    neighbour_values_with_zeros,
    node_values_of_assignments,
)
from learners.circuits.map.parse_tree_kernels import total_node_values
from learners.circuits.map.value_kernels import LANES
from learners.kernels.arrays import Floats, Integers, Uint64s
from learners.kernels.jit import inner_kernel, kernel
from learners.kernels.random import random_bits

# Rounding must not make two samples improve on each other for ever.
IMPROVEMENT = 1.0 + 1e-12


class Beam(NamedTuple):
    """Two generations of K samples; the next one is sorted, best first."""

    codes: Integers  # (2, n_variables, K) int64
    names: Uint64s  # (2, K) uint64: hashes of the samples
    values: Floats  # (K,) float64: of the next generation
    origin: Integers  # (2, K) int64: sample and change that the next generation comes from
    scored: Uint64s  # (a power of two,) uint64: names of samples that had their round, each at its last bits
    slot_name: Uint64s  # (n_slots,) uint64
    change_variable: Integers  # (n_changes,) int64


@inner_kernel
def deduplicate_beam_samples(value_starts, n_samples, beam):
    """Hash the samples of generation 0 and move the distinct ones to the front; returns their number."""
    codes, names = beam.codes[0], beam.names[0]
    for slot in range(beam.slot_name.size):
        beam.slot_name[slot] = random_bits(np.uint64(slot + 1) * np.uint64(0x9E3779B97F4A7C15))
    for v in range(value_starts.size - 1):
        for change in range(value_starts[v] - v, value_starts[v + 1] - v - 1):
            beam.change_variable[change] = v
    n = 0
    for k in range(n_samples):
        name = np.uint64(0)
        for v in range(value_starts.size - 1):
            name ^= beam.slot_name[value_starts[v] + codes[v, k]]
        if not has_sample_hash(names, n, name):
            for v in range(value_starts.size - 1):
                codes[v, n] = codes[v, k]
            names[n] = name
            n += 1
    return n


@inner_kernel
def has_sample_hash(names, n, name):
    """Return whether the name is among the first n names."""
    for position in range(n):
        if names[position] == name:
            return True
    return False


@kernel
def changed_variable_code(value_starts, change, v, code):
    """Return the value of variable v after a change, which says by how many values to rotate it."""
    n_values = value_starts[v + 1] - value_starts[v]
    code += 1 + change - (value_starts[v] - v)
    return code - n_values if code >= n_values else code


@inner_kernel
def keep_beam_improvements(value_starts, beam, side, start, block, n_next):
    """Insert a block's improvements into the best distinct ones of the next generation; returns their number.

    `side` is the generation being changed, `start` its first sample in the block; block.found and the last row of
    block.up hold the values after every change and before.
    """
    names, values, origin = beam.names[1 - side], beam.values, beam.origin
    before = block.up[block.up.shape[0] - 1]
    n_samples = block.size[0]
    last_bits = np.uint64(beam.scored.size - 1)
    floor = values[n_next - 1] if n_next == values.size else 0.0
    for change in range(beam.change_variable.size):
        found = block.found[change]
        for k in range(n_samples):
            value = found[k]
            if value <= before[k] * IMPROVEMENT or value <= floor:
                continue
            v = beam.change_variable[change]
            old = beam.codes[side, v, start + k]
            new = changed_variable_code(value_starts, change, v, old)
            name = beam.names[side, start + k]
            name ^= beam.slot_name[value_starts[v] + old] ^ beam.slot_name[value_starts[v] + new]
            if beam.scored[name & last_bits] == name or has_sample_hash(names, n_next, name):
                continue
            position = min(n_next, values.size - 1)
            while position > 0 and values[position - 1] < value:
                values[position], names[position] = values[position - 1], names[position - 1]
                origin[0, position], origin[1, position] = origin[0, position - 1], origin[1, position - 1]
                position -= 1
            values[position], names[position] = value, name
            origin[0, position], origin[1, position] = start + k, change
            n_next = min(n_next + 1, values.size)
            if n_next == values.size:
                floor = values[n_next - 1]
    return n_next


@inner_kernel
def hill_climb_beam(arrays, n_samples, beam, x):
    """Climb from the n_samples of generation 0; OUT x (n_variables,) int64, the best sample found; returns its value.

    Each round scores all one-variable changes of all samples and keeps the best distinct improvements; a sample
    without one ends there.
    """
    value_starts = arrays.value_starts
    edges = leaf_edges(arrays)
    n_inner = arrays.is_sum.size
    most = 0
    for i in range(n_inner):
        most = max(most, arrays.child_starts[i + 1] - arrays.child_starts[i])
    n_changes = beam.change_variable.size
    width = min(WIDTH, beam.codes.shape[2])
    room = np.empty((2 * n_inner + n_changes + most + 1, width))
    block = BlockRoom(
        np.empty((x.size, width), dtype=np.int64),
        room[:n_inner],
        room[n_inner : 2 * n_inner],
        room[2 * n_inner : 2 * n_inner + n_changes],
        room[2 * n_inner + n_changes :],
        np.empty(2, dtype=np.int64),
    )
    n = deduplicate_beam_samples(value_starts, n_samples, beam)
    best = -1.0
    side = 0
    while n:
        n_next = 0
        for k in range(n):
            name = beam.names[side, k]
            beam.scored[name & np.uint64(beam.scored.size - 1)] = name
        for start in range(0, n, width):
            block.size[0] = min(n - start, width)
            block.size[1] = (block.size[0] + LANES - 1) // LANES * LANES
            for v in range(x.size):
                for c in range(block.size[1]):
                    block.codes[v, c] = beam.codes[side, v, start + c]
            node_values_of_assignments(arrays, edges, block)
            least = np.inf
            for k in range(block.size[0]):
                value = block.up[n_inner - 1, k]
                least = min(least, value)
                if value > best:
                    best = value
                    for v in range(x.size):
                        x[v] = block.codes[v, k]
            if edges.has_zeros or least < SMALLEST_ROOT:
                neighbour_values_with_zeros(arrays, block)
            else:
                neighbour_values(arrays, edges, block)
            n_next = keep_beam_improvements(value_starts, beam, side, start, block, n_next)
        before, after = beam.codes[side], beam.codes[1 - side]
        for v in range(x.size):
            for k in range(n_next):
                after[v, k] = before[v, beam.origin[0, k]]
        for k in range(n_next):
            change = beam.origin[1, k]
            v = beam.change_variable[change]
            after[v, k] = changed_variable_code(value_starts, change, v, after[v, k])
        n = n_next
        side = 1 - side
    return best


@kernel
def draw_beam_samples(arrays, totals, are_logs, state, n_samples, codes):
    """Draw assignments from the circuit's distribution; totals (n_inner,) from total_values; OUT codes (n_variables,
    K).

    state (1,) uint64: a splitmix64 generator. `are_logs` says whether `totals` are logarithms.
    """
    is_sum, child_starts, leaf_from, children = arrays.is_sum, arrays.child_starts, arrays.leaf_from, arrays.children
    leaf_starts, leaf_value, leaf_variable = arrays.leaf_starts, arrays.leaf_value, arrays.leaf_variable
    n_inner = is_sum.size
    stack = np.empty(n_inner, dtype=np.int64)
    share = np.empty(max(1, arrays.children.size))
    for k in range(n_samples):
        stack[0] = n_inner - 1
        n = 1
        while n:
            n -= 1
            i = stack[n]
            first, end = child_starts[i], child_starts[i + 1]
            if is_sum[i]:
                for e in range(first, end):
                    total = np.exp(totals[children[e]] - totals[i]) if are_logs else totals[children[e]]
                    share[e - first] = arrays.weight[e] * total
                stack[n] = children[first + draw_index_by_weight(share[: end - first], state)]
                n += 1
                continue
            for e in range(first, leaf_from[i]):
                stack[n] = children[e]
                n += 1
            for e in range(leaf_from[i], end):
                leaf = children[e]
                table = leaf_value[leaf_starts[leaf] : leaf_starts[leaf + 1]]
                codes[leaf_variable[leaf], k] = draw_index_by_weight(table, state)


@kernel
def draw_index_by_weight(share, state):
    """Draw a position in proportion to `share` (n,) float64; state (1,) uint64 is advanced."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    uniform = np.float64(random_bits(state[0]) >> np.uint64(11)) * 2.0**-53
    left = uniform * share.sum()
    last = 0
    for position in range(share.size):
        if share[position] > 0.0:
            last = position
            if left < share[position]:
                return position
            left -= share[position]
    return last


@kernel
def beam_search(arrays, k, state, x):
    """Draw K samples and climb from them; state (1,) uint64; OUT x (n_variables,) int64; returns its value."""
    n_inner = arrays.is_sum.size
    if n_inner == 0:
        x[arrays.leaf_variable[0]] = np.argmax(arrays.leaf_value)
        return arrays.leaf_value[x[arrays.leaf_variable[0]]]
    n_slots = arrays.value_starts[x.size]
    totals, heaviest = np.empty(n_inner), np.empty(n_inner, dtype=np.int64)
    are_logs = total_node_values(arrays, totals, heaviest)
    # A table that forgets now and then costs a round at most.
    n_scored = 64
    while n_scored < 16 * k:
        n_scored *= 2
    beam = Beam(
        # Columns beyond the samples fill up a register.
        np.zeros((2, x.size, (k + LANES - 1) // LANES * LANES), dtype=np.int64),
        np.empty((2, k), dtype=np.uint64),
        np.empty(k),
        np.empty((2, k), dtype=np.int64),
        np.zeros(n_scored, dtype=np.uint64),
        np.empty(n_slots, dtype=np.uint64),
        np.empty(n_slots - x.size, dtype=np.int64),
    )
    draw_beam_samples(arrays, totals, are_logs, state, k, beam.codes[0])
    return hill_climb_beam(arrays, k, beam, x)
