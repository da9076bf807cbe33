"""Queries to a mixture of Gaussians in terms of the columns; with dependent ranges answered from samples, with standard
errors.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Never

import numpy as np

from learners.circuits.circuit import Circuit
from learners.circuits.errors import ImpossibleEvidence
from learners.circuits.evaluation.leaf_distributions import normal_interval_log_probability, truncated_normal_quantiles
from learners.circuits.evaluation.reweighted import Likelihoods
from learners.circuits.kernels import CATEGORICAL
from learners.circuits.map.query import MapAnswer, k_best
from learners.circuits.mixtures import conditioning
from learners.circuits.mixtures.mixture import DependentRanges, GaussianMixture, log_sum_exp, product_mixture_circuit
from learners.circuits.queries import queries
from learners.circuits.queries.array_answers import check_joint_cell_count
from learners.circuits.queries.likelihoods import Read
from learners.circuits.queries.named_answers import Answer, Batches, Sampled, Source, Summary
from learners.circuits.queries.queries import answer_all
from learners.circuits.variables import Columns
from learners.kernels.arrays import Array, Floats
from learners.models.estimation import Sampling
from learners.models.query import InferenceQuery, Map

# Logarithms that differ by no more are equal.
SAME = 1e-10


def mixture_query_handlers(mixture: GaussianMixture, likelihoods: Likelihoods) -> Batches:
    """Return the handlers of each query kind, given likelihoods.

    All answers are exact except MAP over numeric columns: the maximum of a sum of Gaussians has no exact solver,
    so `bt` and `kbt` answer with the best of the components' modes and a bound, and the others refuse it.
    """
    reweighted, log_scale = reweighted_mixture(mixture, likelihoods)
    return {**_MixtureSource(reweighted, log_scale).batches, "map": partial(_map, reweighted, log_scale)}


class _MixtureSource(Source):
    """Exact answers of a mixture."""

    def __init__(self, mixture: GaussianMixture, log_scale: float) -> None:
        self.mixture, self.log_scale = mixture, log_scale

    def row_logs(self, x: Array) -> Floats:
        return self.mixture.log_density(x)

    def row_marginals(self, x: Array, variables: Sequence[int]) -> tuple[Floats, list[Summary]]:
        return self.row_logs(x), list(map(Summary, conditioning.conditional_marginals(self.mixture, x, variables)))

    def row_tables(self, x: Array, variables: Sequence[int]) -> tuple[Floats, Summary]:
        n_cells = check_joint_cell_count(self.mixture.n_values[list(variables)].tolist())
        return self.row_logs(x), Summary(
            conditioning.conditional_joint(self.mixture, x, variables).reshape(-1, n_cells)
        )

    def row_moments(self, x: Array, variables: Sequence[int]) -> tuple[Floats, Summary, Floats]:
        mean, variance = conditioning.conditional_moments(self.mixture, x, variables)
        return self.row_logs(x), Summary(mean), variance

    def row_draws(self, x: Array, n: int, seed: int) -> Sequence[Floats]:
        return list(conditioning.draw_missing_cells(self.mixture, x, n, seed, np.zeros(x.shape[1], np.int64)))


def reweighted_mixture(mixture: GaussianMixture, likelihoods: Likelihoods) -> tuple[GaussianMixture, float]:
    """Condition the mixture on likelihoods; returns it with the log of its normalization, see `reweight`.

    Ranges are kept: their probability depends on the other observed values, and is part of each row's density.
    """
    if not likelihoods:
        return mixture, 0.0
    if likelihoods.ranges:
        mixture = replace(mixture, ranges=likelihoods.ranges)
    log_weight, log_share = mixture.log_weight.copy(), mixture.log_share.copy()
    for v, own in likelihoods.log_weights.items():
        logs = mixture.shares_of(v) + own
        totals = log_sum_exp(logs.T)
        log_weight += totals
        # The shares of a component without weight do not matter.
        is_left = totals > -np.inf
        log_share[is_left, mixture.starts[v] : mixture.starts[v + 1]] = logs[is_left] - totals[is_left, np.newaxis]
    log_scale = float(log_sum_exp(log_weight))
    if log_scale == -np.inf:
        return mixture, log_scale
    return replace(mixture, log_weight=log_weight - log_scale, log_share=log_share), log_scale


def _map(mixture: GaussianMixture, log_scale: float, columns: Columns, query: Map, evidence: Read) -> list[Answer]:
    started = time.perf_counter()
    variables = queries.resolve_map_variables(columns, query)
    if log_scale == -np.inf:
        raise ImpossibleEvidence
    x = columns.rows([evidence.values])
    if any(not columns.n_values[v] for v in variables):
        trees = conditioning.best_component_modes(mixture, x, variables, query.k if query.solver == "kbt" else 1)[
            : query.best
        ]
        seconds, log = time.perf_counter() - started, 0.0
        answers = [
            MapAnswer(
                dict(zip(variables, tree.values.tolist(), strict=True)),
                tree.log_density,
                tree.log_bound,
                tree.log_bound - tree.log_density <= SAME,
                0,
                seconds,
            )
            for tree in trees
        ]
    else:
        folded = conditional_mixture_circuit(mixture, mixture.shares(x)[:, 0], variables)
        limit, places = query.time_limit_s, range(len(variables))
        answers = k_best(folded, places, {}, query.solver, query.best, k=query.k, seed=query.seed, time_limit_s=limit)
        answers = [
            replace(
                each,
                assignment={variables[i]: code for i, code in each.assignment.items()},
                seconds=time.perf_counter() - started,
            )
            for each in answers
        ]
        log = float(mixture.log_density(x)[0])
    return queries.format_map_answers(query, columns, answers, log + log_scale)


def conditional_mixture_circuit(mixture: GaussianMixture, shares: Floats, variables: Sequence[int]) -> Circuit:
    """Return the distribution of discrete variables given a row as a circuit whose variable i is the i-th queried
    one.

    shares (n_components,): probabilities of the components given the row. Raises ImpossibleEvidence.
    """
    reached = np.flatnonzero(shares > 0)
    if not reached.size:
        raise ImpossibleEvidence
    leaves = [[(CATEGORICAL, mixture.shares_of(v)[component]) for v in variables] for component in reached.tolist()]
    log_weight = np.log(shares[reached] / shares[reached].sum())
    return product_mixture_circuit(log_weight, leaves, mixture.n_values[list(variables)])


FIRST_BLOCK, LARGEST_BLOCK = 1 << 12, 1 << 16
# Share of the draws whose components are drawn as if there were no ranges, so that no weight is large.
DEFENSIVE = 0.1


def sampled_mixture_answer(
    mixture: GaussianMixture,
    columns: Columns,
    query: InferenceQuery,
    sampling: Sampling,
    pause: Callable[[], None] | None,
) -> Answer:
    """Answer a query with ranges of dependent columns from samples.

    Raises DependentRanges for query kinds without sampling; UnknownColumn, InvalidEvidence, SchemaError,
    ImpossibleEvidence.
    """
    sources: list[_SampledBox] = []

    def batches(likelihoods: Likelihoods) -> Batches:
        sources.append(_SampledBox(*reweighted_mixture(mixture, likelihoods), sampling, pause))
        return sources[0].batches

    (answer,) = answer_all(columns.circuit, columns.schema, [query], batches, pause)
    answer["sampled"] = sources[0].sampled
    return answer


class _SampledBox(Source):
    """Answers of a mixture given one row and ranges: exact answers given numbers drawn in the ranges, averaged by
    weight.

    Numbers are drawn one after the other, each in its range given those before it; the weight of a draw is the
    probability of the ranges along the way.

    mixture: the mixture with ranges.
    sampling: its `error` is of each probability; of a marginal a share of it, of a mean a share of the standard
    deviation.
    pause: called before each block; what it raises ends the sampling.
    sampled: sampling facts of the last answer.
    References: Geweke (1991), Efficient simulation from the multivariate normal and Student-t distributions subject to
    linear constraints. Owen (2013), Monte Carlo theory, methods and examples, sections 9.2 and 9.11.
    """

    sampled: Sampled

    def __init__(
        self, mixture: GaussianMixture, log_scale: float, sampling: Sampling, pause: Callable[[], None] | None
    ) -> None:
        self.log_scale, self.sampling, self.pause = log_scale, sampling, pause
        self.mixture, self.ranges = replace(mixture, ranges={}), mixture.ranges

    @property
    def batches(self) -> Batches:
        """Return the handlers of each query kind; sample and MAP queries are refused."""
        return {**super().batches, "map": _refused}

    def row_logs(self, x: Array) -> Floats:
        return self._estimates(
            x, lambda rows: np.empty((rows.shape[1], 0)), lambda _mean, _error, of_weight: of_weight
        )[0]

    def summary(self, values: Floats) -> Summary:
        return Summary(values, np.abs(values) * self.sampled["largest_error"])

    def row_marginals(self, x: Array, variables: Sequence[int]) -> tuple[Floats, list[Summary]]:
        ends = np.cumsum(self.mixture.n_values[list(variables)])[:-1]
        log, mean, error = self._estimates(
            x,
            lambda rows: np.hstack(conditioning.conditional_marginals(self.mixture, rows, variables)),
            _largest,
        )
        return log, list(map(Summary, np.split(mean, ends, axis=1), np.split(error, ends, axis=1)))

    def row_tables(self, x: Array, variables: Sequence[int]) -> tuple[Floats, Summary]:
        n_cells = check_joint_cell_count(self.mixture.n_values[list(variables)].tolist())
        log, *table = self._estimates(
            x,
            lambda rows: conditioning.conditional_joint(self.mixture, rows, variables).reshape(-1, n_cells),
            _largest,
        )
        return log, Summary(*table)

    def row_moments(self, x: Array, variables: Sequence[int]) -> tuple[Floats, Summary, Floats]:
        def two_moments(rows: Floats) -> Floats:
            mean, variance = conditioning.conditional_moments(self.mixture, rows, variables)
            return np.hstack([mean, mean**2 + variance])

        (log, mean, error), k = self._estimates(x, two_moments, _of_deviation), len(variables)
        variance = np.maximum(mean[:, k:] - mean[:, :k] ** 2, 0.0)
        return log, Summary(mean[:, :k], error[:, :k]), variance

    def row_draws(self, x: Array, n: int, seed: int) -> Sequence[Floats]:
        raise DependentRanges

    def _estimates(
        self, x: Array, function: Callable[[Floats], Floats], largest: Callable[[Floats, Floats, float], float]
    ) -> tuple[Floats, Floats, Floats]:
        """Return the log probability of the evidence, and weighted means (1, k) of a function of drawn rows with
        standard errors.

        Blocks of rows are drawn until the error or time limit is reached.
        """
        started, rng = time.perf_counter(), np.random.default_rng(self.sampling.seed)
        draws = _Draws(self.mixture, self.ranges, x)
        weights, values = np.empty(0), None
        while True:
            if self.pause is not None:
                self.pause()
            n = min(max(FIRST_BLOCK, weights.size), LARGEST_BLOCK)
            rows, own = draws.block(n, rng)
            weights, more = np.append(weights, own), function(rows)
            values = more if values is None else np.vstack([values, more])
            total = weights.sum()
            if not total:
                raise ImpossibleEvidence(0)
            mean = weights @ values / total
            error = np.sqrt(weights**2 @ (values - mean) ** 2) / total
            most = largest(mean, error, float(np.std(weights) / weights.mean() / np.sqrt(weights.size - 1)))
            seconds = time.perf_counter() - started
            if most <= self.sampling.error or seconds > self.sampling.time_limit_s:
                break
        self.sampled = Sampled(
            n=weights.size,
            effective_sample_size=float(total**2 / (weights**2).sum()),
            largest_error=most,
            is_reached=most <= self.sampling.error,
            seconds=seconds,
        )
        return np.array([draws.log_scale + np.log(weights.mean())]), mean[np.newaxis], error[np.newaxis]


class _Draws:
    """Rows (n_variables, 1) with numbers drawn in their ranges; weights are multiplied by exp(log_scale)."""

    def __init__(self, mixture: GaussianMixture, ranges: Mapping[int, tuple[float, float]], x: Array) -> None:
        self.x, self.variables = np.asarray(x, np.float64), np.array([*ranges])
        self.ends = np.array([*ranges.values()], np.float64)
        ((_, numbers, observed, rest),) = mixture.groups(self.x)
        assert rest is not None
        places = np.searchsorted(mixture.numeric[rest.places], self.variables)
        self.mean = mixture.expectations(numbers, observed, rest)[:, places, 0]
        covariance = rest.covariance[:, places[:, np.newaxis], places]
        self.factor = np.linalg.cholesky(covariance)
        logs = mixture.log_joint(self.x)[:, 0]
        self.log_scale = float(logs.max())
        if self.log_scale == -np.inf:
            raise ImpossibleEvidence(0)
        logs = logs - self.log_scale
        ends = (self.ends.T[:, np.newaxis] - self.mean) / np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
        alone = logs + normal_interval_log_probability(*ends).sum(axis=1)
        self.share = DEFENSIVE * _distribution(logs) + (1.0 - DEFENSIVE) * _distribution(alone)
        with np.errstate(divide="ignore"):
            self.log_weight = logs - np.log(self.share)

    def block(self, n: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Draw a block of rows (n_variables, n), with weights (n,)."""
        chosen = rng.choice(self.share.size, n, p=self.share)
        u = rng.random((n, self.variables.size))
        z, logs = np.zeros_like(u), self.log_weight[chosen]
        mean, factor = self.mean[chosen], self.factor[chosen]
        for i, ends in enumerate(self.ends):
            centre = mean[:, i] + (factor[:, i, :i] * z[:, :i]).sum(axis=1)
            low, high = (ends[:, np.newaxis] - centre) / factor[:, i, i]
            logs = logs + normal_interval_log_probability(low, high)
            own = truncated_normal_quantiles(low, high, u[:, i])
            z[:, i] = np.where(np.isfinite(own), own, 0.0)  # of a draw without weight
        rows = np.repeat(self.x, n, axis=1)
        rows[self.variables] = np.clip(mean + np.einsum("nij,nj->ni", factor, z), *self.ends.T).T
        return rows, np.exp(logs)


def _distribution(logs: Floats) -> Floats:
    """Normalize logarithms to shares; equal shares if all are impossible."""
    most = logs.max()
    if most == -np.inf:
        return np.full(logs.size, 1.0 / logs.size)
    shares: Floats = np.exp(logs - most)
    return shares / shares.sum()


def _largest(mean: Floats, error: Floats, of_weight: float) -> float:
    return float(error.max())


def _of_deviation(mean: Floats, error: Floats, of_weight: float) -> float:
    """Return the largest error of a mean relative to the standard deviation, from first and then second moments."""
    first, second = np.split(mean, 2)
    deviation = np.sqrt(np.maximum(second - first**2, 0.0))
    return float((error[: first.size] / np.where(deviation > 0, deviation, 1.0)).max())


def _refused(*_: object) -> Never:
    raise DependentRanges
