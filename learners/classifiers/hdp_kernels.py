"""Kernels of the HDP sampler, one thread each; a sampler's state is changed in place."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from learners.jit import kernel

Array = np.ndarray[Any, np.dtype[Any]]

# The tables of so many customers are drawn by inversion; beyond it, the gaps between new tables are drawn.
TABULATED = 48
# Up to so many customers all probabilities are summed, rather than branching where the sum is reached.
BRANCHLESS = 8
# Nodes with more rows than this draw the rest of their auxiliary variable by gamma variates.
SMALL_TOTAL = 32
STEP = np.uint64(0x9E3779B97F4A7C15)


def _seatings() -> Array:
    """[n, t] S(n, t) / (n - 1)! by S(n + 1, t) = S(n, t - 1) + n S(n, t)."""
    seatings = np.zeros((TABULATED + 1, TABULATED + 1))
    seatings[1, 1] = 1.0
    for n in range(1, TABULATED):
        seatings[n + 1, 1:] = seatings[n, 1:] + seatings[n, :-1] / n
    return seatings


def _ziggurat(n_layers: int, r: float, area: float) -> tuple[Array, Array]:
    """Right edges of the layers of equal area, the base first, and the density at them."""
    x = np.empty(n_layers + 1)
    x[0], x[1], x[n_layers] = area * np.exp(0.5 * r * r), r, 0.0
    for layer in range(2, n_layers):
        x[layer] = np.sqrt(-2.0 * np.log(area / x[layer - 1] + np.exp(-0.5 * x[layer - 1] ** 2)))
    return x, np.exp(-0.5 * x * x)


RECIPROCALS = np.concatenate([[0.0], 1.0 / np.arange(1, TABULATED + 1)])
SEATINGS = _seatings()
ZIGGURAT_R = 3.6541528853610088
ZIGGURAT_X, ZIGGURAT_F = _ziggurat(256, ZIGGURAT_R, 0.00492867323399)


class Plan(NamedTuple):
    """The part of a context tree that sampling can change, level by level from the root.

    A cell with n = 1 has t = 1 whatever happens, and so has an inner cell with one such child: these are fixed. The
    others are items. An item's number is its place below; those of the deepest level are ordered by n, the others by node.

    Parameters
    ----------
    item_starts : (n_levels + 1,) int64
    item_parent : (n_items,) int64
        Item of the same value at the node above; -1 at the root.
    item_base : (n_items,) int64
        At the deepest level the rows, elsewhere the number of fixed children.
    item_cell, item_node : (n_items,) int64
        Cell and node of the context tree.
    is_inner : (n_items,) uint8
        Whether an item has items below it, which need its probability.
    active_starts : (n_levels + 1,) int64
        Ranges of the nodes above the deepest level that have inner items.
    active_node, active_first, active_last : (n_active,) int64
        Node, and its range of items.
    node_fixed : (n_nodes,) int64
        Rows of each node that no item holds.
    node_parent : (n_nodes,) int64
    node_level : (n_nodes,) int64
    child_group : (n_nodes,) int64
        Which concentration the children of a node have.
    group_starts : (n_groups + 1,) int64
    group_nodes : (n_nodes - 1,) int64
        The nodes of each group.
    n_values : int
    is_unit_root : bool
    """

    item_starts: Array
    item_parent: Array
    item_base: Array
    item_cell: Array
    item_node: Array
    is_inner: Array
    active_starts: Array
    active_node: Array
    active_first: Array
    active_last: Array
    node_fixed: Array
    node_parent: Array
    node_level: Array
    child_group: Array
    group_starts: Array
    group_nodes: Array
    n_values: int
    is_unit_root: bool


class State(NamedTuple):
    """What a sampler is in the middle of.

    Parameters
    ----------
    n : (n_items,) int64
        Customers: rows at the deepest level, tables of the children elsewhere.
    weight : (n_items,) float64
        For inner items the concentration of the children times the item's probability.
    concentration : (n_groups,) float64
    node_total : (n_nodes,) int64
    random : (1,) uint64
        Counter of the random numbers.
    """

    n: Array
    weight: Array
    concentration: Array
    node_total: Array
    random: Array


# Random numbers are those of splitmix64 (Steele, Lea, Flood 2014): the state is a counter, which every function takes and
# gives back as a number, so that it stays in a register. In loops the arrays of a plan are taken out of it first: a look into
# the tuple costs two atomic operations.


@kernel
def _bits(counter):
    """The random uint64 at a counter."""
    z = (counter ^ (counter >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@kernel
def _uniform(counter):
    """The number in [0, 1) of 53 bits at a counter."""
    return np.float64(np.int64(_bits(counter) >> np.uint64(11))) * 1.1102230246251565e-16


@kernel
def normal_variate(counter):
    """Standard normal, by the ziggurat of 256 layers (Marsaglia and Tsang 2000; Doornik 2005); and the next counter."""
    while True:
        counter += STEP
        bits = _bits(counter)
        layer = np.int64(bits & np.uint64(255))
        u = np.float64(np.int64(bits >> np.uint64(11))) * 2.220446049250313e-16 - 1.0
        x = u * ZIGGURAT_X[layer]
        if abs(x) < ZIGGURAT_X[layer + 1]:
            return x, counter
        if layer == 0:
            while True:
                counter += STEP
                tail = -np.log(1.0 - _uniform(counter)) / ZIGGURAT_R
                counter += STEP
                y = -np.log(1.0 - _uniform(counter))
                if y + y >= tail * tail:
                    return (ZIGGURAT_R + tail if u > 0 else -ZIGGURAT_R - tail), counter
        low, high = ZIGGURAT_F[layer], ZIGGURAT_F[layer + 1]
        counter += STEP
        if low + _uniform(counter) * (high - low) < np.exp(-0.5 * x * x):
            return x, counter


@kernel
def gamma_variate(shape, counter):
    """Of rate 1; Marsaglia and Tsang (2000). Zero for shape 0. And the next counter."""
    if shape <= 0.0:
        return 0.0, counter
    boost = 1.0
    if shape < 1.0:
        counter += STEP
        boost = (1.0 - _uniform(counter)) ** (1.0 / shape)
        shape += 1.0
    d = shape - 1.0 / 3.0
    c = 1.0 / np.sqrt(9.0 * d)
    while True:
        x, counter = normal_variate(counter)
        v = 1.0 + c * x
        if v <= 0.0:
            continue
        v = v * v * v
        counter += STEP
        u = 1.0 - _uniform(counter)
        if u < 1.0 - 0.0331 * (x * x) * (x * x) or np.log(u) < 0.5 * x * x + d * (1.0 - v + np.log(v)):
            return boost * d * v, counter


@kernel
def _seated(n, a, u):
    """Tables of at most TABULATED customers, by inversion: P(t) ∝ a^(t-1) S(n, t) / (n-1)!, in all ∏ (1 + a / i)."""
    # Two products side by side: each multiplication waits for the one before it.
    even, odd = 1.0, 1.0
    for i in range(1, n - 1, 2):
        odd *= 1.0 + a * RECIPROCALS[i]
        even *= 1.0 + a * RECIPROCALS[i + 1]
    if n % 2 == 0:
        odd *= 1.0 + a * RECIPROCALS[n - 1]
    u *= even * odd
    cumulative, power = SEATINGS[n, 1], 1.0
    t = 1
    while u >= cumulative and t < n:
        t += 1
        power *= a
        cumulative += SEATINGS[n, t] * power
    return t


@kernel
def tables_variate(n, a, counter):
    """Number of tables that n customers take in a Chinese restaurant of concentration a: P(t) ∝ a^t S(n, t).

    Customer i (from 0) takes a new table with probability a / (a + i). Far out, candidates come from gaps whose survival
    function (i / j)^c is at most the true one, and are thinned; exact for any n. And the next counter.
    """
    counter += STEP
    t = _seated(min(n, TABULATED), a, _uniform(counter))
    if n <= TABULATED:
        return t, counter
    i = np.float64(TABULATED)
    c = max(a, np.log1p(a / i) / np.log1p(1.0 / i))
    while True:
        counter += STEP
        i = np.floor(i * (1.0 - _uniform(counter)) ** (-1.0 / c))
        if i >= n:
            return t, counter
        candidate = -np.expm1(-c * np.log1p(1.0 / i))
        counter += STEP
        t += _uniform(counter) * candidate * (a + i) < a
        i += 1.0


@kernel
def _draw_tables_of_equals(item_parent, first, last, n, weight, counter, n_above):
    """Draw t of items of the same small n without branches, and add it to n_above; gives the next counter."""
    for item in range(first, last):
        above = item_parent[item]
        a = weight[above]
        total = 1.0
        for i in range(1, n):
            total *= 1.0 + a * RECIPROCALS[i]
        counter += STEP
        u = _uniform(counter) * total
        cumulative, power = 0.0, 1.0
        t = np.int64(1)
        for j in range(1, n):
            cumulative += SEATINGS[n, j] * power
            power *= a
            t += u >= cumulative
        n_above[above] += t
    return counter


@kernel
def draw_tables(plan, state):
    """Draw t of all items given the probabilities above them, from the deepest level up, and sum them into n."""
    item_starts, item_parent, item_base = plan.item_starts, plan.item_parent, plan.item_base
    n, weight = state.n, state.weight
    counter = state.random[0]
    n_levels = item_starts.size - 1
    item, end = item_starts[n_levels - 1], item_starts[n_levels]
    for inner in range(item):
        n[inner] = item_base[inner]
    while item < end and n[item] <= BRANCHLESS:
        first, size = item, n[item]
        while item < end and n[item] == size:
            item += 1
        counter = _draw_tables_of_equals(item_parent, first, item, size, weight, counter, n)
    for large in range(item, end):
        above = item_parent[large]
        t, counter = tables_variate(n[large], weight[above], counter)
        n[above] += t
    for level in range(n_levels - 2, 0, -1):
        for inner in range(item_starts[level], item_starts[level + 1]):
            above = item_parent[inner]
            if n[inner] == 1:
                n[above] += 1
            else:
                t, counter = tables_variate(n[inner], weight[above], counter)
                n[above] += t
    state.random[0] = counter


@kernel
def sum_nodes(plan, state):
    """Sum the items of every node above the deepest level into node_total."""
    n_levels = plan.item_starts.size - 1
    node_level, node_fixed, item_node = plan.node_level, plan.node_fixed, plan.item_node
    n, node_total = state.n, state.node_total
    for node in range(node_level.size):
        if node_level[node] < n_levels - 1:
            node_total[node] = node_fixed[node]
    for item in range(plan.item_starts[n_levels - 1]):
        node_total[item_node[item]] += n[item]


@kernel
def draw_concentrations(plan, state, shape, rate, largest):
    """Draw every concentration given t: q_j ~ Beta(α, n_j), then α ~ Gamma(shape + Σ t_j, rate + Σ log 1/q_j).

    -log q_j is a sum of exponential variates of rates α, α + 1, …, α + n_j - 1, so those of all nodes with more than i rows
    make one gamma variate. node_total must be up to date.
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
def draw_probabilities(plan, state, root_concentration):
    """Draw the probabilities of all inner items given n, from the root down; what nobody needs is one common rest."""
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
def run_sweeps(plan, state, settings, first_sweep, n_sweeps, trace):
    """Run n_sweeps sweeps; settings (5,) float64: shape, rate and cap of the concentrations, root concentration, sweeps per draw.

    OUT trace (n_sweeps, n_groups) float64: the concentrations after each sweep.
    """
    for sweep in range(n_sweeps):
        draw_tables(plan, state)
        if (first_sweep + sweep) % np.int64(settings[4]) == 0:
            sum_nodes(plan, state)
            draw_concentrations(plan, state, settings[0], settings[1], settings[2])
        draw_probabilities(plan, state, settings[3])
        if trace.shape[0] > 0:
            trace[sweep] = state.concentration


