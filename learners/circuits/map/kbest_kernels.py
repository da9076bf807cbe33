"""K best parse trees, found lazily from the root."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learners.circuits.map.parse_tree_kernels import UNDERFLOW, best_parse_tree_values
from learners.circuits.map.value_kernels import LANES, assignment_log_value, assignment_values, copy_values_into
from learners.kernels.arrays import Floats, Integers, Uint8s
from learners.kernels.jit import inner_kernel, kernel

NOTHING = -1  # no item yet, no candidate
OPENED = -2  # a node whose candidates are listed but which has no item yet


class TreeRoom(NamedTuple):
    """Scratch of `try_k_best_trees`.

    Nodes are leaves, inner nodes, then one per edge of a product: its children up to that edge, so that every
    product is a chain of pairs. An item is a subtree of a node; until it is chosen, it is a candidate.
    """

    node_at: Integers  # (n_edges,) int64: node below an edge
    prefix_at: Integers  # (n_edges,) int64: node of a product's children up to this edge
    ratio: Floats  # (n_edges,) float64: best tree through a sum's edge ÷ best tree of the sum
    first: Integers  # (n_nodes,) int64: best item of a node
    last: Integers  # (n_nodes,) int64: the last item found
    frontier: Integers  # (n_nodes,) int64: head of the list of candidates
    stack: Integers  # (n_nodes + 1,) int64
    score: Floats  # (n_items,) float64: the subtree's value ÷ the best of its node
    left: Integers  # (n_items,) int64: item of the child (sum), of the prefix (pair); the value (leaf)
    right: Integers  # (n_items,) int64: edge (sum), item of the last child (pair), leaf (leaf)
    following: Integers  # (n_items,) int64: next item of the node, or next candidate
    expanded: Uint8s  # (n_items,) uint8: whether its successors are candidates


@inner_kernel
def rank_leaf_values(arrays, leaf, room, n_items):
    """List the possible values of a leaf as its items, most probable first; returns the number of items."""
    start, end = arrays.leaf_starts[leaf], arrays.leaf_starts[leaf + 1]
    before = NOTHING
    for _ in range(end - start):
        best = NOTHING
        for entry in range(start, end):
            value = arrays.leaf_value[entry]
            worse = before == NOTHING or (
                value < room.score[before] or (value == room.score[before] and entry - start > room.left[before])
            )
            if value > 0.0 and worse and (best == NOTHING or value > arrays.leaf_value[best]):
                best = entry
        if best == NOTHING:
            break
        room.score[n_items] = arrays.leaf_value[best]
        room.left[n_items] = best - start
        room.right[n_items] = leaf
        room.following[n_items] = NOTHING
        room.expanded[n_items] = 1
        if before == NOTHING:
            room.first[leaf] = n_items
        else:
            room.following[before] = n_items
        room.last[leaf] = n_items
        before = n_items
        n_items += 1
    return n_items


@inner_kernel
def find_next_best_subtree(arrays, node, room, n_items):
    """Find the next best subtree of `node`, extending the lists of lower nodes as needed; returns the number of items,
    -1 if memory is too small.
    """
    n_leaves, n_inner = arrays.leaf_variable.size, arrays.is_sum.size
    first, last, frontier, stack = room.first, room.last, room.frontier, room.stack
    score, left, right, following, expanded = room.score, room.left, room.right, room.following, room.expanded
    node_at, prefix_at, ratio, child_starts = room.node_at, room.prefix_at, room.ratio, arrays.child_starts
    stack[0] = node
    depth = 1
    while depth:
        n = stack[depth - 1]
        if n < n_leaves:
            if first[n] == NOTHING:
                if n_items + arrays.leaf_starts[n + 1] - arrays.leaf_starts[n] > score.size:
                    return -1
                n_items = rank_leaf_values(arrays, n, room, n_items)
            depth -= 1
            continue
        is_pair = n >= n_leaves + n_inner
        e = n - n_leaves - n_inner
        if first[n] == NOTHING:
            begin, end = (e, e + 1) if is_pair else (child_starts[n - n_leaves], child_starts[n - n_leaves + 1])
            if n_items + end - begin > score.size:
                return -1
            for edge in range(begin, end):
                score[n_items] = 1.0 if is_pair else ratio[edge]
                left[n_items] = NOTHING
                right[n_items] = NOTHING if is_pair else edge
                following[n_items] = frontier[n]
                expanded[n_items] = 0
                frontier[n] = n_items
                n_items += 1
            first[n] = OPENED
        elif first[n] >= 0 and not expanded[last[n]]:
            item = last[n]
            a, b = left[item], right[item]
            node_a = prefix_at[e - 1] if is_pair else node_at[b]
            if following[a] == NOTHING and (frontier[node_a] != NOTHING or not expanded[a]):
                # A pair needs the prefix's next item only once, for the best item of the last child.
                if not is_pair or b == first[node_at[e]]:
                    stack[depth] = node_a
                    depth += 1
                    continue
            if is_pair:
                node_b = node_at[e]
                if following[b] == NOTHING and (frontier[node_b] != NOTHING or not expanded[b]):
                    stack[depth] = node_b
                    depth += 1
                    continue
            if n_items + 2 > score.size:
                return -1
            if following[a] != NOTHING and (not is_pair or b == first[node_at[e]]):
                left[n_items] = following[a]
                right[n_items] = b
                score[n_items] = score[following[a]] * (score[b] if is_pair else ratio[b])
                following[n_items] = frontier[n]
                expanded[n_items] = 0
                frontier[n] = n_items
                n_items += 1
            if is_pair and following[b] != NOTHING:
                left[n_items] = a
                right[n_items] = following[b]
                score[n_items] = score[a] * score[following[b]]
                following[n_items] = frontier[n]
                expanded[n_items] = 0
                frontier[n] = n_items
                n_items += 1
            expanded[item] = 1
        best, before_best, before = frontier[n], NOTHING, NOTHING
        candidate = best
        while candidate != NOTHING:
            # The list has the latest first: among equals the earliest wins, as in the best tree.
            if score[candidate] >= score[best]:
                best, before_best = candidate, before
            before = candidate
            candidate = following[candidate]
        if best == NOTHING:
            depth -= 1
            continue
        if left[best] == NOTHING:
            node_a = prefix_at[e - 1] if is_pair else node_at[right[best]]
            if first[node_a] < 0:
                stack[depth] = node_a
                depth += 1
                continue
            if is_pair:
                if first[node_at[e]] < 0:
                    stack[depth] = node_at[e]
                    depth += 1
                    continue
                right[best] = first[node_at[e]]
            left[best] = first[node_a]
        if before_best == NOTHING:
            frontier[n] = following[best]
        else:
            following[before_best] = following[best]
        following[best] = NOTHING
        if first[n] == OPENED:
            first[n] = best
        else:
            following[last[n]] = best
        last[n] = best
        depth -= 1
    return n_items


@inner_kernel
def write_k_best_assignment(arrays, node, item, room, x):
    """Write the assignment of one tree; OUT x (n_variables,)."""
    n_leaves, n_inner = arrays.leaf_variable.size, arrays.is_sum.size
    stack = room.stack  # node and item in turn; what waits has disjoint scopes, so two per variable suffice
    stack[0], stack[1] = node, item
    depth = 1
    while depth:
        depth -= 1
        n, item = stack[2 * depth], stack[2 * depth + 1]
        if n < n_leaves:
            x[arrays.leaf_variable[n]] = room.left[item]
        elif n < n_leaves + n_inner:
            stack[2 * depth], stack[2 * depth + 1] = room.node_at[room.right[item]], room.left[item]
            depth += 1
        else:
            e = n - n_leaves - n_inner
            stack[2 * depth], stack[2 * depth + 1] = room.prefix_at[e - 1], room.left[item]
            stack[2 * depth + 2], stack[2 * depth + 3] = room.node_at[e], room.right[item]
            depth += 2


@inner_kernel
def try_k_best_trees(arrays, values, are_logs, most_items, assignments, scores):
    """Find assignments of the K best trees, best first, possibly repeated; returns their number, or -1 if there are too
    few items.

    values (n_inner,) float64 from best_values; OUT assignments (K, n_variables) int64, scores (K,) float64 relative to the best.
    """
    is_sum, child_starts, children, weight = arrays.is_sum, arrays.child_starts, arrays.children, arrays.weight
    n_leaves, n_inner, n_edges = arrays.leaf_variable.size, is_sum.size, children.size
    edges = np.empty((2, n_edges), dtype=np.int64)
    nodes = np.empty((4, n_leaves + n_inner + n_edges + 1), dtype=np.int64)
    items = np.empty((3, most_items), dtype=np.int64)
    room = TreeRoom(
        edges[0], edges[1], np.empty(n_edges), nodes[0], nodes[1], nodes[2], nodes[3],
        np.empty(most_items), items[0], items[1], items[2], np.empty(most_items, dtype=np.uint8),
    )  # fmt: skip
    node_at, prefix_at, ratio = room.node_at, room.prefix_at, room.ratio
    root = 0
    for i in range(n_inner):
        first, end = child_starts[i], child_starts[i + 1]
        for e in range(first, end):
            c = children[e]
            if e < arrays.leaf_from[i]:
                c = n_leaves + c if is_sum[c] else n_leaves + n_inner + child_starts[c + 1] - 1
            node_at[e] = c
            prefix_at[e] = c if e == first else n_leaves + n_inner + e
            if is_sum[i]:
                if are_logs:
                    ratio[e] = np.exp(np.log(weight[e]) + values[children[e]] - values[i])
                else:
                    ratio[e] = weight[e] * values[children[e]] / values[i]
        root = n_leaves + i if is_sum[i] else n_leaves + n_inner + end - 1
    room.first[:] = NOTHING
    room.frontier[:] = NOTHING
    n_items = 0
    k = 0
    item = NOTHING
    while k < scores.size:
        n_items = find_next_best_subtree(arrays, root, room, n_items)
        if n_items < 0:
            return -1
        item = room.first[root] if k == 0 else room.following[item]
        if item < 0:
            break
        write_k_best_assignment(arrays, root, item, room, assignments[k])
        scores[k] = room.score[item]
        k += 1
    return k


@kernel
def find_k_best_trees(arrays, assignments, scores):
    """Find the K best trees (KBT): OUT assignments (K, n_variables) int64, scores (K,) float64; returns the number of
    trees.
    """
    n_inner = arrays.is_sum.size
    values = np.empty(n_inner)
    best_edge = np.empty(n_inner, dtype=np.int64)
    are_logs = best_parse_tree_values(arrays, values, best_edge)
    most_items = arrays.children.size + arrays.leaf_value.size + 32 * scores.size + 64
    n = -1
    while n < 0:
        n = try_k_best_trees(arrays, values, are_logs, most_items, assignments, scores)
        most_items *= 4
    return n


@kernel
def best_of_k_best_trees(arrays, k, x, value):
    """Return the assignment of highest value among those of the K best trees; OUT x (n_variables,) int64, value (1,)
    float64.
    """
    assignments = np.empty((k, x.size), dtype=np.int64)
    n = find_k_best_trees(arrays, assignments, np.empty(k))
    values = np.empty(n)
    assignment_values(arrays, assignments, n, np.empty((arrays.is_sum.size, LANES)), values)
    best = np.argmax(values)
    if values[best] < UNDERFLOW:
        room = np.empty(arrays.is_sum.size)
        for row in range(n):
            values[row] = assignment_log_value(arrays, assignments[row], room)
        best = np.argmax(values)
    copy_values_into(assignments[best], x)
    value[0] = values[best]
