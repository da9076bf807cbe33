"""Queries to all draws of a posterior, answered by their mean with its standard error and a credible interval."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np

from learners.circuits.bayesian.posterior_samples.samples import CircuitDraws
from learners.circuits.bayesian.posterior_samples.summary import LEVEL, Summary, log_mean, summarised
from learners.circuits.columns import Columns
from learners.circuits.errors import ImpossibleEvidence
from learners.circuits.evaluation.reweighted import NOTHING, Likelihoods, Reweighted, reweighted
from learners.circuits.queries import queries
from learners.circuits.queries.anomaly_rank import ranks
from learners.circuits.queries.answer_types import Answer, Batches, Cell, Guess
from learners.circuits.queries.guesses import best_codes, by_kind, of_densities
from learners.circuits.queries.named_answers import KINDS, impossible, in_words
from learners.circuits.queries.sampling import sample
from learners.kernels.arrays import Array, Floats
from learners.models.query import Query

MAP_OF = "the posterior mean circuit"


def batches_of_draws(draws: CircuitDraws, n_chains: int, likelihoods: Likelihoods = NOTHING) -> Batches:
    """What answers the queries of each kind by all draws.

    Each probability, density or mean is the mean over the draws; beside it are its `standard_error` and `interval` (low and
    high end, of probability `level`), and `log_interval` of a probability or density. Distributions have `standard_errors`
    and `intervals` of the same form. The variance of a column is that of the mean distribution. Rows of samples are each of a
    draw. MAP is `of` the posterior mean circuit, without interval.

    Parameters
    ----------
    draws : CircuitDraws
        Of one chain after the other.
    likelihoods : Likelihoods
        Each draw is given them.
    """
    given, log_scale = draws.given(likelihoods)
    return _Asked(given, n_chains, log_scale, reweighted(draws.circuit, likelihoods)).batches


@dataclass(frozen=True, eq=False)
class _Asked:
    """Answers the queries of each kind."""

    draws: CircuitDraws
    n_chains: int
    # (n_draws,) float64: of the likelihoods that are in the draws' weights already.
    log_scale: Floats
    # Of the posterior mean.
    mean: Reweighted

    @property
    def batches(self) -> Batches:
        if (self.log_scale == -np.inf).any():
            return {"marginal": self.marginal} | dict.fromkeys((*KINDS[1:], "map"), impossible)
        return {
            "marginal": self.marginal,
            "conditional": self.conditional,
            "moments": self.moments,
            "sample": self.sample,
            "impute": self.impute,
            "surprise": self.surprise,
            "map": self.most_probable,
        }

    def most_probable(self, columns: Columns, query: Query) -> list[Answer]:
        return [answer | Answer(of=MAP_OF) for answer in queries.most_probable(self.mean, columns, query)]

    def marginal(self, columns: Columns, x: Array) -> list[Answer]:
        logs, is_density = self.draws.log_likelihoods(x), of_densities(columns, x)
        logs = np.where(is_density[:, np.newaxis], logs, np.minimum(logs, 0.0))
        logs += self.log_scale
        with np.errstate(over="ignore", invalid="ignore"):  # a density may be beyond all doubles; its logarithm tells
            told = summarised(np.exp(logs), self.n_chains)
            of_logs = summarised(logs, self.n_chains)
        found = []
        for row, log in enumerate(log_mean(logs).tolist()):
            answer = Answer(log_probability=log)
            answer["density" if is_density[row] else "probability"] = float(told.mean[row])
            answer["log_interval"] = [float(of_logs.low[row]), float(of_logs.high[row])]
            found.append(answer | Answer(level=LEVEL, **_spread(told, (row,))))
        return found

    def conditional(self, columns: Columns, x: Array, variables: tuple[int, ...], joint: bool) -> list[Answer]:
        if joint:
            return self.joint(columns, x, variables)
        logs, by_variable = self.draws.marginals(x, variables)
        told = [summarised(p, self.n_chains) for p in by_variable]
        return [
            Answer(log_evidence=log, level=LEVEL) | _by_label(columns, variables, told, row)
            for row, log in enumerate(self._log_evidence(columns, x, logs))
        ]

    def joint(self, columns: Columns, x: Array, variables: tuple[int, ...]) -> list[Answer]:
        logs, tables = self.draws.conditional(x, variables)
        told = summarised(tables, self.n_chains)
        labels = list(itertools.product(*(columns.labels(v) for v in variables)))
        names = [columns.names[v] for v in variables]
        return [
            Answer(log_evidence=log, level=LEVEL, distribution=_cells(names, labels, told, row))
            for row, log in enumerate(self._log_evidence(columns, x, logs))
        ]

    def moments(self, columns: Columns, x: Array, variables: tuple[int, ...]) -> list[Answer]:
        logs, mean, variance = self.draws.moments(x, variables)
        told, whole = summarised(mean, self.n_chains), variance.mean(axis=-1) + mean.var(axis=-1)
        return [
            Answer(
                log_evidence=log,
                level=LEVEL,
                moments={
                    columns.names[v]: {
                        "mean": float(told.mean[row, i]),
                        "variance": float(whole[row, i]),
                        **_spread(told, (row, i)),
                    }
                    for i, v in enumerate(variables)
                },
            )
            for row, log in enumerate(self._log_evidence(columns, x, logs))
        ]

    def sample(self, columns: Columns, x: Array, variables: tuple[int, ...], n: int, seed: int) -> list[Answer]:
        return [{"rows": in_words(columns, variables, rows)} for rows in drawn_rows(self.draws, x, n, seed)]

    def impute(self, columns: Columns, x: Array, variables: tuple[int, ...]) -> list[Answer]:
        logs = self._log_evidence(columns, x, self.draws.log_likelihoods(x))
        found: list[dict[str, Guess]] = [{} for _ in logs]
        discrete, numeric = by_kind(columns, variables)
        if discrete:
            for v, p in zip(discrete, self.draws.marginals(x, discrete)[1], strict=True):
                told = summarised(p, self.n_chains)
                for row, code in enumerate(best_codes(columns, v, told.mean).tolist()):
                    guess: Guess = {"value": columns.value(v, code), "probability": float(told.mean[row, code])}
                    found[row][columns.names[v]] = {**guess, **_spread(told, (row, code))}
        if numeric:
            _, mean, variance = self.draws.moments(x, numeric)
            told, whole = summarised(mean, self.n_chains), variance.mean(axis=-1) + mean.var(axis=-1)
            for i, v in enumerate(numeric):
                for row in range(len(found)):
                    value, around = columns.value(v, told.mean[row, i]), float(whole[row, i])
                    found[row][columns.names[v]] = {"value": value, "variance": around, **_spread(told, (row, i))}
        names = [columns.names[v] for v in variables]
        return [
            Answer(log_evidence=log, level=LEVEL, imputed={name: own[name] for name in names})
            for log, own in zip(logs, found, strict=True)
        ]

    def mean_logs(self, x: Array) -> Floats:
        at_a_time = self.draws.rows_at_a_time()
        parts = [np.ascontiguousarray(x[:, first : first + at_a_time]) for first in range(0, x.shape[1], at_a_time)]
        return np.concatenate([log_mean(self.draws.log_likelihoods(part)) for part in parts])

    def _log_evidence(self, columns: Columns, x: Array, logs: Floats) -> list[float]:
        """Logarithm of the mean probability, or density, of each row."""
        is_density = of_densities(columns, x)[:, np.newaxis]
        return log_mean(np.where(is_density, logs, np.minimum(logs, 0.0)) + self.log_scale).tolist()

    def surprise(self, columns: Columns, x: Array, n: int, seed: int) -> list[Answer]:
        each = self.draws.log_likelihoods(x)
        told, logs = summarised(each, self.n_chains), np.array(self._log_evidence(columns, x, each))
        drawn = drawn_rows(self.draws, np.full((len(columns.names), 1), np.nan), n, seed)[0]
        rank, error = ranks(logs, columns.known_rows(x), drawn, self.mean_logs)
        return [
            Answer(
                log_likelihood=float(logs[row]),
                log_interval=[float(told.low[row]), float(told.high[row])],
                level=LEVEL,
                rank=float(rank[row]),
                standard_error=float(error[row]),
                n=n,
            )
            for row in range(logs.size)
        ]


def drawn_rows(draws: CircuitDraws, x: Array, n: int, seed: int) -> list[Floats]:
    """N rows (n, n_variables) given each row of evidence, each from a draw that is drawn anew.

    Raises
    ------
    ImpossibleEvidence
        Naming a row of probability zero.
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


