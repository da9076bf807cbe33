"""One row up and down a circuit, in linear space, for the nodes that a query is about."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learners.circuits.evaluation.density_kernels import log_density
from learners.circuits.kernels import GAUSSIAN, INDICATOR, PRODUCT, STUDENT, SUM
from learners.kernels.arrays import Floats, Int8s, Integers, Mask
from learners.kernels.jit import kernel

# No value or derivative exceeds one, so what is lost below 1e-300 does not show in a root above this.
SMALLEST = 1e-200


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
    """What a query is about."""

    is_wanted: Mask  # (n_nodes,) bool: nodes above leaves of the asked variables, those leaves included
    inner: Integers  # (n_inner,) int64: sums and products among them, descending
    leaves: Integers  # (n_leaves,) int64
    first: Integers  # (n_variables,) int64: where the answer about an asked variable starts


# In loops the arrays are taken out of their tuple first: a look into it costs two atomic operations.


@kernel
def leaf_value(kind, n, parameters, first, log_offset, value):
    """Value of a leaf of a variable with n values; 1 if the value is missing."""
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
    return np.exp(log_density(np.float64(kind), parameters[first], second, parameters, first + 2, value) - log_offset)


@kernel
def upward(arrays, x, row, values):
    """Values of all nodes at one row of x (n_variables, n_rows); OUT values (n_nodes,)."""
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
def downward(arrays, wanted, values, derivatives):
    """Derivatives of the root by all wanted nodes; OUT derivatives (n_nodes,), others unchanged."""
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
def add_marginals(arrays, wanted, share, x, row, out):
    """Add to OUT out (n_cells,) the posterior of the asked variables' values, at a row with shares (n_nodes,) of leaves.

    The share of a leaf is its probability of belonging to the induced tree. What is observed has probability one.
    """
    variable, leaf_starts, parameters, n_values = (
        arrays.variable,
        arrays.leaf_starts,
        arrays.parameters,
        arrays.n_values,
    )
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
def add_moments(arrays, wanted, share, x, row, out):
    """As `add_marginals` for numeric variables: mean and variance of each."""
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
def posteriors(arrays, wanted, x, rows, moments, scratch, out):
    """Marginals, or moments, of the asked variables at rows of x; OUT out (n_rows, n_cells), zero at first.

    scratch (2, n_nodes) float64. The first cell of a row whose root is too small for linear space becomes NaN.
    """
    values, derivatives = scratch[0], scratch[1]
    for row in rows:
        upward(arrays, x, row, values)
        root = values[values.size - 1]
        if not root > SMALLEST:
            out[row, 0] = np.nan
            continue
        downward(arrays, wanted, values, derivatives)
        for node in wanted.leaves:
            derivatives[node] *= values[node] / root
        if moments:
            add_moments(arrays, wanted, derivatives, x, row, out[row])
        else:
            add_marginals(arrays, wanted, derivatives, x, row, out[row])
