"""Reduction of MAP to MAX: evidence and hidden variables are folded into the weights of a smaller circuit."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learners.circuits.map.value_kernels import MaxArrays
from learners.kernels.arrays import Floats, Integers
from learners.kernels.jit import inner_kernel, kernel

# A running product leaves this range only in circuits of hundreds of variables: then its logarithm moves to the offset.
SMALL, LARGE = 1e-120, 1e120


class ReductionRoom(NamedTuple):
    """Scratch of a reduction, per node of the larger circuit, leaves first."""

    factor: Floats  # (n_nodes,) float64: a node's bound is factor * exp(offset); 0 if the node is impossible
    offset: Floats  # (n_nodes,) float64
    n_free: Integers  # (n_nodes,) int64: 0 a constant, 1 a leaf, 2 an inner node
    stands_for: Integers  # (n_nodes,) int64: the node that represents it once unary sums and products are skipped
    table_start: Integers  # (n_nodes,) int64 into table, of nodes that are leaves
    table: Floats  # (size of leaf tables + n_inner * the most values,) float64
    new_id: Integers  # (n_nodes,) int64: the variable of a leaf, then the number of a node that is kept
    only_value: Integers  # (n_variables,) int64: the only value left; -1: the variable stays; -2: it is summed out


@inner_kernel
def reduce_leaves(arrays, allowed, room):
    """Compute constants and masked tables of the leaves in `room`; returns the used length of room.table."""
    factor, table, value_starts = room.factor, room.table, arrays.value_starts
    leaf_value, leaf_starts, only_value = arrays.leaf_value, arrays.leaf_starts, room.only_value
    used = 0
    for leaf in range(arrays.leaf_variable.size):
        v = arrays.leaf_variable[leaf]
        first = leaf_starts[leaf]
        only = only_value[v]
        room.offset[leaf] = 0.0
        room.stands_for[leaf] = leaf
        if only >= 0:
            room.n_free[leaf] = 0
            factor[leaf] = leaf_value[first + only]
            continue
        slot = value_starts[v]
        n_values = value_starts[v + 1] - slot
        total, top = 0.0, 0.0
        for x in range(n_values):
            value = leaf_value[first + x] if allowed[slot + x] else 0.0
            table[used + x] = value
            total += value
            top = max(top, value)
        if only == -2:
            room.n_free[leaf] = 0
            factor[leaf] = total
            continue
        room.n_free[leaf] = 1
        room.new_id[leaf] = v
        factor[leaf] = top
        room.table_start[leaf] = used
        if top > 0.0 and top != 1.0:
            for x in range(n_values):
                table[used + x] /= top
        used += n_values
    return used


@inner_kernel
def reduce_inner_nodes(arrays, room, used):
    """Reduce upward: fold constants, turn sums over one variable into leaves, and replace unary nodes by their child."""
    factor, offset, n_free, stands_for = room.factor, room.offset, room.n_free, room.stands_for
    table, table_start, new_id, value_starts = room.table, room.table_start, room.new_id, arrays.value_starts
    is_sum, child_starts, children = arrays.is_sum, arrays.child_starts, arrays.children
    leaf_from, weight = arrays.leaf_from, arrays.weight
    n_leaves = arrays.leaf_variable.size
    for i in range(is_sum.size):
        node = n_leaves + i
        stands_for[node] = node
        first, middle, end = child_starts[i], leaf_from[i], child_starts[i + 1]
        n_kept, last, shift = 0, -1, 0.0
        total = 1.0
        if not is_sum[i]:
            for e in range(first, end):
                child = children[e] + (n_leaves if e < middle else 0)
                total *= factor[child]
                shift += offset[child]
                if total < SMALL or total > LARGE:
                    if total == 0.0:
                        break
                    shift += np.log(total)
                    total = 1.0
                if n_free[child] > 0:
                    n_kept += 1
                    last = child
            factor[node] = total
            offset[node] = shift
            n_free[node] = 2
            if n_kept == 0 or total == 0.0:
                n_free[node] = 0
            elif n_kept == 1:
                n_free[node] = n_free[last]
                stands_for[node] = stands_for[last]
            continue
        total = 0.0
        for e in range(first, end):
            child = children[e] + (n_leaves if e < middle else 0)
            term = weight[e] * factor[child]
            if term > 0.0:
                # Terms on another scale than those before: rare, so one exp each does not matter.
                if n_kept == 0:
                    shift = offset[child]
                elif offset[child] > shift:
                    total *= np.exp(shift - offset[child])
                    shift = offset[child]
                elif offset[child] < shift:
                    term *= np.exp(offset[child] - shift)
                total += term
                n_kept += 1
                last = child
        factor[node] = total
        offset[node] = shift
        n_free[node] = n_free[last] if n_kept else 0
        if n_kept == 1:
            stands_for[node] = stands_for[last]
        if n_kept < 2 or n_free[last] != 1:
            continue
        v = new_id[stands_for[last]]
        n_values = value_starts[v + 1] - value_starts[v]
        for x in range(n_values):
            table[used + x] = 0.0
        for e in range(first, end):
            child = children[e] + (n_leaves if e < middle else 0)
            share = weight[e] * factor[child]
            if share > 0.0:
                if offset[child] != shift:
                    share *= np.exp(offset[child] - shift)
                source = table_start[stands_for[child]]
                for x in range(n_values):
                    table[used + x] += share * table[source + x]
        top = 0.0
        for x in range(n_values):
            top = max(top, table[used + x])
        for x in range(n_values):
            table[used + x] /= top
        factor[node] = top
        table_start[node] = used
        new_id[node] = v
        used += n_values


@inner_kernel
def mark_reachable_nodes(arrays, room):
    """Mark downward the nodes that the reduced circuit keeps: their room.n_free becomes negative."""
    factor, n_free, stands_for, weight = room.factor, room.n_free, room.stands_for, arrays.weight
    child_starts, children, leaf_from = arrays.child_starts, arrays.children, arrays.leaf_from
    n_leaves = arrays.leaf_variable.size
    n_inner = arrays.is_sum.size
    top = stands_for[n_leaves + n_inner - 1]
    n_free[top] = -n_free[top]
    for i in range(n_inner - 1, -1, -1):
        if n_free[n_leaves + i] != -2:
            continue
        for e in range(child_starts[i], child_starts[i + 1]):
            child = children[e] + (n_leaves if e < leaf_from[i] else 0)
            if n_free[child] != 0 and factor[child] > 0.0 and weight[e] > 0.0:
                stand_in = stands_for[child]
                n_free[stand_in] = -abs(n_free[stand_in])


@inner_kernel
def write_reduced_leaves(arrays, room, sizes, out):
    """Write the leaves of the reduced circuit to `out`; room.new_id changes from a leaf's variable to its number."""
    n_free, new_id, table_start, table = room.n_free, room.new_id, room.table_start, room.table
    leaf_starts, leaf_value, value_starts = out.leaf_starts, out.leaf_value, arrays.value_starts
    leaf, entry = 0, 0
    leaf_starts[0] = 0
    for node in range(arrays.leaf_variable.size + arrays.is_sum.size):
        if n_free[node] != -1:
            continue
        v = new_id[node]
        new_id[node] = leaf
        out.leaf_variable[leaf] = v
        first = table_start[node]
        for x in range(value_starts[v + 1] - value_starts[v]):
            leaf_value[entry] = table[first + x]
            entry += 1
        leaf += 1
        leaf_starts[leaf] = entry
    sizes[0] = leaf
    sizes[1] = entry


