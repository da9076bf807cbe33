"""The reduction of MAP to MAX."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learners.circuits.map.linear.flatten_kernels import drop_unreachable, flatten_sum
from learners.kernels.arrays import Floats, Integers, Uint8s
from learners.kernels.jit import inner_kernel, kernel

# A running product leaves this range only in circuits of hundreds of variables: then its logarithm moves to the offset.
SMALL, LARGE = 1e-120, 1e120


class MaxArrays(NamedTuple):
    """A circuit over query variables alone, with every node scaled so that its bound (max at leaves, sum elsewhere) is one.

    Nodes are leaves, a table over the values of one variable, and inner nodes in topological order, children first; the
    last inner node is the root (without inner nodes the only leaf is). `children[child_starts[i]:leaf_from[i]]` are the
    inner children of i, `children[leaf_from[i]:child_starts[i + 1]]` its leaves. Sums have no leaf children: a sum over
    one variable is itself a leaf.
    """

    value_starts: Integers  # (n_variables + 1,) int64: a value of a variable is a slot
    leaf_variable: Integers  # (n_leaves,) int64
    leaf_starts: Integers  # (n_leaves + 1,) int64
    leaf_value: Floats  # (leaf_starts[-1],) float64, the largest of each leaf is 1
    is_sum: Uint8s  # (n_inner,) uint8
    child_starts: Integers  # (n_inner + 1,) int64
    leaf_from: Integers  # (n_inner,) int64
    children: Integers  # (n_edges,) int64
    weight: Floats  # (n_edges,) float64; they add to 1 at a sum, and are 1 at a product


class ReductionRoom(NamedTuple):
    """Scratch of `reduce`; per node of the larger circuit, leaves first."""

    factor: Floats  # (n_nodes,) float64: a node's bound is factor * exp(offset); 0 if the node is impossible
    offset: Floats  # (n_nodes,) float64
    n_free: Integers  # (n_nodes,) int64: 0 a constant, 1 a leaf, 2 an inner node
    stands_for: Integers  # (n_nodes,) int64: the node that represents it once unary sums and products are skipped
    table_start: Integers  # (n_nodes,) int64 into table, of nodes that are leaves
    table: Floats  # (size of leaf tables + n_inner * the most values,) float64
    new_id: Integers  # (n_nodes,) int64: the variable of a leaf, then the number of a node that is kept
    only_value: Integers  # (n_variables,) int64: the only value left; -1: the variable stays; -2: it is summed out


@inner_kernel
def look_at_variables(value_starts, allowed, hidden, only_value):
    """Which variables stay: OUT only_value (n_variables,); allowed (n_slots,) uint8, hidden (n_variables,) uint8."""
    for v in range(value_starts.size - 1):
        only_value[v] = -2
        if not hidden[v]:
            n = 0
            for slot in range(value_starts[v], value_starts[v + 1]):
                if allowed[slot]:
                    n += 1
                    only_value[v] = slot - value_starts[v]
            if n != 1:
                only_value[v] = -1


@inner_kernel
def reduce_leaves(arrays, allowed, room):
    """Constants and masked tables of the leaves, into `room`; returns the length used of room.table."""
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
def reduce_inner(arrays, room, used):
    """Upward: constants are folded, sums over one variable become leaves, unary nodes stand for their child."""
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
def mark_reachable(arrays, room):
    """Downward: room.n_free becomes negative at the nodes that the reduced circuit keeps."""
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
def write_leaves(arrays, room, sizes, out):
    """Write the leaves of the reduced circuit, in `out`; a leaf's variable is replaced by its number in room.new_id."""
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
def write_inner(arrays, room, sizes, out):
    """Write the inner nodes of the reduced circuit, in `out`."""
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


