"""Approximate answers for networks too large for exact sums, from samples, with standard errors."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from learners.circuits.errors import InvalidEvidence
from learners.circuits.queries.column_values import nameable
from learners.circuits.queries.likelihoods import read_evidence
from learners.circuits.queries.named_answers import Answer, Guess, Sampled
from learners.circuits.queries.queries import resolve_query_variables
from learners.errors import LearnerError
from learners.kernels.arrays import Floats
from learners.models.estimation import Sampling
from learners.models.query import Conditional, Impute, Marginal, Query
from learners.registry.networks.arc_networks import DiscreteNetwork
from learners.registry.networks.likelihood_weighting_kernels import draw_weighted_values
from learners.registry.networks.tree_tables import table_rows

BLOCK = 1 << 13


class NotSampled(LearnerError, ValueError):
    """Raised for a query kind that sampling cannot answer."""

    def __init__(self, kind: str) -> None:
        super().__init__(
            f"The network is too large for an exact answer to {kind!r}, and sampling supports only marginal, conditional (of single "
            "columns) and impute. Train with fewer parents (a smaller k), or fold rare values."
        )


class NoWorlds(LearnerError, ValueError):
    """Raised if no sample agrees with the evidence."""

    def __init__(self, n: int, seconds: float) -> None:
        super().__init__(
            f"None of {n:,} samples in {seconds:.3g} s agrees with the evidence, which is impossible or very rare. Give less evidence, "
            "or more time (time_limit_s)."
        )


class _Sums(NamedTuple):
    """Sums over samples: their number, weights and squared weights; and, for each queried value, the weights and
    squares of its samples.
    """

    n: int
    weight: float
    square: float
    weights: Floats
    squares: Floats


def likelihood_weighting_answer(
    network: DiscreteNetwork, query: Query, sampling: Sampling, pause: Callable[[], None] | None = None
) -> Answer:
    """Answer a query by likelihood weighting until a standard error or time limit is reached.

    `query`: of evidence only: interventions are cut already.
    `sampling`: its `error` is of each probability; of a marginal it is a share of the probability.
    `pause`: called before each block; what it raises ends the answering.
    Returns dict: as in an exact answer, with `standard_error` or `standard_errors`, and `sampled`.
    Raises NotSampled of a kind of query that is not answered so; NoWorlds if no sample has a weight; UnknownColumn,
    InvalidEvidence, SchemaError.

    References
    ----------
    Fung, Chang (1989); Shachter, Peot (1989). Owen (2013), Monte Carlo theory, methods and examples, section 9.2: the error of a
    ratio of weighted sums.
    """
    if not isinstance(query, Marginal | Conditional | Impute) or (isinstance(query, Conditional) and query.joint):
        raise NotSampled(query.kind)
    columns = network.columns
    evidence = read_evidence(columns, query)
    variables = () if isinstance(query, Marginal) else resolve_query_variables(columns, query, discrete=True)
    likelihoods = [np.ones(size) for size in columns.n_values]
    for v, logs in evidence.likelihoods.log_weights.items():
        likelihoods[v] = np.exp(logs)
    x = columns.rows([evidence.values])[:, 0]
    for v in np.flatnonzero(~np.isnan(x)).tolist():
        likelihoods[v] = (np.arange(columns.n_values[v]) == x[v]).astype(np.float64)
    if not variables and not isinstance(query, Marginal):
        raise InvalidEvidence("No column is left to query: give less evidence.")
    started = time.perf_counter()
    sums, error = _sums(network, likelihoods, [int(v) for v in variables], sampling, pause, started)
    seconds = time.perf_counter() - started
    if not sums.weight:
        raise NoWorlds(sums.n, seconds)
    answer = Answer(kind=query.kind)
    p = sums.weight / sums.n
    answer["sampled"] = Sampled(
        n=sums.n,
        effective_sample_size=sums.weight**2 / sums.square,
        largest_error=error,
        is_reached=error <= sampling.error,
        seconds=seconds,
    )
    if isinstance(query, Marginal):
        answer["log_probability"], answer["probability"], answer["standard_error"] = float(np.log(p)), p, p * error
        return answer
    answer["log_evidence"] = float(np.log(p))
    shares, errors = _shares(sums)
    ends = np.cumsum([columns.n_values[v] for v in variables])[:-1]
    parts = list(zip(variables, np.split(shares, ends), np.split(errors, ends), strict=True))
    if isinstance(query, Impute):
        answer["imputed"] = {}
        for v, own, its in parts:
            best = int(np.where(nameable(columns)[v], own, -1.0).argmax())
            answer["imputed"][columns.names[v]] = Guess(
                value=columns.value(v, best), probability=float(own[best]), standard_error=float(its[best])
            )
        return answer
    answer["distributions"], answer["standard_errors"] = {}, {}
    for v, own, its in parts:
        answer["distributions"][columns.names[v]] = dict(zip(columns.labels(v), own.tolist(), strict=True))
        answer["standard_errors"][columns.names[v]] = dict(zip(columns.labels(v), its.tolist(), strict=True))
    return answer


def _sums(
    network: DiscreteNetwork,
    likelihoods: Sequence[Floats],
    variables: list[int],
    sampling: Sampling,
    pause: Callable[[], None] | None,
    started: float,
) -> tuple[_Sums, float]:
    """Sum over as many blocks as needed; returns the sums and the largest standard error.

    It draws only the queried variables, those with evidence, and their ancestors.
    """
    known = [v for v, likelihood in enumerate(likelihoods) if (likelihood != 1.0).any()]
    needed = set(network.ancestors([*variables, *known]))
    order = [v for v in network.order if v in needed]
    codes, weights = np.zeros((len(likelihoods), BLOCK), np.uint16), np.empty(BLOCK)
    k = sum(likelihoods[v].size for v in variables)
    sums, error = _Sums(0, 0.0, 0.0, np.zeros(k), np.zeros(k)), np.inf
    counter = np.uint64(sampling.seed)
    while error > sampling.error:
        if sums.n and time.perf_counter() - started > sampling.time_limit_s:
            break
        if pause is not None:
            pause()
        weights[:] = 1.0
        for v in order:
            rows, which = table_rows(network.tables[v], codes[list(network.parents[v])])
            counter = np.uint64(draw_weighted_values(rows, which, likelihoods[v], counter, codes[v], weights))
        squares = weights**2
        own = [
            [np.bincount(codes[v], of, likelihoods[v].size) for v in variables] if variables else [np.empty(0)]
            for of in (weights, squares)
        ]
        sums = _Sums(
            sums.n + BLOCK,
            sums.weight + float(weights.sum()),
            sums.square + float(squares.sum()),
            sums.weights + np.concatenate(own[0]),
            sums.squares + np.concatenate(own[1]),
        )
        if sums.weight:
            error = _largest_error(sums)
    return sums, error


def _largest_error(sums: _Sums) -> float:
    """Return the largest standard error of the queried values; for a marginal, relative to its probability."""
    if sums.weights.size:
        return float(_shares(sums)[1].max())
    mean = sums.weight / sums.n
    variance = max(0.0, sums.square / sums.n - mean**2)
    return float(np.sqrt(variance / (sums.n - 1)) / mean)


def _shares(sums: _Sums) -> tuple[Floats, Floats]:
    """Return the probability of each queried value and its standard error, at least that of one sample more or less."""
    shares = sums.weights / sums.weight
    variance = sums.squares * (1.0 - shares) ** 2 + (sums.square - sums.squares) * shares**2
    least = sums.square / sums.weight**2  # 1 / effective sample size
    errors: Floats = np.maximum(np.sqrt(np.maximum(variance, 0.0)) / sums.weight, least)
    return shares, errors