@inner_kernel
def flatten_sum(out, position, first, end):
    """Replace a sum's children that are sums by their children, if that does not add edges; returns the new end, or -1.

    Edges first to end of `out` are those of the sum. In hidden Chow-Liu trees this removes latent variables whose
    own leaf is folded. position (n_nodes,) int64 is scratch, of any content.
    """
    children, weight, child_starts, is_sum = out.children, out.weight, out.child_starts, out.is_sum
    n_sums, n = 0, 0
    for e in range(first, end):
        n_sums += is_sum[children[e]]
    if n_sums == 0:
        return -1
    below = np.empty(end - first, dtype=np.int64)
    share = np.empty(end - first)
    for e in range(first, end):
        c = children[e]
        begin, stop = (child_starts[c], child_starts[c + 1]) if is_sum[c] else (e, e + 1)
        for f in range(begin, stop):
            scale = weight[e] * weight[f] if is_sum[c] else weight[e]
            at = position[children[f]]
            if 0 <= at < n and below[at] == children[f]:
                share[at] += scale
                continue
            if n == end - first:
                return -1
            position[children[f]] = n
            below[n] = children[f]
            share[n] = scale
            n += 1
    for k in range(n):
        children[first + k] = below[k]
        weight[first + k] = share[k]
    return first + n


