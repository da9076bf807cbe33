"""Expectation maximization: expected counts as a mergeable statistic, EM in passes, and EM over rows in memory with
early stopping on validation rows.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable

import numpy as np

from learners.circuits.circuit import Circuit
from learners.circuits.em.em_kernels import (
    COUNT_UNIT,
    PER_VALUE,
    Counts,
    Work,
    add_expected_counts,
    add_wide_expected_counts,
)
from learners.circuits.em.expected_sums import ExpectedSums
from learners.circuits.evaluation.circuit_compilation import ONE_ENTRY, compiled_circuit_with_weights
from learners.circuits.evaluation.evaluate import (
    chunk_or_array_rows,
    leaf_log_value_blocks,
    validate_circuit_rows,
)
from learners.circuits.evaluation.evaluate_kernels import BLOCK
from learners.circuits.kernels import CATEGORICAL, EXPONENTIAL, GAUSSIAN, POISSON, STUDENT, SUM
from learners.errors import InvalidParameter
from learners.kernels.arrays import Array, Floats
from learners.schema import Chunk

# Least factor by which a Gaussian's variance shrinks in one step.
LEAST_SHRINKAGE = 1e-6
# Rate of a Poisson leaf that only zeros reach.
LEAST_RATE = 1e-12


class ExpectedCounts(ExpectedSums[Circuit, Counts]):
    """Expected counts of each edge in the induced trees of rows, and sufficient statistics of leaves.

    A row's share of a count is rounded to a multiple of 2^-32 and added as an integer, so chunks may come in any
    order and partition, on any number of threads, with the same result bit for bit. Up to 2^31 rows.

    References: Zhao, Poupart, Gordon (2016), section 3; Peharz et al. (2017), "On the latent variable interpretation in
    SPNs".
    """

    stage = "expected counts"
    kind = "circuit"

    def _zeros(self) -> Counts:
        return Counts(
            np.zeros(self.model.n_edges, np.int64),
            np.zeros(self.model.leaf_parameters.size, np.int64),
            np.zeros((self.model.n_nodes, 3), np.int64),
            np.zeros(3, np.int64),
        )

    def _parameters(self) -> Iterable[Array]:
        return self.model.arrays

    def update(self, rows: Chunk | Array) -> None:
        """Add rows: a chunk, or (n_variables, n_rows) float64 or integers. Raises InvalidEvidence."""
        x = validate_circuit_rows(self.model, chunk_or_array_rows(rows, self.rows_of))
        compiled, weight = compiled_circuit_with_weights(self.model)
        n_slots, n_variables = compiled.n_slots, x.shape[0]
        work = Work(
            np.empty((n_slots, BLOCK)),
            np.empty((n_slots, BLOCK)),
            np.empty((n_variables, BLOCK), np.int64),
            np.empty(n_slots, np.uint8),
            np.empty(n_variables, np.uint8),
        )
        own = self._sums
        planned = Counts(
            np.zeros(compiled.edge.size, np.int64),
            own.parameter[:0],
            np.zeros((compiled.node.size, 3), np.int64),
            own.totals,
        )
        again = np.empty(x.shape[1], np.int64)
        n_again = add_expected_counts(
            compiled.plan, weight, compiled.log_offset, x, np.arange(x.shape[1]), work, planned, again
        )
        is_edge, is_parameter = compiled.edge >= 0, compiled.parameter >= 0
        own.entry[compiled.edge[is_edge]] += planned.entry[is_edge]
        own.parameter[compiled.parameter[is_parameter]] += planned.entry[is_parameter]
        own.leaf[compiled.node] += planned.leaf
        missing = np.flatnonzero(compiled.parameter == ONE_ENTRY)
        operation = np.searchsorted(compiled.plan.starts, missing, side="right") - 1
        np.add.at(own.leaf[:, 0], compiled.node[operation], planned.entry[missing])
        for some, log_leaf in leaf_log_value_blocks(self.model, x, again[:n_again]):
            add_wide_expected_counts(
                self.model.arrays, log_leaf, x, some, np.empty((3, self.model.n_nodes, BLOCK)), own
            )

    def expected(self) -> tuple[Floats, Floats, Floats]:
        """Return the counts as numbers of rows.

        Edges (n_edges,) float64; parameters (n_parameters,), at the probabilities of categorical leaves, with missing
        values distributed by these; and at numeric leaves (n_nodes, 3) rows, Σ z and Σ z²: z is x minus the mean in
        standard deviations (Gaussian), or x in means.
        """
        own, circuit = self._sums, self.model
        of_leaf = np.repeat(circuit.kind == CATEGORICAL, np.diff(circuit.leaf_starts))
        node = np.repeat(np.arange(circuit.n_nodes), np.diff(circuit.leaf_starts))[of_leaf]
        parameter = own.parameter.astype(np.float64) * COUNT_UNIT
        parameter[of_leaf] += own.leaf[node, 0] * COUNT_UNIT * np.exp(circuit.leaf_parameters[of_leaf])
        leaf = own.leaf.astype(np.float64) / np.array([1 / COUNT_UNIT, PER_VALUE, PER_VALUE])
        leaf[circuit.kind <= CATEGORICAL] = 0.0
        edge = own.entry.astype(np.float64) * COUNT_UNIT
        of_sum = np.repeat(circuit.kind == SUM, np.diff(circuit.child_starts))
        node = np.repeat(np.arange(circuit.n_nodes), np.diff(circuit.child_starts))[of_sum]
        # Only sums over indicators of large domains have counts of rows that miss the value.
        edge[of_sum] += own.leaf[node, 0] * COUNT_UNIT * np.exp(circuit.log_weight[of_sum])
        return edge, parameter, leaf

    def maximised(self, laplace: float = 0.0, narrowest: Floats | None = None) -> Circuit:
        """Return the circuit with the weights and leaves that fit the counts best.

        laplace: added to every count whose weight is not zero; a numeric leaf gets this many rows at its expected
        parameters.
        narrowest (n_variables,) float64: minimum standard deviation of Gaussian and exponential leaves.
        References: Zhao, Poupart, Gordon (2016), equation 7.
        """
        return m_step(self.model, *self.expected(), laplace, narrowest)


def m_step(
    circuit: Circuit, edge: Floats, parameter: Floats, leaf: Floats, laplace: float, narrowest: Floats | None = None
) -> Circuit:
    """Run the M-step on the output of `ExpectedCounts.expected`; a node without rows is unchanged.

    laplace is added to each count; narrowest (n_variables,) is the minimum standard deviation of each variable's
    leaves. Raises InvalidParameter if laplace is negative.
    """
    if not laplace >= 0:
        raise InvalidParameter("laplace", laplace, "zero or more")
    log_weight = _shares(circuit.log_weight, edge, circuit.child_starts, circuit.kind == SUM, laplace)
    leaves = _shares(circuit.leaf_parameters, parameter, circuit.leaf_starts, circuit.kind == CATEGORICAL, laplace)
    n = leaf[:, 0] + laplace
    numeric = np.flatnonzero((circuit.kind >= GAUSSIAN) & (leaf[:, 0] > 0))
    first, kind = circuit.leaf_starts[numeric], circuit.kind[numeric]
    old, total = circuit.leaf_parameters[first], n[numeric]
    z, z_squared = leaf[numeric, 1], leaf[numeric, 2]
    gaussian, counts, waits = (kind == GAUSSIAN) | (kind >= STUDENT), kind == POISSON, kind == EXPONENTIAL
    spread = circuit.leaf_parameters[np.minimum(first + 1, circuit.leaf_starts[numeric + 1] - 1)]
    shift = z / total
    variance = np.maximum((z_squared + laplace) / total - shift**2, LEAST_SHRINKAGE)
    leaves[first[gaussian]] = (old + spread * shift)[gaussian]
    least = (np.zeros(circuit.n_variables) if narrowest is None else narrowest)[circuit.variable[numeric]]
    leaves[first[gaussian] + 1] = np.maximum(spread * np.sqrt(variance), least)[gaussian]
    mean = np.maximum((z + laplace) / total, LEAST_SHRINKAGE)
    leaves[first[counts]] = np.maximum(old * mean, LEAST_RATE)[counts]
    leaves[first[waits]] = 1.0 / np.maximum(mean[waits] / old[waits], least[waits])
    return circuit.with_parameters(log_weight, leaves)


def _shares(log: Floats, count: Floats, starts: Array, chosen: Array, laplace: float) -> Floats:
    """Return new log weights of the chosen nodes' segments: the shares of their counts."""
    sizes = np.diff(starts)
    node = np.repeat(np.arange(sizes.size), sizes)
    smoothed = count + laplace * (log > -np.inf)
    total = np.bincount(node, smoothed, sizes.size)
    reached = chosen & (np.bincount(node, count, sizes.size) > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(reached[node], np.log(smoothed / total[node]), log)


def em_passes(
    circuit: Circuit,
    n_passes: int,
    laplace: float = 0.1,
    tolerance: float = 0.0,
    make: Callable[[Circuit], ExpectedCounts] = ExpectedCounts,
    narrowest: Floats | None = None,
) -> Generator[ExpectedCounts, ExpectedCounts, Circuit]:
    """Run batch EM as a learner: yields one statistic per pass, created by `make` from the circuit, and returns the
    circuit.

    Stops when a pass gains less than `tolerance` nats per row. Equal weights are a fixed point of circuits with
    symmetries. laplace and narrowest as in `ExpectedCounts.m_step`.
    """
    before = -np.inf
    for _ in range(n_passes):
        counts = yield make(circuit)
        circuit = counts.maximised(laplace, narrowest)
        mean = counts.log_likelihood / max(counts.n_rows - counts.n_impossible, 1)
        if mean - before < tolerance:
            break
        before = mean
    return circuit


def batch_em(circuit: Circuit, x: Array, n_passes: int, laplace: float = 0.1, tolerance: float = 0.0) -> Circuit:
    """Run batch EM over rows (n_variables, n_rows) in memory; parameters, result and errors as in `em_passes`."""
    passes = em_passes(circuit, n_passes, laplace, tolerance)
    try:
        counts = next(passes)
        while True:
            counts.update(x)
            counts = passes.send(counts)
    except StopIteration as stop:
        return stop.value