@kernel
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
    for sign, x in ((-1.0, low), (1.0, high)):
        y = 1.0 / (x * x)
        series = y * (1.0 / 12.0 - y * (1.0 / 120.0 - y * (1.0 / 252.0 - y * (1.0 / 240.0 - y * (1.0 / 132.0)))))
        difference += sign * (np.log(x) - 0.5 / x - series)
    return difference


@kernel
def start_tables(plan, state):
    """Start with t = max(1, ⌊α (ψ(α + n) - ψ(α))⌋) with α = 2, from the deepest level up, summed into n."""
    n_levels = plan.item_starts.size - 1
    for item in range(plan.item_starts[n_levels - 1]):
        state.n[item] = plan.item_base[item]
    for level in range(n_levels - 1, 0, -1):
        for item in range(plan.item_starts[level], plan.item_starts[level + 1]):
            tables = np.floor(2.0 * _digamma_difference(2.0, np.float64(state.n[item])))
            state.n[plan.item_parent[item]] += max(np.int64(tables), 1)


@kernel
def expect_tables(plan, state):
    """Put the expectation of t of every item, given the probabilities above it, in place of a draw."""
    n_levels = plan.item_starts.size - 1
    for item in range(plan.item_starts[n_levels - 1]):
        state.n[item] = plan.item_base[item]
    for level in range(n_levels - 1, 0, -1):
        for item in range(plan.item_starts[level], plan.item_starts[level + 1]):
            above = plan.item_parent[item]
            a, n = state.weight[above], state.n[item]
            if level == n_levels - 1 and n < 8.5:
                tables = 1.0
                for i in range(1, np.int64(n)):
                    tables += a / (a + i)
            else:
                tables = a * _digamma_difference(a, n) if a > 1e-12 else 1.0
            state.n[above] += max(tables, 1.0)


