"""Learning from one row after another: posterior of the induced tree, moments, projection onto Dirichlets."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learners.arrays import Array, Floats, Integers
from learners.circuits.density_kernels import log_density
from learners.circuits.evaluate_kernels import SMALLEST, upward_one
from learners.circuits.kernels import GAUSSIAN, LOOKUP, NUMERIC, POISSON, PRODUCT_OF, SUM_OF, SUM_OF_TWO, TABLE_OF_TWO
from learners.circuits.many_child_kernels import N_OF_NODES, OF_NODES, filter_block, put_node
from learners.circuits.pair_kernels import filter_sixteen, filter_two, match_sixteen, match_two
from learners.circuits.projection_kernels import (
    ADF,
    ADF_CLOSED,
    BMM,
    CERTAIN,
    COUNT,
    MOVED,
    PULL,
    SLOPE,
    TOTAL,
    WEIGHT,
    count_one,
    project,
)
from learners.circuits.waiting_kernels import N_ROWS, filter_waiting, solve_waiting
from learners.circuits.wide_kernels import INVERSE_RADIX, LEAST, RADIX
from learners.kernels.jit import inner_kernel, kernel
from learners.kernels.simd import N_LANES, bits_of, item, lanes_from, lowest_bit

# A node that is in the row's induced tree with less probability is left as it is: ten billion rows would move a
# pseudo-count by one. Most nodes of a learned circuit are such, so most of the way down is spared.
NEGLIGIBLE = 1e-10
# A number whose log density is below this is too far from all leaves for its square to be added up.
FARTHEST = -1e270


class Posterior(NamedTuple):
    """Pseudo-counts, in the order of a plan.

    Attributes
    ----------
    entry : (3, n_entries) float64
        Pseudo-count, 0 where an entry is no parameter; weight, the posterior mean, by which rows are evaluated; slope, 1/ψ' of
        the pseudo-count at the last Newton step.
    node : (3, n_operations) float64
        Sum of the pseudo-counts, 0 where nothing is learned; pull, 1 / (1/ψ'(sum) - sum of the slopes); what has been
        added since the slopes were computed, one if they are not known.
    leaf : (n_operations, 3) float64
        Numeric leaves: pseudo-count, and sums of x and x² less the centre (Gaussian), of x (Poisson, exponential).
    centre, narrowest : (n_operations,) float64
        The prior's mean of Gaussian leaves; the least standard deviation of these and exponential ones.
    """

    entry: Floats
    node: Floats
    leaf: Floats
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
    """Memory for one row: values, exponents and flows (n_slots,), codes (n_variables,) int64, four of the most children."""

    value: Floats
    exponent: Array
    flow: Floats
    codes: Integers
    shares: Floats


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
                log = log_density(leaf[0], leaf[1], leaf[2], plan.extras, plan.extra[i], np.float64(x[v, row]))
                if not is_second:
                    largest[v] = max(largest[v], log)
                else:
                    value[n_planes + i] = np.exp(log - largest[v]) if largest[v] > FARTHEST else 0.0


@inner_kernel
def upward_wide(plan, weight, value, exponent):
    """Evaluate sums and products again, as value · 2^(500 · exponent), from the values of leaves."""
    n_planes = plan.plane_starts[-1]
    first_inner = n_planes
    for s in range(plan.segment_kind.size):
        if plan.segment_kind[s] <= NUMERIC:
            first_inner = n_planes + plan.segments[s + 1]
    for slot in range(first_inner):
        exponent[slot] = 0.0 if value[slot] > 0.0 else LEAST
        if 0.0 < value[slot] < INVERSE_RADIX:
            value[slot] *= RADIX
            exponent[slot] = -1.0
    for i in range(first_inner - n_planes, plan.starts.size - 1):
        begin, end = plan.starts[i], plan.starts[i + 1]
        total, power = 0.0, LEAST
        if _is_product(plan, i):
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
def _is_product(plan, i):
    """Whether an operation is a product."""
    s = np.searchsorted(plan.segments, i, side="right") - 1
    return plan.segment_kind[s] >= PRODUCT_OF


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


@inner_kernel
def _learn_pairs(plan, posterior, rule, s, codes, flow, table_codes, waiting, waiting_shares, n_late):
    """Update the distributions over two values of a segment, sixteen at a time; returns how many nodes wait for Newton's steps.

    The segment has sixteen or more. Nodes that wait are written from the n_late-th place on.
    """
    entry, node = posterior.entry, posterior.node
    count, weight, slope = entry[COUNT], entry[WEIGHT], entry[SLOPE]
    total, pull, moved = node[TOTAL], node[PULL], node[MOVED]
    n_planes = plan.plane_starts[-1]
    first, end = plan.segments[s], plan.segments[s + 1]
    while end > first:
        i = max(end - N_LANES, first)
        r = lanes_from(flow, n_planes + i)
        for k in range(N_LANES):
            # The last block reaches back to nodes that are done: nothing is observed there.
            table_codes[k] = codes[item(plan.variable, i + k)] if i + k < end else 2.0
        end = i
        code = lanes_from(table_codes, 0)
        is_active = (r >= NEGLIGIBLE) & (code < 2.0) & (lanes_from(total, i) > 0.0)
        if bits_of(is_active) == 0:
            continue
        is_due = is_active & (r < CERTAIN)
        e = item(plan.starts, i)
        certain = bits_of(is_active) & ~bits_of(is_due)
        while certain:
            k = lowest_bit(certain)
            certain &= certain - 1
            begin = e + 2 * k
            count_one(entry, node, i + k, begin, begin + 2, begin + codes[plan.variable[i + k]])
        if rule == BMM:
            match_sixteen(count, weight, total, e, i, code, r, is_due)
            continue
        left = filter_sixteen(count, weight, slope, total, pull, moved, e, i, code, r, is_due)
        while left:
            k = lowest_bit(left)
            left &= left - 1
            seen = codes[plan.variable[i + k]]
            waiting[1, n_late] = i + k
            waiting_shares[2 + seen, n_late] = flow[n_planes + i + k]
            waiting_shares[3 - seen, n_late] = 0.0
            n_late += 1
    return n_late


@kernel
def learn_rows(plan, posterior, x, rule, scratch, is_learning_leaves):
    """Update the posterior by every row of x in turn; returns the number of rows that the circuit says cannot be."""
    value, exponent, flow, codes, shares = scratch
    n_planes = plan.plane_starts[-1]
    starts, child, variable, n_values = plan.starts, plan.child, plan.variable, plan.n_values
    entry, node = posterior.entry, posterior.node
    weight, total = entry[WEIGHT], node[TOTAL]
    table_codes, room = np.empty(N_LANES), np.empty(N_ROWS * N_LANES)
    # Sums of two that wait for each other, and operations of two that wait for Newton's steps, each with both entries' shares.
    waiting, waiting_shares = np.empty((2, total.size), np.int64), np.empty((4, total.size))
    # Sums of the same number of children that wait for each other.
    block, children_room = np.empty(N_LANES, np.int64), np.ones((OF_NODES * shares.shape[1] + N_OF_NODES) * N_LANES)
    spare = np.empty(shares.shape)
    n_impossible = 0
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
        n_sums, n_late, n_block, width = 0, 0, 0, 0
        for s in range(plan.segment_kind.size - 1, -1, -1):
            kind = plan.segment_kind[s]
            last = plan.segments[s + 1] - 1
            is_in_lanes = last - plan.segments[s] >= N_LANES - 1 and (rule == BMM or rule == ADF)
            if kind == TABLE_OF_TWO and is_in_lanes:
                n_late = _learn_pairs(
                    plan, posterior, rule, s, codes, flow, table_codes, waiting, waiting_shares, n_late
                )
                continue
            for i in range(last, plan.segments[s] - 1, -1):
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
                        waiting[0, n_sums] = i
                        waiting_shares[0, n_sums], waiting_shares[1, n_sums] = shares[0, 0], shares[0, 1]
                        n_sums += 1
                    elif kind == SUM_OF and rule == ADF:
                        if n_block > 0 and width != end - begin:
                            filter_block(entry, node, starts, block, n_block, children_room, spare)
                            n_block = 0
                        block[n_block], width = i, end - begin
                        put_node(entry, node, i, begin, width, n_block, r, shares, children_room)
                        n_block += 1
                        if n_block == N_LANES:
                            filter_block(entry, node, starts, block, n_block, children_room, spare)
                            n_block = 0
                    else:
                        project(entry, node, i, begin, end, r, rule, shares)
                elif kind <= LOOKUP:
                    v = variable[i]
                    code = codes[v]
                    # A missing value says nothing about its distribution.
                    if code == n_values[v] or total[i] == 0.0:
                        continue
                    if rule <= ADF_CLOSED and r >= CERTAIN:
                        count_one(entry, node, i, begin, begin + n_values[v], begin + code)
                    elif kind == TABLE_OF_TWO and rule == BMM:
                        match_two(entry, node, i, begin + code, end - 1 - code, r, 0.0)
                    elif kind == TABLE_OF_TWO and rule == ADF:
                        filter_two(entry, node, i, begin + code, end - 1 - code, r, 0.0)
                    else:
                        shares[0, : n_values[v]] = 0.0
                        shares[0, code] = r
                        project(entry, node, i, begin, begin + n_values[v], r, rule, shares)
                elif is_learning_leaves and not np.isnan(x[variable[i], row]):
                    seen = np.float64(x[variable[i], row])
                    _learn_leaf(
                        plan.numeric[i], posterior.leaf[i], posterior.centre[i], posterior.narrowest[i], r, seen
                    )
        if rule == ADF:
            if n_block > 0:
                filter_block(entry, node, starts, block, n_block, children_room, spare)
            n_late = filter_waiting(entry, node, starts, waiting, waiting_shares, n_sums, n_late, room)
            solve_waiting(entry, node, starts, waiting, waiting_shares, n_late, room)
    return n_impossible
