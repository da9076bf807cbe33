# mypy: disallow-untyped-defs=False, check-untyped-defs=False
"""The reduction to MAX of a pattern that is asked again: its structure is known, and only the numbers are computed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learners.arrays import Floats, Integers
from learners.circuits.map.copy_kernels import copy, copy_columns
from learners.circuits.map.flatten_kernels import drop_unreachable
from learners.circuits.map.reduction_kernels import (
    LARGE,
    SMALL,
    MaxArrays,
    closed,
    look_at_variables,
    mark_reachable,
    reduce_inner,
    reduce_leaves,
    reduction_room,
    room_for_circuits,
    write_leaves,
)
from learners.kernels.jit import kernel

# Rows of Template.moves.
CHILD, PARENT, EDGE, SOURCE, TARGET, IS_FIRST = range(6)


class Template(NamedTuple):
    """What the reduced circuits of all values that may be given have in common, as long as none of them rules out a part.

    Attributes
    ----------
    keep : (n_kept,) int64
        Variables that stay.
    only : (n_variables,) int64
        The only value of a variable; -1 if it stays. That of a given one is the query's.
    n_free, stands_for, table_start, variable : (n_nodes,) int64
        As in `ReductionRoom`, leaves first.
    table : (n,) float64
        Tables of the leaves of variables that stay; room for those of sums.
    moves : (6, n_moves) int64
        Each adds, in turn, to the weight of an edge before the last step of the reduction: the weight of an edge of the
        larger circuit, by the bounds of its child and parent, times the weight of another edge where sums were flattened.
    edge, entry : (n_edges,), (n_entries,) int64
        Where each weight, and each number of a leaf, comes from: an edge before the last step, a place in `table`.
    n_full : int
        Edges before the last step.
    """

    keep: Integers
    only: Integers
    n_free: Integers
    stands_for: Integers
    table_start: Integers
    variable: Integers
    table: Floats
    moves: Integers
    edge: Integers
    entry: Integers
    n_full: int


@kernel
def add_moves(arrays, room, i, out, edge, n_moves, moves, position):
    """Edges of a sum or product to inner nodes, from `edge` on, and the moves that make their weights; returns both ends.

    Sums of sums become one sum where that adds no edge, as `flatten_sum` does it. position (n_nodes,) int64 is scratch.
    """
    n_leaves = arrays.leaf_variable.size
    is_sum = arrays.is_sum[i]
    first, before = edge, n_moves
    for e in range(arrays.child_starts[i], arrays.child_starts[i + 1]):
        child = arrays.children[e] + (n_leaves if e < arrays.leaf_from[i] else 0)
        stand_in = room.stands_for[child]
        if room.n_free[child] == 0 or room.n_free[stand_in] != -2:
            continue
        out.children[edge] = room.new_id[stand_in]
        if is_sum:
            moves[CHILD, n_moves], moves[PARENT, n_moves], moves[EDGE, n_moves] = child, n_leaves + i, e
            moves[SOURCE, n_moves], moves[TARGET, n_moves], moves[IS_FIRST, n_moves] = -1, edge, 1
            n_moves += 1
        edge += 1
    n_sums = 0
    for e in range(first, edge):
        n_sums += out.is_sum[out.children[e]]
    if not is_sum or n_sums == 0:
        return edge, n_moves
    n = 0
    below = np.empty(edge - first, np.int64)
    n_flat = 0
    for e in range(first, edge):
        c = out.children[e]
        n_flat += out.child_starts[c + 1] - out.child_starts[c] if out.is_sum[c] else 1
    flat = np.empty((6, n_flat), np.int64)
    at_move = 0
    for e in range(first, edge):
        c = out.children[e]
        begin, stop = (out.child_starts[c], out.child_starts[c + 1]) if out.is_sum[c] else (e, e + 1)
        for f in range(begin, stop):
            at = position[out.children[f]]
            is_first = not (0 <= at < n and below[at] == out.children[f])
            if is_first:
                if n == edge - first:
                    return edge, n_moves
                at = n
                position[out.children[f]] = n
                below[n] = out.children[f]
                n += 1
            copy_columns(moves, before + e - first, 1, flat, at_move)
            flat[SOURCE, at_move] = f if out.is_sum[c] else -1
            flat[TARGET, at_move], flat[IS_FIRST, at_move] = first + at, is_first
            at_move += 1
    copy_columns(flat, 0, at_move, moves, before)
    copy(below[:n], out.children[first : first + n])
    return first + n, before + at_move


@kernel
def most_moves(arrays):
    """No reduction has more: each edge of a sum brings at most the edges of the node below, and no more stay than it has."""
    most = 0
    for i in range(arrays.is_sum.size):
        n = arrays.child_starts[i + 1] - arrays.child_starts[i]
        if not arrays.is_sum[i]:
            continue
        most += n
        for e in range(arrays.child_starts[i], arrays.leaf_from[i]):
            c = arrays.children[e]
            most += arrays.child_starts[c + 1] - arrays.child_starts[c]
    return most


@kernel
def template_of(arrays, allowed, hidden):
    """The template of a pattern and its reduced circuit, whose numbers mean nothing; nothing may be hidden.

    allowed (n_slots,) uint8 has one value of each given variable, to which all leaves give positive numbers.
    """
    room = reduction_room(arrays)
    out = room_for_circuits(arrays, 1, 1, room.table.size)
    sizes = np.zeros(4, np.int64)
    look_at_variables(arrays.value_starts, allowed, hidden.copy(), room.only_value)
    used = reduce_leaves(arrays, allowed, room)
    table = room.table.copy()
    reduce_inner(arrays, room, used)
    n_free, variable = room.n_free.copy(), room.new_id.copy()
    mark_reachable(arrays, room)
    # Which table a kept leaf has, before its number takes the place of its variable.
    n_leaves, n_inner = arrays.leaf_variable.size, arrays.is_sum.size
    write_leaves(arrays, room, sizes, out)
    for node in range(n_leaves + n_inner):
        if room.n_free[node] == -1:
            leaf = room.new_id[node]
            for entry in range(out.leaf_starts[leaf], out.leaf_starts[leaf + 1]):
                out.leaf_value[entry] = room.table_start[node] + entry - out.leaf_starts[leaf]
    moves = np.empty((6, most_moves(arrays)), np.int64)
    position = np.zeros(n_leaves + n_inner + 1, np.int64)
    new, edge, n_moves = 0, 0, 0
    out.child_starts[0] = 0
    for i in range(n_inner):
        if room.n_free[n_leaves + i] != -2:
            continue
        room.new_id[n_leaves + i] = new
        out.is_sum[new] = arrays.is_sum[i]
        edge, n_moves = add_moves(arrays, room, i, out, edge, n_moves, moves, position)
        out.leaf_from[new] = edge
        for e in range(arrays.child_starts[i], arrays.child_starts[i + 1]):
            child = arrays.children[e] + (n_leaves if e < arrays.leaf_from[i] else 0)
            stand_in = room.stands_for[child]
            if n_free[child] != 0 and room.n_free[stand_in] == -1:
                out.children[edge] = room.new_id[stand_in]
                edge += 1
        new += 1
        out.child_starts[new] = edge
    sizes[2], sizes[3] = new, edge
    n_full = edge
    for e in range(edge):
        out.weight[e] = e
    if new:
        drop_unreachable(out, sizes, np.empty(sizes[0] + 1, np.int64), np.empty(new + 1, np.int64))
    circuit, keep = closed(arrays, room, sizes, out)
    template = Template(
        keep,
        room.only_value.copy(),
        n_free,
        room.stands_for.copy(),
        room.table_start.copy(),
        variable,
        table,
        moves[:, :n_moves].copy(),
        circuit.weight.astype(np.int64),
        circuit.leaf_value.astype(np.int64),
        n_full,
    )
    return circuit, template


@kernel
def filled(arrays, template, circuit, only, gain):
    """The reduced circuit of the values given; OUT gain (1,) float64: the log bound, or NaN where the template does not tell.

    only (n_variables,) int64: the given values, and -1 of what is asked for. It does not tell if the values rule out a part
    of the circuit, whose structure then is another, or numbers leave the range in which `reduce` needs no logarithms.
    """
    n_leaves, n_inner = arrays.leaf_variable.size, arrays.is_sum.size
    n_free, stands_for, table_start = template.n_free, template.stands_for, template.table_start
    child_starts, children, leaf_from, weight = arrays.child_starts, arrays.children, arrays.leaf_from, arrays.weight
    factor = np.empty(n_leaves + n_inner)
    table = template.table.copy()
    gain[0] = np.nan
    numbers = MaxArrays(
        circuit.value_starts,
        circuit.leaf_variable,
        circuit.leaf_starts,
        np.empty(template.entry.size),
        circuit.is_sum,
        circuit.child_starts,
        circuit.leaf_from,
        circuit.children,
        np.empty(template.edge.size),
    )
    for leaf in range(n_leaves):
        value = only[arrays.leaf_variable[leaf]]
        # The largest number of a leaf is one.
        factor[leaf] = 1.0 if value < 0 else arrays.leaf_value[arrays.leaf_starts[leaf] + value]
    for i in range(n_inner):
        node = n_leaves + i
        middle = leaf_from[i]
        total = 0.0
        if not arrays.is_sum[i]:
            total = 1.0
            for e in range(child_starts[i], middle):
                total *= factor[children[e] + n_leaves]
                if total < SMALL and total > 0.0:
                    return numbers
            for e in range(middle, child_starts[i + 1]):
                total *= factor[children[e]]
                if total < SMALL and total > 0.0:
                    return numbers
            if (total == 0.0 and n_free[node] > 0) or total > LARGE:
                return numbers
            factor[node] = total
            continue
        for e in range(child_starts[i], child_starts[i + 1]):
            total += weight[e] * factor[children[e] + (n_leaves if e < middle else 0)]
        if n_free[node] == 1 and stands_for[node] == node:
            start = table_start[node]
            v = template.variable[node]
            n_values = arrays.value_starts[v + 1] - arrays.value_starts[v]
            for x in range(n_values):
                table[start + x] = 0.0
            for e in range(child_starts[i], child_starts[i + 1]):
                child = children[e] + (n_leaves if e < middle else 0)
                share = weight[e] * factor[child]
                source = table_start[stands_for[child]]
                for x in range(n_values):
                    table[start + x] += share * table[source + x]
            total = 0.0
            for x in range(n_values):
                total = max(total, table[start + x])
            for x in range(n_values):
                table[start + x] /= total
        if total == 0.0 and n_free[node] > 0:
            return numbers
        factor[node] = total
    full = np.ones(template.n_full)
    share, last = 0.0, -1
    moves = template.moves
    for m in range(moves.shape[1]):
        e = moves[EDGE, m]
        if e != last:
            share, last = weight[e] * factor[moves[CHILD, m]] / factor[moves[PARENT, m]], e
        scale = share if moves[SOURCE, m] < 0 else share * full[moves[SOURCE, m]]
        if moves[IS_FIRST, m]:
            full[moves[TARGET, m]] = scale
        else:
            full[moves[TARGET, m]] += scale
    for k in range(template.edge.size):
        numbers.weight[k] = full[template.edge[k]]
    for k in range(template.entry.size):
        numbers.leaf_value[k] = table[template.entry[k]]
    gain[0] = np.log(factor[n_leaves + n_inner - 1])
    return numbers
