"""Rows drawn from a circuit given evidence."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from learners.circuits.circuit import Circuit
from learners.circuits.columns import known_numbers
from learners.circuits.evaluation.evaluate import as_rows
from learners.circuits.evaluation.leaf_shapes import parameters_of
from learners.circuits.evaluation.truncated_leaves import truncated_numbers
from learners.circuits.kernels import INDICATOR
from learners.circuits.queries.answer_kernels import AnswerArrays
from learners.circuits.queries.answers import edge_shares_in_log_space, prepared
from learners.circuits.queries.sampling_kernels import draws, draws_of_row
from learners.errors import InvalidParameter
from learners.kernels.arrays import Floats, Integers, freeze
from learners.models.evidence import check_seed


def sample(circuit: Circuit, x: ArrayLike, n: int = 1, seed: int = 0, places: Integers | None = None) -> Floats:
    """Draw the missing values of each row from their joint distribution given the others.

    x (n_variables, n_rows) float64 or integers: missing is NaN, or for a discrete variable a code outside its domain.
    n: draws per row.
    seed: the same seed gives the same draws, bit for bit; a draw depends on the seed, its row's place and its own
    number, not on the other rows.
    places (n_rows,) int64: the rows' places, from 0; by default as they come.
    Returns (n_rows, n, n_variables) float64: observed values are kept. A variable without a leaf in the circuit stays
    NaN.
    Raises InvalidEvidence if the rows do not fit the circuit; ImpossibleEvidence, naming a row of probability zero;
    InvalidParameter if n or seed is negative.
    """
    if n < 0:
        raise InvalidParameter("n", n, "use zero or more draws")
    check_seed(seed)
    x = as_rows(circuit, x)
    arrays = prepared(circuit).arrays
    known = known_numbers(x, circuit.n_values)
    out = np.repeat(known.T[:, np.newaxis], n, axis=1)
    if not out.size:
        return out
    stack = np.empty(circuit.n_nodes, np.int64)
    places = np.arange(x.shape[1]) if places is None else np.ascontiguousarray(places, np.int64)
    if circuit.ranges:
        arrays = _telling_leaves(circuit, arrays)
    draws(arrays, x, np.uint64(seed), places, np.empty(circuit.n_nodes), stack, out)
    for row in np.flatnonzero(out[:, 0, 0] == -np.inf):
        out[row] = known[:, row]
        share = edge_shares_in_log_space(circuit, x, int(row))
        freeze(share)
        draws_of_row(arrays, share, np.ones(circuit.n_nodes), np.uint64(seed), places[row], stack, out[row])
    for v in circuit.ranges:
        for own in np.flatnonzero(np.isnan(known[v])).tolist():
            u = np.random.default_rng([seed, int(places[own]), v]).random(n)
            out[own, :, v] = _in_range(circuit, v, out[own, :, v], u)
    return out


def _telling_leaves(circuit: Circuit, arrays: AnswerArrays) -> AnswerArrays:
    """The arrays with leaves that are cut to a range as indicators, whose value is their own number."""
    leaves = np.flatnonzero(np.isin(circuit.variable, list(circuit.ranges)))
    kind, parameters = arrays.kind.copy(), arrays.parameters.copy()
    kind[leaves], parameters[arrays.leaf_starts[leaves]] = INDICATOR, leaves
    freeze(kind, parameters)
    return arrays._replace(kind=kind, parameters=parameters)


def _in_range(circuit: Circuit, v: int, leaves: Floats, u: Floats) -> Floats:
    """(n,) float64: the quantiles u of the leaves (n,) that were drawn for a variable, each cut to its range."""
    found = np.full(leaves.size, np.nan)
    for leaf in np.unique(leaves[~np.isnan(leaves)]).astype(np.int64).tolist():
        own = leaves == leaf
        found[own] = truncated_numbers(
            int(circuit.kind[leaf]), parameters_of(circuit, leaf), *circuit.ranges[v], u[own]
        )
    return found
