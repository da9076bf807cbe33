"""Kernels of the deterministic HDP estimate, and of the estimates given a state, one thread each."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learners.classifiers.estimates.hdp_kernels import SMALL_TOTAL, sum_nodes
from learners.kernels.arrays import Integers
from learners.kernels.jit import inner_kernel, kernel


@inner_kernel
def _digamma_of_large(x):
    y = 1.0 / (x * x)
    series = y * (1.0 / 12.0 - y * (1.0 / 120.0 - y * (1.0 / 252.0 - y * (1.0 / 240.0 - y * (1.0 / 132.0)))))
    return np.log(x) - 0.5 / x - series


@inner_kernel
def _digamma_difference(a, n):
    """Digamma(a + n) - digamma(a) for a > 0, n >= 0."""
    difference = 0.0
    # Bring both arguments to where five terms of the asymptotic series have a relative error below 1e-13.
    while a < 8.0:
        if n < 1.0:
            break
        difference += 1.0 / a
        a += 1.0
        n -= 1.0
    low, high = a, a + n
    while low < 8.0:
        difference += 1.0 / low
        low += 1.0
    while high < 8.0:
        difference -= 1.0 / high
        high += 1.0
    difference -= _digamma_of_large(low)
    return difference + _digamma_of_large(high)


@inner_kernel
def set_tables(plan, state):
    """Start with t = max(1, ⌊α (ψ(α + n) - ψ(α))⌋) with α = 2, from the deepest level up, summed into n."""
    n_levels = plan.item_starts.size - 1
    for item in range(plan.item_starts[n_levels - 1]):
        state.n[item] = plan.item_base[item]
    for level in range(n_levels - 1, 0, -1):
        for item in range(plan.item_starts[level], plan.item_starts[level + 1]):
            tables = np.floor(2.0 * _digamma_difference(2.0, np.float64(state.n[item])))
            state.n[plan.item_parent[item]] += max(np.int64(tables), 1)


@kernel
def start_tables(plan, state):
    """As `set_tables`, for who goes on with draws."""
    set_tables(plan, state)


@inner_kernel
def expect_tables(plan, state, spread):
    """Put the expectation of t of every item, given what is known of the probability above it, in place of a draw.

    spread (n_items,) float64 is the coefficient of variation of that probability. E[t] is a concave function of it: the
    average of two values, one standard deviation to each side, lowers what the mean alone would give by too much t.
    """
    item_starts, item_parent, item_base = plan.item_starts, plan.item_parent, plan.item_base
    all_n, weight = state.n, state.weight
    n_levels = item_starts.size - 1
    for item in range(item_starts[n_levels - 1]):
        all_n[item] = item_base[item]
    for level in range(n_levels - 1, 0, -1):
        for item in range(item_starts[level], item_starts[level + 1]):
            above = item_parent[item]
            n = all_n[item]
            tables = 0.0
            for side in (-1.0, 1.0):
                a = weight[above] * max(1.0 + side * spread[above], 1e-9)
                if level == n_levels - 1 and n < 8.5:
                    tables += 1.0
                    for i in range(1, np.int64(n)):
                        tables += a / (a + i)
                elif a > 1e-12:
                    tables += max(a * _digamma_difference(a, n), 1.0)
                else:
                    tables += 1.0
            all_n[above] += 0.5 * tables


@inner_kernel
def expect_concentrations(plan, state, shape, rate, largest):
    """The mean of every concentration given the expectations of t and of log 1/q; returns the largest relative change."""
    more = np.empty(SMALL_TOTAL + 1, np.int64)
    change = 0.0
    for group in range(plan.group_starts.size - 1):
        alpha = state.concentration[group]
        for i in range(more.size):
            more[i] = 0
        n_tables, log_q, last = 0.0, 0.0, np.int64(-1)
        for j in range(plan.group_starts[group], plan.group_starts[group + 1]):
            node = plan.group_nodes[j]
            n = state.node_total[node]
            whole = np.int64(n)
            if n == whole and whole <= SMALL_TOTAL:
                more[whole] += 1
            else:
                log_q += _digamma_difference(alpha, n)
            if plan.node_parent[node] != last:
                last = plan.node_parent[node]
                n_tables += state.node_total[last]
        n_more = np.int64(0)
        for i in range(SMALL_TOTAL - 1, -1, -1):
            n_more += more[i + 1]
            if n_more > 0:
                log_q += n_more / (alpha + i)
        state.concentration[group] = min((shape + n_tables) / (rate + log_q), largest)
        change = max(change, abs(np.log(state.concentration[group] / alpha)))
    return change


@inner_kernel
def expect_probabilities(plan, state, root_concentration, spread):
    """Put the expectation of the probabilities of all inner items given n in place of a draw, and how far they spread."""
    active_starts, active_node = plan.active_starts, plan.active_node
    active_first, active_last = plan.active_first, plan.active_last
    node_parent, child_group, item_parent, is_inner = (
        plan.node_parent,
        plan.child_group,
        plan.item_parent,
        plan.is_inner,
    )
    n, weight, concentration, node_total = state.n, state.weight, state.concentration, state.node_total
    root_share = 0.0 if plan.is_unit_root else root_concentration / plan.n_values
    for level in range(active_starts.size - 1):
        for active in range(active_starts[level], active_starts[level + 1]):
            node = active_node[active]
            total = node_total[node] + root_concentration
            if level > 0:
                total = node_total[node] + concentration[child_group[node_parent[node]]]
            scale = concentration[child_group[node]] / total
            for item in range(active_first[active], active_last[active]):
                if is_inner[item]:
                    above = item_parent[item]
                    own = root_share if level == 0 else weight[above]
                    shape = n[item] + own
                    weight[item] = shape * scale
                    variation = max(total - shape, 0.0) / (shape * (total + 1.0))
                    if level > 0:
                        variation += (own / shape * spread[above]) ** 2
                    spread[item] = np.sqrt(variation)


@kernel
def run_fixed_point(plan, state, spread, settings, is_new, n_most, tolerance):
    """Sweeps of expectations until no concentration moves by more than `tolerance`, from the start if the state is new.

    Returns how many it took; one more than n_most if they were not enough.
    """
    if is_new:
        set_tables(plan, state)
        sum_nodes(plan, state)
        expect_probabilities(plan, state, settings[3], spread)
    for sweep in range(n_most):
        expect_tables(plan, state, spread)
        sum_nodes(plan, state)
        change = expect_concentrations(plan, state, settings[0], settings[1], settings[2])
        expect_probabilities(plan, state, settings[3], spread)
        if change < tolerance:
            return sweep + 1
    return n_most + 1


class Tree(NamedTuple):
    """What the estimates need of a context tree; arrays as there."""

    parent: Integers  # (n_nodes,) int64
    cell_starts: Integers  # (n_nodes + 1,) int64
    cell_count: Integers  # (n_cells,) int64
    cell_parent: Integers  # (n_cells,) int64
    deepest: int  # first node of the deepest level
    n_values: int


@kernel
def add_estimates(tree, item_cell, child_group, item_n, concentration, root_concentration, scratch, sums):
    """Add the estimates given n and the concentrations: (n_x + α φ_parent) / (n + α), from the root down.

    item_cell, child_group as in `Plan`, item_n and concentration as in `State`;
    scratch (3, n_cells) float64: n, probability and its variance; OUT sums (2, n_cells) float64, to which the probability
    and its second moment are added.
    """
    n, p, variance = scratch[0], scratch[1], scratch[2]
    for cell in range(n.size):
        n[cell] = 1.0
    for item in range(item_cell.size):
        n[item_cell[item]] = item_n[item]
    for node in range(tree.parent.size):
        first, last = tree.cell_starts[node], tree.cell_starts[node + 1]
        total = 0.0
        if node >= tree.deepest:
            for cell in range(first, last):
                n[cell] = tree.cell_count[cell]
        for cell in range(first, last):
            total += n[cell]
        alpha = root_concentration if node == 0 else concentration[child_group[tree.parent[node]]]
        scale = 1.0 / (total + alpha)
        spread = 1.0 / (total + alpha + 1.0)
        inherited = (alpha * scale) ** 2
        for cell in range(first, last):
            above = 1.0 / tree.n_values if node == 0 else p[tree.cell_parent[cell]]
            p[cell] = (n[cell] + alpha * above) * scale
            variance[cell] = p[cell] * (1.0 - p[cell]) * spread
            if node > 0:
                variance[cell] += inherited * variance[tree.cell_parent[cell]]
            sums[0, cell] += p[cell]
            sums[1, cell] += p[cell] * p[cell] + variance[cell]
