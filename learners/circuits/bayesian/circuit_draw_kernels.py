"""Kernels that evaluate one row in all draws of a circuit, with draws as the innermost dimension, and count induced
trees.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from learners.circuits.evaluation.density_kernels import log_poisson
from learners.circuits.evaluation.evaluate_kernels import SMALLEST
from learners.circuits.kernels import (
    CATEGORICAL,
    GAUSSIAN,
    LOOKUP,
    POISSON,
    PRODUCT,
    PRODUCT_OF,
    SUM,
    SUM_OF,
    SUM_OF_TWO,
)
from learners.circuits.queries.posterior_kernels import upward_node_values
from learners.circuits.queries.sampling_kernels import choose_child_edge, draw_uniform
from learners.kernels.arrays import Floats, Integers
from learners.kernels.jit import inner_kernel, kernel

LOG_2_E, LN_2_HIGH, LN_2_LOW = 1.4426950408889634, 0.6931471803691238, 1.9082149292705877e-10
# Added to a number, it leaves the nearest whole one in the last bits.
ROUNDING = 6755399441055744.0
# Below, the exponential function has no normal double.
LEAST_LOG = -708.0


class DrawArrays(NamedTuple):
    """Parameters of all draws, in plan order."""

    weight: Floats  # (n_entries, n_draws) float64
    # (n_numeric, 5, n_draws) float64: of numeric leaves. Gaussian: mean, 1 / standard deviation, logarithm of the
    # height. Exponential: rate, 0, log rate. Poisson: rate, 0, 0. Then mean and variance.
    numeric: Floats
    kind: Integers  # (n_numeric,) int64
    operation: Integers  # (n_numeric,) int64: which operation each numeric leaf is


@kernel
def exp_nonpositive(y):
    """Return exp(y) for y of at most 0, accurate to about the last bit; unlike np.exp, loops over it vectorize.

    References: Cody and Waite (1980), Software manual for the elementary functions, chapter 6; Taylor's series to r^13.
    """
    y = max(y, LEAST_LOG)
    t = y * LOG_2_E + ROUNDING
    n = t - ROUNDING
    r = (y - n * LN_2_HIGH) - n * LN_2_LOW
    p = 1 / 39916800 + r * (1 / 479001600 + r / 6227020800)
    p = 1 / 40320 + r * (1 / 362880 + r * (1 / 3628800 + r * p))
    p = 1 / 120 + r * (1 / 720 + r * (1 / 5040 + r * p))
    p = 1.0 + r * (1.0 + r * (1 / 2 + r * (1 / 6 + r * (1 / 24 + r * p))))
    return p * np.int64((np.float64(t).view(np.int64) << 52) + (1023 << 52)).view(np.float64)


@inner_kernel
def numeric_leaf_values_per_draw(plan, draws, x, row, values, peak, offset):
    """Compute the values of all numeric leaves, divided by the largest of their variable and draw: OUT values, offset
    (n_draws,).

    offset receives the logarithms by which each draw is divided in total; peak (n_variables, n_draws) is scratch.
    """
    n_planes, variable = plan.plane_starts[-1], plan.variable
    operation = draws.operation
    peak[:] = -np.inf
    for i in range(operation.size):
        v = variable[operation[i]]
        number = x[v, row]
        if np.isnan(number):
            continue
        out, most, leaf = values[n_planes + operation[i]], peak[v], draws.numeric[i]
        if draws.kind[i] == GAUSSIAN:
            for d in range(out.size):
                z = (number - leaf[0, d]) * leaf[1, d]
                out[d] = leaf[2, d] - 0.5 * z * z
        elif draws.kind[i] == POISSON:
            for d in range(out.size):
                out[d] = log_poisson(leaf[0, d], number) if number >= 0.0 else -np.inf
        else:
            for d in range(out.size):
                out[d] = leaf[2, d] - leaf[0, d] * number if number >= 0.0 else -np.inf
        for d in range(out.size):
            most[d] = max(most[d], out[d])
    for v in range(peak.shape[0]):
        for d in range(offset.size):
            if peak[v, d] == -np.inf:
                peak[v, d] = 0.0
            offset[d] += peak[v, d]
    for i in range(operation.size):
        v = variable[operation[i]]
        out, most = values[n_planes + operation[i]], peak[v]
        if np.isnan(x[v, row]):
            out[:] = 1.0
        else:
            for d in range(out.size):
                out[d] = exp_nonpositive(out[d] - most[d]) if out[d] > -np.inf else 0.0


@inner_kernel
def upward_pass_per_draw(plan, draws, x, row, codes, values, peak, offset):
    """Compute the values of all slots at one row for all draws: OUT values (n_slots, n_draws), codes (n_variables,),
    offset (n_draws,).
    """
    n_planes, weight = plan.plane_starts[-1], draws.weight
    starts, child, segments, kinds = plan.starts, plan.child, plan.segments, plan.segment_kind
    offset[:] = 0.0
    for v in range(plan.n_values.size):
        n, value = plan.n_values[v], x[v, row]
        codes[v] = np.int64(value) if value >= 0 and value < n else n
        if plan.needs_planes:
            for a in range(plan.plane_starts[v + 1] - plan.plane_starts[v]):
                values[plan.plane_starts[v] + a] = 1.0 if codes[v] == a or codes[v] == n else 0.0
    numeric_leaf_values_per_draw(plan, draws, x, row, values, peak, offset)
    for s in range(kinds.size):
        kind = kinds[s]
        if kind <= LOOKUP:
            for i in range(segments[s], segments[s + 1]):
                v, out = plan.variable[i], values[n_planes + i]
                if codes[v] < plan.n_values[v]:
                    own = weight[starts[i] + codes[v]]
                    for d in range(out.size):
                        out[d] = own[d]
                else:
                    out[:] = 1.0
        elif kind == SUM_OF or kind == SUM_OF_TWO:
            for i in range(segments[s], segments[s + 1]):
                out, w, below = values[n_planes + i], weight[starts[i]], values[child[starts[i]]]
                for d in range(out.size):
                    out[d] = w[d] * below[d]
                for e in range(starts[i] + 1, starts[i + 1]):
                    w, below = weight[e], values[child[e]]
                    for d in range(out.size):
                        out[d] += w[d] * below[d]
        elif kind >= PRODUCT_OF:
            for i in range(segments[s], segments[s + 1]):
                out, below = values[n_planes + i], values[child[starts[i]]]
                for d in range(out.size):
                    out[d] = below[d]
                for e in range(starts[i] + 1, starts[i + 1]):
                    below = values[child[e]]
                    for d in range(out.size):
                        out[d] *= below[d]


@kernel
def root_log_values_per_draw(plan, draws, x, scratch, logs):
    """Compute the log of the root at all rows of x and all draws: OUT logs (n_rows, n_draws); NaN if too small for a
    double.

    scratch: values (n_slots, n_draws), peak (n_variables, n_draws), offset (n_draws,), codes (n_variables,).
    """
    values, peak, offset, codes = scratch
    root = values[plan.root]
    for row in range(x.shape[1]):
        upward_pass_per_draw(plan, draws, x, row, codes, values, peak, offset)
        for d in range(offset.size):
            logs[row, d] = math.log(root[d]) + offset[d] if root[d] > SMALLEST else np.nan


@inner_kernel
def downward_pass_per_draw(plan, weight, is_wanted, values, derivatives, product):
    """Compute the derivatives of the root by all wanted slots for all draws; OUT derivatives (n_slots, n_draws),
    product (n_draws,) scratch.
    """
    n_planes = plan.plane_starts[-1]
    starts, child, segments, kinds = plan.starts, plan.child, plan.segments, plan.segment_kind
    for slot in range(is_wanted.size):
        if is_wanted[slot]:
            derivatives[slot] = 0.0
    derivatives[plan.root] = 1.0
    for s in range(kinds.size - 1, -1, -1):
        if kinds[s] < SUM_OF:
            continue
        for i in range(segments[s], segments[s + 1]):
            if not is_wanted[n_planes + i]:
                continue
            above = derivatives[n_planes + i]
            for e in range(starts[i], starts[i + 1]):
                if not is_wanted[child[e]]:
                    continue
                below = derivatives[child[e]]
                if kinds[s] <= SUM_OF_TWO:
                    w = weight[e]
                    for d in range(above.size):
                        below[d] += w[d] * above[d]
                    continue
                for d in range(above.size):
                    product[d] = above[d]
                for f in range(starts[i], starts[i + 1]):
                    if f != e:
                        other = values[child[f]]
                        for d in range(above.size):
                            product[d] *= other[d]
                for d in range(above.size):
                    below[d] += product[d]


@inner_kernel
def add_marginals_per_draw(plan, weight, wanted, derivatives, codes, scale, out):
    """Add the posteriors of the queried variables to OUT out (n_cells, n_draws); scale (n_draws,) is 1 / root."""
    starts, variable, n_values, firsts = plan.starts, plan.variable, plan.n_values, wanted.first
    n_planes = plan.plane_starts[-1]
    for i in wanted.leaves:
        v, share = variable[i], derivatives[n_planes + i]
        if codes[v] == n_values[v]:
            for a in range(n_values[v]):
                w, cell = weight[starts[i] + a], out[firsts[v] + a]
                for d in range(scale.size):
                    cell[d] += share[d] * scale[d] * w[d]
    for v in wanted.variables:
        if codes[v] < n_values[v]:
            out[firsts[v] + codes[v]] = 1.0


@inner_kernel
def add_moments_per_draw(plan, draws, wanted, derivatives, x, row, scale, out):
    """Add the mean and variance of each queried numeric variable, as `add_marginals_per_draw` does."""
    variable, firsts, n_planes = plan.variable, wanted.first, plan.plane_starts[-1]
    for again in range(2):
        for i in range(draws.operation.size):
            v = variable[draws.operation[i]]
            if firsts[v] < 0:
                continue
            leaf, share = draws.numeric[i], derivatives[n_planes + draws.operation[i]]
            mean, variance = out[firsts[v]], out[firsts[v] + 1]
            if not np.isnan(x[v, row]):
                mean[:] = x[v, row]
                continue
            for d in range(scale.size):
                own = leaf[3, d]
                if again:
                    variance[d] += share[d] * scale[d] * (leaf[4, d] + (own - mean[d]) ** 2)
                else:
                    mean[d] += share[d] * scale[d] * own


@kernel
def posteriors_per_draw(plan, draws, wanted, x, moments, scratch, logs, out):
    """Compute marginals, or moments, of the queried variables at all rows of x and all draws.

    OUT logs (n_rows, n_draws) as in `root_log_values_per_draw`, and out (n_rows, n_cells, n_draws), initially
    zero; undefined where logs are NaN. scratch: values and derivatives (n_slots, n_draws), peak
    (n_variables, n_draws), offset, product (n_draws,), codes.
    """
    values, derivatives, peak, offset, product, codes = scratch
    scale = np.empty(offset.size)
    root = values[plan.root]
    for row in range(x.shape[1]):
        upward_pass_per_draw(plan, draws, x, row, codes, values, peak, offset)
        for d in range(offset.size):
            is_small = not root[d] > SMALLEST
            logs[row, d] = np.nan if is_small else math.log(root[d]) + offset[d]
            scale[d] = 0.0 if is_small else 1.0 / root[d]
        downward_pass_per_draw(plan, draws.weight, wanted.is_wanted, values, derivatives, product)
        if moments:
            add_moments_per_draw(plan, draws, wanted, derivatives, x, row, scale, out[row])
        else:
            add_marginals_per_draw(plan, draws.weight, wanted, derivatives, codes, scale, out[row])


@kernel
def draw_and_count_induced_tree(arrays, weight, values, x, row, centre, state, stack, edges, cells, leaves):
    """Draw an induced tree of a row, and add it to OUT edges (n_edges,), cells (n_parameters,) and leaves (n_nodes, 3).

    Children of sums are chosen by `choose_child_edge`. leaves: for numeric ones the rows, the sum and the sum of
    squares of their numbers minus the centre (n_variables,). stack (n_nodes,) int64 is scratch.
    """
    child_starts, children, kinds = arrays.child_starts, arrays.children, arrays.kind
    variable, leaf_starts = arrays.variable, arrays.leaf_starts
    stack[0] = kinds.size - 1
    depth = 1
    while depth:
        depth -= 1
        node = stack[depth]
        first, last = child_starts[node], child_starts[node + 1]
        if kinds[node] == SUM:
            chosen = choose_child_edge(weight, values, children, first, last, draw_uniform(state) * values[node])
            edges[chosen] += 1
            stack[depth] = children[chosen]
            depth += 1
        elif kinds[node] == PRODUCT:
            for e in range(first, last):
                stack[depth] = children[e]
                depth += 1
        else:
            number = x[variable[node], row]
            if np.isnan(number):
                continue
            if kinds[node] == CATEGORICAL:
                cells[leaf_starts[node] + np.int64(number)] += 1
            elif kinds[node] >= GAUSSIAN:
                z = number - centre[variable[node]]
                leaves[node, 0] += 1.0
                leaves[node, 1] += z
                leaves[node, 2] += z * z


@kernel
def draw_and_count_induced_trees(arrays, x, centre, state, values, stack, edges, cells, leaves, is_left):
    """Apply `draw_and_count_induced_tree` to every row of x (n_variables, n_rows); OUT is_left (n_rows,): rows too
    improbable for linear space.
    """
    for row in range(x.shape[1]):
        upward_node_values(arrays, x, row, values)
        is_left[row] = not values[values.size - 1] > SMALLEST
        if not is_left[row]:
            draw_and_count_induced_tree(
                arrays, arrays.weight, values, x, row, centre, state, stack, edges, cells, leaves
            )
