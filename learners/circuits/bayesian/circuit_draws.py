"""Several circuits with one structure, evaluated together, and summaries over draws: mean, standard error, credible
interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from learners.circuits.bayesian.circuit_draw_kernels import DrawArrays, posteriors_per_draw, root_log_values_per_draw
from learners.circuits.circuit import Circuit
from learners.circuits.errors import ImpossibleEvidence
from learners.circuits.evaluation.circuit_compilation import ONE_ENTRY, Compiled, compiled_circuit
from learners.circuits.evaluation.evaluate import log_values, validate_circuit_rows
from learners.circuits.evaluation.leaf_distributions import truncated_leaf_moments
from learners.circuits.evaluation.reweighted import Likelihoods, reweight_circuit
from learners.circuits.kernels import EXPONENTIAL, GAUSSIAN, SUM
from learners.circuits.queries import array_answers as answers
from learners.circuits.queries.named_answers import Summary
from learners.errors import InvalidParameter
from learners.kernels.arrays import Array, Floats, Integers, freeze_arrays, read_only_array

# Level of credible intervals.
LEVEL = 0.9
HALF_LOG_2_PI = 0.5 * np.log(2.0 * np.pi)
# Answers of so many numbers are made at a time.
MOST_AT_A_TIME = 1 << 22


class CircuitDraws:
    """Draws of the weights and leaf parameters of one circuit; immutable.

    Raises InvalidParameter if they do not fit the circuit, or there is no draw.

    circuit: the structure, with its own parameters.
    weight (n_sum_edges, n_draws) float64: weights of sum edges, in the circuit's order.
    parameter (n_parameters, n_draws) float64: leaf parameters, as in `CircuitArrays.leaf_parameters`.
    """

    def __init__(self, circuit: Circuit, weight: Floats, parameter: Floats) -> None:
        self.circuit = circuit
        self.weight, self.parameter = (read_only_array(np.asarray(array, np.float64)) for array in (weight, parameter))
        sizes = (int(self._of_sum.sum()), circuit.leaf_parameters.size)
        shapes = self.weight.shape, self.parameter.shape
        if [len(shape) for shape in shapes] != [2, 2] or (shapes[0][0], shapes[1][0]) != sizes:
            raise InvalidParameter("draws", shapes, f"arrays of {sizes[0]} and {sizes[1]} rows, for this circuit")
        if shapes[0][1] != shapes[1][1] or not shapes[0][1]:
            raise InvalidParameter("draws", shapes, "as many as the draws of leaves, and at least one")

    @property
    def n_draws(self) -> int:
        """Number of draws."""
        return int(self.weight.shape[1])

    @cached_property
    def _of_sum(self) -> Array:
        """Edges that belong to a sum, (n_edges,) bool."""
        return np.repeat(self.circuit.kind == SUM, np.diff(self.circuit.child_starts))

    def of(self, draw: int) -> Circuit:
        """Return the circuit of one draw. Raises InvalidCircuit if the draw is invalid, as in a damaged file."""
        log_weight = np.zeros(self.circuit.n_edges)
        with np.errstate(divide="ignore", invalid="ignore"):
            log_weight[self._of_sum] = np.log(self.weight[:, draw])
        return self.circuit.with_parameters(log_weight, np.ascontiguousarray(self.parameter[:, draw]))

    def given(self, likelihoods: Likelihoods) -> tuple[CircuitDraws, Floats]:
        """Condition every draw on the likelihoods of given variables; returns them with their log scales (n_draws,)
        float64; see `reweight_circuit`.
        """
        log_scale = np.zeros(self.n_draws)
        if not likelihoods:
            return self, log_scale
        weight, parameter = np.empty_like(self.weight), np.empty_like(self.parameter)
        for draw in range(self.n_draws):
            circuit, log_scale[draw] = reweight_circuit(self.of(draw), likelihoods)
            weight[:, draw], parameter[:, draw] = np.exp(circuit.log_weight[self._of_sum]), circuit.leaf_parameters
        ranged = self.circuit.with_parameters()
        ranged.ranges = likelihoods.ranges
        return CircuitDraws(ranged, weight, parameter), log_scale

    def prepare(self) -> None:
        """Build what all queries share."""
        _ = self._compiled

    @cached_property
    def _compiled(self) -> tuple[Compiled, DrawArrays]:
        plan = compiled_circuit(self.circuit)
        weight = np.zeros((plan.edge.size, self.n_draws))
        row = np.cumsum(self._of_sum) - 1
        is_parameter = plan.parameter >= 0
        of_sum = np.flatnonzero(plan.edge >= 0)
        of_sum = of_sum[self._of_sum[plan.edge[of_sum]]]
        weight[of_sum] = self.weight[row[plan.edge[of_sum]]]
        weight[is_parameter] = np.exp(self.parameter[plan.parameter[is_parameter]])
        weight[plan.parameter == ONE_ENTRY] = 1.0
        return plan, _arrays(self.circuit, plan, weight, self.parameter)

    def log_likelihoods(self, x: Array) -> Floats:
        """Return the log probability (density) of the observed values of each row under every draw, (n_rows, n_draws)
        float64.

        Rows as in `evaluate.log_values`. Raises InvalidEvidence.
        """
        x = validate_circuit_rows(self.circuit, x)
        plan, arrays = self._compiled
        logs = np.empty((x.shape[1], self.n_draws))
        peak, offset, codes = self._scratch()
        root_log_values_per_draw(
            plan.plan, arrays, x, (np.empty((plan.n_slots, self.n_draws)), peak, offset, codes), logs
        )
        for draw in np.flatnonzero(np.isnan(logs).any(axis=0)).tolist():
            again = np.isnan(logs[:, draw])
            logs[again, draw] = log_values(self.of(draw), np.ascontiguousarray(x[:, again]))
        return logs

    def marginals(self, x: Array, variables: Sequence[int]) -> tuple[Floats, list[Floats]]:
        """Compute `answers.marginals` of every draw: logs, and (n_rows, n_values, n_draws) for each variable."""
        variables, sizes = answers.check_discrete_variables(self.circuit, variables)
        logs, out = self._posteriors(x, variables, sizes, moments=False)
        ends = np.cumsum(sizes).tolist()
        return logs, [out[:, first:end] for first, end in zip([0, *ends], ends, strict=False)]

    def class_posteriors(self, x: Array, variable: int) -> Floats:
        """Return the distribution of a variable, the class, given the row's other values, (n_rows, n_values, n_draws)
        float64.

        For a draw that gives a row probability zero, this is the class's marginal distribution.
        """
        x = np.array(validate_circuit_rows(self.circuit, x))
        x[variable] = np.nan
        try:
            return self.marginals(x, [variable])[1][0]
        except ImpossibleEvidence:
            possible = (self.log_likelihoods(x) > -np.inf).all(axis=1)
        posteriors = np.empty((x.shape[1], int(self.circuit.n_values[variable]), self.n_draws))
        posteriors[~possible] = self.marginals(np.full((x.shape[0], 1), np.nan), [variable])[1][0]
        if possible.any():
            posteriors[possible] = self.marginals(np.ascontiguousarray(x[:, possible]), [variable])[1][0]
        return posteriors

    def conditional(self, x: Array, variables: Sequence[int]) -> tuple[Floats, Floats]:
        """Compute `answers.conditional` of every draw: logs, and (n_rows, n_cells, n_draws), the last variable's values
        fastest.
        """
        variables, sizes = answers.check_discrete_variables(self.circuit, variables)
        if len(variables) == 1:
            logs, (table,) = self.marginals(x, variables)
            return logs, table
        n_cells = answers.check_joint_cell_count(sizes.tolist())
        x = validate_circuit_rows(self.circuit, x)
        tables = np.empty((x.shape[1], n_cells, self.n_draws))
        for row in range(x.shape[1]):
            many, is_contradicted = answers.cross_rows_with_values(self.circuit, x[:, [row]], variables)
            logs = self.log_likelihoods(many)
            logs[is_contradicted] = -np.inf
            if (logs.max(axis=0) == -np.inf).any():
                raise ImpossibleEvidence(row)
            shares = np.exp(logs - logs.max(axis=0))
            tables[row] = shares / shares.sum(axis=0)
        return self.log_likelihoods(x), tables

    def moments(self, x: Array, variables: Sequence[int]) -> tuple[Floats, Floats, Floats]:
        """Compute `answers.moments` of every draw: logs, means and variances (n_rows, len(variables), n_draws)."""
        variables = answers.check_numeric_variables(self.circuit, variables)
        logs, out = self._posteriors(x, variables, np.full(len(variables), 2, np.int64), moments=True)
        return logs, out[:, 0::2], out[:, 1::2]

    def _posteriors(self, x: Array, scope: tuple[int, ...], sizes: Integers, moments: bool) -> tuple[Floats, Floats]:
        x = validate_circuit_rows(self.circuit, x)
        plan, arrays = self._compiled
        _, slots = answers.query_nodes_and_slots(self.circuit, scope, sizes)
        values, derivatives = np.empty((2, plan.n_slots, self.n_draws))
        peak, offset, codes = self._scratch()
        scratch = (values, derivatives, peak, offset, np.empty(self.n_draws), codes)
        logs = np.empty((x.shape[1], self.n_draws))
        out = np.zeros((x.shape[1], int(sizes.sum()), self.n_draws))
        posteriors_per_draw(plan.plan, arrays, slots, x, moments, scratch, logs, out)
        for row, draw in np.argwhere(np.isnan(logs)).tolist():
            logs[row, draw], out[row, :, draw] = self._alone(x[:, [row]], scope, moments, row, draw)
        return logs, out

    def _alone(self, x: Array, scope: tuple[int, ...], moments: bool, row: int, draw: int) -> tuple[float, Floats]:
        """Evaluate one draw for a row that is too improbable for linear space."""
        circuit = self.of(draw)
        log = float(log_values(circuit, x)[0])
        try:
            if moments:
                return log, np.stack(answers.moments(circuit, x, scope), axis=2)[0].ravel()
            return log, np.concatenate([p[0] for p in answers.marginals(circuit, x, scope)])
        except ImpossibleEvidence as error:
            raise ImpossibleEvidence(row) from error

    def _scratch(self) -> tuple[Floats, Floats, Integers]:
        n_variables = self.circuit.n_variables
        return np.empty((n_variables, self.n_draws)), np.empty(self.n_draws), np.empty(n_variables, np.int64)

    def parts(self, x: Array, n_cells: int = 1) -> Iterator[Array]:
        """Yield blocks of rows (n_variables, n_rows) whose answers of n_cells numbers per draw fit in memory."""
        at_a_time = max(1, MOST_AT_A_TIME // (n_cells * self.n_draws))
        for first in range(0, x.shape[1], at_a_time):
            yield np.ascontiguousarray(x[:, first : first + at_a_time])

    def mean_logs(self, x: Array) -> Floats:
        """Return the log of the mean probability (density) of rows (n_variables, n_rows), (n_rows,) float64."""
        return np.concatenate([log_mean_exp(self.log_likelihoods(part)) for part in self.parts(x)] or [np.empty(0)])


def _arrays(circuit: Circuit, plan: Compiled, weight: Floats, parameter: Floats) -> DrawArrays:
    """Build the kernels' arrays."""
    kinds = circuit.kind[plan.node]
    operation = np.flatnonzero(kinds >= GAUSSIAN)
    node, kind = plan.node[operation], kinds[operation].astype(np.int64)
    first = circuit.leaf_starts[node]
    numeric = np.zeros((operation.size, 5, weight.shape[1]))
    numeric[:, 0] = numeric[:, 3] = numeric[:, 4] = parameter[first]
    gaussian, waits = kind == GAUSSIAN, kind == EXPONENTIAL
    numeric[gaussian, 4] = parameter[first[gaussian] + 1] ** 2
    numeric[waits, 3] = 1.0 / parameter[first[waits]]
    numeric[waits, 4] = numeric[waits, 3] ** 2
    variable = circuit.variable[node]
    for i in np.flatnonzero(np.isin(variable, list(circuit.ranges))).tolist():
        own, ends = parameter[first[i] : circuit.leaf_starts[node[i] + 1]].T, circuit.ranges[int(variable[i])]
        numeric[i, 3:] = np.array([truncated_leaf_moments(int(kind[i]), p, *ends) for p in own]).T
    numeric[gaussian, 1] = 1.0 / parameter[first[gaussian] + 1]
    numeric[gaussian, 2] = np.log(numeric[gaussian, 1]) - HALF_LOG_2_PI
    numeric[waits, 2] = np.log(parameter[first[waits]])
    arrays = DrawArrays(weight, numeric, kind, operation)
    freeze_arrays(*arrays)
    return arrays


