"""Learning from one row after another: posterior of the induced tree, moments, projection onto Dirichlets."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learners.circuits.evaluation.density_kernels import log_density
from learners.circuits.evaluation.evaluate_kernels import SMALLEST, upward_one
from learners.circuits.evaluation.extended_range_kernels import INVERSE_RADIX, LEAST, RADIX
from learners.circuits.kernels import GAUSSIAN, LOOKUP, NUMERIC, POISSON, PRODUCT_OF, SUM_OF_TWO, TABLE_OF_TWO
from learners.circuits.streaming.projection_kernels import (
    ADF,
    BMM,
    CERTAIN,
    COUNT,
    TOTAL,
    WEIGHT,
    count_one,
    project,
)
from learners.circuits.streaming.two_child_kernels import N_BLOCK, filter_block, match_two, put_two
from learners.kernels.arrays import Array, Floats, Integers
from learners.kernels.jit import inner_kernel, kernel

# A node that is in the row's induced tree with less probability is left as it is: ten billion rows would move a
# pseudo-count by one. Most nodes of a learned circuit are such, so most of the way down is spared.
NEGLIGIBLE = 1e-10
# A number whose log density is below this is too far from all leaves for its square to be added up.
FARTHEST = -1e270


class Posterior(NamedTuple):
    """Pseudo-counts, in the order of a plan."""

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
        """(n_entries,) pseudo-counts."""
        return self.entry[COUNT]

    @property
    def weight(self) -> Floats:
        """(n_entries,) posterior means."""
        return self.entry[WEIGHT]

    @property
    def total(self) -> Floats:
        """(n_operations,) sums of pseudo-counts."""
        return self.node[TOTAL]


class Scratch(NamedTuple):
    """Memory for one row: values, exponents and flows (n_slots,), codes (n_variables,) int64, five of the most children.

    Then nodes of two that wait for each other: (N_BLOCK,) int64 and (N_ROOM,) float64, which is not zero at first.
    """

    value: Floats
    exponent: Array
    flow: Floats
    codes: Integers
    shares: Floats
    block: Integers
    room: Floats


@inner_kernel
def relative_densities(plan, x, row, value):
    """Densities of the numeric leaves at a row, divided by the largest of each variable: no number is too far from all.

    OUT value (n_slots,), only those leaves. A factor that all leaves of a variable share changes no posterior.
    """
    n_planes, variable = plan.plane_starts[-1], plan.variable
    largest = np.full(plan.n_values.size, -np.inf)
    for is_second in range(2):
        for s in range(plan.segment_kind.size):
            if plan.segment_kind[s] != NUMERIC:
                continue
            for i in range(plan.segments[s], plan.segments[s + 1]):
                v, leaf = variable[i], plan.numeric[i]
                log = log_density(leaf[0], leaf[1], leaf[2], plan.extras, plan.extra[i], x[v, row])
                if not is_second:
                    largest[v] = max(largest[v], log)
                else:
                    value[n_planes + i] = np.exp(log - largest[v]) if largest[v] > FARTHEST else 0.0


@inner_kernel
def upward_wide(plan, weight, value, exponent):
    """Evaluate sums and products again, as value · 2^(500 · exponent), from the values of leaves."""
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
    """Value · 2^(500 · powers) where powers is at most one."""
    if powers == 0.0:
        return value
    if powers == -1.0:
        return value * INVERSE_RADIX
    if powers == 1.0:
        return value * RADIX
    return 0.0


@inner_kernel
def _learn_leaf(numeric, leaf, centre, narrowest, r, x):
    """Add a row's share to the pseudo-counts of a numeric leaf; its parameters become their posterior means."""
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
def learn_rows(plan, posterior, x, rule, scratch, is_learning_leaves):
    """Update the posterior by every row of x in turn; returns the number of rows that the circuit says cannot be."""
    value, exponent, flow, codes, shares, block, room = scratch
    n_planes = plan.plane_starts[-1]
    starts, child, variable, n_values = plan.starts, plan.child, plan.variable, plan.n_values
    entry, node = posterior.entry, posterior.node
    weight, total = entry[WEIGHT], node[TOTAL]
    n_impossible, n_block = 0, 0
    for row in range(x.shape[1]):
        upward_one(plan, weight, codes, x, row, value)
        is_wide = not value[plan.root] > SMALLEST
        if is_wide:
            relative_densities(plan, x, row, value)
            upward_wide(plan, weight, value, exponent)
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
                        match_two(entry, node, i, begin, begin + 1, shares[0, 0], shares[0, 1])
                    elif kind == SUM_OF_TWO and rule == ADF:
                        put_two(entry, node, i, begin, shares[0, 0], shares[0, 1], block, n_block, room)
                        n_block += 1
                    else:
                        project(entry, node, i, begin, end, r, rule, shares)
                elif kind <= LOOKUP:
                    v = variable[i]
                    code = codes[v]
                    # A missing value says nothing about its distribution.
                    if code == n_values[v] or total[i] == 0.0:
                        continue
                    if r >= CERTAIN:
                        count_one(entry, node, i, begin, begin + n_values[v], begin + code)
                    elif kind == TABLE_OF_TWO and rule == BMM:
                        match_two(entry, node, i, begin + code, end - 1 - code, r, 0.0)
                    elif kind == TABLE_OF_TWO and rule == ADF:
                        first, second = (r, 0.0) if code == 0 else (0.0, r)
                        put_two(entry, node, i, begin, first, second, block, n_block, room)
                        n_block += 1
                    else:
                        shares[0, : n_values[v]] = 0.0
                        shares[0, code] = r
                        project(entry, node, i, begin, begin + n_values[v], r, rule, shares)
                elif is_learning_leaves and not np.isnan(x[variable[i], row]):
                    seen = x[variable[i], row]
                    _learn_leaf(
                        plan.numeric[i], posterior.leaf[i], posterior.centre[i], posterior.narrowest[i], r, seen
                    )
                if n_block == N_BLOCK:
                    filter_block(entry, node, starts, block, n_block, room, shares)
                    n_block = 0
        if n_block > 0:
            filter_block(entry, node, starts, block, n_block, room, shares)
            n_block = 0
    return n_impossible
