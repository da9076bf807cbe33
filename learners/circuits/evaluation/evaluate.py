"""Values of a circuit and its nodes for batches of rows with missing values."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import ArrayLike

from learners.circuits.circuit import Circuit
from learners.circuits.errors import InvalidEvidence
from learners.circuits.evaluation.circuit_compilation import compiled_circuit_with_weights
from learners.circuits.evaluation.evaluate_kernels import (
    BLOCK,
    root_log_values_by_block,
    root_log_values_by_row,
    wide_root_log_values,
    write_leaf_log_values,
    write_node_log_values,
)
from learners.kernels.arrays import Array, Floats, Integers, read_only_array
from learners.schema import Chunk

# Below so many rows a block costs more than the rows one by one.
FEW = 4
# Rows that are evaluated in wide numbers at a time: what they take is in memory for all nodes.
WIDE_ROWS = 256


def log_values(circuit: Circuit, x: ArrayLike) -> Floats:
    """Compute the log probability (density) of each row's observed variables, (n_rows,) float64; missing ones are
    summed out.

    Rows are evaluated in linear space, sixteen at a time, because no value exceeds one; rows whose result is too
    small for a double are evaluated again in wide numbers. So nothing underflows, and log 0 is -inf. A row's
    result does not depend on the other rows.

    x (n_variables, n_rows) float64 or integers: missing is NaN; for a discrete variable also a negative number, and
    n_values (UNSEEN) and more.
    Raises InvalidEvidence if x has another number of variables, or a discrete variable a value that is not whole.
    References: Zhao, Gordon (2017), section 2.1; Darwiche (2003), section 4.
    """
    x = validate_circuit_rows(circuit, x)
    plan, weight = compiled_circuit_with_weights(circuit)
    n_rows = x.shape[1]
    logs = np.empty(n_rows)
    if n_rows < FEW:
        root_log_values_by_row(
            plan.plan, weight, x, np.empty(plan.n_slots), np.empty(circuit.n_variables, np.int64), logs
        )
    else:
        codes = np.empty((circuit.n_variables, BLOCK), np.int64)
        root_log_values_by_block(plan.plan, weight, x, np.arange(n_rows), np.empty((plan.n_slots, BLOCK)), codes, logs)
    for v in np.flatnonzero(plan.log_offset):  # by which densities were divided
        if v in circuit.scope(circuit.root):
            logs += np.where(np.isnan(x[v]), 0.0, plan.log_offset[v])
    for some, log_leaf in leaf_log_value_blocks(circuit, x, np.flatnonzero(np.isnan(logs))):
        logs[some] = root_log_values_from_leaves(circuit, log_leaf)
    return logs


def leaf_log_value_blocks(circuit: Circuit, x: Floats, rows: Integers) -> Iterator[tuple[Integers, Floats]]:
    """Yield blocks of rows with the log values of their leaves, (n_nodes, n_rows) float64."""
    for first in range(0, rows.size, WIDE_ROWS):
        some = rows[first : first + WIDE_ROWS]
        log_leaf = np.empty((circuit.n_nodes, some.size))
        write_leaf_log_values(circuit.arrays, read_only_array(np.take(x, some, axis=1)), log_leaf)
        yield some, log_leaf


def root_log_values_from_leaves(circuit: Circuit, log_leaf: Floats) -> Floats:
    """Return the log value of the root, (n_rows,) float64, from the leaves' log values log_leaf (n_nodes, n_rows)."""
    logs = np.empty(log_leaf.shape[1])
    wide_root_log_values(circuit.arrays, log_leaf, np.empty((2, circuit.n_nodes, BLOCK)), logs)
    return logs


def relative_leaf_log_values(circuit: Circuit, x: ArrayLike) -> Floats:
    """Return the log values of all leaves, (n_nodes, n_rows) float64, relative to the largest leaf of each numeric
    variable.

    A factor common to all leaves of a variable does not affect posteriors; without it the differences between
    leaves stay accurate however far a number is from all of them. Rows of sums and products are undefined.
    """
    x = validate_circuit_rows(circuit, x)
    logs = np.empty((circuit.n_nodes, x.shape[1]))
    write_leaf_log_values(circuit.arrays, x, logs)
    for v in np.flatnonzero(circuit.n_values == 0):
        leaves = np.flatnonzero(circuit.variable == v)
        most = logs[leaves].max(axis=0, initial=-np.inf)
        logs[leaves] -= np.where(most > -np.inf, most, 0.0)
    return logs


