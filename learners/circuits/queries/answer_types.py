"""The form of answers to queries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypedDict

from learners.models.evidence import RawValue


class Cell(TypedDict, total=False):
    """A combination of values and its probability."""

    values: dict[str, str]
    probability: float
    standard_error: float
    interval: list[float]


class Moment(TypedDict, total=False):
    """Of a numeric column."""

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
    """One of the most probable assignments; the bound is of every other but those before it."""

    assignment: dict[str, RawValue]
    log_probability: float
    upper_bound: float
    is_optimal: bool


class Intervention(TypedDict, total=False):
    """What setting columns does to the arcs of a network, see `registry.networks.interventions.intervention_of`."""

    set: dict[str, RawValue]
    cut: list[dict[str, str]]
    back_door: list[dict[str, str | bool | list[str]]]


class Sampled(TypedDict):
    """Samples of which an answer is, in place of a sum that is too large.

    `largest_error` is the largest standard error of a probability, of a marginal as a share of it; `is_reached` whether it is as
    small as was asked for, or time was up.
    """

    n: int
    effective_sample_size: float
    largest_error: float
    is_reached: bool
    seconds: float


class Answer(TypedDict, total=False):
    """The answer to a query: `kind`, and what `queries.answer_all` says of it."""

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
    intervention: Intervention
    sampled: Sampled


# What answers the queries of a kind that differ only by their evidence, from the columns, rows of evidence (n_variables, n_rows),
# and what else the queries have in common.
Batches = Mapping[str, Callable[..., list[Answer]]]
