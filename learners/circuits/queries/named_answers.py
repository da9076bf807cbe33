"""Convert a density model's array answers to named values."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, NamedTuple, TypedDict

import numpy as np

from learners.circuits.errors import ImpossibleEvidence
from learners.circuits.evaluation.leaf_distributions import density_variables
from learners.circuits.queries.column_values import nameable
from learners.circuits.variables import Columns, mask_unknown_codes
from learners.kernels.arrays import Array, Floats, Mask
from learners.models.evidence import RawValue


class Cell(TypedDict, total=False):
    """A combination of values and its probability."""

    values: dict[str, str]
    probability: float
    standard_error: float
    interval: list[float]


class Moment(TypedDict, total=False):
    """Moments of a numeric column."""

    mean: float
    variance: float
    standard_error: float
    interval: list[float]


class Guess(TypedDict, total=False):
    """The best guess of a missing value: with its `probability`, or the `variance` around it."""

    value: RawValue
    probability: float
    variance: float
    standard_error: float
    interval: list[float]


class Assignment(TypedDict):
    """One of the most probable assignments; the bound covers every other except those before it."""

    assignment: dict[str, RawValue]
    log_probability: float
    upper_bound: float
    is_optimal: bool


class Intervention(TypedDict, total=False):
    """Effect of setting columns on a network's arcs, see `registry.networks.interventions.intervention_of`."""

    set: dict[str, RawValue]
    cut: list[dict[str, str]]
    back_door: list[dict[str, str | bool | list[str]]]


class Sampled(TypedDict):
    """Summary of the samples behind an approximate answer.

    `largest_error` is the largest standard error of a probability, for a marginal relative to it; `is_reached` is
    whether it met the requested error before time was up.
    """

    n: int
    effective_sample_size: float
    largest_error: float
    is_reached: bool
    seconds: float


class Answer(TypedDict, total=False):
    """The answer to a query: `kind`, and the fields described in `queries.answer_network_queries`."""

    kind: str
    log_probability: float
    probability: float
    density: float
    log_evidence: float
    distributions: dict[str, dict[str, float]]
    distribution: list[Cell]
    moments: dict[str, Moment]
    imputed: dict[str, Guess]
    log_likelihood: float
    rank: float
    n: int
    rows: list[dict[str, RawValue]]
    assignment: dict[str, RawValue]
    best: list[Assignment]
    upper_bound: float
    is_optimal: bool
    n_expanded: int
    seconds: float
    # What draws of a posterior say beside their mean: its standard error, the ends of a central interval of probability
    # `level`, and of which circuit a MAP assignment is.
    standard_error: float
    interval: list[float]
    log_interval: list[float]
    standard_errors: dict[str, dict[str, float]]
    intervals: dict[str, dict[str, list[float]]]
    level: float
    of: str
    warnings: list[str]
    unused: list[str]
    intervention: Intervention
    sampled: Sampled


# What answers the queries of a kind that differ only by their evidence, from the columns, rows of evidence (n_variables, n_rows),
# and what else the queries have in common.
Batches = Mapping[str, Callable[..., list[Answer]]]


KINDS = ("marginal", "conditional", "moments", "sample", "impute", "surprise")
EXACT = np.empty(0)


class Spread(TypedDict, total=False):
    """Uncertainty of an inexact number."""

    standard_error: float
    interval: list[float]


class Summary(NamedTuple):
    """Numbers with their uncertainty."""

    mean: Floats  # (...) float64
    # (...) float64: of the mean: how much it would differ with other draws. Empty of what is exact.
    standard_error: Floats = EXACT
    # low, high (...) float64: ends of the central credible interval of a posterior; empty of what is exact or of one
    # model.
    low: Floats = EXACT
    high: Floats = EXACT

    def spread(self, at: tuple[int, ...]) -> Spread:
        """Return the uncertainty of one of the numbers."""
        if not self.standard_error.size:
            return {}
        error: Spread = {"standard_error": float(self.standard_error[at])}
        return error | {"interval": [float(self.low[at]), float(self.high[at])]} if self.low.size else error


