"""Depth-first branch and bound over the query variables, in resumable steps."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learners.circuits.map.kbest_kernels import best_of_k_best_trees
from learners.circuits.map.parse_tree_kernels import best_parse_tree
from learners.circuits.map.value_kernels import (
    LANES,
    assignment_value,
    assignment_values,
    copy_values_into,
    downward_bound_pass,
    look_ahead_bounds,
    upward_bound_pass,
)
from learners.kernels.arrays import Floats, Integers, Uint8s
from learners.kernels.jit import inner_kernel, kernel

# A subspace is left out when its bound is at most this much above the best value: rounding, not a gap.
TOLERANCE = 1e-10
# So many assignments are evaluated, eight at a time, rather than bounded further.
FEW_ASSIGNMENTS = 16


class Frames(NamedTuple):
    """The current search path: the remaining values at each depth, and bounds of the rest."""

    allowed: Uint8s  # (n_frames, n_slots) uint8
    branch: Integers  # (n_frames,) int64: the slot that the next frame tries
    log_bound: Floats  # (n_frames,) float64: of the frame's values other than that slot, once it has branched


class SearchRoom(NamedTuple):
    """Scratch of one search."""

    rows: Floats  # (n_inner * n_slots,) float64 for the look-ahead, else (n_inner,)
    spans: Integers  # (n_inner, 2) int64
    tops: Floats  # (n_inner,) float64
    leaves: Floats  # (n_leaves,) float64
    slots: Floats  # (n_slots,) float64: bound of every subspace X = x


class Progress(NamedTuple):
    """State of a search between two steps."""

    counts: Integers  # (2,) int64: depth (-1 when finished), frames expanded
    best: Integers  # (n_variables,) int64: the best assignment so far
    log_best: Floats  # (1,) float64


@inner_kernel
def subspace_bounds(arrays, allowed, looks_ahead, room):
    """Compute room.slots, the bound of the subspace X = x for every slot, by look-ahead or by maxima at leaves alone."""
    if looks_ahead:
        look_ahead_bounds(arrays, allowed, room.rows, room.spans, room.tops, room.leaves, room.slots)
    else:
        upward_bound_pass(arrays, allowed, room.tops, room.leaves)
        downward_bound_pass(arrays, room.tops, room.leaves, room.rows, room.slots)


@inner_kernel
def prune_values_by_bound(value_starts, allowed, slots, threshold):
    """Forbid the values whose subspace cannot exceed the threshold; returns (any removed, n free variables), -1 free if
    none is left.
    """
    removed = False
    n_free = 0
    for v in range(value_starts.size - 1):
        n = 0
        for s in range(value_starts[v], value_starts[v + 1]):
            if allowed[s]:
                if slots[s] <= threshold:
                    allowed[s] = 0
                    removed = True
                else:
                    n += 1
        if n == 0:
            return removed, -1
        n_free += n > 1
    return removed, n_free


@inner_kernel
def count_allowed_assignments(value_starts, allowed, most):
    """Return the number of allowed assignments, or a number above `most`."""
    n = 1
    for v in range(value_starts.size - 1):
        n_left = 0
        for s in range(value_starts[v], value_starts[v + 1]):
            n_left += allowed[s]
        n *= n_left
        if n > most:
            break
    return n


@inner_kernel
def search_exhaustively(arrays, allowed, n, x):
    """Evaluate all n allowed assignments; OUT x (n_variables,) int64, the best; returns its value."""
    value_starts = arrays.value_starts
    assignments = np.empty((n, x.size), dtype=np.int64)
    repeat = 1
    for v in range(x.size):
        n_left = 0
        for s in range(value_starts[v], value_starts[v + 1]):
            n_left += allowed[s]
        row = 0
        while row < n:
            for s in range(value_starts[v], value_starts[v + 1]):
                if allowed[s]:
                    for _ in range(repeat):
                        assignments[row, v] = s - value_starts[v]
                        row += 1
        repeat *= n_left
    values = np.empty(n)
    assignment_values(arrays, assignments, n, np.empty((arrays.is_sum.size, LANES)), values)
    best = np.argmax(values)
    copy_values_into(assignments[best], x)
    return values[best]


@inner_kernel
def highest_bound_assignment(value_starts, allowed, slots, x):
    """Set OUT x to every variable's allowed value with the highest bound; returns the bound of all allowed assignments."""
    bound = np.inf
    for v in range(value_starts.size - 1):
        top = -1.0
        for s in range(value_starts[v], value_starts[v + 1]):
            if allowed[s] and slots[s] > top:
                top = slots[s]
                x[v] = s - value_starts[v]
        bound = min(bound, top)
    return bound


