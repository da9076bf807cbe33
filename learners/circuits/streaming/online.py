"""Streaming learning of a circuit's weights, one row after the other: ADF and BMM."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa

from learners.circuits.circuit import Circuit
from learners.circuits.evaluation.circuit_compilation import ONE_ENTRY, Compiled, compiled_circuit
from learners.circuits.evaluation.evaluate import chunk_or_array_rows, validate_circuit_rows
from learners.circuits.kernels import CATEGORICAL, EXPONENTIAL, GAUSSIAN, SUM
from learners.circuits.streaming.online_kernels import N_BLOCK, N_ROOM, Posterior, Scratch, learn_rows_online
from learners.circuits.streaming.projection_kernels import ADF, BMM
from learners.errors import InvalidParameter, StatisticMismatch
from learners.kernels.arrays import Array, Floats
from learners.schema import Chunk

RULES = {"adf": ADF, "bmm": BMM}
# Least pseudo-count of an edge whose weight is not zero.
LEAST_COUNT = 1e-3


class PseudoCounts(NamedTuple):
    """Pseudo-counts of a circuit's parameters before the first row."""

    edge: Floats  # (n_edges,) float64: at the edges of sums; zero where a weight is zero and stays so
    parameter: Floats  # (n_parameters,) float64: at the probabilities of categorical leaves; else zero
    # Rows that the parameters of each Gaussian, Poisson and exponential leaf stand for; infinite: they stay.
    numeric: float


def circuit_pseudo_counts(circuit: Circuit, strength: float) -> PseudoCounts:
    """Return pseudo-counts from the circuit's own weights, worth `strength` rows at every sum and leaf. Raises
    InvalidParameter if it is not above zero.
    """
    if not strength > 0:
        raise InvalidParameter("strength", strength, "above zero")

    def counts(log: Floats, kind: int, starts: Array) -> Floats:
        is_learned = np.repeat(circuit.kind == kind, np.diff(starts)) & (log > -np.inf)
        return np.where(is_learned, np.maximum(strength * np.exp(np.where(is_learned, log, 0.0)), LEAST_COUNT), 0.0)

    return PseudoCounts(
        counts(circuit.log_weight, SUM, circuit.child_starts),
        counts(circuit.leaf_parameters, CATEGORICAL, circuit.leaf_starts),
        strength,
    )


