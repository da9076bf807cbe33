"""Kernels of the lazy sampler, in which only the sums of a row's induced tree have a state."""

from __future__ import annotations

import numpy as np

from learners.circuits.bayesian.leaf_kernels import (
    ALPHA,
    CHILDREN,
    SUMS,
    N,
    leaf_log_marginal_likelihood,
    leaf_log_predictive,
    leave_one_out_log_predictive,
    log_rising_factorial,
    update_leaf_log_term,
    update_leaf_statistics,
)
from learners.circuits.queries.sampling_kernels import GOLDEN
from learners.kernels.jit import inner_kernel, kernel
from learners.kernels.random import uniform_variate

# What becomes of a proposal.
UNCHANGED, REJECTED, ACCEPTED = range(3)
# Columns of a shape's `place`.
SIZE, RIGHT, STRIDE, RIGHT_SUM, LEAF_STRIDE, RIGHT_LEAF = range(6)
# trees (2, n_positions, 3) int64 holds a row's own induced tree and a proposal. At each position: the sum, the first leaf sum
# at or below it, and the child that the row takes.
OWN, NEW = range(2)
SUM, LEAF, CHOICE = range(3)


@inner_kernel
def descend_to_child(place, trees, which, p, c):
    """Set the sums at the halves of child c of the sum at position p."""
    if place[p, SIZE] == 1:
        return
    s = trees[which, p, SUM] + 1 + c * place[p, STRIDE]
    leaf = trees[which, p, LEAF] + c * place[p, LEAF_STRIDE]
    q = place[p, RIGHT]
    trees[which, p + 1, SUM], trees[which, p + 1, LEAF] = s, leaf
    trees[which, q, SUM], trees[which, q, LEAF] = s + place[p, RIGHT_SUM], leaf + place[p, RIGHT_LEAF]


@kernel
def build_induced_tree(place, choices, n, trees):
    """Build the induced tree of row n from choices (n_rows, n_positions) uint8: OUT trees[OWN]."""
    trees[OWN, 0, SUM] = trees[OWN, 0, LEAF] = 0
    for p in range(place.shape[0]):
        c = np.int64(choices[n, p])
        trees[OWN, p, CHOICE] = c
        descend_to_child(place, trees, OWN, p, c)


@inner_kernel
def draw_sum_child(counts, s, alpha, mine, u):
    """Draw a child of sum s with probability ∝ count + alpha, excluding the row's own choice (or -1); u is uniform in
    [0, 1).
    """
    n_children = counts.shape[1]
    total = n_children * alpha - (mine >= 0)
    for c in range(n_children):
        total += counts[s, c]
    u *= total
    for c in range(n_children - 1):
        u -= counts[s, c] + alpha - (c == mine)
        if u < 0.0:
            return c
    return n_children - 1


@inner_kernel
def propose_subtree(place, counts, alpha, trees, begin, counter):
    """Redraw the part of an induced tree below a position, top down; returns whether it differs, and the next counter.

    References: Yokoi, Sato (2024), equations 9 and 10.
    """
    differs = False
    trees[NEW, begin, SUM], trees[NEW, begin, LEAF] = trees[OWN, begin, SUM], trees[OWN, begin, LEAF]
    for p in range(begin, begin + 2 * place[begin, SIZE] - 1):
        s = trees[NEW, p, SUM]
        mine = trees[OWN, p, CHOICE] if s == trees[OWN, p, SUM] else -1
        counter += GOLDEN
        c = draw_sum_child(counts, s, alpha, mine, uniform_variate(counter))
        trees[NEW, p, CHOICE] = c
        differs |= c != mine
        descend_to_child(place, trees, NEW, p, c)
    return differs, counter


@kernel
def log_proposal_ratio(place, n_children, leaf, cells, hyper, trees, begin, x):
    """Return the log ratio of a proposal's leaf predictives to those of the row's own tree; unchanged leaves cancel.

    References: Yokoi, Sato (2024), equation 13.
    """
    total = 0.0
    for p in range(begin, begin + 2 * place[begin, SIZE] - 1):
        if place[p, SIZE] == 1:
            own = trees[OWN, p, LEAF] * n_children + trees[OWN, p, CHOICE]
            new = trees[NEW, p, LEAF] * n_children + trees[NEW, p, CHOICE]
            if own != new:
                total += leaf_log_predictive(leaf, new, cells, hyper, x) - leave_one_out_log_predictive(
                    leaf, own, cells, hyper, x
                )
    return total


@kernel
def accept_proposal(place, counts, leaf, cells, hyper, trees, begin, x):
    """Replace the row's own tree by the proposal."""
    n_children = counts.shape[1]
    for p in range(begin, begin + 2 * place[begin, SIZE] - 1):
        old, new = trees[OWN, p, SUM], trees[NEW, p, SUM]
        if old == new and trees[OWN, p, CHOICE] == trees[NEW, p, CHOICE]:
            continue
        counts[old, trees[OWN, p, CHOICE]] -= 1
        counts[new, trees[NEW, p, CHOICE]] += 1
        if place[p, SIZE] == 1:
            for which in range(2):
                i = trees[which, p, LEAF] * n_children + trees[which, p, CHOICE]
                update_leaf_statistics(leaf, i, cells, x, 2 * which - 1)
                update_leaf_log_term(leaf, i, hyper)
        trees[OWN, p] = trees[NEW, p]