class Source(ABC):
    """Base of answers from arrays to named values: one circuit or mixture exactly, or the draws of a posterior.

    Rows x are (n_variables, n_rows), NaN or out of range where not observed. Each method but the first raises
    ImpossibleEvidence, naming a row of probability zero. Logs are (n_rows,) float64, log probabilities or
    densities of the observed values; for draws (n_rows, n_draws).
    """

    # What is added to logs: of likelihoods that are in the weights already; of draws (n_draws,).
    log_scale: float | Floats = 0.0
    # Of the intervals.
    level: ClassVar[Answer] = {}

    @abstractmethod
    def row_logs(self, x: Array) -> Floats:
        """Return the log probability or density of each row."""

    @abstractmethod
    def row_marginals(self, x: Array, variables: Sequence[int]) -> tuple[Floats, list[Summary]]:
        """Return logs, and the marginal distribution of each discrete variable given each row, (n_rows, n_values)."""

    @abstractmethod
    def row_tables(self, x: Array, variables: Sequence[int]) -> tuple[Floats, Summary]:
        """Return logs, and the joint distribution of discrete variables, (n_rows, n_cells), the last one's values
        fastest.
        """

    @abstractmethod
    def row_moments(self, x: Array, variables: Sequence[int]) -> tuple[Floats, Summary, Floats]:
        """Return logs, means and variances (n_rows, n_asked) of numeric variables."""

    @abstractmethod
    def row_draws(self, x: Array, n: int, seed: int) -> Sequence[Floats]:
        """Draw samples for each row, (n, n_variables) float64, independent of the other rows."""

    def summary(self, values: Floats) -> Summary:
        """Summarize numbers, or each by its draws."""
        return Summary(values)

    def log_means(self, logs: Floats) -> Floats:
        """Return the logs, or the log of the mean over draws, (n_rows,) float64."""
        return logs

    @property
    def is_impossible(self) -> bool:
        """True if the likelihoods are impossible."""
        return bool(np.isneginf(self.log_scale).any())

    @property
    def batches(self) -> Batches:
        """Return the handlers of each query kind except MAP."""
        if self.is_impossible:
            return {"marginal": self.marginal} | dict.fromkeys(KINDS[1:], raise_impossible_evidence)
        return {kind: getattr(self, kind) for kind in KINDS}

    def marginal(self, columns: Columns, x: Array) -> list[Answer]:
        """Return the probability or density of each row."""
        logs, is_density = self._scaled(columns, x, self.row_logs(x))
        with np.errstate(over="ignore", invalid="ignore"):  # a density may be beyond all doubles; its logarithm tells
            summary, of_logs = self.summary(np.exp(logs)), self.summary(logs)
        answers = []
        for row, log in enumerate(self.log_means(logs).tolist()):
            answer = Answer(log_probability=log)
            answer["density" if is_density[row] else "probability"] = float(summary.mean[row])
            answers.append(answer | _log_interval(of_logs, row) | self.level | summary.spread((row,)))
        return answers

    def conditional(self, columns: Columns, x: Array, variables: tuple[int, ...], is_joint: bool) -> list[Answer]:
        """Return the distribution of each variable given each row, or their joint distribution."""
        if is_joint:
            logs, table = self.row_tables(x, variables)
            labels = list(itertools.product(*(columns.labels(v) for v in variables)))
            names = [columns.names[v] for v in variables]
            return [
                self._given(log) | Answer(distribution=_cells(names, labels, table, row))
                for row, log in enumerate(self._log_evidence(columns, x, logs))
            ]
        logs, marginals = self.row_marginals(x, variables)
        answers = [self._given(log) | Answer(distributions={}) for log in self._log_evidence(columns, x, logs)]
        for v, own in zip(variables, marginals, strict=True):
            _add_distributions(answers, columns, v, own)
        return answers

    def moments(self, columns: Columns, x: Array, variables: tuple[int, ...]) -> list[Answer]:
        """Return the mean and variance of each variable given each row."""
        logs, means, variance = self.row_moments(x, variables)
        return [
            self._given(log)
            | Answer(
                moments={
                    columns.names[v]: {
                        "mean": float(means.mean[row, i]),
                        "variance": float(variance[row, i]),
                        **means.spread((row, i)),
                    }
                    for i, v in enumerate(variables)
                }
            )
            for row, log in enumerate(self._log_evidence(columns, x, logs))
        ]

    def sample(self, columns: Columns, x: Array, variables: tuple[int, ...], n: int, seed: int) -> list[Answer]:
        """Draw rows given each row."""
        return [
            {"rows": [_in_words(columns, variables, codes) for codes in rows[:, list(variables)].tolist()]}
            for rows in self.row_draws(x, n, seed)
        ]

    def impute(self, columns: Columns, x: Array, variables: tuple[int, ...]) -> list[Answer]:
        """Return the best guess of each variable given each row."""
        discrete = [v for v in variables if columns.n_values[v]]
        numeric = [v for v in variables if not columns.n_values[v]]
        guesses: list[dict[str, Guess]] = [{} for _ in range(x.shape[1])]
        if discrete:
            logs, marginals = self.row_marginals(x, discrete)
            for v, summary in zip(discrete, marginals, strict=True):
                # Neither what is missing nor what is rare is a guess.
                best = np.where(nameable(columns)[v], summary.mean, -1.0).argmax(axis=1)
                for row, code in enumerate(best.tolist()):
                    guess: Guess = {"value": columns.value(v, code), "probability": float(summary.mean[row, code])}
                    guesses[row][columns.names[v]] = {**guess, **summary.spread((row, code))}
        if numeric:
            logs, means, variance = self.row_moments(x, numeric)
            for i, v in enumerate(numeric):
                for row, own in enumerate(guesses):
                    guess = {"value": columns.value(v, means.mean[row, i]), "variance": float(variance[row, i])}
                    own[columns.names[v]] = {**guess, **means.spread((row, i))}
        names = [columns.names[v] for v in variables]
        return [
            self._given(log) | Answer(imputed={name: own[name] for name in names})
            for log, own in zip(self._log_evidence(columns, x, logs), guesses, strict=True)
        ]

    def surprise(self, columns: Columns, x: Array, n: int, seed: int) -> list[Answer]:
        """Return the likelihood of each row, and its rank among n drawn rows."""
        each = self.row_logs(x)
        summary, logs = self.summary(each), self._log_evidence(columns, x, each)
        drawn = self.row_draws(np.full((len(columns.names), 1), np.nan), n, seed)[0]
        rank, error = _ranks(np.array(logs), mask_unknown_codes(x, columns.circuit.n_values), drawn, self.mean_row_logs)
        return [
            Answer(log_likelihood=log)
            | _log_interval(summary, row)
            | self.level
            | Answer(rank=float(rank[row]), standard_error=float(error[row]), n=n)
            for row, log in enumerate(logs)
        ]

    def mean_row_logs(self, x: Array) -> Floats:
        """Return the log probability or density of many rows, (n_rows,) float64."""
        return self.row_logs(x)

    def _given(self, log: float) -> Answer:
        return Answer(log_evidence=log) | self.level

    def _scaled(self, columns: Columns, x: Array, logs: Floats) -> tuple[Floats, Mask]:
        """Return scaled logs, and whether each row's observed values have a density instead of a probability,
        (n_rows,).
        """
        numeric = density_variables(columns.circuit)
        is_density: Mask = np.any(~np.isnan(np.asarray(x, np.float64)[numeric]), axis=0)
        # Probabilities that add to one add to a little more in floating point.
        return np.where(is_density, logs.T, np.minimum(logs.T, 0.0)).T + self.log_scale, is_density

    def _log_evidence(self, columns: Columns, x: Array, logs: Floats) -> list[float]:
        """Return the log probability, or density, of each row."""
        return self.log_means(self._scaled(columns, x, logs)[0]).tolist()


