"""Posteriors of variables by derivatives of the root, for single rows and blocks of rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learners.circuits.evaluation.density_kernels import numeric_leaf_log_density
from learners.circuits.evaluation.evaluate_kernels import BLOCK, SMALLEST, load_row_block
from learners.circuits.evaluation.evaluate_kernels import upward_pass_block as upward_block
from learners.circuits.kernels import GAUSSIAN, INDICATOR, PRODUCT, PRODUCT_OF_TWO, STUDENT, SUM, SUM_OF, SUM_OF_TWO
from learners.kernels.arrays import Floats, Int8s, Integers, Mask
from learners.kernels.jit import inner_kernel, kernel
from learners.kernels.simd import load_lanes, store_lanes, unchecked_array_item


class AnswerArrays(NamedTuple):
    """A circuit in linear space; the first six arrays are those of `CircuitArrays`."""

    kind: Int8s
    child_starts: Integers
    children: Integers
    variable: Integers
    leaf_starts: Integers
    n_values: Integers
    weight: Floats  # (n_edges,) float64: one on the edges of products
    parameters: Floats  # (n_parameters,) float64: probabilities of categorical leaves, not their logarithms
    # (n_variables,) float64: the largest log density of any leaf of a numeric variable, by which densities are divided.
    log_offset: Floats
    moments: Floats  # (n_nodes, 2) float64: mean and variance of numeric leaves; without any, of no node


class Wanted(NamedTuple):
    """Nodes and variables of a query."""

    is_wanted: Mask  # (n_nodes,) bool: nodes above leaves of the asked variables, those leaves included
    inner: Integers  # (n_inner,) int64: sums and products among them, descending
    leaves: Integers  # (n_leaves,) int64
    first: Integers  # (n_variables,) int64: where the answer about an asked variable starts


# In loops the arrays are taken out of their tuple first: a look into it costs two atomic operations.


@kernel
def leaf_value(kind, n, parameters, first, log_offset, value):
    """Return the value of a leaf of a variable with n values; 1 if the value is missing."""
    if n > 0:
        if not (value >= 0 and value < n):
            return 1.0
        code = np.int64(value)
        if kind == INDICATOR:
            return 1.0 if code == np.int64(parameters[first]) else 0.0
        return parameters[first + code]
    if np.isnan(value):
        return 1.0
    second = parameters[first + 1] if kind == GAUSSIAN or kind >= STUDENT else 0.0
    return np.exp(
        numeric_leaf_log_density(np.float64(kind), parameters[first], second, parameters, first + 2, value) - log_offset
    )


@kernel
def upward_node_values(arrays, x, row, values):
    """Compute the values of all nodes at one row of x (n_variables, n_rows); OUT values (n_nodes,)."""
    child_starts, children, weight, kinds = arrays.child_starts, arrays.children, arrays.weight, arrays.kind
    variable, leaf_starts, n_values = arrays.variable, arrays.leaf_starts, arrays.n_values
    parameters, log_offset = arrays.parameters, arrays.log_offset
    for node in range(values.size):
        kind = kinds[node]
        if kind == SUM:
            total = 0.0
            for e in range(child_starts[node], child_starts[node + 1]):
                total += weight[e] * values[children[e]]
            values[node] = total
        elif kind == PRODUCT:
            product = 1.0
            for e in range(child_starts[node], child_starts[node + 1]):
                product *= values[children[e]]
            values[node] = product
        else:
            v = variable[node]
            values[node] = leaf_value(kind, n_values[v], parameters, leaf_starts[node], log_offset[v], x[v, row])


@kernel
def downward_node_derivatives(arrays, wanted, values, derivatives):
    """Compute the derivatives of the root by all wanted nodes; OUT derivatives (n_nodes,), others unchanged."""
    child_starts, children, weight, kinds = arrays.child_starts, arrays.children, arrays.weight, arrays.kind
    is_wanted, inner, leaves = wanted.is_wanted, wanted.inner, wanted.leaves
    for node in inner:
        derivatives[node] = 0.0
    for node in leaves:
        derivatives[node] = 0.0
    derivatives[values.size - 1] = 1.0
    for node in inner:
        above = derivatives[node]
        if above == 0.0:
            continue
        first, last = child_starts[node], child_starts[node + 1]
        if kinds[node] == SUM:
            # The children of a sum have its scope, so all are wanted.
            for e in range(first, last):
                derivatives[children[e]] += weight[e] * above
            continue
        n_zeros = 0
        for e in range(first, last):
            n_zeros += values[children[e]] == 0.0
        for e in range(first, last):
            child = children[e]
            if not is_wanted[child]:
                continue
            own = values[child]
            if n_zeros == 0:
                derivatives[child] += above * (values[node] / own)
            elif n_zeros == 1 and own == 0.0:
                others = 1.0
                for f in range(first, last):
                    if f != e:
                        others *= values[children[f]]
                derivatives[child] += above * others


@kernel
def add_row_marginals(arrays, wanted, share, x, row, out):
    """Add the posterior of the queried variables' values to OUT out (n_cells,), at a row with leaf shares (n_nodes,).

    The share of a leaf is its probability of belonging to the induced tree. Observed values have probability one.
    """
    variable, n_values = arrays.variable, arrays.n_values
    leaf_starts, parameters = arrays.leaf_starts, arrays.parameters
    kinds, firsts = arrays.kind, wanted.first
    for node in wanted.leaves:
        v = variable[node]
        first, start = firsts[v], leaf_starts[node]
        value = x[v, row]
        if value >= 0 and value < n_values[v]:
            out[first + np.int64(value)] = 1.0
        elif kinds[node] == INDICATOR:
            out[first + np.int64(parameters[start])] += share[node]
        else:
            for a in range(n_values[v]):
                out[first + a] += share[node] * parameters[start + a]


@kernel
def add_row_moments(arrays, wanted, share, x, row, out):
    """Add the mean and variance of each queried numeric variable, as `add_row_marginals` does."""
    variable, firsts, moments = arrays.variable, wanted.first, arrays.moments
    for node in wanted.leaves:
        v = variable[node]
        if np.isnan(x[v, row]):
            out[firsts[v]] += share[node] * moments[node, 0]
        else:
            out[firsts[v]] = x[v, row]
    for node in wanted.leaves:
        v = variable[node]
        if not np.isnan(x[v, row]):
            continue
        first = firsts[v]
        out[first + 1] += share[node] * (moments[node, 1] + (moments[node, 0] - out[first]) ** 2)


@kernel
def rowwise_posteriors(arrays, wanted, x, rows, moments, scratch, out):
    """Compute marginals, or moments, of the queried variables at rows of x; OUT out (n_rows, n_cells), initially zero.

    scratch (2, n_nodes) float64. The first cell of a row whose root is too small for linear space becomes NaN.
    """
    values, derivatives = scratch[0], scratch[1]
    for row in rows:
        upward_node_values(arrays, x, row, values)
        root = values[values.size - 1]
        if not root > SMALLEST:
            out[row, 0] = np.nan
            continue
        downward_node_derivatives(arrays, wanted, values, derivatives)
        for node in wanted.leaves:
            derivatives[node] *= values[node] / root
        if moments:
            add_row_moments(arrays, wanted, derivatives, x, row, out[row])
        else:
            add_row_marginals(arrays, wanted, derivatives, x, row, out[row])


class WantedSlots(NamedTuple):
    """Slots and variables of a query in a plan."""

    is_wanted: Mask  # (n_slots,) bool: slots above values of the asked variables, those included
    leaves: Integers  # (n_leaves,) int64: operations among them that are tables, lookups or numeric leaves
    variables: Integers  # (n_asked,) int64
    first: Integers  # (n_variables,) int64: where the answer about an asked variable starts
    moments: Floats  # (n_operations, 2) float64: mean and variance of numeric leaves; without any, of no operation


@inner_kernel
def downward_pass_block(plan, weight, is_wanted, values, derivatives, scratch):
    """Compute the derivatives of the root by all wanted slots for a block of rows; OUT derivatives (n_slots, BLOCK).

    scratch (most children of a product + 1, BLOCK) float64.
    """
    n_planes = plan.plane_starts[-1]
    starts, child, segments, kinds = plan.starts, plan.child, plan.segments, plan.segment_kind
    for slot in range(is_wanted.size):
        if is_wanted[slot]:
            derivatives[slot] = 0.0
    derivatives[plan.root] = 1.0
    for s in range(kinds.size - 1, -1, -1):
        kind = kinds[s]
        if kind < SUM_OF:
            continue
        for i in range(segments[s], segments[s + 1]):
            if not is_wanted[n_planes + i]:
                continue
            above = load_lanes(derivatives, n_planes + i)
            first, last = starts[i], starts[i + 1]
            if kind <= SUM_OF_TWO:
                for e in range(first, last):
                    c = unchecked_array_item(child, e)
                    store_lanes(derivatives, c, load_lanes(derivatives, c) + unchecked_array_item(weight, e) * above)
            elif kind == PRODUCT_OF_TWO:
                for e in range(2):
                    c = child[first + e]
                    if is_wanted[c]:
                        other = load_lanes(values, child[last - 1 - e])
                        store_lanes(derivatives, c, load_lanes(derivatives, c) + above * other)
            else:
                # What stands left of each child, then, coming back, times what stands right of it.
                left = above
                for e in range(first, last):
                    store_lanes(scratch, e - first, left)
                    left = left * load_lanes(values, unchecked_array_item(child, e))
                c = child[last - 1]
                if is_wanted[c]:
                    store_lanes(derivatives, c, load_lanes(derivatives, c) + load_lanes(scratch, last - 1 - first))
                after = load_lanes(values, c)
                for e in range(last - 2, first - 1, -1):
                    c = unchecked_array_item(child, e)
                    if is_wanted[c]:
                        before = load_lanes(scratch, e - first)
                        store_lanes(derivatives, c, load_lanes(derivatives, c) + before * after)
                    after = after * load_lanes(values, c)


@inner_kernel
def add_block_marginals(plan, weight, wanted, derivatives, codes, scale, out):
    """Add the posteriors of a block, whose rows have the scales 1 / root, to OUT out (n_rows, n_cells).

    The derivatives of planes are completed in the process.
    """
    n_rows = out.shape[0]
    starts, variable, n_values, firsts = plan.starts, plan.variable, plan.n_values, wanted.first
    n_planes, plane_starts = plan.plane_starts[-1], plan.plane_starts
    for i in wanted.leaves:
        v = variable[i]
        share = derivatives[n_planes + i]
        start = plane_starts[v]
        if plane_starts[v + 1] > start:
            # A table is a sum over the planes: what comes down to it goes on to them, all rows together.
            for a in range(n_values[v]):
                below = load_lanes(derivatives, start + a)
                store_lanes(
                    derivatives, start + a, below + weight[starts[i] + a] * load_lanes(derivatives, n_planes + i)
                )
        else:
            for r in range(n_rows):
                if codes[v, r] == n_values[v]:
                    for a in range(n_values[v]):
                        out[r, firsts[v] + a] += share[r] * scale[r] * weight[starts[i] + a]
    for v in wanted.variables:
        n, first = n_values[v], firsts[v]
        for r in range(n_rows):
            if codes[v, r] < n:
                out[r, first + codes[v, r]] = 1.0
            else:
                for a in range(plane_starts[v + 1] - plane_starts[v]):
                    out[r, first + a] = derivatives[plane_starts[v] + a, r] * scale[r]


@inner_kernel
def add_block_moments(plan, wanted, derivatives, x, rows, scale, out):
    """Add the mean and variance of each queried numeric variable for the rows of x, as `add_block_marginals` does."""
    variable, firsts, moments, n_planes = plan.variable, wanted.first, wanted.moments, plan.plane_starts[-1]
    for again in range(2):
        for i in wanted.leaves:
            v, share = variable[i], derivatives[n_planes + i]
            mean, variance = moments[i, 0], moments[i, 1]
            first = firsts[v]
            for r in range(out.shape[0]):
                value = x[v, rows[r]]
                if not np.isnan(value):
                    out[r, first] = value
                elif again:
                    out[r, first + 1] += share[r] * scale[r] * (variance + (mean - out[r, first]) ** 2)
                else:
                    out[r, first] += share[r] * scale[r] * mean


@kernel
def block_posteriors(plan, weight, wanted, x, moments, scratch, codes, out):
    """Compute marginals, or moments, of the queried variables at all rows of x; OUT out (n_rows, n_cells), initially
    zero.

    scratch: values and derivatives (n_slots, BLOCK), products (most children + 1, BLOCK); codes (n_variables, BLOCK) int64.
    The first cell of a row whose root is too small for linear space becomes NaN.
    """
    values, derivatives, products = scratch
    rows = np.arange(x.shape[1])
    scale = np.empty(BLOCK)
    for first in range(0, rows.size, BLOCK):
        n_rows = min(BLOCK, rows.size - first)
        load_row_block(plan, x, rows, first, n_rows, values, codes)
        upward_block(plan, weight, x, rows, first, n_rows, values, codes)
        downward_pass_block(plan, weight, wanted.is_wanted, values, derivatives, products)
        for r in range(n_rows):
            root = values[plan.root, r]
            scale[r] = 1.0 / root if root > SMALLEST else np.nan
        if moments:
            add_block_moments(
                plan, wanted, derivatives, x, rows[first : first + n_rows], scale, out[first : first + n_rows]
            )
        else:
            add_block_marginals(plan, weight, wanted, derivatives, codes, scale, out[first : first + n_rows])
        for r in range(n_rows):
            if np.isnan(scale[r]):
                out[first + r] = 0.0
                out[first + r, 0] = np.nan
