"""Queries to all draws of a posterior, answered by their mean with its standard error and a credible interval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from learners.circuits.bayesian.posterior_samples.samples import LEVEL, CircuitDraws, log_mean, summarised
from learners.circuits.columns import Columns
from learners.circuits.errors import ImpossibleEvidence
from learners.circuits.evaluation.reweighted import NOTHING, Likelihoods
from learners.circuits.queries import queries
from learners.circuits.queries.answer_types import Answer, Batches
from learners.circuits.queries.named_answers import Source, Summary
from learners.circuits.queries.sampling import sample
from learners.kernels.arrays import Array, Floats
from learners.models.query import Query

MAP_OF = "the posterior mean circuit"


def batches_of_draws(draws: CircuitDraws, n_chains: int, likelihoods: Likelihoods = NOTHING) -> Batches:
    """What answers the queries of each kind by all draws, those of one chain after the other, each given the likelihoods.

    Each probability, density or mean is the mean over the draws; beside it are its `standard_error` and `interval` (low
    and high end, of probability `level`), and `log_interval` of a probability or density. Distributions have
    `standard_errors` and `intervals` of the same form. The variance of a column is that of the mean distribution. Rows
    of samples are each of a draw. MAP is `of` the posterior mean circuit, without interval.
    """
    source = _DrawsSource(*draws.given(likelihoods), n_chains)

    def most_probable(columns: Columns, query: Query) -> list[Answer]:
        if source.is_impossible:
            raise ImpossibleEvidence(0)
        found = queries.most_probable(draws.circuit, likelihoods, columns, query)
        return [answer | Answer(of=MAP_OF) for answer in found]

    return {**source.batches, "map": most_probable}


class _DrawsSource(Source):
    """The answers of all draws of a posterior."""

    level: ClassVar[Answer] = {"level": LEVEL}

    def __init__(self, draws: CircuitDraws, log_scale: Floats, n_chains: int) -> None:
        self.draws, self.log_scale, self.n_chains = draws, log_scale, n_chains

    def row_logs(self, x: Array) -> Floats:
        return self.draws.log_likelihoods(x)

    def row_marginals(self, x: Array, variables: Sequence[int]) -> tuple[Floats, list[Summary]]:
        logs, by_variable = self.draws.marginals(x, variables)
        return logs, list(map(self.summary, by_variable))

    def row_tables(self, x: Array, variables: Sequence[int]) -> tuple[Floats, Summary]:
        logs, tables = self.draws.conditional(x, variables)
        return logs, self.summary(tables)

    def row_moments(self, x: Array, variables: Sequence[int]) -> tuple[Floats, Summary, Floats]:
        logs, mean, variance = self.draws.moments(x, variables)
        return logs, self.summary(mean), variance.mean(axis=-1) + mean.var(axis=-1)

    def row_draws(self, x: Array, n: int, seed: int) -> Sequence[Floats]:
        return drawn_rows(self.draws, x, n, seed)

    def summary(self, values: Floats) -> Summary:
        return summarised(values, self.n_chains)

    def log_means(self, logs: Floats) -> Floats:
        return log_mean(logs)

    def mean_row_logs(self, x: Array) -> Floats:
        return self.draws.mean_logs(x)


def drawn_rows(draws: CircuitDraws, x: Array, n: int, seed: int) -> list[Floats]:
    """N rows (n, n_variables) given each row of evidence, each from a draw that is drawn anew.

    Raises ImpossibleEvidence, naming a row of probability zero.
    """
    rng = np.random.default_rng(seed)
    of_draw = rng.integers(0, draws.n_draws, n)
    seeds = rng.integers(0, 1 << 63, draws.n_draws)
    found = [np.empty((n, x.shape[0])) for _ in range(x.shape[1])]
    for draw in np.unique(of_draw).tolist():
        circuit, places = draws.of(draw), np.flatnonzero(of_draw == draw)
        for row, rows in enumerate(found):
            try:
                rows[places] = sample(circuit, x[:, [row]], places.size, int(seeds[draw]))[0]
            except ImpossibleEvidence as error:
                raise ImpossibleEvidence(row) from error
    return found