@kernel
def reduce(arrays, allowed, hidden, room, out, sizes):
    """MAP to MAX (Mei, Jiang, Tu 2018, algorithm 1), of a reduced or a raw circuit alike; returns the root's log bound.

    allowed (n_slots,) uint8 is the remaining domain of every variable: one value is evidence; hidden (n_variables,)
    uint8. OUT `out`, the reduced circuit in arrays that are large enough, and sizes (4,) int64: leaves, table entries,
    inner nodes, edges. The bound is -inf if the evidence is impossible.
    """
    sizes[:] = 0
    out.leaf_starts[0] = 0
    out.child_starts[0] = 0
    look_at_variables(arrays.value_starts, allowed, hidden, room.only_value)
    used = reduce_leaves(arrays, allowed, room)
    reduce_inner(arrays, room, used)
    root = arrays.leaf_variable.size + arrays.is_sum.size - 1
    log_bound = np.log(room.factor[root]) + room.offset[root]
    if log_bound > -np.inf and room.n_free[root] != 0:
        mark_reachable(arrays, room)
        write_leaves(arrays, room, sizes, out)
        if write_inner(arrays, room, sizes, out):
            drop_unreachable(out, sizes, room.stands_for, room.new_id)
    return log_bound


@inner_kernel
def reduction_room(arrays):
    """Scratch for `reduce`; made here because numpy in Python takes longer than many a reduction."""
    n_variables = arrays.value_starts.size - 1
    n_nodes = arrays.leaf_variable.size + arrays.is_sum.size
    most = 0
    for v in range(n_variables):
        most = max(most, arrays.value_starts[v + 1] - arrays.value_starts[v])
    floats = np.empty((2, n_nodes))
    ints = np.empty((4, n_nodes), dtype=np.int64)
    table = np.empty(arrays.leaf_value.size + arrays.is_sum.size * most)
    return ReductionRoom(
        floats[0], floats[1], ints[0], ints[1], ints[2], table, ints[3], np.empty(n_variables, dtype=np.int64)
    )


@inner_kernel
def room_for_circuit(arrays, n_entries):
    """Uninitialised arrays for a circuit that is reduced from this one, with at most n_entries values at leaves."""
    n_inner, n_edges = arrays.is_sum.size, arrays.children.size
    most_leaves = arrays.leaf_variable.size + n_inner
    return MaxArrays(
        np.empty(arrays.value_starts.size, dtype=np.int64),
        np.empty(most_leaves, dtype=np.int64),
        np.empty(most_leaves + 1, dtype=np.int64),
        np.empty(n_entries),
        np.empty(n_inner, dtype=np.uint8),
        np.empty(n_inner + 1, dtype=np.int64),
        np.empty(n_inner, dtype=np.int64),
        np.empty(n_edges, dtype=np.int64),
        np.empty(n_edges),
    )


@inner_kernel
def closed(arrays, room, sizes, out):
    """A reduced circuit in arrays of its own, and the variables that stay, renumbered in their order."""
    n = 0
    keep, place = np.empty((2, arrays.value_starts.size - 1), dtype=np.int64)
    out.value_starts[0] = 0
    for v in range(keep.size):
        if room.only_value[v] == -1:
            keep[n] = v
            place[v] = n
            n += 1
            out.value_starts[n] = out.value_starts[n - 1] + arrays.value_starts[v + 1] - arrays.value_starts[v]
    for leaf in range(sizes[0]):
        out.leaf_variable[leaf] = place[out.leaf_variable[leaf]]
    # Copies, so that a small problem does not hold on to the memory of the large one.
    circuit = MaxArrays(
        out.value_starts[: n + 1].copy(),
        out.leaf_variable[: sizes[0]].copy(),
        out.leaf_starts[: sizes[0] + 1].copy(),
        out.leaf_value[: sizes[1]].copy(),
        out.is_sum[: sizes[2]].copy(),
        out.child_starts[: sizes[2] + 1].copy(),
        out.leaf_from[: sizes[2]].copy(),
        out.children[: sizes[3]].copy(),
        out.weight[: sizes[3]].copy(),
    )
    return circuit, keep[:n].copy()


@kernel
def reduced_circuit(arrays, allowed, hidden, log_bound):
    """The reduced circuit and the variables that stay, renumbered in their order; OUT log_bound (1,) float64."""
    room = reduction_room(arrays)
    out = room_for_circuit(arrays, room.table.size)
    sizes = np.empty(4, dtype=np.int64)
    log_bound[0] = reduce(arrays, allowed, hidden, room, out, sizes)
    return closed(arrays, room, sizes, out)
