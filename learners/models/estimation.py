"""Settings of approximate answers: averages over a posterior's graphs, and sampling where exact sums are too large."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from learners.errors import InvalidParameter

GraphPrior = Literal["order", "graph"]

MAX_GRAPHS = 100_000
# Graphs of one average: each is a network of its own, asked twice.
MOST_AVERAGED = 10_000


@dataclass(frozen=True)
class Average:
    """Average over graphs drawn from a posterior over structures, and over their parameters.

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
            raise InvalidParameter("n", self.n, f"2 to {MOST_AVERAGED:,} draws")
        if not 0 < self.level < 1:
            raise InvalidParameter("level", self.level, "a number between 0 and 1")
        check_seed(self.seed)


@dataclass(frozen=True)
class Sampling:
    """Sampling instead of an exact sum that is too large, until a standard error or time limit is reached.

    The answer is exact if that is possible.

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
            raise InvalidParameter("error", self.error, "a number between 0 and 1")
        if not (self.time_limit_s > 0 and math.isfinite(self.time_limit_s)):
            raise InvalidParameter("time_limit_s", self.time_limit_s, "a positive number of seconds")
        check_seed(self.seed)


def check_seed(seed: int) -> None:
    """Refuse a seed out of range. Raises InvalidParameter."""
    if not 0 <= seed < 1 << 64:
        raise InvalidParameter("seed", seed, "a whole number from 0 to 2^64 - 1")
