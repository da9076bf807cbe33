"""Expectation maximization: expected counts as a mergeable statistic, EM in passes, and EM over rows in memory with
early stopping on validation rows.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

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
from learners.circuits.em.expected_sums import ExpectedSums, parallel_expected_sums
from learners.circuits.evaluation.circuit_compilation import ONE_ENTRY, compiled_circuit_with_weights
from learners.circuits.evaluation.evaluate import (
    chunk_or_array_rows,
    leaf_log_value_blocks,
    log_values,
    validate_circuit_rows,
)
from learners.circuits.evaluation.evaluate_kernels import BLOCK
from learners.circuits.kernels import CATEGORICAL, EXPONENTIAL, GAUSSIAN, POISSON, STUDENT, SUM
from learners.errors import InvalidParameter
from learners.kernels.arrays import Array, Floats, Integers
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


# Steps of stepwise EM shrink as (t + 2)^-DECAY.
DECAY = 0.6
STEP_ROWS = 512
LEAST_STEPS = 8
# Steps end, and so does a fit, when so many passes in a row gain less than GAIN nats a row.
PATIENCE = 2
GAIN = 2e-4
IMPOSSIBLE = -1e6


@dataclass(frozen=True, eq=False)
class Rows:
    """Training and validation rows."""

    # fit, valid (n_variables, n_rows) of integers or floats
    fit: Array
    valid: Array
    threads: int = 1

    def expected(self, circuit: Circuit, rows: Integers | slice) -> ExpectedCounts:
        """Return the expected counts of some training rows, independent of the number of threads."""
        return parallel_expected_sums(partial(ExpectedCounts, circuit), self.fit[:, rows], self.threads)

    def score(self, circuit: Circuit) -> float:
        """Return the mean log likelihood of the validation rows; rows of probability zero count as very improbable."""
        return float(np.maximum(log_values(circuit, self.valid), IMPOSSIBLE).mean())


@dataclass
class Fit:
    """State of fitting a circuit."""

    circuit: Circuit  # as it is now
    laplace: float = 0.1  # rows added to each count
    seed: int = 0  # of the order of rows in steps
    best: Circuit = field(init=False)  # as it explained the rows to choose by best
    valid: float = -np.inf  # how well that was, in nats a row
    n_passes: int = 0
    work: float = 0.0  # rows times edges so far
    has_ended: bool = False
    _in_steps: bool = True
    _without_gain: int = 0
    _n_steps: int = 0
    _means: tuple[Floats, Floats, Floats] | None = None

    def __post_init__(self) -> None:
        self.best = self.circuit

    def advance(self, rows: Rows, work: float, report: Callable[[], None] = lambda: None) -> None:
        """Continue fitting by whole passes for about this much work, or until the likelihood stops improving.

        report: called after each pass; may raise.
        """
        if self.valid == -np.inf:
            self._note(rows.score(self.circuit))
            self._without_gain = 0
        until = self.work + work
        cost = float(rows.fit.shape[1]) * self.circuit.n_edges
        while not self.has_ended and self.work + cost <= until:
            self._one_pass(rows)
            self.work += cost
            self.n_passes += 1
            self._note(rows.score(self.circuit))
            report()
            if self._without_gain >= PATIENCE:
                self.has_ended = not self._in_steps
                self._in_steps, self._without_gain, self.circuit = False, 0, self.best

    def again(self, laplace: float) -> Fit:
        """Return a fit that continues from the best circuit by whole passes, with another pseudo-count."""
        other = Fit(self.best, laplace, self.seed)
        other.valid, other._in_steps = self.valid, False
        return other

    def _note(self, valid: float) -> None:
        self._without_gain = 0 if valid > self.valid + GAIN else self._without_gain + 1
        if valid > self.valid:
            self.valid, self.best = valid, self.circuit

    def _one_pass(self, rows: Rows) -> None:
        if not self._in_steps:
            self.circuit = rows.expected(self.circuit, slice(None)).maximised(self.laplace)
            return
        for some in self._batches(rows.fit.shape[1]):
            self._step(rows.expected(self.circuit, some), rows.fit.shape[1])

    def _batches(self, n_rows: int) -> Iterator[Integers]:
        order = np.random.default_rng([self.seed, self.n_passes]).permutation(n_rows)
        n_batches = max(LEAST_STEPS, -(-n_rows // STEP_ROWS))
        yield from (part for part in np.array_split(order, n_batches) if part.size)

    def _step(self, counts: ExpectedCounts, n_rows: int) -> None:
        """Run one step of stepwise EM.

        References: Liang, Klein (2009), Online EM for unsupervised models, section 3.
        """
        n_possible = counts.n_rows - counts.n_impossible
        if not n_possible:
            return
        edge, parameter, leaf = (part / n_possible for part in counts.expected())
        if self._means is not None:
            step = (self._n_steps + 2.0) ** -DECAY
            pairs = zip(self._means, (edge, parameter, leaf), strict=True)
            edge, parameter, leaf = ((1 - step) * old + step * new for old, new in pairs)
        self._means = edge, parameter, leaf
        self._n_steps += 1
        self.circuit = m_step(self.circuit, edge, parameter, leaf, self.laplace / n_rows)
