# mypy: disallow-untyped-defs=False, check-untyped-defs=False
"""Argmax-product, and hill climbing with a beam of samples."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learners.circuits.map.tree_kernels import UNDERFLOW, total_log_values, total_values
from learners.circuits.map.value_kernels import LANES, assignment_values, mixed
from learners.jit import kernel


@kernel
def lowest_descendants(arrays, lowest):
    """OUT lowest (n_inner,): the smallest number among an inner node and those below it."""
    for i in range(arrays.is_sum.size):
        least = i
        for e in range(arrays.child_starts[i], arrays.leaf_from[i]):
            least = min(least, lowest[arrays.children[e]])
        lowest[i] = least


@kernel
def choose_child(arrays, top, choices, mark, room):
    """Edge of sum `top` whose child's assignment has the largest value at the sum itself.

    choices (n_inner, n_variables) int64, the assignments below; mark (2, n_inner) int64: lowest descendants and stamps.
    """
    is_sum, child_starts, leaf_from = arrays.is_sum, arrays.child_starts, arrays.leaf_from
    children, weight = arrays.children, arrays.weight
    leaf_starts, leaf_value, leaf_variable = arrays.leaf_starts, arrays.leaf_value, arrays.leaf_variable
    lowest, stamp = mark[0, top], mark[1]
    stamp[top] = top
    for i in range(top, lowest - 1, -1):
        if stamp[i] == top:
            for e in range(child_starts[i], leaf_from[i]):
                stamp[children[e]] = top
    best, best_edge = -1.0, -1
    lane = np.empty(LANES)
    row = np.empty(LANES, dtype=np.int64)
    for start in range(child_starts[top], child_starts[top + 1], LANES):
        for k in range(LANES):
            row[k] = children[min(start + k, child_starts[top + 1] - 1)]
        for i in range(lowest, top + 1):
            if stamp[i] != top:
                continue
            if is_sum[i]:
                lane[:] = 0.0
                for e in range(child_starts[i], child_starts[i + 1]):
                    w, c = weight[e], children[e]
                    for k in range(LANES):
                        lane[k] += w * room[c, k]
            else:
                lane[:] = 1.0
                for e in range(child_starts[i], leaf_from[i]):
                    c = children[e]
                    for k in range(LANES):
                        lane[k] *= room[c, k]
                for e in range(leaf_from[i], child_starts[i + 1]):
                    table, v = leaf_starts[children[e]], leaf_variable[children[e]]
                    for k in range(LANES):
                        lane[k] *= leaf_value[table + choices[row[k], v]]
            for k in range(LANES):
                room[i, k] = lane[k]
        for k in range(min(LANES, child_starts[top + 1] - start)):
            if room[top, k] > best:
                best, best_edge = room[top, k], start + k
    return best_edge


@kernel
def argmax_product(arrays, choices, mark, room, x):
    """Argmax-product (Conaty, Mauá, de Campos 2017): a sum takes the child whose assignment it values most.

    choices (n_inner, n_variables), mark (2, n_inner) int64, room (n_inner, LANES) float64 scratch; OUT x (n_variables,) int64.
    """
    leaf_starts, leaf_value, leaf_variable = arrays.leaf_starts, arrays.leaf_value, arrays.leaf_variable
    n_inner = arrays.is_sum.size
    if n_inner == 0:
        x[leaf_variable[0]] = np.argmax(leaf_value)
        return
    lowest_descendants(arrays, mark[0])
    mark[1, :] = -1
    for i in range(n_inner):
        if arrays.is_sum[i]:
            choices[i] = choices[arrays.children[choose_child(arrays, i, choices, mark, room)]]
            continue
        choices[i] = -1
        for e in range(arrays.child_starts[i], arrays.leaf_from[i]):
            below = choices[arrays.children[e]]
            for v in range(below.size):
                if below[v] >= 0:
                    choices[i, v] = below[v]
        for e in range(arrays.leaf_from[i], arrays.child_starts[i + 1]):
            leaf = arrays.children[e]
            choices[i, leaf_variable[leaf]] = np.argmax(leaf_value[leaf_starts[leaf] : leaf_starts[leaf + 1]])
    x[:] = choices[n_inner - 1]


class BeamRoom(NamedTuple):
    """Scratch of `climb`; K samples, padded to a multiple of LANES."""

    samples: np.ndarray  # (2, K, n_variables) int64: this round's and the next round's
    values: np.ndarray  # (2, K) float64
    hashes: np.ndarray  # (2, K) uint64
    slot_hash: np.ndarray  # (n_slots,) uint64
    up: np.ndarray  # (n_inner, LANES) float64
    down: np.ndarray  # (n_inner, LANES) float64
    prefix: np.ndarray  # (most children + 1, LANES) float64
    slots: np.ndarray  # (K, n_slots) float64: value after changing one variable


@kernel
def neighbour_values(arrays, samples, n_samples, room):
    """OUT room.slots[k, slot]: value of sample k after setting one variable, for all variables and values, by derivatives."""
    is_sum, child_starts, leaf_from = arrays.is_sum, arrays.child_starts, arrays.leaf_from
    children, weight, value_starts = arrays.children, arrays.weight, arrays.value_starts
    leaf_starts, leaf_value, leaf_variable = arrays.leaf_starts, arrays.leaf_value, arrays.leaf_variable
    up, down, prefix = room.up, room.down, room.prefix
    n_inner = is_sum.size
    if n_inner == 0:
        room.slots[:n_samples] = leaf_value
        return
    lane = np.empty(LANES)
    code = np.empty((samples.shape[1], LANES), dtype=np.int64)
    found = np.empty((value_starts[-1], LANES))
    for start in range(0, n_samples, LANES):
        for v in range(code.shape[0]):
            for k in range(LANES):
                code[v, k] = samples[min(start + k, n_samples - 1), v]
        assignment_values(arrays, samples[start:], min(LANES, n_samples - start), up, lane)
        found[:] = 0.0
        down[:] = 0.0
        down[n_inner - 1] = 1.0
        for i in range(n_inner - 1, -1, -1):
            first, middle, end = child_starts[i], leaf_from[i], child_starts[i + 1]
            if is_sum[i]:
                for e in range(first, end):
                    w, c = weight[e], children[e]
                    for k in range(LANES):
                        down[c, k] += w * down[i, k]
                continue
            for k in range(LANES):
                prefix[0, k] = down[i, k]
            for e in range(first, end):
                c, p = children[e], e - first
                if e < middle:
                    for k in range(LANES):
                        prefix[p + 1, k] = prefix[p, k] * up[c, k]
                else:
                    table, v = leaf_starts[c], leaf_variable[c]
                    for k in range(LANES):
                        prefix[p + 1, k] = prefix[p, k] * leaf_value[table + code[v, k]]
            # Products from both ends, not a division: a factor may be zero.
            lane[:] = 1.0
            for e in range(end - 1, first - 1, -1):
                c, p = children[e], e - first
                if e < middle:
                    for k in range(LANES):
                        down[c, k] += prefix[p, k] * lane[k]
                        lane[k] *= up[c, k]
                else:
                    table, v = leaf_starts[c], leaf_variable[c]
                    slot = value_starts[v]
                    for x in range(value_starts[v + 1] - slot):
                        share = leaf_value[table + x]
                        for k in range(LANES):
                            found[slot + x, k] += share * prefix[p, k] * lane[k]
                    for k in range(LANES):
                        lane[k] *= leaf_value[table + code[v, k]]
        for k in range(min(LANES, n_samples - start)):
            for slot in range(found.shape[0]):
                room.slots[start + k, slot] = found[slot, k]


@kernel
def keep_best(arrays, before, n_before, limit, room):
    """Fill the other half of the beam with the best distinct improvements of this one; returns how many."""
    value_starts = arrays.value_starts
    after = 1 - before
    n_slots = value_starts[-1]
    n = 0
    candidate = np.empty(n_before * n_slots, dtype=np.int64)
    gain = np.empty(n_before * n_slots)
    for k in range(n_before):
        for slot in range(n_slots):
            # Rounding must not make two samples improve on each other for ever.
            if room.slots[k, slot] > room.values[before, k] * (1 + 1e-12):
                candidate[n] = k * n_slots + slot
                gain[n] = -room.slots[k, slot]
                n += 1
    n_after = 0
    for position in np.argsort(gain[:n], kind="mergesort"):
        k, slot = candidate[position] // n_slots, candidate[position] % n_slots
        v = np.searchsorted(value_starts, slot, side="right") - 1
        old = value_starts[v] + room.samples[before, k, v]
        name = room.hashes[before, k] ^ room.slot_hash[old] ^ room.slot_hash[slot]
        if np.any(room.hashes[after, :n_after] == name):
            continue
        room.samples[after, n_after] = room.samples[before, k]
        room.samples[after, n_after, v] = slot - value_starts[v]
        room.values[after, n_after] = -gain[position]
        room.hashes[after, n_after] = name
        n_after += 1
        if n_after == limit:
            break
    return n_after


@kernel
def name_samples(value_starts, n_samples, room):
    """Hash the first samples and move the distinct ones to the front; returns how many."""
    for slot in range(room.slot_hash.size):
        room.slot_hash[slot] = mixed(np.uint64(slot + 1) * np.uint64(0x9E3779B97F4A7C15))
    n = 0
    for k in range(n_samples):
        name = np.uint64(0)
        for v in range(value_starts.size - 1):
            name ^= room.slot_hash[value_starts[v] + room.samples[0, k, v]]
        if not np.any(room.hashes[0, :n] == name):
            room.samples[0, n] = room.samples[0, k]
            room.hashes[0, n] = name
            n += 1
    return n


@kernel
def climb(arrays, n_start, limit, room, x):
    """Hill climbing from the first n_start samples, the best `limit` kept in each round; OUT x; returns its value.

    Each round scores all changes of one variable of all samples; a sample that has no better neighbour ends there.
    """
    n = name_samples(arrays.value_starts, n_start, room)
    assignment_values(arrays, room.samples[0], n, room.up, room.values[0])
    best = -1.0
    side = 0
    while n:
        for k in range(n):
            if room.values[side, k] > best:
                best = room.values[side, k]
                x[:] = room.samples[side, k]
        neighbour_values(arrays, room.samples[side], n, room)
        n = keep_best(arrays, side, n, limit, room)
        side = 1 - side
    return best


@kernel
def draw_samples(arrays, totals, are_logs, state, samples):
    """Draw assignments from the circuit's distribution; totals (n_inner,) from total_values; OUT samples (K, n_variables).

    state (1,) uint64: a splitmix64 generator. `are_logs` says whether `totals` are logarithms.
    """
    is_sum, child_starts, leaf_from, children = arrays.is_sum, arrays.child_starts, arrays.leaf_from, arrays.children
    n_inner = is_sum.size
    stack = np.empty(n_inner + 1, dtype=np.int64)
    share = np.empty(max(1, arrays.children.size))
    for k in range(samples.shape[0]):
        if n_inner == 0:
            samples[k, arrays.leaf_variable[0]] = drawn(arrays.leaf_value, state)
            continue
        stack[0] = n_inner - 1
        n = 1
        while n:
            n -= 1
            i = stack[n]
            first, end = child_starts[i], child_starts[i + 1]
            if is_sum[i]:
                for e in range(first, end):
                    c = children[e]
                    odds = np.exp(totals[c] - totals[i]) if are_logs else totals[c] / totals[i]
                    share[e - first] = arrays.weight[e] * odds
                stack[n] = children[first + drawn(share[: end - first], state)]
                n += 1
                continue
            for e in range(first, leaf_from[i]):
                stack[n] = children[e]
                n += 1
            for e in range(leaf_from[i], end):
                leaf = children[e]
                table = arrays.leaf_value[arrays.leaf_starts[leaf] : arrays.leaf_starts[leaf + 1]]
                samples[k, arrays.leaf_variable[leaf]] = drawn(table, state)


@kernel
def drawn(share, state):
    """A position drawn in proportion to `share` (n,) float64; state (1,) uint64 is advanced."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    uniform = np.float64(mixed(state[0]) >> np.uint64(11)) * 2.0**-53
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
    n_slots = arrays.value_starts[arrays.value_starts.size - 1]
    totals = np.empty(n_inner)
    edges = np.empty(n_inner, dtype=np.int64)
    are_logs = False
    if n_inner:
        total_values(arrays, totals, edges)
        if not UNDERFLOW < totals[n_inner - 1] < np.inf:
            are_logs = True
            total_log_values(arrays, totals, edges)
    most = 0
    for i in range(n_inner):
        most = max(most, arrays.child_starts[i + 1] - arrays.child_starts[i])
    room = BeamRoom(
        np.empty((2, k, x.size), dtype=np.int64),
        np.empty((2, k)),
        np.empty((2, k), dtype=np.uint64),
        np.empty(n_slots, dtype=np.uint64),
        np.empty((n_inner, LANES)),
        np.empty((n_inner, LANES)),
        np.empty((most + 1, LANES)),
        np.empty((k, n_slots)),
    )
    draw_samples(arrays, totals, are_logs, state, room.samples[0])
    return climb(arrays, k, k, room, x)