@inner_kernel
def choose_branch(value_starts, allowed, slots):
    """Return the slot to try first and the bound of its variable's other slots.

    Variables with the fewest values come first; among equals, the one whose second value has the lowest bound, so
    that it is soon pruned; then its best value.
    """
    fewest = slots.size + 1
    best, best_other = -1, 0.0
    for v in range(value_starts.size - 1):
        n, top, other = 0, -1, 0.0
        for s in range(value_starts[v], value_starts[v + 1]):
            if allowed[s]:
                n += 1
                if top < 0 or slots[s] > slots[top]:
                    if top >= 0:
                        other = slots[top]
                    top = s
                else:
                    other = max(other, slots[s])
        if n < 2 or n > fewest:
            continue
        if n < fewest or other < best_other:
            fewest, best, best_other = n, top, other
    return best, best_other


@kernel
def create_search_state(arrays, log_bound, looks_ahead):
    """Allocate one search with an empty path; most memory is touched only if the search goes deep."""
    n = arrays.value_starts.size - 1
    n_slots = arrays.value_starts[n]
    n_inner = arrays.is_sum.size
    frames = Frames(
        np.empty((n + 2, n_slots), dtype=np.uint8), np.zeros(n + 2, dtype=np.int64), np.full(n + 2, log_bound)
    )
    frames.allowed[0, :] = 1
    room = SearchRoom(
        np.empty(n_inner * (n_slots if looks_ahead else 1)),
        np.empty((n_inner, 2), dtype=np.int64),
        np.empty(n_inner),
        np.empty(arrays.leaf_variable.size),
        np.empty(n_slots),
    )
    progress = Progress(np.zeros(2, dtype=np.int64), np.empty(n, dtype=np.int64), np.empty(1))
    return frames, room, progress


@kernel
def solve_within_budget(arrays, looks_ahead, k, budget, x, outcome):
    """Find the best tree and bounds at the root, then search from the k best trees until `budget` edges have been
    visited.

    OUT x (n_variables,) int64; outcome (3,) float64: the value of x, a bound of all values (x is optimal if they
    are equal), and the number of expanded frames.
    """
    outcome[2] = 1.0
    solve_at_root(arrays, looks_ahead, budget, x, outcome)
    if outcome[1] <= outcome[0] or outcome[0] == 0.0 or budget == 0:
        return
    candidate, value = np.empty_like(x), np.empty(1)
    best_of_k_best_trees(arrays, k, candidate, value)
    if value[0] > outcome[0]:
        outcome[0] = value[0]
        copy_values_into(candidate, x)
    frames, room, progress = create_search_state(arrays, 0.0, looks_ahead)
    copy_values_into(x, progress.best)
    progress.log_best[0] = np.log(outcome[0])
    continue_branch_and_bound(arrays, 0.0, frames, room, progress, looks_ahead, budget)
    copy_values_into(progress.best, x)
    outcome[2] += progress.counts[1]
    assignment_value(arrays, x, room.tops, outcome)
    if progress.counts[0] < 0:
        outcome[1] = outcome[0]


