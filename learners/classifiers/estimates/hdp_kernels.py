"""Single-threaded kernels that sample and solve the HDP, changing the state in place."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learners.kernels.arrays import Array, Floats, Integers, Uint8s, Uint64s
from learners.kernels.jit import inner_kernel, kernel
from learners.kernels.random import RECIPROCALS, SEATINGS, STEP, crp_table_count_variate, gamma_variate, uniform_variate

# Up to so many customers all probabilities are summed, rather than branching where the sum is reached.
BRANCHLESS = 8
# Nodes with more rows than this draw the rest of their auxiliary variable by gamma variates.
SMALL_TOTAL = 32


class Plan(NamedTuple):
    """The variable part of a context tree, level by level from the root.

    A cell with n = 1 always has t = 1, and so has an inner cell with a single such child: these are fixed. The
    others are items. An item is numbered by position; those of the deepest level are sorted by n, the others by
    node.
    """

    item_starts: Integers  # (n_levels + 1,) int64
    item_parent: Integers  # (n_items,) int64: item of the same value at the node above; -1 at the root
    item_base: Integers  # (n_items,) int64: at the deepest level the rows, elsewhere the number of fixed children
    # item_cell, item_node (n_items,) int64: cell and node of the context tree.
    item_cell: Integers
    item_node: Integers
    is_inner: Uint8s  # (n_items,) uint8: whether an item has items below it, which need its probability
    active_starts: Integers  # (n_levels + 1,) int64: ranges of the nodes above the deepest level that have inner items
    # active_node, active_first, active_last (n_active,) int64: node, and its range of items.
    active_node: Integers
    active_first: Integers
    active_last: Integers
    node_fixed: Integers  # (n_nodes,) int64: rows of each node that no item holds
    node_parent: Integers  # (n_nodes,) int64
    node_level: Integers  # (n_nodes,) int64
    child_group: Integers  # (n_nodes,) int64: which concentration the children of a node have
    group_starts: Integers  # (n_groups + 1,) int64
    group_nodes: Integers  # (n_nodes - 1,) int64: the nodes of each group
    n_values: int
    is_unit_root: bool


class State(NamedTuple):
    """State of a sampler."""

    # (n_items,) int64, or float64 of what is expected. Customers: rows at the deepest level, elsewhere tables of the
    # children.
    n: Array
    weight: Floats  # (n_items,) float64: for inner items the concentration of the children times the item's probability
    concentration: Floats  # (n_groups,) float64
    node_total: Array  # (n_nodes,) as n
    random: Uint64s  # (1,) uint64: counter of the random numbers


class Tree(NamedTuple):
    """The part of a context tree that estimates need; arrays as in `ContextTree`."""

    parent: Integers  # (n_nodes,) int64
    cell_starts: Integers  # (n_nodes + 1,) int64
    cell_count: Integers  # (n_cells,) int64
    cell_parent: Integers  # (n_cells,) int64
    deepest: int  # first node of the deepest level
    n_values: int


@inner_kernel
def draw_hdp_table_counts(plan, state):
    """Draw t of all items given the probabilities above them, from the deepest level up, summing them into n."""
    item_starts, item_parent, item_base = plan.item_starts, plan.item_parent, plan.item_base
    n, weight = state.n, state.weight
    counter = state.random[0]
    n_levels = item_starts.size - 1
    item, end = item_starts[n_levels - 1], item_starts[n_levels]
    for inner in range(item):
        n[inner] = item_base[inner]
    while item < end and n[item] <= BRANCHLESS:
        size = n[item]
        while item < end and n[item] == size:  # items of one n, without branches
            above = item_parent[item]
            a = weight[above]
            total = 1.0
            for i in range(1, size):
                total *= 1.0 + a * RECIPROCALS[i]
            counter += STEP
            u = uniform_variate(counter) * total
            cumulative, power = 0.0, 1.0
            t = np.int64(1)
            for j in range(1, size):
                cumulative += SEATINGS[size, j] * power
                power *= a
                t += u >= cumulative
            n[above] += t
            item += 1
    for large in range(item, end):
        above = item_parent[large]
        t, counter = crp_table_count_variate(n[large], weight[above], counter)
        n[above] += t
    for level in range(n_levels - 2, 0, -1):
        for inner in range(item_starts[level], item_starts[level + 1]):
            above = item_parent[inner]
            if n[inner] == 1:
                n[above] += 1
            else:
                t, counter = crp_table_count_variate(n[inner], weight[above], counter)
                n[above] += t
    state.random[0] = counter


@inner_kernel
def sum_hdp_node_totals(plan, state):
    """Sum the items of every node above the deepest level into node_total."""
    n_levels = plan.item_starts.size - 1
    node_level, node_fixed, item_node = plan.node_level, plan.node_fixed, plan.item_node
    n, node_total = state.n, state.node_total
    for node in range(node_level.size):
        if node_level[node] < n_levels - 1:
            node_total[node] = node_fixed[node]
    for item in range(plan.item_starts[n_levels - 1]):
        node_total[item_node[item]] += n[item]


@inner_kernel
def draw_hdp_concentrations(plan, state, shape, rate, largest):
    """Draw every concentration given t: q_j ~ Beta(α, n_j), then α ~ Gamma(shape + Σ t_j, rate + Σ log 1/q_j).

    -log q_j is a sum of exponential variates of rates α, α + 1, …, α + n_j - 1, so those of all nodes with more
    than i rows form one gamma variate. node_total must be up to date.
    """
    group_starts, group_nodes, node_parent = plan.group_starts, plan.group_nodes, plan.node_parent
    node_total, concentration = state.node_total, state.concentration
    counter = state.random[0]
    more = np.empty(SMALL_TOTAL + 1, np.int64)
    for group in range(group_starts.size - 1):
        alpha = concentration[group]
        more[:] = 0
        n_tables, log_q, last = np.int64(0), 0.0, np.int64(-1)
        for j in range(group_starts[group], group_starts[group + 1]):
            node = group_nodes[j]
            n = node_total[node]
            more[min(n, SMALL_TOTAL)] += 1
            if n > SMALL_TOTAL:
                x, counter = gamma_variate(alpha + SMALL_TOTAL, counter)
                y, counter = gamma_variate(np.float64(n - SMALL_TOTAL), counter)
                log_q += np.log1p(y / x)
            # Σ t over the children of a node is the node's n; children of one node are neighbours.
            if node_parent[node] != last:
                last = node_parent[node]
                n_tables += node_total[last]
        n_more = np.int64(0)
        for i in range(SMALL_TOTAL - 1, -1, -1):
            n_more += more[i + 1]
            if n_more > 0:
                x, counter = gamma_variate(np.float64(n_more), counter)
                log_q += x / (alpha + i)
        drawn = largest
        for _ in range(100):
            x, counter = gamma_variate(shape + n_tables, counter)
            if x <= largest * (rate + log_q):
                drawn = x / (rate + log_q)
                break
        concentration[group] = drawn
    state.random[0] = counter


@kernel
def draw_hdp_probabilities(plan, state, root_concentration):
    """Draw the probabilities of all inner items given n, from the root down; unneeded ones are merged into one rest."""
    active_starts, active_node = plan.active_starts, plan.active_node
    active_first, active_last = plan.active_first, plan.active_last
    node_fixed, node_parent, child_group = plan.node_fixed, plan.node_parent, plan.child_group
    item_parent, is_inner = plan.item_parent, plan.is_inner
    n, weight, concentration = state.n, state.weight, state.concentration
    root_share = 0.0 if plan.is_unit_root else root_concentration / plan.n_values
    counter = state.random[0]
    for level in range(active_starts.size - 1):
        for active in range(active_starts[level], active_starts[level + 1]):
            node = active_node[active]
            first, last = active_first[active], active_last[active]
            rest = root_concentration if level == 0 else concentration[child_group[node_parent[node]]]
            rest += node_fixed[node]
            total = 0.0
            for item in range(first, last):
                rest += n[item]
                if is_inner[item]:
                    shape = n[item] + (root_share if level == 0 else weight[item_parent[item]])
                    rest -= shape
                    x, counter = gamma_variate(shape, counter)
                    weight[item] = x
                    total += x
            # Rounding may leave a rest of -1e-16 where every value is an inner item.
            x, counter = gamma_variate(max(rest, 0.0), counter)
            scale = concentration[child_group[node]] / (total + x)
            for item in range(first, last):
                weight[item] *= scale
    state.random[0] = counter


@kernel
def run_hdp_gibbs_sweeps(plan, state, settings, first_sweep, n_sweeps, trace):
    """Run n_sweeps sweeps; settings (5,) float64: shape, rate and cap of the concentrations, root concentration, sweeps per draw.

    OUT trace (n_sweeps, n_groups) float64: the concentrations after each sweep.
    """
    for sweep in range(n_sweeps):
        draw_hdp_table_counts(plan, state)
        if (first_sweep + sweep) % np.int64(settings[4]) == 0:
            sum_hdp_node_totals(plan, state)
            draw_hdp_concentrations(plan, state, settings[0], settings[1], settings[2])
        draw_hdp_probabilities(plan, state, settings[3])
        if trace.shape[0] > 0:
            trace[sweep] = state.concentration


@inner_kernel
def _digamma_difference(a, n):
    """Return digamma(a + n) - digamma(a) for a > 0, n >= 0."""
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
    for x, sign in ((low, -1.0), (high, 1.0)):
        y = 1.0 / (x * x)
        series = y * (1.0 / 12.0 - y * (1.0 / 120.0 - y * (1.0 / 252.0 - y * (1.0 / 240.0 - y * (1.0 / 132.0)))))
        difference += sign * (np.log(x) - 0.5 / x - series)
    return difference


@inner_kernel
def set_expected_hdp_table_counts(plan, state, spread):
    """Set t of every item to its expectation, given the distribution of the probability above it.

    spread (n_items,) float64 is the coefficient of variation of that probability. E[t] is a concave function of
    it, so the value at the mean is too large; the average of the values one standard deviation to each side
    corrects this.
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
def set_expected_hdp_concentrations(plan, state, shape, rate, largest):
    """Set every concentration to its mean given the expectations of t and of log 1/q; returns the largest relative
    change.
    """
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
def set_expected_hdp_probabilities(plan, state, root_concentration, spread):
    """Set the probabilities of all inner items, and their spread, to their expectations given n."""
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
def run_hdp_fixed_point(plan, state, spread, settings, is_new, n_most, tolerance):
    """Run sweeps of expectations until no concentration changes by more than `tolerance`; a new state has only n.

    Returns the number of sweeps; n_most + 1 if it did not converge.
    """
    if is_new:
        sum_hdp_node_totals(plan, state)
        set_expected_hdp_probabilities(plan, state, settings[3], spread)
    for sweep in range(n_most):
        set_expected_hdp_table_counts(plan, state, spread)
        sum_hdp_node_totals(plan, state)
        change = set_expected_hdp_concentrations(plan, state, settings[0], settings[1], settings[2])
        set_expected_hdp_probabilities(plan, state, settings[3], spread)
        if change < tolerance:
            return sweep + 1
    return n_most + 1


@kernel
def add_hdp_estimates(tree, item_cell, child_group, item_n, concentration, root_concentration, scratch, sums):
    """Add the estimates given n and the concentrations: (n_x + α φ_parent) / (n + α), from the root down.

    item_cell, child_group as in `Plan`, item_n (n_items,) float64 and concentration as in `State`;
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