def summarise_draws(values: Floats, n_chains: int = 1, level: float = LEVEL) -> Summary:
    """Summarize numbers by their draws.

    The standard error is that of batch means, over batches of √n successive draws of a chain, so correlated draws
    or diverging chains increase it. Raises InvalidParameter.

    values (..., n_draws) float64: draws of the first chain, then of the second, and so on.
    level: posterior probability of the interval, between 0 and 1.
    References: Flegal, Jones (2010), "Batch means and spectral variance estimators in Markov chain Monte Carlo",
    section 2.
    """
    if not 0 < level < 1:
        raise InvalidParameter("interval", level, "a probability above 0 and below 1")
    mean, per_chain = values.mean(axis=-1), values.shape[-1] // n_chains
    size = max(1, math.isqrt(per_chain))
    n_batches = per_chain // size
    error = np.full(values.shape[:-1], np.nan)
    if n_chains * n_batches > 1:
        chains = values[..., : n_chains * per_chain].reshape(*values.shape[:-1], n_chains, per_chain)
        batches = chains[..., : n_batches * size].reshape(*values.shape[:-1], n_chains * n_batches, size).mean(axis=-1)
        error = batches.std(axis=-1, ddof=1) / math.sqrt(n_chains * n_batches)
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=-1)
    return Summary(mean, error, low, high)


def log_mean_exp(logs: Floats) -> Floats:
    """Return the log of the mean over the last axis, from logs; log 0 is -inf."""
    most = logs.max(axis=-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(most > -np.inf, np.exp(logs - most), 0.0)
        return np.log(shares.mean(axis=-1)) + most[..., 0]