# Nine arguments instead of tuples of arrays: looks into these would take half of the time.
@inner_kernel
def run_metropolis_moves(place, counts, leaf, cells, hyper, trees, x, moves, counter):
    """Propose parts of a row's induced tree, and accept or reject them.

    moves (2, 4) float64: the average number of moves of whole trees and of subtrees, and OUT the numbers
    unchanged, rejected, accepted. Returns the next counter, and whether any was accepted.
    """
    alpha, changed = hyper[0, ALPHA], False
    for kind in range(2):
        counter += GOLDEN
        for _ in range(np.int64(moves[kind, 0] + uniform_variate(counter))):
            counter += GOLDEN
            begin = np.int64(uniform_variate(counter) * place.shape[0]) * kind
            differs, counter = propose_subtree(place, counts, alpha, trees, begin, counter)
            became = UNCHANGED
            if differs:
                ratio = log_proposal_ratio(place, counts.shape[1], leaf, cells, hyper, trees, begin, x)
                counter += GOLDEN
                became = REJECTED
                if ratio >= 0.0 or np.log(uniform_variate(counter)) < ratio:
                    accept_proposal(place, counts, leaf, cells, hyper, trees, begin, x)
                    became, changed = ACCEPTED, True
            moves[kind, 1 + became] += 1
    return counter, changed


@kernel
def lazy_sweep(shape, tallies, hyper, trees, x, choices, moves, state):
    """Move every row of a block in turn: x (n_rows, n_columns) float32, IN/OUT choices (n_rows, n_positions) uint8."""
    counter = state[0]
    place, counts, leaf, cells = shape.place, tallies.counts, tallies.leaf, tallies.cells
    for n in range(x.shape[0]):
        build_induced_tree(place, choices, n, trees)
        counter, changed = run_metropolis_moves(place, counts, leaf, cells, hyper, trees, x[n], moves, counter)
        if changed:
            for p in range(place.shape[0]):
                choices[n, p] = trees[OWN, p, CHOICE]
    state[0] = counter


@kernel
def add_rows_to_lazy_sampler(shape, tallies, hyper, trees, x, choices, moves, state):
    """Add rows one by one by their predictive given those before; OUT choices, IN/OUT tallies.

    A tree is drawn top down, its leaves by their predictives; then the row is moved.
    """
    counter = state[0]
    place, counts, leaf, cells = shape.place, tallies.counts, tallies.leaf, tallies.cells
    n_children = counts.shape[1]
    weight = np.empty(n_children)
    for n in range(x.shape[0]):
        trees[OWN, :, SUM] = -1
        trees[OWN, 0, LEAF] = 0
        row, s = x[n], 0
        trees[NEW, 0, SUM] = trees[NEW, 0, LEAF] = 0
        for p in range(place.shape[0]):
            s = trees[NEW, p, SUM]
            counter += GOLDEN
            if place[p, SIZE] == 1:
                first = trees[NEW, p, LEAF] * n_children
                c = draw_leaf_by_predictive(leaf, first, counts, s, cells, hyper, row, weight, uniform_variate(counter))
                update_leaf_statistics(leaf, first + c, cells, row, 1)
                update_leaf_log_term(leaf, first + c, hyper)
            else:
                c = draw_sum_child(counts, s, hyper[0, ALPHA], -1, uniform_variate(counter))
            counts[s, c] += 1
            trees[NEW, p, CHOICE] = c
            descend_to_child(place, trees, NEW, p, c)
        for p in range(trees.shape[1]):
            for part in range(trees.shape[2]):
                trees[OWN, p, part] = trees[NEW, p, part]
        counter, _ = run_metropolis_moves(place, counts, leaf, cells, hyper, trees, row, moves, counter)
        for p in range(place.shape[0]):
            choices[n, p] = trees[OWN, p, CHOICE]
    state[0] = counter


@kernel
def draw_leaf_by_predictive(leaf, first, counts, s, cells, hyper, x, weight, u):
    """Draw a leaf of sum s with probability ∝ (count + alpha) predictive, for a row not yet assigned; weight is
    scratch.
    """
    most, total = -np.inf, 0.0
    for c in range(weight.size):
        weight[c] = leaf_log_predictive(leaf, first + c, cells, hyper, x)
        most = max(most, weight[c])
    for c in range(weight.size):
        weight[c] = np.exp(weight[c] - most) * (counts[s, c] + hyper[0, ALPHA])
        total += weight[c]
    u *= total
    for c in range(weight.size - 1):
        u -= weight[c]
        if u < 0.0:
            return c
    return weight.size - 1


@kernel
def tally_induced_trees(shape, tallies, trees, x, choices):
    """Add the rows of a block to OUT tallies, in order, except LOG of the leaves."""
    place, counts, leaf, cells = shape.place, tallies.counts, tallies.leaf, tallies.cells
    for n in range(x.shape[0]):
        build_induced_tree(place, choices, n, trees)
        row = x[n]
        for p in range(place.shape[0]):
            c = trees[OWN, p, CHOICE]
            counts[trees[OWN, p, SUM], c] += 1
            if place[p, SIZE] == 1:
                update_leaf_statistics(leaf, trees[OWN, p, LEAF] * counts.shape[1] + c, cells, row, 1)


@kernel
def sampler_log_joint(tallies, hyper):
    """Set LOG of all leaves with rows, and return the log joint probability of rows and choices."""
    counts, leaf, cells = tallies.counts, tallies.leaf, tallies.cells
    alpha, n_children, total = hyper[0, ALPHA], counts.shape[1], 0.0
    for s in range(counts.shape[0]):
        n = 0
        for c in range(n_children):
            n += counts[s, c]
        if n:
            total -= log_rising_factorial(hyper, SUMS, alpha * n_children, n)
            for c in range(n_children):
                total += log_rising_factorial(hyper, CHILDREN, alpha, np.int64(counts[s, c]))
    for i in range(leaf.shape[0]):
        if leaf[i, N] > 0.0:
            update_leaf_log_term(leaf, i, hyper)
            total += leaf_log_marginal_likelihood(leaf, i, cells, hyper)
    return total
