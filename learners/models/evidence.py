"""What can be known of columns: one value, some values, a range of numbers, what is excluded, weights of values; and how an answer is estimated."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from learners.errors import InvalidParameter

GraphPrior = Literal["order", "graph"]

MAX_GRAPHS = 100_000
# Graphs of one average: each is a network of its own, asked twice.
MOST_AVERAGED = 10_000


@dataclass(frozen=True)
class Average:
    """The average over graphs drawn from a posterior over structures, and over their parameters.

    Parameters
    ----------
    n : int
        Draws, from 2 to 10,000.
    level : float
        Probability that an answer lies in its interval.
    present, absent : tuple of str
        Known edges, each as "parent->child".
    prior : "order" or "graph"
        As of `DrawQuery`.

    Raises
    ------
    InvalidParameter
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    n: int = 200
    level: float = 0.9
    present: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    prior: GraphPrior = "order"
    seed: int = 0

    def __post_init__(self) -> None:
        if not 2 <= self.n <= MOST_AVERAGED:
            raise InvalidParameter("n", self.n, f"use 2 to {MOST_AVERAGED:,} draws")
        if not 0 < self.level < 1:
            raise InvalidParameter("level", self.level, "use a number between 0 and 1")
        check_seed(self.seed)


@dataclass(frozen=True)
class Sampling:
    """Samples in place of a sum that is too large: they end at a standard error or a time, whichever comes first.

    Where the exact way is possible, the answer is exact.

    Parameters
    ----------
    error : float
        The largest standard error of a probability that is good enough; of a marginal, as a share of it.

    Raises
    ------
    InvalidParameter
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    error: float = 0.002
    time_limit_s: float = 10.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.error < 1:
            raise InvalidParameter("error", self.error, "use a number between 0 and 1")
        if not (self.time_limit_s > 0 and math.isfinite(self.time_limit_s)):
            raise InvalidParameter("time_limit_s", self.time_limit_s, "use a positive number of seconds")
        check_seed(self.seed)


def check_seed(seed: int) -> None:
    """Refuse a seed that is out of range. Raises InvalidParameter."""
    if not 0 <= seed < 1 << 64:
        raise InvalidParameter("seed", seed, "use a whole number from 0 to 2^64 - 1")


RawValue = str | int | float | bool | None


@dataclass(frozen=True)
class Range:
    """A number, or a time, from `low` to `high`.

    Both ends are in the range. Where the model knows intervals of a column only, they have to be cut points, and a cut belongs to
    the interval below it.

    Parameters
    ----------
    low, high : number, or text of a time
        None: without an end on this side.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    low: str | int | float | None = None
    high: str | int | float | None = None


@dataclass(frozen=True)
class NoneOf:
    """Any value but these; a missing value and a rare one are among the rest.

    Parameters
    ----------
    none_of : tuple of values, or one value
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    none_of: tuple[RawValue, ...]

    def __post_init__(self) -> None:
        values = self.none_of
        is_several = isinstance(values, tuple | list | set | frozenset)
        object.__setattr__(self, "none_of", tuple(values) if is_several else (values,))


# Of each column one value (None is as good as absent), any of several, a range, or what it is not.
Known = RawValue | tuple[RawValue, ...] | list[RawValue] | Range | NoneOf
Evidence = Mapping[str, Known]
# Of each column the likelihood of its values: how probable what was seen is if the value is this. Those not named have zero.
Likely = Mapping[str, Mapping[str, float]]


# Of each column the value that it is set to.
Interventions = Mapping[str, RawValue]
# Of a posterior over structures: its best graph, all graphs, or the graph of these edges, each as "parent->child".
AskedGraph = Literal["best"] | Average | tuple[str, ...]


@dataclass(frozen=True)
class Given:
    """What queries to a distribution have in common.

    Parameters
    ----------
    likely : mapping of column to weights by value
        Soft evidence: how probable what was seen is if the column has this value; values that are not named have weight zero.
    do : mapping of column to value
        Columns that are set from outside, whatever their parents are; of networks.
    graph : "best", `Average` or tuple of edges
        Of a posterior over structures, the graph that answers.
    sampling : Sampling, optional
        Answer by samples if the exact way is too large; else the query is refused.
    """

    likely: Likely = field(default_factory=dict, kw_only=True)
    do: Interventions = field(default_factory=dict, kw_only=True)
    graph: AskedGraph = field(default="best", kw_only=True)
    sampling: Sampling | None = field(default=None, kw_only=True)
