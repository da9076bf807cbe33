"""Kernels of row-by-row learning: posterior of the induced tree, moments, projection onto Dirichlets.

The nodes of one row update separate parameters, so their order does not matter: nodes with two pseudo-counts
are processed in blocks by assumed density filtering, in a loop that vectorizes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learners.circuits.evaluation.density_kernels import numeric_leaf_log_density
from learners.circuits.evaluation.evaluate_kernels import SMALLEST, upward_pass_one_row
from learners.circuits.kernels import GAUSSIAN, LOOKUP, NUMERIC, POISSON, PRODUCT_OF, SUM_OF_TWO, TABLE_OF_TWO
from learners.circuits.streaming.projection_kernels import (
    ADF,
    BMM,
    CERTAIN,
    COUNT,
    FARTHEST,
    LARGE,
    MOST_FOLLOWED,
    MOVED,
    PULL,
    SLOPE,
    TOTAL,
    UNKNOWN,
    WEIGHT,
    moment_matched_total,
    project_onto_dirichlet,
    pseudo_count_step,
)
from learners.circuits.streaming.trigamma_kernels import (
    reciprocal_trigamma_excess,
    reciprocal_trigamma_slope,
    reciprocal_trigamma_step,
    reciprocal_trigamma_third_term,
)
from learners.kernels.arrays import Array, Floats, Integers
from learners.kernels.jit import inner_kernel, kernel
from learners.kernels.wide_numbers import INVERSE_RADIX, LEAST, RADIX

# Nodes of a block, and what a step needs of each: pseudo-counts, their sum, shares, slopes, pull; then what it gives: pseudo-counts,
# slopes, pull, and the farthest move. One flat array, so that the compiler sees that rows don't overlap.
N_BLOCK = 16
ALPHA, OTHER, SUM, SHARE, SHARE_OTHER, BEND, BEND_OTHER, KNOWN = range(0, 8 * N_BLOCK, N_BLOCK)
NEW_ALPHA, NEW_OTHER, NEW_BEND, NEW_BEND_OTHER, NEW_PULL, FARTHEST_MOVE = range(8 * N_BLOCK, 14 * N_BLOCK, N_BLOCK)
N_ROOM = 14 * N_BLOCK


@inner_kernel
def write_binary_node_to_block(entry, node, i, e, share, share_other, block, k, room):
    """Write node i, whose entries are e and the next, as the k-th of a block."""
    block[k] = i
    room[ALPHA + k], room[OTHER + k] = entry[COUNT, e], entry[COUNT, e + 1]
    room[BEND + k], room[BEND_OTHER + k] = entry[SLOPE, e], entry[SLOPE, e + 1]
    room[SUM + k], room[KNOWN + k] = node[TOTAL, i], node[PULL, i]
    room[SHARE + k], room[SHARE_OTHER + k] = share, share_other


@kernel
def filter_binary_node_block(entry, node, starts, block, n_nodes, room, shares):
    """Apply assumed density filtering to the n_nodes nodes that `write_binary_node_to_block` wrote to a block, to third
    order in the row's shares.

    With c_j the right side of the equation of `project_onto_dirichlet`, g = ψ(Σ(α + δ)) - ψ(Σα) and s = 1/ψ': the
    Taylor series of δ_j by c_j + g, and that of their sum by g, of which each derivative is s times that of the
    one before: s, s s', s (s'² + s s'').
    """
    for k in range(N_BLOCK):
        alpha, other, total = room[ALPHA + k], room[OTHER + k], room[SUM + k]
        share, share_other = room[SHARE + k], room[SHARE_OTHER + k]
        inverse = 1.0 / (alpha * other * total)
        u, v, w = other * total * inverse, alpha * total * inverse, alpha * other * inverse
        both = (share + share_other) * w
        up, down = share * u - both, share_other * v - both
        # What x exceeds 1/ψ'(x) by; where x is large it is told by x, so that nothing drifts.
        near, near_other, near_total = (
            0.5 - reciprocal_trigamma_excess(u),
            0.5 - reciprocal_trigamma_excess(v),
            0.5 - reciprocal_trigamma_excess(w),
        )
        excess = near if alpha >= LARGE else alpha - room[BEND + k]
        excess_other = near_other if other >= LARGE else other - room[BEND_OTHER + k]
        slope, slope_other = alpha - excess, other - excess_other
        left_known = 1.0 / room[KNOWN + k]
        left = excess + excess_other - near_total if total >= LARGE else left_known
        slope_total = left + slope + slope_other
        pull = 1.0 / left
        ratio, ratio_other, ratio_total = slope * u, slope_other * v, slope_total * w
        bend, bend_other, bend_total = (
            reciprocal_trigamma_slope(ratio),
            reciprocal_trigamma_slope(ratio_other),
            reciprocal_trigamma_slope(ratio_total),
        )
        half, half_other, half_total = 0.5 * bend, 0.5 * bend_other, 0.5 * bend_total
        third, third_other, third_total = (
            reciprocal_trigamma_third_term(ratio),
            reciprocal_trigamma_third_term(ratio_other),
            reciprocal_trigamma_third_term(ratio_total),
        )
        # What the first order leaves, then the second, goes into g again.
        g = (up * slope + down * slope_other) * pull
        d, d_other = (
            pseudo_count_step(up + g, slope, half, third),
            pseudo_count_step(down + g, slope_other, half_other, third_other),
        )
        g += (d + d_other - pseudo_count_step(g, slope_total, half_total, third_total)) * pull
        d, d_other = (
            pseudo_count_step(up + g, slope, half, third),
            pseudo_count_step(down + g, slope_other, half_other, third_other),
        )
        g += (d + d_other - pseudo_count_step(g, slope_total, half_total, third_total)) * pull
        d, d_other = (
            pseudo_count_step(up + g, slope, half, third),
            pseudo_count_step(down + g, slope_other, half_other, third_other),
        )
        grown = d + d_other
        follow, follow_other = (
            reciprocal_trigamma_step(d, up + g, bend, third),
            reciprocal_trigamma_step(d_other, down + g, bend_other, third_other),
        )
        room[NEW_ALPHA + k], room[NEW_OTHER + k] = alpha + d, other + d_other
        room[NEW_BEND + k], room[NEW_BEND_OTHER + k] = slope + follow, slope_other + follow_other
        room[NEW_PULL + k] = 1.0 / (
            left + (reciprocal_trigamma_step(grown, g, bend_total, third_total) - follow - follow_other)
        )
        room[FARTHEST_MOVE + k] = max(max(abs(d) * u, abs(d_other) * v), abs(grown) * w)
    for k in range(n_nodes):
        i = block[k]
        e, farthest, pull = starts[i], room[FARTHEST_MOVE + k], room[NEW_PULL + k]
        # What is not a number fails.
        if node[MOVED, i] < MOST_FOLLOWED and farthest <= FARTHEST and pull > 0.0:
            alpha, other = room[NEW_ALPHA + k], room[NEW_OTHER + k]
            total = alpha + other
            inverse = 1.0 / total
            entry[COUNT, e], entry[COUNT, e + 1] = alpha, other
            entry[WEIGHT, e], entry[WEIGHT, e + 1] = alpha * inverse, other * inverse
            entry[SLOPE, e], entry[SLOPE, e + 1] = room[NEW_BEND + k], room[NEW_BEND_OTHER + k]
            node[TOTAL, i], node[PULL, i] = total, pull
            node[MOVED, i] += farthest
        else:
            shares[0, 0], shares[0, 1] = room[SHARE + k], room[SHARE_OTHER + k]
            project_onto_dirichlet(entry, node, i, e, e + 2, shares[0, 0] + shares[0, 1], ADF, shares)


@inner_kernel
def moment_match_binary_node(entry, node, i, e, f, share, share_other):
    """Apply Bayesian moment matching to node i with the entries e and f, which have these shares of the row."""
    alpha, other, a = entry[COUNT, e], entry[COUNT, f], node[TOTAL, i]
    b, r = a + 1.0, share + share_other
    apart = alpha * share_other + other * share
    matched = moment_matched_total(a, r, 2.0 * alpha * other, apart, 2.0 * share * share_other)
    scale = 1.0 / (a * b)
    p, q = (b - r) * scale, a * scale
    mean, rest = p * alpha + q * share, p * other + q * share_other
    entry[WEIGHT, e], entry[WEIGHT, f] = mean, rest
    entry[COUNT, e], entry[COUNT, f] = mean * matched, rest * matched
    node[TOTAL, i] = matched


# A node that is in the row's induced tree with less probability is left as it is: ten billion rows would move a
# pseudo-count by one. Most nodes of a learned circuit are such, so most of the way down is spared.
NEGLIGIBLE = 1e-10
# A number whose log density is below this is too far from all leaves for its square to be added up.
LEAST_LOG = -1e270


class Posterior(NamedTuple):
    """Pseudo-counts of the posterior, in plan order."""

    # (3, n_entries) float64: pseudo-count, 0 where an entry is no parameter; weight, the posterior mean, by which rows
    # are evaluated; slope, 1/ψ' of the pseudo-count at the last Newton step.
    entry: Floats
    # (3, n_operations) float64: sum of the pseudo-counts, 0 where nothing is learned; pull, 1 / (1/ψ'(sum) - sum of the
    # slopes); what has been added since the slopes were computed, one if they are not known.
    node: Floats
    # (n_operations, 3) float64: numeric leaves: pseudo-count, and sums of x and x² less the centre (Gaussian), of x
    # (Poisson, exponential).
    leaf: Floats
    # centre, narrowest (n_operations,) float64: the prior's mean of Gaussian leaves; the least standard deviation of
    # these and exponential ones.
    centre: Floats
    narrowest: Floats

    @property
    def pseudo_count(self) -> Floats:
        """Pseudo-counts, (n_entries,)."""
        return self.entry[COUNT]

    @property
    def weight(self) -> Floats:
        """Posterior means, (n_entries,)."""
        return self.entry[WEIGHT]

    @property
    def total(self) -> Floats:
        """Sums of pseudo-counts, (n_operations,)."""
        return self.node[TOTAL]


class Scratch(NamedTuple):
    """Memory for one row: values, exponents and flows (n_slots,), codes (n_variables,) int64, five of the most
    children.

    Then pending nodes with two children: (N_BLOCK,) int64 and (N_ROOM,) float64, initially nonzero.
    """

    value: Floats
    exponent: Array
    flow: Floats
    codes: Integers
    shares: Floats
    block: Integers
    room: Floats


@inner_kernel
def relative_leaf_densities(plan, x, row, value):
    """Compute densities of the numeric leaves at a row, relative to the largest of each variable, so that no number
    underflows.

    OUT value (n_slots,), only those leaves. A factor common to all leaves of a variable does not affect
    posteriors.
    """
    n_planes, variable = plan.plane_starts[-1], plan.variable
    largest = np.full(plan.n_values.size, -np.inf)
    for is_second in range(2):
        for s in range(plan.segment_kind.size):
            if plan.segment_kind[s] != NUMERIC:
                continue
            for i in range(plan.segments[s], plan.segments[s + 1]):
                v, leaf = variable[i], plan.numeric[i]
                log = numeric_leaf_log_density(leaf[0], leaf[1], leaf[2], plan.extras, plan.extra[i], x[v, row])
                if not is_second:
                    largest[v] = max(largest[v], log)
                else:
                    value[n_planes + i] = np.exp(log - largest[v]) if largest[v] > LEAST_LOG else 0.0


@inner_kernel
def wide_slot_values(plan, weight, value, exponent):
    """Reevaluate sums and products as value · 2^(500 · exponent), from the values of leaves."""
    n_planes = plan.plane_starts[-1]
    # Leaves come before all sums and products.
    n_leaf_segments = 0
    while n_leaf_segments < plan.segment_kind.size and plan.segment_kind[n_leaf_segments] <= NUMERIC:
        n_leaf_segments += 1
    for slot in range(n_planes + plan.segments[n_leaf_segments]):
        exponent[slot] = 0.0 if value[slot] > 0.0 else LEAST
        if 0.0 < value[slot] < INVERSE_RADIX:
            value[slot] *= RADIX
            exponent[slot] = -1.0
    for s in range(n_leaf_segments, plan.segment_kind.size):
        for i in range(plan.segments[s], plan.segments[s + 1]):
            begin, end = plan.starts[i], plan.starts[i + 1]
            total, power = 0.0, LEAST
            if plan.segment_kind[s] >= PRODUCT_OF:
                total, power = 1.0, 0.0
                for e in range(begin, end):
                    total *= value[plan.child[e]]
                    power += exponent[plan.child[e]]
                    if total < INVERSE_RADIX:
                        total *= RADIX
                        power -= 1.0
            else:
                for e in range(begin, end):
                    if weight[e] > 0.0 and exponent[plan.child[e]] > power:
                        power = exponent[plan.child[e]]
                for e in range(begin, end):
                    total += weight[e] * _scaled(value[plan.child[e]], exponent[plan.child[e]] - power)
                if total < INVERSE_RADIX:
                    total *= RADIX
                    power -= 1.0
            value[n_planes + i] = total
            exponent[n_planes + i] = power if total > 0.0 else LEAST


@inner_kernel
def _scaled(value, powers):
    """Return value · 2^(500 · powers), for powers of at most one."""
    if powers == 0.0:
        return value
    if powers == -1.0:
        return value * INVERSE_RADIX
    if powers == 1.0:
        return value * RADIX
    return 0.0


@inner_kernel
def _learn_leaf(numeric, leaf, centre, narrowest, r, x):
    """Add a row's share to the pseudo-counts of a numeric leaf, and set its parameters to their posterior means."""
    leaf[0] += r
    if numeric[0] == GAUSSIAN:
        z = x - centre
        leaf[1] += r * z
        leaf[2] += r * z * z
        mean = leaf[1] / leaf[0]
        numeric[1] = centre + mean
        # The centre is the mean of the prior: far from it the difference would lose digits, but never the sign.
        numeric[2] = max(np.sqrt(max(leaf[2] / leaf[0] - mean * mean, 1e-12 * leaf[2] / leaf[0])), narrowest)
    else:
        leaf[1] += r * x
        mean = leaf[1] / leaf[0]
        numeric[1] = mean if numeric[0] == POISSON else 1.0 / max(mean, narrowest)


