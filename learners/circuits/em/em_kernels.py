"""Kernels of expected counts of edges and leaves, as multiples of 2^-32, for blocks of rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learners.circuits.evaluation.density_kernels import standardised_value_moments
from learners.circuits.evaluation.evaluate_kernels import (
    BLOCK,
    SMALLEST,
    load_row_block,
    upward_pass_block,
    wide_upward_pass,
)
from learners.circuits.kernels import (
    CATEGORICAL,
    GAUSSIAN,
    INDICATOR,
    LOOKUP,
    NUMERIC,
    POISSON,
    PRODUCT_OF,
    ROUNDED,
    STUDENT,
    SUM,
    TABLE_OF_TWO,
)
from learners.kernels.arrays import Array, Floats, Integers, Uint8s
from learners.kernels.jit import inner_kernel, kernel
from learners.kernels.simd import (
    fixed_point_lane_sum,
    load_integer_lanes,
    load_lanes,
    select_lanes,
    store_lanes,
    unchecked_array_item,
)
from learners.kernels.wide_numbers import LOG_RADIX

# A row's share of a count is rounded to a multiple of 2^-32. Whole numbers add up to the same in any order, so nothing
# depends on chunks and threads; and what rounds to zero is not followed further down.
COUNT_UNIT = 2.0**-32
PER_COUNT = 2.0**32
NEGLIGIBLE = 2.0**-33
# Values of numeric leaves are in units of the leaf's spread, at most so many, and rounded to 2^-24.
FARTHEST = 4096.0
PER_VALUE = 2.0**24
PER_NAT = 2.0**16


class Work(NamedTuple):
    """Memory for a block: values, flows (n_slots, BLOCK), codes, reached (n_slots,) uint8.

    misses (n_variables,) uint8 tells whether a row of the block lacks a variable.
    """

    values: Floats
    flows: Floats
    codes: Array
    reached: Uint8s
    misses: Uint8s


class Counts(NamedTuple):
    """Integer counts, in the order of a plan or of a circuit."""

    entry: Integers  # (n_entries,) or (n_edges,) int64
    parameter: Integers  # (n_parameters,) int64; of a plan: empty
    # (n_operations, 3) or (n_nodes, 3) int64: numeric leaves: rows, Σ z, Σ z². Categorical leaves: rows that miss the
    # value, 0, 0.
    leaf: Integers
    totals: Integers  # (3,) int64: rows, impossible rows, log-likelihood


@inner_kernel
def add_numeric_leaf_sums(kind, a, b, extras, at, share, x, leaf):
    """Add a share of x to a numeric leaf's integer sums.

    A Student leaf is a normal one with a random variance: rows are weighted by their information about it,
    outliers less (Kent, Tyler, Vardi 1994, A curious likelihood identity for the multivariate t-distribution).
    """
    if kind == STUDENT:
        z = (x - a) / b
        share *= (extras[at] + 1.0) / (extras[at] + z * z)
    leaf[0] += np.int64(share * PER_COUNT + 0.5)
    if kind >= ROUNDED:
        mean, square = standardised_value_moments(np.int64(kind), a, b, extras, at, x)
        leaf[1] += np.int64(np.rint(share * min(max(mean, -FARTHEST), FARTHEST) * PER_VALUE))
        leaf[2] += np.int64(np.rint(share * min(square, FARTHEST * FARTHEST) * PER_VALUE))
    elif kind == GAUSSIAN or kind == STUDENT:
        z = min(max((x - a) / b, -FARTHEST), FARTHEST)
        leaf[1] += np.int64(np.rint(share * z * PER_VALUE))
        leaf[2] += np.int64(np.rint(share * z * z * PER_VALUE))
    else:
        z = min(x / a if kind == POISSON else x * a, FARTHEST * FARTHEST)
        leaf[1] += np.int64(np.rint(share * z * PER_VALUE))


@inner_kernel
def _downward(plan, weight, x, rows, first, n_rows, work, counts):
    """Add the expected counts of a block whose flow at the root is set."""
    values, flows, codes, reached, misses = work
    n_planes = plan.plane_starts[-1]
    starts, child, variable, entry = plan.starts, plan.child, plan.variable, counts.entry
    for s in range(plan.segment_kind.size - 1, -1, -1):
        kind = plan.segment_kind[s]
        for i in range(plan.segments[s + 1] - 1, plan.segments[s] - 1, -1):
            slot = n_planes + i
            if not reached[slot]:
                continue
            begin, end = starts[i], starts[i + 1]
            flow = load_lanes(flows, slot)
            if kind >= PRODUCT_OF:
                for e in range(begin, end):
                    c = unchecked_array_item(child, e)
                    if reached[c]:
                        store_lanes(flows, c, load_lanes(flows, c) + flow)
                    else:
                        store_lanes(flows, c, flow)
                        reached[c] = 1
            elif kind > NUMERIC:
                ratio = select_lanes(flow > 0.0, flow / load_lanes(values, slot), 0.0)
                for e in range(begin, end):
                    c = unchecked_array_item(child, e)
                    share = unchecked_array_item(weight, e) * ratio * load_lanes(values, c)
                    share = select_lanes(share >= NEGLIGIBLE, share, 0.0)
                    n = fixed_point_lane_sum(share)
                    if n > 0:
                        entry[e] += n
                        if reached[c]:
                            store_lanes(flows, c, load_lanes(flows, c) + share)
                        else:
                            store_lanes(flows, c, share)
                            reached[c] = 1
            elif kind == TABLE_OF_TWO and misses[variable[i]] == 0:
                both, n = fixed_point_lane_sum(flow), fixed_point_lane_sum(flow * load_lanes(values, child[begin + 1]))
                entry[begin] += both - n
                entry[begin + 1] += n
            elif kind < LOOKUP:
                v = variable[i]
                code = load_integer_lanes(codes, v)
                for e in range(begin, end):
                    # A row that misses the value counts by the weight.
                    share = select_lanes(code == np.float64(plan.n_values[v]), weight[e], load_lanes(values, child[e]))
                    entry[e] += fixed_point_lane_sum(flow * share)
            elif kind == LOOKUP:
                code = codes[variable[i]]
                for r in range(n_rows):
                    entry[begin + code[r]] += np.int64(flows[slot, r] * PER_COUNT + 0.5)
            else:
                for r in range(n_rows):
                    value_at = x[variable[i], rows[first + r]]
                    if flows[slot, r] > 0.0 and not np.isnan(value_at):
                        leaf = plan.numeric[i]
                        add_numeric_leaf_sums(
                            leaf[0],
                            leaf[1],
                            leaf[2],
                            plan.extras,
                            plan.extra[i],
                            flows[slot, r],
                            value_at,
                            counts.leaf[i],
                        )


@kernel
def add_expected_counts(plan, weight, log_offset, x, rows, work, counts, again):
    """Add the expected counts of rows; returns the number of rows too improbable for doubles, whose indices are written
    to again.
    """
    n_again = 0
    for first in range(0, rows.size, BLOCK):
        n_rows = min(BLOCK, rows.size - first)
        load_row_block(plan, x, rows, first, n_rows, work.values, work.codes)
        upward_pass_block(plan, weight, x, rows, first, n_rows, work.values, work.codes)
        for v in range(plan.n_values.size):
            n, n_missing = plan.n_values[v], 0
            for r in range(n_rows):
                n_missing += work.codes[v, r] == n
            work.misses[v] = n_missing > 0
        work.reached[:] = 0
        work.reached[plan.root] = 1
        work.flows[plan.root, :] = 0.0
        for r in range(n_rows):
            root = work.values[plan.root, r]
            if root > SMALLEST:
                work.flows[plan.root, r] = 1.0
                offset = 0.0  # logarithm by which the densities of the observed numeric variables were divided
                for v in range(log_offset.size):
                    if log_offset[v] != 0.0 and not np.isnan(x[v, rows[first + r]]):
                        offset += log_offset[v]
                counts.totals[0] += 1
                counts.totals[2] += np.int64(np.rint((np.log(root) + offset) * PER_NAT))
            else:
                again[n_again] = rows[first + r]
                n_again += 1
        _downward(plan, weight, x, rows, first, n_rows, work, counts)
    return n_again


@kernel
def add_wide_expected_counts(circuit, log_leaf, x, rows, scratch, counts):
    """Add expected counts as `add_expected_counts` does, node by node in wide numbers, for the rows that need it.
    scratch (3, n_nodes, BLOCK).
    """
    values, exponents, flows = scratch[0], scratch[1], scratch[2]
    n_nodes, parameters = circuit.kind.size, circuit.leaf_parameters
    for first in range(0, rows.size, BLOCK):
        n_rows = min(BLOCK, rows.size - first)
        wide_upward_pass(circuit, log_leaf, first, n_rows, values, exponents)
        for r in range(n_rows):
            row = rows[first + r]
            counts.totals[0] += 1
            if values[n_nodes - 1, r] == 0.0:
                counts.totals[1] += 1
                continue
            log = np.log(values[n_nodes - 1, r]) + exponents[n_nodes - 1, r] * LOG_RADIX
            counts.totals[2] += np.int64(np.rint(log * PER_NAT))
            flows[:, r] = 0.0
            flows[n_nodes - 1, r] = 1.0
            for node in range(n_nodes - 1, -1, -1):
                share = flows[node, r]
                if share < NEGLIGIBLE:
                    continue
                kind = circuit.kind[node]
                for e in range(circuit.child_starts[node], circuit.child_starts[node + 1]):
                    c = circuit.children[e]
                    t = share
                    if kind == SUM:
                        # Two logarithms rather than a product: a weight may be smaller than a double.
                        ratio = values[c, r] / values[node, r]
                        t = 0.0
                        if ratio > 0.0:
                            powers = exponents[c, r] - exponents[node, r]
                            t = share * np.exp(circuit.log_weight[e] + np.log(ratio) + powers * LOG_RADIX)
                        t = t if t >= NEGLIGIBLE else 0.0
                        counts.entry[e] += np.int64(t * PER_COUNT + 0.5)
                    flows[c, r] += t
                if kind <= INDICATOR:
                    continue
                value = x[circuit.variable[node], row]
                begin, end = circuit.leaf_starts[node], circuit.leaf_starts[node + 1]
                if kind > CATEGORICAL:
                    a, b = parameters[begin], parameters[min(begin + 1, end - 1)]
                    if not np.isnan(value):
                        add_numeric_leaf_sums(kind, a, b, parameters, begin + 2, share, value, counts.leaf[node])
                elif value >= 0 and value < end - begin:
                    counts.parameter[begin + np.int64(value)] += np.int64(share * PER_COUNT + 0.5)
                else:
                    counts.leaf[node, 0] += np.int64(share * PER_COUNT + 0.5)