class StreamingPosterior:
    """Dirichlet posteriors of a circuit's weights, updated row by row, in row order.

    This is a fold, not a statistic: rows in another order give another result. Seeded and deterministic: the same
    rows give the same bits, however they are divided into updates. Weights of sums over indicators and of
    categorical leaves are learned alike. Numeric leaves add up their sufficient statistics, weighted by the
    probability that the row's induced tree contains the leaf. A node for which that probability is below 1e-10 is
    unchanged.

    circuit: the structure.
    prior: as from `circuit_pseudo_counts`.
    projection {"adf", "bmm"}: onto Dirichlets: the one nearest in KL divergence, by Newton's method; the one with the
    same means and sum of second moments.
    rows_of: makes (n_variables, n_rows) of a chunk; by default its `x`.
    narrowest (n_variables,) float64: least standard deviation of Gaussian and exponential leaves.
    n_rows, n_impossible: rows so far, and how many of them had probability zero and were left out.
    References: Zhao, Gordon (2017), section 4; Rashwan, Zhao, Poupart (2016); Minka (2000), "Estimating a Dirichlet
    distribution".
    """

    def __init__(
        self,
        circuit: Circuit,
        prior: PseudoCounts,
        projection: str = "adf",
        rows_of: Callable[[Chunk], Array] | None = None,
        narrowest: Floats | None = None,
    ) -> None:
        if projection not in RULES:
            raise InvalidParameter("projection", projection, f"one of {', '.join(RULES)}")
        self.structure, self.prior = circuit, prior
        self.projection, self.rows_of = projection, rows_of
        self.n_rows = self.n_impossible = 0
        self._compiled = compiled_circuit(circuit)
        # The parameters of numeric leaves change with every row.
        self._plan = self._compiled.plan._replace(numeric=self._compiled.plan.numeric.copy())
        self._state = _start(circuit, self._compiled, prior)
        if narrowest is not None:
            self._bound(narrowest)

    def _bound(self, narrowest: Floats) -> None:
        """Set the minimum standard deviations, and scale densities by the largest that they allow."""
        numeric, variable = self._plan.numeric, self._plan.variable
        is_gaussian = numeric[:, 0] == GAUSSIAN
        bounded = (is_gaussian | (numeric[:, 0] == EXPONENTIAL)) & (narrowest[variable] > 0)
        self._state.narrowest[bounded] = narrowest[variable[bounded]]
        highest = -np.log(narrowest[variable[bounded]]) - 0.5 * np.log(2.0 * np.pi) * is_gaussian[bounded]
        numeric[bounded, 3] = highest

    @property
    def spec(self) -> dict[str, object]:
        """Specification of the posterior."""
        return {"fold": "circuit posterior", "projection": self.projection, "moments": "exact"}

    def update(self, rows: Chunk | Array) -> None:
        """Learn from rows, in order. Raises InvalidEvidence.

        rows: a chunk, or (n_variables, n_rows) float64 or integers, missing as in `evaluate.log_values`: a row does
        not affect the distribution of its missing variables.
        """
        x = validate_circuit_rows(self.structure, chunk_or_array_rows(rows, self.rows_of))
        n_slots = self._compiled.n_slots
        most = int(np.diff(self._plan.starts).max(initial=1))
        values, exponents, flows = np.empty((3, n_slots))
        codes, shares = np.empty(x.shape[0], np.int64), np.empty((5, max(most, 2)))
        block, room = np.empty(N_BLOCK, np.int64), np.ones(N_ROOM)
        scratch = Scratch(values, exponents, flows, codes, shares, block, room)
        rule = RULES[self.projection]
        n_impossible = learn_rows_online(self._plan, self._state, x, rule, scratch, np.isfinite(self.prior.numeric))
        self.n_impossible += n_impossible
        self.n_rows += x.shape[1]

    def pseudo_counts(self) -> PseudoCounts:
        """Pseudo-counts of the posterior."""
        edge, parameter = _in_circuit(self.structure, self._compiled, self._state.pseudo_count)
        return PseudoCounts(edge, parameter, self.prior.numeric)

    def weight_variances(self) -> tuple[Floats, Floats]:
        """Return the Dirichlet variances of weights (n_edges,) and of probabilities of categorical leaves
        (n_parameters,).

        Zero where nothing is learned; NaN for parameters of other leaves.
        """
        known, counts = self.circuit(), self.pseudo_counts()
        is_share = np.repeat(known.kind == CATEGORICAL, np.diff(known.leaf_starts))
        shares = np.exp(np.where(is_share, known.leaf_parameters, -np.inf))
        of_shares = _variances(shares, np.where(is_share, counts.parameter, 0.0), known.leaf_starts)
        edges = _variances(np.exp(known.log_weight), counts.edge, known.child_starts)
        return edges, np.where(is_share, of_shares, np.nan)

    def circuit(self) -> Circuit:
        """The circuit with the posterior means."""
        edge, parameter = _in_circuit(self.structure, self._compiled, self._state.weight)
        structure = self.structure
        learned = self._state.total > 0
        log_weight, leaf_parameters = structure.log_weight.copy(), structure.leaf_parameters.copy()
        of_learned = np.repeat(learned, np.diff(self._plan.starts))
        edges = self._compiled.edge[of_learned & (self._compiled.edge >= 0)]
        parameters = self._compiled.parameter[of_learned & (self._compiled.parameter >= 0)]
        with np.errstate(divide="ignore"):
            log_weight[edges] = np.log(edge[edges])
            leaf_parameters[parameters] = np.log(parameter[parameters])
        for i in np.flatnonzero(structure.kind[self._compiled.node] >= GAUSSIAN):
            first, end = structure.leaf_starts[self._compiled.node[i] :][:2]
            leaf_parameters[first:end] = self._plan.numeric[i, 1 : 1 + end - first]
        return structure.with_parameters(log_weight, leaf_parameters)

    def to_arrow(self) -> pa.Table:
        """Return the state as one row of lists, from which `from_arrow` continues without a difference."""
        lists = {name: pa.array([array], pa.list_(pa.float64())) for name, array in self.state_arrays().items()}
        return pa.table(lists)

    def state_arrays(self) -> dict[str, Floats]:
        """Return the mutable state, each array flattened."""
        columns = {name: array.ravel() for name, array in self._state._asdict().items()}
        columns["numeric"] = self._plan.numeric.ravel()
        columns["seen"] = np.array([self.n_rows, self.n_impossible], np.float64)
        return columns

    def from_arrow(self, table: pa.Table) -> Self:
        """Restore the state from the output of `to_arrow`; see `with_state`."""
        lists = {name: table.column(name).combine_chunks().flatten() for name in table.column_names}
        return self.with_state({name: values.to_numpy() for name, values in lists.items()})

    def with_state(self, arrays: Mapping[str, Array]) -> Self:
        """Return a copy for the same circuit, prior and rule with the state of `state_arrays`.

        Raises StatisticMismatch if it is the state of another circuit.
        """
        read = type(self)(self.structure, self.prior, self.projection, self.rows_of)
        for name, target in (read._state._asdict() | {"numeric": read._plan.numeric}).items():
            if name not in arrays or arrays[name].size != target.size:
                raise StatisticMismatch(
                    f"The state does not belong to this circuit: {name!r} is missing or has another size."
                )
            target[...] = arrays[name].reshape(target.shape)
        read.n_rows, read.n_impossible = (int(n) for n in arrays["seen"])
        return read

    def copy(self) -> Self:
        """Return a copy in the same state."""
        return self.with_state(self.state_arrays())

    def __eq__(self, other: object) -> bool:
        """Return whether both have the same structure and state."""
        if not isinstance(other, StreamingPosterior):
            return NotImplemented
        return self.spec == other.spec and bool(self.to_arrow().equals(other.to_arrow()))