@inner_kernel
def write_reduced_inner_nodes(arrays, room, sizes, out):
    """Write the inner nodes of the reduced circuit to `out`."""
    factor, offset, n_free, stands_for = room.factor, room.offset, room.n_free, room.stands_for
    new_id, new_children, new_weight = room.new_id, out.children, out.weight
    child_starts, children, leaf_from, weight = arrays.child_starts, arrays.children, arrays.leaf_from, arrays.weight
    n_leaves = arrays.leaf_variable.size
    new, edge, n_flattened = 0, 0, 0
    out.child_starts[0] = 0
    for i in range(arrays.is_sum.size):
        node = n_leaves + i
        if n_free[node] != -2:
            continue
        new_id[node] = new
        out.is_sum[new] = arrays.is_sum[i]
        first, middle, end = child_starts[i], leaf_from[i], child_starts[i + 1]
        n_leaf_children = 0
        for e in range(first, end):
            child = children[e] + (n_leaves if e < middle else 0)
            if n_free[child] == 0 or factor[child] == 0.0 or weight[e] == 0.0:
                continue
            stand_in = stands_for[child]
            if n_free[stand_in] == -1:
                n_leaf_children += 1
                continue
            new_children[edge] = new_id[stand_in]
            new_weight[edge] = 1.0
            if arrays.is_sum[i]:
                share = weight[e] * factor[child] / factor[node]
                if offset[child] != offset[node]:
                    share *= np.exp(offset[child] - offset[node])
                new_weight[edge] = share
            edge += 1
        if arrays.is_sum[i]:
            flattened = flatten_sum(out, room.table_start, out.child_starts[new], edge)
            n_flattened += flattened != -1
            if flattened != -1:
                edge = flattened
        out.leaf_from[new] = edge
        if n_leaf_children:
            for e in range(first, end):
                child = children[e] + (n_leaves if e < middle else 0)
                stand_in = stands_for[child]
                if n_free[child] != 0 and n_free[stand_in] == -1:
                    new_children[edge] = new_id[stand_in]
                    new_weight[edge] = 1.0
                    edge += 1
        new += 1
        out.child_starts[new] = edge
    sizes[2] = new
    sizes[3] = edge
    return n_flattened


@inner_kernel
def drop_unreachable_nodes(out, sizes, new_leaf, new_inner):
    """Compact `out` to the nodes that the root reaches; new_leaf, new_inner int64 scratch."""
    n_leaves, n_inner = sizes[0], sizes[2]
    new_leaf[:n_leaves] = 0
    new_inner[:n_inner] = 0
    new_inner[n_inner - 1] = 1
    for i in range(n_inner - 1, -1, -1):
        if new_inner[i]:
            for e in range(out.child_starts[i], out.leaf_from[i]):
                new_inner[out.children[e]] = 1
            for e in range(out.leaf_from[i], out.child_starts[i + 1]):
                new_leaf[out.children[e]] = 1
    leaf, entry = 0, 0
    for old in range(n_leaves):
        if new_leaf[old]:
            new_leaf[old] = leaf
            first, end = out.leaf_starts[old], out.leaf_starts[old + 1]
            out.leaf_variable[leaf] = out.leaf_variable[old]
            for k in range(end - first):
                out.leaf_value[entry + k] = out.leaf_value[first + k]
            out.leaf_starts[leaf] = entry
            entry += end - first
            leaf += 1
    out.leaf_starts[leaf] = entry
    new, edge = 0, 0
    for i in range(n_inner):
        if not new_inner[i]:
            continue
        first, middle, end = out.child_starts[i], out.leaf_from[i], out.child_starts[i + 1]
        new_inner[i] = new
        out.is_sum[new] = out.is_sum[i]
        out.child_starts[new] = edge
        for e in range(first, end):
            out.children[edge] = new_inner[out.children[e]] if e < middle else new_leaf[out.children[e]]
            out.weight[edge] = out.weight[e]
            edge += 1
        out.leaf_from[new] = edge - (end - middle)
        new += 1
        # The starts of later nodes are still needed as they were: this one's end is written with the next.
    sizes[0], sizes[1], sizes[2], sizes[3] = leaf, entry, new, edge
    out.child_starts[new] = edge


