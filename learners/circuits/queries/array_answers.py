"""Exact answers of a circuit to batches of rows, each with its own pattern of missing values, and conditional sampling."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from learners.circuits.circuit import Circuit, cached_on_circuit
from learners.circuits.errors import ImpossibleEvidence, InvalidEvidence
from learners.circuits.evaluation.circuit_compilation import compiled_circuit, compiled_circuit_with_weights
from learners.circuits.evaluation.evaluate import (
    log_values,
    node_log_values_and_derivatives,
    relative_leaf_log_values,
    root_log_values_from_leaves,
    validate_circuit_rows,
)
from learners.circuits.evaluation.evaluate_kernels import BLOCK
from learners.circuits.evaluation.leaf_distributions import leaf_moments, leaf_parameter_slice, truncated_leaf_quantiles
from learners.circuits.kernels import CATEGORICAL, INDICATOR, PRODUCT, SUM
from learners.circuits.queries.posterior_kernels import (
    AnswerArrays,
    Wanted,
    WantedSlots,
    add_row_marginals,
    add_row_moments,
    block_posteriors,
    rowwise_posteriors,
)
from learners.circuits.queries.sampling_kernels import sample_missing_in_row, sample_missing_in_rows
from learners.circuits.variables import mask_unknown_codes
from learners.errors import InvalidParameter
from learners.kernels.arrays import Array, Floats, Integers, Mask, freeze_arrays
from learners.models.estimation import check_seed

# The joint distribution of several variables is a table of at most so many cells.
MAX_CELLS = 1 << 16
# Fewer rows go through the circuit one by one.
FEW_ROWS = 4
ROWS_AT_A_TIME = 1 << 14
MOST_KEPT = 32
# Logarithms beyond this have too few digits left to be compared.
FAR = -1e4
# Rows whose leaves are evaluated ahead of the other nodes.
FEW_AT_A_TIME = 256


@dataclass(frozen=True, eq=False)
class _Prepared:
    """A circuit in linear space, with the nodes and plan slots of the latest queries."""

    arrays: AnswerArrays
    queries: dict[tuple[int, ...], tuple[Wanted, WantedSlots]]


def marginals(circuit: Circuit, x: ArrayLike, variables: Sequence[int]) -> list[Floats]:
    """Return the marginal distribution of each given discrete variable, conditioned on each row's observed values,
    (n_rows, n_values) float64.

    x (n_variables, n_rows) float64 or integers: as in `evaluate.log_values`; the distribution of an observed
    variable is certain. Raises InvalidEvidence if the rows do not fit the circuit, or a variable is unknown or
    numeric; ImpossibleEvidence, naming a row of probability zero.
    References: Darwiche (2003), section 4.2: all posteriors by one pass up and one down.
    """
    variables, sizes = check_discrete_variables(circuit, variables)
    out = _posteriors(circuit, x, variables, sizes, moments=False)
    ends = np.cumsum(sizes).tolist()
    return [out[:, first:end] for first, end in zip([0, *ends], ends, strict=False)]


def moments(circuit: Circuit, x: ArrayLike, variables: Sequence[int]) -> tuple[Floats, Floats]:
    """Return the expectation and variance of numeric variables given each row's observed values, (n_rows,
    len(variables)) float64 each.

    x (n_variables, n_rows) float64: as in `evaluate.log_values`; an observed variable has variance zero.
    Raises InvalidEvidence, ImpossibleEvidence as in `marginals`.
    """
    variables = check_numeric_variables(circuit, variables)
    out = _posteriors(circuit, x, variables, np.full(len(variables), 2, np.int64), moments=True)
    return out[:, 0::2], out[:, 1::2]


def conditional(circuit: Circuit, x: ArrayLike, variables: Sequence[int]) -> Floats:
    """Return the joint distribution of discrete variables, conditioned on each row's observed values, (n_rows,
    n_values, n_values, …) float64.

    x (n_variables, n_rows) float64 or integers: as in `marginals`.
    Raises InvalidEvidence also if the table has more than 65,536 cells; ImpossibleEvidence.
    """
    variables, sizes = check_discrete_variables(circuit, variables)
    if len(variables) == 1:
        return marginals(circuit, x, variables)[0]
    n_cells = check_joint_cell_count(sizes.tolist())
    x = validate_circuit_rows(circuit, x)
    parts = [
        _joint(circuit, x[:, first : first + ROWS_AT_A_TIME // n_cells + 1], list(variables), first)
        for first in range(0, x.shape[1], ROWS_AT_A_TIME // n_cells + 1)
    ]
    return np.concatenate(parts or [np.empty((0, n_cells))]).reshape(-1, *sizes)


def check_joint_cell_count(sizes: Sequence[int]) -> int:
    """Return the number of cells in the joint distribution of variables with these domain sizes.

    Raises InvalidEvidence if it exceeds 65,536.
    """
    n_cells = math.prod(sizes)
    if n_cells > MAX_CELLS:
        raise InvalidEvidence(
            f"The joint distribution of {len(sizes)} variables has {n_cells:,} cells, more than {MAX_CELLS:,}: ask for fewer columns, "
            "for each separately, or for samples."
        )
    return n_cells


def class_posterior(circuit: Circuit, x: ArrayLike, variable: int) -> Floats:
    """Return the distribution of a variable, the class, given the row's other values, (n_rows, n_values) float64.

    x (n_variables, n_rows) float64 or integers: as in `marginals`; the variable's own values are ignored.
    """
    (variable,) = check_query_variables(circuit, [variable])
    x = np.array(validate_circuit_rows(circuit, x))
    x[variable] = np.nan
    return marginals(circuit, x, [variable])[0]


def cross_rows_with_values(circuit: Circuit, x: Floats, variables: Sequence[int]) -> tuple[Floats, Mask]:
    """Combine every row with every combination of values of the given variables, the last fastest, (n_variables,
    n_rows * n_cells) float64.

    Also returns whether the row itself has another value of one of the variables, (n_rows * n_cells,) bool.
    """
    own = list(variables)
    cells = np.array(list(itertools.product(*(range(size) for size in circuit.n_values[own].tolist())))).T
    many = np.repeat(x, cells.shape[1], axis=1)
    observed, codes = many[own], np.tile(cells, x.shape[1])
    is_observed = (observed >= 0) & (observed < circuit.n_values[own][:, np.newaxis])
    many[own] = codes
    return many, (is_observed & (observed != codes)).any(axis=0)


def _joint(circuit: Circuit, x: Array, variables: list[int], first_row: int) -> Floats:
    n_rows = x.shape[1]
    many, is_contradicted = cross_rows_with_values(circuit, x, variables)
    logs = log_values(circuit, many)
    if not circuit.n_values.all() and (logs.reshape(n_rows, -1).max(axis=1) < FAR).any():
        for first in range(0, many.shape[1], FEW_AT_A_TIME):
            some = slice(first, first + FEW_AT_A_TIME)
            logs[some] = root_log_values_from_leaves(circuit, relative_leaf_log_values(circuit, many[:, some]))
    logs[is_contradicted] = -np.inf
    logs = logs.reshape(n_rows, -1)
    most = logs.max(axis=1, keepdims=True, initial=-np.inf)
    impossible = np.flatnonzero(most == -np.inf)
    if impossible.size:
        raise ImpossibleEvidence(first_row + int(impossible[0]))
    p = np.exp(logs - most)
    return p / p.sum(axis=1, keepdims=True)


def check_query_variables(circuit: Circuit, variables: Sequence[int]) -> tuple[int, ...]:
    """Return the query variables after checking that they are distinct and in the circuit. Raises InvalidEvidence."""
    variables = tuple(int(v) for v in variables)
    if variables in linear_space_circuit(circuit).queries:
        return variables
    if not variables:
        raise InvalidEvidence("The query names no variable: name at least one.")
    for v in variables:
        check_circuit_variable(circuit, v)
    if len(set(variables)) < len(variables):
        raise InvalidEvidence(f"Variable {next(v for v in variables if variables.count(v) > 1)} is queried twice.")
    return variables


def check_discrete_variables(circuit: Circuit, variables: Sequence[int]) -> tuple[tuple[int, ...], Integers]:
    """Return the variables of a query about distributions, and their domain sizes. Raises InvalidEvidence."""
    variables = check_query_variables(circuit, variables)
    sizes = circuit.n_values[list(variables)]
    if not sizes.all():
        v = variables[int(np.argmin(sizes))]
        raise InvalidEvidence(f"Variable {v} is numeric: ask for its moments, or for samples.")
    return variables, sizes


def check_numeric_variables(circuit: Circuit, variables: Sequence[int]) -> tuple[int, ...]:
    """Return the variables of a query about moments. Raises InvalidEvidence."""
    variables = check_query_variables(circuit, variables)
    for v in variables:
        if circuit.n_values[v]:
            raise InvalidEvidence(f"Variable {v} is discrete: ask for its distribution; its codes have no mean.")
    return variables


def check_circuit_variable(circuit: Circuit, v: int) -> None:
    """Refuse a variable that the circuit does not have, or that has no leaf. Raises InvalidEvidence."""
    if not 0 <= v < circuit.n_variables:
        raise InvalidEvidence(
            f"Variable {v} is not in the circuit, which has variables 0 to {circuit.n_variables - 1}."
        )
    if not circuit.scopes[circuit.root, v >> 6] >> np.uint64(v & 63) & np.uint64(1):
        raise InvalidEvidence(f"Variable {v} has no leaf in the circuit, so the circuit cannot answer about it.")


def linear_space_circuit(circuit: Circuit) -> _Prepared:
    """Return the circuit in linear space, cached."""
    return cached_on_circuit(circuit, _prepare)


def _prepare(circuit: Circuit) -> _Prepared:
    parameters = circuit.leaf_parameters.copy()
    is_log = np.repeat(circuit.kind == CATEGORICAL, np.diff(circuit.leaf_starts))
    parameters[is_log] = np.exp(parameters[is_log])
    arrays = AnswerArrays(
        circuit.kind,
        circuit.child_starts,
        circuit.children,
        circuit.variable,
        circuit.leaf_starts,
        circuit.n_values,
        np.exp(circuit.log_weight),
        parameters,
        compiled_circuit(circuit).log_offset,
        leaf_moments(circuit),
    )
    freeze_arrays(*arrays)
    return _Prepared(arrays, {})


def query_nodes_and_slots(circuit: Circuit, variables: tuple[int, ...], sizes: Integers) -> tuple[Wanted, WantedSlots]:
    """Return the nodes and plan slots above the leaves of the given variables, cached for the latest queries."""
    cache = linear_space_circuit(circuit).queries
    pair = cache.get(variables)
    if pair is None:
        nodes = _nodes_of_query(circuit, variables, sizes)
        pair = nodes, _slots_of_query(circuit, variables, nodes)
        # A copy of the keys, as other threads may do the same at the same time: whoever asks takes the entry or makes it.
        for old in list(cache)[: max(0, len(cache) - MOST_KEPT + 1)]:
            cache.pop(old, None)
        cache[variables] = pair
    return pair


def _nodes_of_query(circuit: Circuit, variables: tuple[int, ...], sizes: Integers) -> Wanted:
    mask = np.zeros(circuit.scopes.shape[1], np.uint64)
    for v in variables:
        mask[v >> 6] |= np.uint64(1) << np.uint64(v & 63)
    is_wanted: Mask = np.any(circuit.scopes & mask, axis=1)
    nodes = np.flatnonzero(is_wanted)
    is_inner = circuit.kind[nodes] <= PRODUCT
    first = np.full(circuit.n_variables, -1, np.int64)
    first[list(variables)] = np.cumsum(sizes) - sizes
    # The root is wanted; what it does not reach gets derivative zero.
    query_nodes = Wanted(is_wanted, np.ascontiguousarray(nodes[is_inner][::-1]), nodes[~is_inner], first)
    freeze_arrays(*query_nodes)
    return query_nodes


def _slots_of_query(circuit: Circuit, variables: tuple[int, ...], nodes: Wanted) -> WantedSlots:
    compiled_plan = compiled_circuit(circuit)
    plan, node = compiled_plan.plan, compiled_plan.node
    n_planes = int(plan.plane_starts[-1])
    is_wanted = np.zeros(n_planes + node.size, np.bool_)
    is_wanted[n_planes:] = nodes.is_wanted[node]
    for v in variables:
        is_wanted[plan.plane_starts[v] : plan.plane_starts[v + 1]] = True
    leaves, moments = np.flatnonzero(is_wanted[n_planes:] & (plan.variable >= 0)), leaf_moments(circuit)
    moments = moments[node] if moments.size else moments
    slots = WantedSlots(is_wanted, leaves, np.array(variables, np.int64), nodes.first, moments)
    freeze_arrays(*slots)
    return slots


def _posteriors(circuit: Circuit, x: ArrayLike, variables: tuple[int, ...], sizes: Integers, moments: bool) -> Floats:
    x = validate_circuit_rows(circuit, x)
    arrays = linear_space_circuit(circuit).arrays
    nodes, slots = query_nodes_and_slots(circuit, variables, sizes)
    out = np.zeros((x.shape[1], int(sizes.sum())))
    if x.shape[1] < FEW_ROWS:
        rowwise_posteriors(arrays, nodes, x, np.arange(x.shape[1]), moments, np.empty((2, circuit.n_nodes)), out)
    else:
        plan, weight = compiled_circuit_with_weights(circuit)
        most_children = int(np.diff(circuit.child_starts).max())
        values, derivatives = np.empty((2, plan.n_slots, BLOCK))
        scratch = (values, derivatives, np.empty((most_children + 1, BLOCK)))
        codes = np.empty((circuit.n_variables, BLOCK), np.int64)
        block_posteriors(plan.plan, weight, slots, x, moments, scratch, codes, out)
    for row in np.flatnonzero(np.isnan(out[:, 0])):
        # The probability that each node is in the induced tree, in log space throughout.
        logs, derivatives = (own[:, 0] for own in node_log_values_and_derivatives(circuit, x[:, row : row + 1]))
        if logs[-1] == -np.inf:
            raise ImpossibleEvidence(int(row))
        share = np.exp(logs + derivatives - logs[-1])
        out[row] = 0.0
        add = add_row_moments if moments else add_row_marginals
        add(arrays, nodes, share, x, row, out[row])
    return out


def edge_posteriors_in_log_space(circuit: Circuit, x: Array, row: int) -> Floats:
    """Return the probability of each child of a sum given the observed values below, in log space, (n_edges,) float64.

    Raises ImpossibleEvidence, naming the row, if it has probability zero.
    """
    values = node_log_values_and_derivatives(circuit, x[:, row : row + 1])[0][:, 0]
    if values[-1] == -np.inf:
        raise ImpossibleEvidence(row)
    parents = np.repeat(np.arange(circuit.n_nodes), np.diff(circuit.child_starts))
    is_reachable = (circuit.kind[parents] == SUM) & (values[parents] > -np.inf)
    with np.errstate(invalid="ignore"):
        logs = circuit.log_weight + values[circuit.children] - values[parents]
    return np.exp(np.where(is_reachable, logs, -np.inf))


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
        raise InvalidParameter("n", n, "zero or more draws")
    check_seed(seed)
    x = validate_circuit_rows(circuit, x)
    arrays = linear_space_circuit(circuit).arrays
    known = mask_unknown_codes(x, circuit.n_values)
    out = np.repeat(known.T[:, np.newaxis], n, axis=1)
    if not out.size:
        return out
    stack = np.empty(circuit.n_nodes, np.int64)
    places = np.arange(x.shape[1]) if places is None else np.ascontiguousarray(places, np.int64)
    if circuit.ranges:
        # Leaves that are cut to a range become indicators, whose value is their own number.
        leaves = np.flatnonzero(np.isin(circuit.variable, list(circuit.ranges)))
        kind, parameters = arrays.kind.copy(), arrays.parameters.copy()
        kind[leaves], parameters[arrays.leaf_starts[leaves]] = INDICATOR, leaves
        freeze_arrays(kind, parameters)
        arrays = arrays._replace(kind=kind, parameters=parameters)
    sample_missing_in_rows(arrays, x, np.uint64(seed), places, np.empty(circuit.n_nodes), stack, out)
    for row in np.flatnonzero(out[:, 0, 0] == -np.inf):
        out[row] = known[:, row]
        share = edge_posteriors_in_log_space(circuit, x, int(row))
        freeze_arrays(share)
        sample_missing_in_row(arrays, share, np.ones(circuit.n_nodes), np.uint64(seed), places[row], stack, out[row])
    for v in circuit.ranges:
        for own in np.flatnonzero(np.isnan(known[v])).tolist():
            u = np.random.default_rng([seed, int(places[own]), v]).random(n)
            out[own, :, v] = _in_range(circuit, v, out[own, :, v], u)
    return out


def _in_range(circuit: Circuit, v: int, leaves: Floats, u: Floats) -> Floats:
    """Return the quantiles u of the leaves (n,) drawn for a variable, each truncated to its range, (n,) float64."""
    draws = np.full(leaves.size, np.nan)
    for leaf in np.unique(leaves[~np.isnan(leaves)]).astype(np.int64).tolist():
        own = leaves == leaf
        draws[own] = truncated_leaf_quantiles(
            int(circuit.kind[leaf]), leaf_parameter_slice(circuit, leaf), *circuit.ranges[v], u[own]
        )
    return draws