def recompute_weights_from_counts(posterior: StreamingPosterior) -> None:
    """Recompute totals, weights and leaf parameters from the counts."""
    state, plan = posterior._state, posterior._plan
    operation = np.repeat(np.arange(state.total.size), np.diff(plan.starts))
    learned = state.total > 0
    state.total[learned] = np.bincount(operation, state.pseudo_count, state.total.size)[learned]
    of_learned = learned[operation]
    state.weight[of_learned] = state.pseudo_count[of_learned] / state.total[operation][of_learned]
    state.weight[posterior._compiled.parameter == ONE_ENTRY] = 1.0
    if not np.isfinite(posterior.prior.numeric):
        return
    kind = plan.numeric[:, 0]
    n, x, x_squared = state.leaf.T
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = x / n
        spread = np.sqrt(np.maximum(x_squared / n - mean**2, 1e-12 * x_squared / n))
        spread = np.maximum(spread, state.narrowest)
        rate = 1.0 / np.maximum(mean, state.narrowest)
        plan.numeric[:, 1] = np.select([kind == GAUSSIAN, kind == EXPONENTIAL], [state.centre + mean, rate], mean)
    plan.numeric[:, 2] = np.where(kind == GAUSSIAN, spread, 0.0)
    plan.numeric[kind == 0, 1] = 0.0


def _start(circuit: Circuit, plan: Compiled, prior: PseudoCounts) -> Posterior:
    """Return the prior as a state."""
    n_operations = plan.node.size
    sizes = np.diff(plan.plan.starts)
    operation = np.repeat(np.arange(n_operations), sizes)
    count = np.zeros(plan.edge.size)
    count[plan.edge >= 0] = prior.edge[plan.edge[plan.edge >= 0]]
    count[plan.parameter >= 0] = prior.parameter[plan.parameter[plan.parameter >= 0]]
    total = np.bincount(operation, count, n_operations)
    # A single positive weight is one, whatever the rows say.
    total[np.bincount(operation, count > 0, n_operations) < 2] = 0.0
    weight = np.where(count > 0, 1.0, 0.0)
    weight[np.repeat(circuit.kind[plan.node] > SUM, sizes) & (plan.edge >= 0)] = 1.0
    learned = total[operation] > 0
    weight[learned] = count[learned] / total[operation][learned]
    weight[plan.parameter == ONE_ENTRY] = 1.0
    leaf, centre, narrowest = np.zeros((n_operations, 3)), np.zeros(n_operations), np.zeros(n_operations)
    if np.isfinite(prior.numeric):
        kind, first, second = plan.plan.numeric[:, 0], plan.plan.numeric[:, 1], plan.plan.numeric[:, 2]
        is_gaussian, is_exponential = kind == GAUSSIAN, kind == EXPONENTIAL
        leaf[:, 0] = np.where(kind > 0, prior.numeric, 0.0)
        centre[:] = np.where(is_gaussian, first, 0.0)
        mean = np.where(is_exponential, 1.0 / np.where(is_exponential, first, 1.0), np.where(is_gaussian, 0.0, first))
        leaf[:, 1] = leaf[:, 0] * mean
        leaf[:, 2] = np.where(is_gaussian, leaf[:, 0] * second**2, 0.0)
    entry = np.stack([count, weight, np.zeros(count.size)])
    node = np.stack([total, np.zeros(n_operations), np.ones(n_operations)])
    return Posterior(entry, node, leaf, centre, narrowest)


def _in_circuit(circuit: Circuit, plan: Compiled, entries: Floats) -> tuple[Floats, Floats]:
    """Map entries of a plan to the circuit's edges (n_edges,) and parameters (n_parameters,)."""
    edge, parameter = np.zeros(circuit.n_edges), np.zeros(circuit.leaf_parameters.size)
    edge[plan.edge[plan.edge >= 0]] = entries[plan.edge >= 0]
    parameter[plan.parameter[plan.parameter >= 0]] = entries[plan.parameter >= 0]
    return edge, parameter


def _variances(means: Floats, counts: Floats, starts: Array) -> Floats:
    """Return the variances of Dirichlets between starts: m (1 - m) / (sum of the pseudo-counts + 1)."""
    sizes = np.diff(starts)
    totals = np.bincount(np.repeat(np.arange(sizes.size), sizes), counts, sizes.size)
    of_entry = np.repeat(totals, sizes)
    return np.where(of_entry > 0, means * (1.0 - means) / (of_entry + 1.0), 0.0)
