"""What can be asked of a distribution, in the words of its columns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from learners.errors import InvalidParameter

RawValue = str | int | float | bool | None
Evidence = Mapping[str, RawValue]
Solver = Literal["bt", "ng", "amap", "beam", "kbt", "exact"]

MAX_SAMPLES = 1_000_000
# Trees of `kbt` and `exact`, samples of `beam`: ten times as many may take a minute.
MAX_TREES = 1000


@dataclass(frozen=True)
class Marginal:
    """How probable some values are, everything else summed out.

    Parameters
    ----------
    evidence : mapping of column to value
        None is as good as absent, in every query.
    """

    evidence: Evidence = field(default_factory=dict)
    kind: Literal["marginal"] = "marginal"


@dataclass(frozen=True)
class Conditional:
    """The distribution of discrete columns given others.

    Parameters
    ----------
    variables : tuple of str
        None named: every discrete column that is not given.
    evidence : mapping of column to value
    joint : bool
        The distribution of all of them together, instead of each by itself.
    """

    variables: tuple[str, ...] = ()
    evidence: Evidence = field(default_factory=dict)
    joint: bool = False
    kind: Literal["conditional"] = "conditional"


@dataclass(frozen=True)
class Moments:
    """Mean and variance of numeric columns given others.

    Parameters
    ----------
    variables : tuple of str
        None named: every numeric column that is not given.
    evidence : mapping of column to value
    """

    variables: tuple[str, ...] = ()
    evidence: Evidence = field(default_factory=dict)
    kind: Literal["moments"] = "moments"


@dataclass(frozen=True)
class Sample:
    """Rows drawn given some values.

    Parameters
    ----------
    n : int
        From 1 to a million; a server's limit for one request may be lower.
    evidence : mapping of column to value
    variables : tuple of str
        The columns to tell; none named: all.
    seed : int
        The same seed draws the same rows.

    Raises
    ------
    InvalidParameter
        If n or seed is out of range.
    """

    n: int = 1
    evidence: Evidence = field(default_factory=dict)
    variables: tuple[str, ...] = ()
    seed: int = 0
    kind: Literal["sample"] = "sample"

    def __post_init__(self) -> None:
        if self.n < 1:
            raise InvalidParameter("n", self.n, "use 1 or more samples")
        if self.n > MAX_SAMPLES:
            raise InvalidParameter(
                "n", self.n, f"one query draws at most {MAX_SAMPLES:,} samples, wherever it is asked"
            )
        _check_seed(self.seed)


@dataclass(frozen=True)
class Map:
    """The most probable values of some columns together given others, the rest summed out.

    Parameters
    ----------
    variables : tuple of str
        None named: every column that is not given.
    evidence : mapping of column to value
    solver : 'bt', 'ng', 'amap', 'beam', 'kbt' or 'exact'
    time_limit_s : float
        After which `exact` answers with the best so far.
    k : int
        Trees of `kbt` and `exact`, samples of `beam`; from 1 to 1,000.
    seed : int
        Of `beam`.

    Raises
    ------
    InvalidParameter
        If the time limit, k or seed is out of range.
    """

    variables: tuple[str, ...] = ()
    evidence: Evidence = field(default_factory=dict)
    solver: Solver = "exact"
    time_limit_s: float = 10.0
    k: int = 10
    seed: int = 0
    kind: Literal["map"] = "map"

    def __post_init__(self) -> None:
        if not (self.time_limit_s >= 0 and math.isfinite(self.time_limit_s)):
            raise InvalidParameter("time_limit_s", self.time_limit_s, "use zero or more seconds")
        if not 1 <= self.k <= MAX_TREES:
            raise InvalidParameter("k", self.k, f"use 1 to {MAX_TREES:,}")
        _check_seed(self.seed)


def _check_seed(seed: int) -> None:
    if not 0 <= seed < 1 << 64:
        raise InvalidParameter("seed", seed, "use a whole number from 0 to 2^64 - 1")


Query = Marginal | Conditional | Moments | Sample | Map