@kernel
def learn_rows_online(plan, posterior, x, rule, scratch, is_learning_leaves):
    """Update the posterior by every row of x in turn; returns the number of impossible rows."""
    value, exponent, flow, codes, shares, block, room = scratch
    n_planes = plan.plane_starts[-1]
    starts, child, variable, n_values = plan.starts, plan.child, plan.variable, plan.n_values
    entry, node = posterior.entry, posterior.node
    weight, total = entry[WEIGHT], node[TOTAL]
    n_impossible, n_block = 0, 0
    for row in range(x.shape[1]):
        upward_pass_one_row(plan, weight, codes, x, row, value)
        is_wide = not value[plan.root] > SMALLEST
        if is_wide:
            relative_leaf_densities(plan, x, row, value)
            wide_slot_values(plan, weight, value, exponent)
            if value[plan.root] == 0.0:
                n_impossible += 1
                continue
        flow[:] = 0.0
        flow[plan.root] = 1.0
        for s in range(plan.segment_kind.size - 1, -1, -1):
            kind = plan.segment_kind[s]
            for i in range(plan.segments[s + 1] - 1, plan.segments[s] - 1, -1):
                r = flow[n_planes + i]
                if r < NEGLIGIBLE:
                    continue
                begin, end = starts[i], starts[i + 1]
                if kind >= PRODUCT_OF:
                    for e in range(begin, end):
                        flow[child[e]] += r
                elif kind > NUMERIC:
                    inverse = r / value[n_planes + i]
                    for e in range(begin, end):
                        c = child[e]
                        below = value[c]
                        if is_wide:
                            below = _scaled(below, exponent[c] - exponent[n_planes + i])
                        share = inverse * weight[e] * below
                        shares[0, e - begin] = share
                        flow[c] += share
                    if total[i] == 0.0:
                        continue
                    if kind == SUM_OF_TWO and rule == BMM and r < CERTAIN:
                        moment_match_binary_node(entry, node, i, begin, begin + 1, shares[0, 0], shares[0, 1])
                    elif kind == SUM_OF_TWO and rule == ADF:
                        write_binary_node_to_block(
                            entry, node, i, begin, shares[0, 0], shares[0, 1], block, n_block, room
                        )
                        n_block += 1
                    else:
                        project_onto_dirichlet(entry, node, i, begin, end, r, rule, shares)
                elif kind <= LOOKUP:
                    v = variable[i]
                    code = codes[v]
                    # A missing value says nothing about its distribution.
                    if code == n_values[v] or total[i] == 0.0:
                        continue
                    if r >= CERTAIN:
                        entry[COUNT, begin + code] += 1.0
                        node[TOTAL, i] += 1.0
                        node[MOVED, i] = UNKNOWN
                        scale = 1.0 / node[TOTAL, i]
                        for e in range(begin, begin + n_values[v]):
                            weight[e] = entry[COUNT, e] * scale
                    elif kind == TABLE_OF_TWO and rule == BMM:
                        moment_match_binary_node(entry, node, i, begin + code, end - 1 - code, r, 0.0)
                    elif kind == TABLE_OF_TWO and rule == ADF:
                        first, second = (r, 0.0) if code == 0 else (0.0, r)
                        write_binary_node_to_block(entry, node, i, begin, first, second, block, n_block, room)
                        n_block += 1
                    else:
                        shares[0, : n_values[v]] = 0.0
                        shares[0, code] = r
                        project_onto_dirichlet(entry, node, i, begin, begin + n_values[v], r, rule, shares)
                elif is_learning_leaves and not np.isnan(x[variable[i], row]):
                    seen = x[variable[i], row]
                    _learn_leaf(
                        plan.numeric[i], posterior.leaf[i], posterior.centre[i], posterior.narrowest[i], r, seen
                    )
                if n_block == N_BLOCK:
                    filter_binary_node_block(entry, node, starts, block, n_block, room, shares)
                    n_block = 0
        if n_block > 0:
            filter_binary_node_block(entry, node, starts, block, n_block, room, shares)
            n_block = 0
    return n_impossible
