"""What a density model answers in arrays, told in the words of the columns."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from learners.circuits.circuit import Circuit
from learners.circuits.columns import Columns
from learners.circuits.errors import ImpossibleEvidence
from learners.circuits.queries import answers
from learners.circuits.queries.anomaly_rank import ranks
from learners.circuits.queries.answer_types import Answer, Batches, Cell, Guess
from learners.circuits.queries.guesses import best_codes, by_kind, of_densities
from learners.circuits.queries.sampling import sample
from learners.kernels.arrays import Array, Floats
from learners.models.evidence import RawValue

KINDS = ("marginal", "conditional", "moments", "sample", "impute", "surprise")


class Source(NamedTuple):
    """What answers in arrays.

    Rows x are (n_variables, n_rows), NaN or out of range where nothing is observed. Each callable but the first raises
    ImpossibleEvidence, naming the row, where a row has probability zero.
    """

    # (n_rows,) float64: log probability or density of what is observed.
    log_likelihood: Callable[[Array], Floats]
    # (n_rows, n_values) float64 of each discrete variable by itself, given each row.
    marginals: Callable[[Array, Sequence[int]], list[Floats]]
    # (n_rows, n_values of the first, of the second, …) float64: the joint distribution of discrete variables.
    conditional: Callable[[Array, Sequence[int]], Floats]
    # Means and variances (n_rows, n_asked) float64 of numeric variables.
    moments: Callable[[Array, Sequence[int]], tuple[Floats, Floats]]
    # From n and a seed (n, n_variables) float64 for each row, the same whether it is asked alone or among others.
    draws: Callable[[Array, int, int], Sequence[Floats]]
    # What is added to log_likelihood: of likelihoods that are in the weights already.
    log_scale: float = 0.0


def source_of(circuit: Circuit, log_scale: float = 0.0) -> Source:
    """The answers of a circuit."""
    return Source(
        partial(answers.log_likelihood, circuit),
        partial(answers.marginals, circuit),
        partial(answers.conditional, circuit),
        partial(answers.moments, circuit),
        partial(_draws, circuit),
        log_scale,
    )


def batches_of(source: Source) -> Batches:
    """What answers the queries of each kind but MAP."""
    if source.log_scale == -np.inf:
        return {"marginal": partial(_marginal, source)} | dict.fromkeys(KINDS[1:], impossible)
    return {
        "marginal": partial(_marginal, source),
        "conditional": partial(_conditional, source),
        "moments": partial(_moments, source),
        "sample": partial(_sample, source),
        "impute": partial(_impute, source),
        "surprise": partial(_surprise, source),
    }


def impossible(*_asked: object) -> list[Answer]:
    """What answers where likelihoods leave nothing that is possible.

    Raises
    ------
    ImpossibleEvidence
    """
    raise ImpossibleEvidence(0)


def _draws(circuit: Circuit, x: Array, n: int, seed: int) -> list[Floats]:
    drawn = []
    for row in range(x.shape[1]):
        try:
            drawn.append(sample(circuit, x[:, [row]], n, seed)[0])
        except ImpossibleEvidence as error:
            raise ImpossibleEvidence(row) from error
    return drawn


def _log_evidence(source: Source, columns: Columns, x: Array) -> tuple[list[float], list[bool]]:
    """Log probability of each row, and whether it is one of a density."""
    logs, is_density = source.log_likelihood(x), of_densities(columns, x)
    # Probabilities that add to one add to a little more in floating point.
    logs = np.where(is_density, logs, np.minimum(logs, 0.0)) + source.log_scale
    return logs.tolist(), is_density.tolist()


def _marginal(source: Source, columns: Columns, x: Array) -> list[Answer]:
    with np.errstate(over="ignore"):  # a density may be beyond all doubles; its logarithm tells
        return [
            Answer(log_probability=log, density=float(np.exp(log)))
            if dense
            else Answer(log_probability=log, probability=float(np.exp(log)))
            for log, dense in zip(*_log_evidence(source, columns, x), strict=True)
        ]


def _conditional(
    source: Source, columns: Columns, x: Array, variables: tuple[int, ...], is_joint: bool
) -> list[Answer]:
    logs, _ = _log_evidence(source, columns, x)
    if is_joint:
        tables = source.conditional(x, variables)
        return [
            {"log_evidence": log, "distribution": _cells(columns, variables, table)}
            for log, table in zip(logs, tables, strict=True)
        ]
    by_variable = [p.tolist() for p in source.marginals(x, variables)]
    return [
        {
            "log_evidence": log,
            "distributions": {
                columns.names[v]: dict(zip(columns.labels(v), p[row], strict=True))
                for v, p in zip(variables, by_variable, strict=True)
            },
        }
        for row, log in enumerate(logs)
    ]


def _moments(source: Source, columns: Columns, x: Array, variables: tuple[int, ...]) -> list[Answer]:
    logs, _ = _log_evidence(source, columns, x)
    mean, variance = source.moments(x, variables)
    return [
        {
            "log_evidence": log,
            "moments": {
                columns.names[v]: {"mean": float(mean[row, i]), "variance": float(variance[row, i])}
                for i, v in enumerate(variables)
            },
        }
        for row, log in enumerate(logs)
    ]


def _sample(source: Source, columns: Columns, x: Array, variables: tuple[int, ...], n: int, seed: int) -> list[Answer]:
    return [{"rows": in_words(columns, variables, rows)} for rows in source.draws(x, n, seed)]


def _impute(source: Source, columns: Columns, x: Array, variables: tuple[int, ...]) -> list[Answer]:
    """The best guess of each variable given each row."""
    logs, _ = _log_evidence(source, columns, x)
    found: list[dict[str, Guess]] = [{} for _ in logs]
    discrete, numeric = by_kind(columns, variables)
    if discrete:
        for v, p in zip(discrete, source.marginals(x, discrete), strict=True):
            for row, code in enumerate(best_codes(columns, v, p).tolist()):
                value = columns.value(v, code)
                found[row][columns.names[v]] = {"value": value, "probability": float(p[row, code])}
    if numeric:
        mean, variance = source.moments(x, numeric)
        for i, v in enumerate(numeric):
            for row, own in enumerate(found):
                value = columns.value(v, mean[row, i])
                own[columns.names[v]] = {"value": value, "variance": float(variance[row, i])}
    names = [columns.names[v] for v in variables]
    return [
        Answer(log_evidence=log, imputed={name: own[name] for name in names})
        for log, own in zip(logs, found, strict=True)
    ]


def _surprise(source: Source, columns: Columns, x: Array, n: int, seed: int) -> list[Answer]:
    """The likelihood of each row, and its rank among n rows that are drawn."""
    logs, _ = _log_evidence(source, columns, x)
    drawn = source.draws(np.full((len(columns.names), 1), np.nan), n, seed)[0]
    rank, error = ranks(np.array(logs), columns.known_rows(x), drawn, source.log_likelihood)
    return [
        Answer(log_likelihood=log, rank=float(r), standard_error=float(e), n=n)
        for log, r, e in zip(logs, rank, error, strict=True)
    ]


def in_words(columns: Columns, variables: tuple[int, ...], rows: Floats) -> list[dict[str, RawValue]]:
    """Rows (n, n_variables) of codes and numbers as raw values of some columns."""
    return [
        {columns.names[v]: columns.value(v, code) for v, code in zip(variables, codes, strict=True)}
        for codes in rows[:, list(variables)].tolist()
    ]


def _cells(columns: Columns, variables: tuple[int, ...], table: Floats) -> list[Cell]:
    """The cells of a joint distribution in words, the most probable first."""
    names = [columns.names[v] for v in variables]
    labels = list(itertools.product(*(columns.labels(v) for v in variables)))
    p = table.ravel()
    return [
        {"values": dict(zip(names, labels[cell], strict=True)), "probability": float(p[cell])}
        for cell in np.argsort(-p, kind="stable").tolist()
    ]