@kernel
def continue_branch_and_bound(arrays, log_bound, frames, room, progress, looks_ahead, budget):
    """Continue the search until it is finished or `budget` edges have been visited (Mei, Jiang, Tu 2018, algorithm 2)."""
    value_starts = arrays.value_starts
    depth = progress.counts[0]
    # Edges visited by one pass of bounds; a row of the look-ahead counts as one edge for every 64 values.
    cost = arrays.children.size + arrays.is_sum.size
    if looks_ahead:
        cost *= 1 + value_starts[value_starts.size - 1] // 64
    work = 0
    while depth >= 0 and work < budget:
        allowed = frames.allowed[depth]
        progress.counts[1] += 1
        removed, n_free, threshold = True, 2, 0.0
        while removed and n_free >= 0:
            subspace_bounds(arrays, allowed, looks_ahead, room)
            work += cost
            threshold = np.exp(progress.log_best[0] - log_bound) * (1.0 + TOLERANCE)
            removed, n_free = prune_values_by_bound(value_starts, allowed, room.slots, threshold)
        n = count_allowed_assignments(value_starts, allowed, FEW_ASSIGNMENTS) if n_free >= 2 else 1
        if n <= FEW_ASSIGNMENTS:
            if n_free >= 2:
                x = np.empty(value_starts.size - 1, dtype=np.int64)
                value = search_exhaustively(arrays, allowed, n, x)
                work += arrays.children.size * (n // LANES + 1)
                if value > threshold:
                    progress.log_best[0] = log_bound + np.log(value)
                    copy_values_into(x, progress.best)
            elif n_free >= 0:
                value = highest_bound_assignment(value_starts, allowed, room.slots, progress.best)
                progress.log_best[0] = max(progress.log_best[0], log_bound + np.log(value))
            # The frame is finished: the one above has one value less.
            depth -= 1
            if depth >= 0:
                frames.allowed[depth, frames.branch[depth]] = 0
            continue
        slot, other = choose_branch(value_starts, allowed, room.slots)
        frames.branch[depth] = slot
        frames.log_bound[depth + 1] = log_bound + np.log(room.slots[slot])
        frames.log_bound[depth] = log_bound + np.log(other)
        below = frames.allowed[depth + 1]
        for s in range(allowed.size):
            below[s] = allowed[s]
        v = 0
        while value_starts[v + 1] <= slot:
            v += 1
        for s in range(value_starts[v], value_starts[v + 1]):
            below[s] = s == slot
        depth += 1
    progress.counts[0] = depth


@inner_kernel
def solve_at_root(arrays, looks_ahead, budget, x, outcome):
    """Find the best tree, or what remains after pruning subspaces that cannot exceed it, which often completes the
    search.

    OUT x (n_variables,) int64; outcome (2,) float64: the value of x, and a bound of every value (x is optimal if they are equal).
    """
    n_inner = arrays.is_sum.size
    n_slots = arrays.value_starts[arrays.value_starts.size - 1]
    best_parse_tree(arrays, np.empty((3, n_inner + 1), dtype=np.int64), x)
    room = SearchRoom(
        np.empty(n_inner),
        np.empty((n_inner, 2), dtype=np.int64),
        np.empty(n_inner),
        np.empty(arrays.leaf_variable.size),
        np.empty(n_slots),
    )
    one = np.empty(1)
    assignment_value(arrays, x, room.tops, one)
    best = one[0]
    outcome[0], outcome[1] = best, 1.0
    if best == 0.0:
        return
    allowed = np.ones(n_slots, dtype=np.uint8)
    found = np.empty_like(x)
    work = 0
    # The cheaper bound often suffices; the dearer one is asked only if not.
    for attempt in range(2 if looks_ahead else 1):
        if attempt == 1:
            room = SearchRoom(np.empty(n_inner * n_slots), room.spans, room.tops, room.leaves, room.slots)
        removed, n_free = True, 2
        while removed and n_free >= 0:
            subspace_bounds(arrays, allowed, attempt == 1, room)
            removed, n_free = prune_values_by_bound(arrays.value_starts, allowed, room.slots, best * (1.0 + TOLERANCE))
            work += (arrays.children.size + n_inner) * (1 + n_slots // 64 if attempt == 1 else 1)
            if n_free < 0:
                outcome[1] = best
                return
            outcome[1] = highest_bound_assignment(arrays.value_starts, allowed, room.slots, found)
            if not removed or n_free < 2:
                assignment_value(arrays, found, room.tops, one)
                if one[0] > best:
                    best = one[0]
                    outcome[0] = best
                    copy_values_into(found, x)
                    removed = True
            if work > budget:
                return
        n = count_allowed_assignments(arrays.value_starts, allowed, FEW_ASSIGNMENTS) if n_free >= 2 else 0
        if 0 < n <= FEW_ASSIGNMENTS:
            value = search_exhaustively(arrays, allowed, n, found)
            if value > best:
                best = value
                outcome[0] = best
                copy_values_into(found, x)
        if n <= FEW_ASSIGNMENTS:
            outcome[1] = best
            return
