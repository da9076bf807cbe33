"""Queries to a mixture of Gaussians, in the words of the columns."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from learners.circuits.circuit import Circuit
from learners.circuits.columns import Columns
from learners.circuits.errors import ImpossibleEvidence
from learners.circuits.evaluation.reweighted import Likelihoods
from learners.circuits.kernels import CATEGORICAL
from learners.circuits.map import MapAnswer, k_best
from learners.circuits.mixtures import conditioning
from learners.circuits.mixtures.mixture import GaussianMixture, log_sums, sum_of_products
from learners.circuits.queries import queries
from learners.circuits.queries.answer_types import Answer, Batches
from learners.circuits.queries.answers import n_joint_cells
from learners.circuits.queries.likelihoods import read_evidence
from learners.circuits.queries.named_answers import Source, Summary
from learners.kernels.arrays import Array, Floats
from learners.models.query import Map

# Logarithms that differ by no more are equal.
SAME = 1e-10


def batches_of_mixture(mixture: GaussianMixture, likelihoods: Likelihoods) -> Batches:
    """What answers the queries of each kind, given likelihoods.

    All answers are exact but MAP over numeric columns: no solver knows the highest point of a sum of Gaussians, so `bt` and `kbt`
    answer with the best of the components' own modes and a bound, and the others refuse it.
    """
    given, log_scale = reweighted_mixture(mixture, likelihoods)
    return {**_MixtureSource(given, log_scale).batches, "map": partial(_map, given, log_scale)}


class _MixtureSource(Source):
    """The answers of a mixture, exactly."""

    def __init__(self, mixture: GaussianMixture, log_scale: float) -> None:
        self.mixture, self.log_scale = mixture, log_scale

    def row_logs(self, x: Array) -> Floats:
        return self.mixture.log_density(x)

    def row_marginals(self, x: Array, variables: Sequence[int]) -> tuple[Floats, list[Summary]]:
        return self.row_logs(x), list(map(Summary, conditioning.marginals(self.mixture, x, variables)))

    def row_tables(self, x: Array, variables: Sequence[int]) -> tuple[Floats, Summary]:
        n_cells = n_joint_cells(self.mixture.n_values[list(variables)].tolist())
        return self.row_logs(x), Summary(conditioning.joint(self.mixture, x, variables).reshape(-1, n_cells))

    def row_moments(self, x: Array, variables: Sequence[int]) -> tuple[Floats, Summary, Floats]:
        mean, variance = conditioning.moments(self.mixture, x, variables)
        return self.row_logs(x), Summary(mean), variance

    def row_draws(self, x: Array, n: int, seed: int) -> Sequence[Floats]:
        return list(conditioning.draws(self.mixture, x, n, seed, np.zeros(x.shape[1], np.int64)))


def reweighted_mixture(mixture: GaussianMixture, likelihoods: Likelihoods) -> tuple[GaussianMixture, float]:
    """The mixture given likelihoods, and the logarithm of what it then adds up to: see `reweighted`.

    Ranges it keeps: their probability depends on what else is observed, and is part of the density of each row.
    """
    if not likelihoods:
        return mixture, 0.0
    if likelihoods.ranges:
        mixture = replace(mixture, ranges=likelihoods.ranges)
    log_weight, log_share = mixture.log_weight.copy(), mixture.log_share.copy()
    for v, own in likelihoods.log_weights.items():
        logs = mixture.shares_of(v) + own
        totals = log_sums(logs.T)
        log_weight += totals
        # Of a component that is left without weight the shares do not matter.
        is_left = totals > -np.inf
        log_share[is_left, mixture.starts[v] : mixture.starts[v + 1]] = logs[is_left] - totals[is_left, np.newaxis]
    log_scale = float(log_sums(log_weight))
    if log_scale == -np.inf:
        return mixture, log_scale
    return replace(mixture, log_weight=log_weight - log_scale, log_share=log_share), log_scale


def _map(mixture: GaussianMixture, log_scale: float, columns: Columns, query: Map) -> list[Answer]:
    started = time.perf_counter()
    variables = queries.asked_of_map(columns, query)
    if log_scale == -np.inf:
        raise ImpossibleEvidence
    x = columns.rows([read_evidence(columns, query).values])
    if any(not columns.n_values[v] for v in variables):
        trees = conditioning.best_trees(mixture, x, variables, query.k if query.solver == "kbt" else 1)[: query.best]
        seconds, log = time.perf_counter() - started, 0.0
        found = [
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
        folded = folded_circuit(mixture, mixture.shares(x)[:, 0], variables)
        limit, places = query.time_limit_s, range(len(variables))
        found = k_best(folded, places, {}, query.solver, query.best, k=query.k, seed=query.seed, time_limit_s=limit)
        found = [
            replace(
                each,
                assignment={variables[i]: code for i, code in each.assignment.items()},
                seconds=time.perf_counter() - started,
            )
            for each in found
        ]
        log = float(mixture.log_density(x)[0])
    return queries.answers_of_map(query, columns, found, log + log_scale)


def folded_circuit(mixture: GaussianMixture, shares: Floats, variables: Sequence[int]) -> Circuit:
    """The distribution of some discrete variables given a row, as a circuit: its variable i is the i-th asked one.

    shares (n_components,) are those of the components given the row. Raises ImpossibleEvidence.
    """
    reached = np.flatnonzero(shares > 0)
    if not reached.size:
        raise ImpossibleEvidence
    leaves = [[(CATEGORICAL, mixture.shares_of(v)[component]) for v in variables] for component in reached.tolist()]
    log_weight = np.log(shares[reached] / shares[reached].sum())
    return sum_of_products(log_weight, leaves, mixture.n_values[list(variables)])