@kernel
def expect_concentrations(plan, state, shape, rate, largest):
    """The mean of every concentration given the expectations of t and of log 1/q; returns the largest relative change."""
    more = np.empty(SMALL_TOTAL + 1, np.int64)
    change = 0.0
    for group in range(plan.group_starts.size - 1):
        alpha = state.concentration[group]
        more[:] = 0
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


@kernel
def expect_probabilities(plan, state, root_concentration):
    """Put the expectation of the probabilities of all inner items given n in place of a draw."""
    for level in range(plan.active_starts.size - 1):
        for active in range(plan.active_starts[level], plan.active_starts[level + 1]):
            node = plan.active_node[active]
            total = state.node_total[node] + root_concentration
            if level > 0:
                total = state.node_total[node] + state.concentration[plan.child_group[plan.node_parent[node]]]
            scale = state.concentration[plan.child_group[node]] / total
            for item in range(plan.active_first[active], plan.active_last[active]):
                if plan.is_inner[item]:
                    if level == 0:
                        own = 0.0 if plan.is_unit_root else root_concentration / plan.n_values
                    else:
                        own = state.weight[plan.item_parent[item]]
                    state.weight[item] = (state.n[item] + own) * scale


@kernel
def run_fixed_point(plan, state, settings, n_most, tolerance):
    """Sweeps of expectations until no concentration moves by more than `tolerance`; returns how many it took."""
    for sweep in range(n_most):
        expect_tables(plan, state)
        sum_nodes(plan, state)
        change = expect_concentrations(plan, state, settings[0], settings[1], settings[2])
        expect_probabilities(plan, state, settings[3])
        if change < tolerance:
            return sweep + 1
    return n_most