def raise_impossible_evidence(*_: object) -> list[Answer]:
    """Raise ImpossibleEvidence: the handler for impossible likelihoods."""
    raise ImpossibleEvidence(0)


def _log_interval(of_logs: Summary, row: int) -> Answer:
    ends = of_logs.spread((row,))
    return Answer(log_interval=ends["interval"]) if "interval" in ends else {}


def _add_distributions(answers: list[Answer], columns: Columns, v: int, own: Summary) -> None:
    """Add the distribution of a variable to the answer for each row."""
    name, labels = columns.names[v], columns.labels(v)
    for answer, p in zip(answers, own.mean.tolist(), strict=True):
        answer["distributions"][name] = dict(zip(labels, p, strict=True))
    if own.standard_error.size:
        for answer, errors in zip(answers, own.standard_error.tolist(), strict=True):
            answer.setdefault("standard_errors", {})[name] = dict(zip(labels, errors, strict=True))
    if own.low.size:
        ends = np.stack([own.low, own.high], axis=-1).tolist()
        for answer, intervals in zip(answers, ends, strict=True):
            answer.setdefault("intervals", {})[name] = dict(zip(labels, intervals, strict=True))


def _cells(names: list[str], labels: list[tuple[str, ...]], table: Summary, row: int) -> list[Cell]:
    """Return the named cells of a row's joint distribution, most probable first."""
    return [
        {
            "values": dict(zip(names, labels[cell], strict=True)),
            "probability": float(table.mean[row, cell]),
            **table.spread((row, cell)),
        }
        for cell in np.argsort(-table.mean[row], kind="stable").tolist()
    ]


def _in_words(columns: Columns, variables: tuple[int, ...], codes: Sequence[float]) -> dict[str, RawValue]:
    """Convert codes and numbers of variables to raw values."""
    return {columns.names[v]: columns.value(v, code) for v, code in zip(variables, codes, strict=True)}


def _ranks(logs: Floats, x: Array, drawn: Floats, log_likelihood: Callable[[Array], Floats]) -> tuple[Floats, Floats]:
    """Return the share of drawn rows at most as likely as each row, on its observed columns, and its standard error.

    Both are (n_rows,) float64. A small rank is an unusual row; the error is that of a share of n draws.

    logs (n_rows,) float64: log likelihoods of the rows x (n_variables, n_rows) float64, NaN for unknown values.
    drawn (n, n_variables) float64: rows of the model.
    log_likelihood: function of rows (n_variables, n) float64.
    """
    seen = ~np.isnan(x)
    patterns, which = np.unique(seen, axis=1, return_inverse=True)
    ranks = np.empty(logs.size)
    n = len(drawn)
    for pattern in range(patterns.shape[1]):
        rows = np.flatnonzero(which.ravel() == pattern)
        others = np.where(patterns[:, [pattern]], drawn.T, np.nan)
        own = np.sort(log_likelihood(np.ascontiguousarray(others)))
        # A row that was drawn itself is as likely as it is, but for rounding.
        ranks[rows] = np.searchsorted(own, logs[rows] + 1e-9 * np.maximum(1.0, np.abs(logs[rows])), side="right") / n
    return ranks, np.sqrt(ranks * (1 - ranks) / n)
