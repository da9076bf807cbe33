"""Answer queries about a discrete network's columns by variable elimination."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from learners.circuits.evaluation.reweighted import NOTHING, Likelihoods
from learners.circuits.map.query import MapAnswer
from learners.circuits.queries.likelihoods import Read
from learners.circuits.queries.named_answers import Answer, Batches, Source, Summary
from learners.circuits.queries.queries import (
    answer_all,
    format_map_answers,
    resolve_query_variables,
    unused_evidence,
)
from learners.circuits.variables import Columns
from learners.kernels.arrays import Array, Floats
from learners.models.estimation import Sampling
from learners.models.query import Map, Query, Surprise
from learners.registry.networks.elimination.most_probable import most_probable
from learners.registry.networks.elimination.rows import Elimination, TablesTooLargeToSum
from learners.registry.networks.likelihood_weighting import NotSampled, likelihood_weighting_answer


class EliminationSource(Source):
    """Exact inference in a network without a circuit, conditioned on the likelihoods of given variables."""

    def __init__(self, elimination: Elimination, likelihoods: Likelihoods = NOTHING) -> None:
        self.elimination, self.weights = elimination, likelihoods.log_weights
        nothing = np.full((len(elimination.sizes), 1), np.nan)
        self.log_scale = float(elimination.row_logs(nothing, self.weights)[0]) if self.weights else 0.0

    def row_logs(self, x: Array) -> Floats:
        """Return the log probability of each row."""
        return self.elimination.row_logs(x, self.weights) - self.log_scale

    def row_marginals(self, x: Array, variables: Sequence[int]) -> tuple[Floats, list[Summary]]:
        """Return the log probability of each row, and the marginal distribution of each variable."""
        logs, shares = self.elimination.row_marginals(x, variables, self.weights)
        return logs - self.log_scale, list(map(Summary, shares))

    def row_tables(self, x: Array, variables: Sequence[int]) -> tuple[Floats, Summary]:
        """Return the log probability of each row, and the joint distribution of the variables."""
        logs, tables = self.elimination.row_tables(x, variables, self.weights)
        return logs - self.log_scale, Summary(tables.reshape(len(tables), -1))

    def row_moments(self, x: Array, variables: Sequence[int]) -> tuple[Floats, Summary, Floats]:
        """Raise AssertionError: discrete variables have no moments."""
        raise AssertionError("a network of discrete variables has no moments")

    def row_draws(self, x: Array, n: int, seed: int) -> Sequence[Floats]:
        """Draw rows given each row's evidence."""
        rngs = [np.random.default_rng(seed) for _ in range(x.shape[1])]
        return self.elimination.row_draws(x, n, rngs, self.weights)


def elimination_query_handlers(elimination: Elimination, likelihoods: Likelihoods) -> Batches:
    """Return the handlers of each query kind for a network, conditioned on the likelihoods of given variables."""
    source = EliminationSource(elimination, likelihoods)
    return {**source.batches, "map": partial(_most_probable, elimination, likelihoods.log_weights)}


def answer_by_elimination(
    columns: Columns, elimination: Elimination, queries: Sequence[Query], pause: Callable[[], None] | None = None
) -> list[Answer]:
    """Answer queries as `queries.answer_all` does; MAP answers are exact, whatever solver a query names.

    Raises TablesTooLargeToSum if an exact answer needs too much memory, before it starts; and what `queries.answer_all` raises.
    """
    paused = elimination.with_pause(pause)
    return answer_all(columns.circuit, columns.schema, queries, partial(elimination_query_handlers, paused), pause)


# Of an answer that nobody asked to be sampled.
BY_ITSELF = Sampling(time_limit_s=5.0)


def answer_exactly_or_by_samples(
    columns: Columns, elimination: Elimination, query: Query, pause: Callable[[], None] | None = None
) -> Answer:
    """Answer a query exactly, or by `likelihood_weighting_answer` if its tables do not fit into memory.

    The choice is made before any table is allocated. Raises the errors of `answer_by_elimination`; NotSampled for
    query kinds without sampling, NoWorlds.
    """
    try:
        (answer,) = answer_by_elimination(columns, elimination, [query], pause)
    except TablesTooLargeToSum as error:
        if isinstance(query, Surprise):
            raise
        sampling = query.sampling or BY_ITSELF
        try:
            answer = likelihood_weighting_answer(elimination.network, query, sampling, pause)
            return answer | unused_evidence(columns, query)
        except NotSampled as reason:
            raise reason from error
    return answer


def _most_probable(
    elimination: Elimination, weights: Mapping[int, Floats], columns: Columns, query: Query, evidence: Read
) -> list[Answer]:
    assert isinstance(query, Map)
    started = time.perf_counter()
    variables = resolve_query_variables(columns, query, discrete=None)
    x = columns.rows([evidence.values])[:, 0]
    left_out = elimination.network.left_out
    observed = {v: int(x[v]) for v in np.flatnonzero(~np.isnan(x)).tolist() if v not in left_out}
    found = list(most_probable(elimination, observed, variables, weights, query.best, query.time_limit_s))
    seconds = time.perf_counter() - started
    answers = [
        MapAnswer(
            assignment={v: float(each.codes[v]) for v in variables},
            log_probability=each.log_probability,
            upper_bound=each.log_probability,
            is_optimal=True,
            n_expanded=0,
            seconds=seconds,
        )
        for each in found
    ]
    return format_map_answers(query, columns, answers, 0.0)