class Tree(NamedTuple):
    """What the estimates need of a context tree; arrays as there.

    Parameters
    ----------
    parent : (n_nodes,) int64
    cell_starts : (n_nodes + 1,) int64
    cell_count : (n_cells,) int64
    cell_parent : (n_cells,) int64
    deepest : int
        First node of the deepest level.
    n_values : int
    """

    parent: Array
    cell_starts: Array
    cell_count: Array
    cell_parent: Array
    deepest: int
    n_values: int


@kernel
def add_estimates(tree, plan, state, root_concentration, scratch, sums):
    """Add the estimates given n and the concentrations: (n_x + α φ_parent) / (n + α), from the root down.

    scratch (3, n_cells) float64: n, probability and its variance; OUT sums (2, n_cells) float64, to which the probability
    and its second moment are added.
    """
    n, p, variance = scratch[0], scratch[1], scratch[2]
    n[:] = 1.0
    for item in range(plan.item_cell.size):
        n[plan.item_cell[item]] = state.n[item]
    for node in range(tree.parent.size):
        first, last = tree.cell_starts[node], tree.cell_starts[node + 1]
        total = 0.0
        if node >= tree.deepest:
            for cell in range(first, last):
                n[cell] = tree.cell_count[cell]
        for cell in range(first, last):
            total += n[cell]
        alpha = root_concentration if node == 0 else state.concentration[plan.child_group[tree.parent[node]]]
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