class _Spread(TypedDict):
    standard_error: float
    interval: list[float]


def _spread(told: Summary, at: tuple[int, ...]) -> _Spread:
    return {"standard_error": float(told.standard_error[at]), "interval": [float(told.low[at]), float(told.high[at])]}


def _by_label(columns: Columns, variables: tuple[int, ...], told: Sequence[Summary], row: int) -> Answer:
    answer = Answer(distributions={}, standard_errors={}, intervals={})
    for v, own in zip(variables, told, strict=True):
        name, labels = columns.names[v], columns.labels(v)
        answer["distributions"][name] = dict(zip(labels, own.mean[row].tolist(), strict=True))
        answer["standard_errors"][name] = dict(zip(labels, own.standard_error[row].tolist(), strict=True))
        ends = np.stack([own.low[row], own.high[row]], axis=1).tolist()
        answer["intervals"][name] = dict(zip(labels, ends, strict=True))
    return answer


def _cells(names: list[str], labels: list[tuple[str, ...]], told: Summary, row: int) -> list[Cell]:
    return [
        {
            "values": dict(zip(names, labels[cell], strict=True)),
            "probability": float(told.mean[row, cell]),
            **_spread(told, (row, cell)),
        }
        for cell in np.argsort(-told.mean[row], kind="stable").tolist()
    ]