def node_log_values_and_derivatives(circuit: Circuit, x: ArrayLike) -> tuple[Floats, Floats]:
    """Return log values of nodes, from `relative_leaf_log_values`, and log derivatives of the root by them, (n_nodes,
    n_rows) float64 each.
    """
    log_leaf = relative_leaf_log_values(circuit, x)
    values, derivatives = np.empty((2, *log_leaf.shape))
    write_node_log_values(circuit.arrays, log_leaf, *_scratch(circuit, log_leaf.shape[1]), values, derivatives)
    return values, derivatives


def upward_pass_log_values(circuit: Circuit, log_leaf: Floats, log_weight: Floats | None = None) -> Floats:
    """Return the log values of all nodes, (n_nodes,) float64, from leaf log values log_leaf (n_nodes,) and optionally
    other weights.
    """
    arrays = circuit.arrays if log_weight is None else circuit.arrays._replace(log_weight=log_weight)
    values = np.empty((circuit.n_nodes, 1))
    write_node_log_values(
        arrays, log_leaf[:, np.newaxis], *_scratch(circuit, 1), values, np.empty((circuit.n_nodes, 0))
    )
    return values[:, 0]


def log_induced_trees(circuit: Circuit) -> float:
    """Return the log number of induced trees: one child of each reached sum, and all children of each product.

    References: Zhao, Poupart, Gordon (2016), A unified approach for learning the parameters of sum-product networks,
    theorem 2: it is the value of the root where all weights and leaves are one.
    """
    log_weight = read_only_array(np.where(circuit.log_weight > -np.inf, 0.0, -np.inf))
    return float(upward_pass_log_values(circuit, np.zeros(circuit.n_nodes), log_weight)[-1])


def chunk_or_array_rows(rows: Chunk | Array, rows_of: Callable[[Chunk], Array] | None) -> Array:
    """Return the rows as variables: for a chunk the output of `rows_of`, by default its codes; an array is unchanged."""
    if not isinstance(rows, Chunk):
        return rows
    return rows.x if rows_of is None else rows_of(rows)


def validate_circuit_rows(circuit: Circuit, x: ArrayLike) -> Floats:
    """Convert rows to float64, C-contiguous and read-only, the only type for which kernels are compiled. Raises
    InvalidEvidence.
    """
    x = np.asarray(x)
    if x.ndim != 2 or x.shape[0] != circuit.n_variables:
        raise InvalidEvidence(
            f"The rows have the shape {x.shape}, the circuit has {circuit.n_variables} variables: "
            "give an array (n_variables, n_rows)."
        )
    if x.dtype.kind not in "iufb":
        raise InvalidEvidence(f"The rows are of type {x.dtype}, not numbers: encode them first.")
    rows = np.ascontiguousarray(x, np.float64)
    if x.dtype.kind == "f":
        _check_whole(circuit, rows)
    return read_only_array(rows.view())


def _check_whole(circuit: Circuit, x: Floats) -> None:
    discrete = np.flatnonzero(circuit.n_values > 0)
    broken = np.flatnonzero((np.floor(x[discrete]) != x[discrete]).any(axis=1) & ~np.isnan(x[discrete]).all(axis=1))
    for v in discrete[broken]:
        values = x[v][(np.floor(x[v]) != x[v]) & ~np.isnan(x[v])]
        if values.size:
            raise InvalidEvidence(f"Variable {v} is discrete and has the value {values[0]}: give whole codes, or NaN.")


def _scratch(circuit: Circuit, n_rows: int) -> tuple[Floats, Floats]:
    """Allocate memory for `write_node_log_values`, no wider than the rows need, because a single row should touch
    little memory.
    """
    width = max(1, min(BLOCK, n_rows))
    most = int(np.diff(circuit.child_starts).max())
    return np.empty((4, circuit.n_nodes, width)), np.empty((2, most + 1, width))