@kernel
def reduced_circuit(arrays, allowed, hidden, log_bound):
    """Reduce MAP to MAX (Mei, Jiang, Tu 2018, algorithm 1), for raw or already reduced circuits.

    allowed (n_slots,) uint8 is the remaining domain of every variable: a single value is evidence; hidden
    (n_variables,) uint8. Returns the reduced circuit and the remaining variables, renumbered in order; OUT
    log_bound (1,) float64: the root's, -inf if the evidence is impossible.
    """
    value_starts = arrays.value_starts
    n_variables, n_leaves, n_inner = value_starts.size - 1, arrays.leaf_variable.size, arrays.is_sum.size
    only_value = np.empty(n_variables, dtype=np.int64)
    most = 0
    for v in range(n_variables):
        most = max(most, value_starts[v + 1] - value_starts[v])
        only_value[v] = -2
        if not hidden[v]:
            n = 0
            for slot in range(value_starts[v], value_starts[v + 1]):
                if allowed[slot]:
                    n += 1
                    only_value[v] = slot - value_starts[v]
            if n != 1:
                only_value[v] = -1
    # Made here because numpy in Python takes longer than many a reduction.
    floats = np.empty((2, n_leaves + n_inner))
    ints = np.empty((4, n_leaves + n_inner), dtype=np.int64)
    table = np.empty(arrays.leaf_value.size + n_inner * most)
    room = ReductionRoom(floats[0], floats[1], ints[0], ints[1], ints[2], table, ints[3], only_value)
    out = MaxArrays(
        np.empty(n_variables + 1, dtype=np.int64),
        np.empty(n_leaves + n_inner, dtype=np.int64),
        np.empty(n_leaves + n_inner + 1, dtype=np.int64),
        np.empty(table.size),
        np.empty(n_inner, dtype=np.uint8),
        np.empty(n_inner + 1, dtype=np.int64),
        np.empty(n_inner, dtype=np.int64),
        np.empty(arrays.children.size, dtype=np.int64),
        np.empty(arrays.children.size),
    )
    sizes = np.zeros(4, dtype=np.int64)  # leaves, table entries, inner nodes, edges
    out.leaf_starts[0] = 0
    out.child_starts[0] = 0
    used = reduce_leaves(arrays, allowed, room)
    reduce_inner_nodes(arrays, room, used)
    root = n_leaves + n_inner - 1
    log_bound[0] = np.log(room.factor[root]) + room.offset[root]
    if log_bound[0] > -np.inf and room.n_free[root] != 0:
        mark_reachable_nodes(arrays, room)
        write_reduced_leaves(arrays, room, sizes, out)
        if write_reduced_inner_nodes(arrays, room, sizes, out):
            drop_unreachable_nodes(out, sizes, room.stands_for, room.new_id)
    keep = np.flatnonzero(only_value == -1)
    place = np.empty(n_variables, dtype=np.int64)
    out.value_starts[0] = 0
    for n in range(keep.size):
        v = keep[n]
        place[v] = n
        out.value_starts[n + 1] = out.value_starts[n] + value_starts[v + 1] - value_starts[v]
    for leaf in range(sizes[0]):
        out.leaf_variable[leaf] = place[out.leaf_variable[leaf]]
    # Copies, so that a small problem does not hold on to the memory of the large one.
    circuit = MaxArrays(
        out.value_starts[: keep.size + 1].copy(),
        out.leaf_variable[: sizes[0]].copy(),
        out.leaf_starts[: sizes[0] + 1].copy(),
        out.leaf_value[: sizes[1]].copy(),
        out.is_sum[: sizes[2]].copy(),
        out.child_starts[: sizes[2] + 1].copy(),
        out.leaf_from[: sizes[2]].copy(),
        out.children[: sizes[3]].copy(),
        out.weight[: sizes[3]].copy(),
    )
    return circuit, keep
