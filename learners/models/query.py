"""Queries about a distribution, in terms of its columns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from numbers import Integral
from types import UnionType
from typing import Literal, get_args

from learners.errors import InvalidArgument, InvalidParameter
from learners.models.estimation import MAX_GRAPHS, GraphPrior, check_seed
from learners.models.evidence import Evidence, Given

Solver = Literal["bt", "ng", "amap", "beam", "kbt", "exact"]

# Those that tell more than one assignment.
RANKING_SOLVERS = ("exact", "kbt")

# How missing cells are filled, see `circuits.queries.column_values.fill_cells`.
How = Literal["mode", "mean", "draw"]

MAX_SAMPLES = 1_000_000
# Trees of `kbt` and `exact`, samples of `beam`: ten times as many may take a minute.
MAX_TREES = 1000


@dataclass(frozen=True)
class Marginal(Given):
    """Probability of given values, with all other columns marginalized.

    Parameters
    ----------
    evidence : mapping of column to value, tuple of values, `Range` or `NoneOf`
        None is as good as absent, in every query.
    """

    evidence: Evidence = field(default_factory=dict)
    kind: Literal["marginal"] = "marginal"


@dataclass(frozen=True)
class ColumnQuery(Given):
    """Fields common to queries about some columns given others.

    Parameters
    ----------
    variables : tuple of str, or str
    """

    variables: tuple[str, ...] = ()
    evidence: Evidence = field(default_factory=dict)

    def __post_init__(self) -> None:
        _name_some(self, "variables")


@dataclass(frozen=True)
class Conditional(ColumnQuery):
    """Distribution of discrete columns given others.

    Parameters
    ----------
    variables : tuple of str, or str
        None named: every discrete column that is not given.
    evidence : mapping of column to value
    joint : bool
        The distribution of all of them together, instead of each by itself.
    """

    joint: bool = False
    kind: Literal["conditional"] = "conditional"


@dataclass(frozen=True)
class Moments(ColumnQuery):
    """Mean and variance of numeric columns given others.

    Parameters
    ----------
    variables : tuple of str, or str
        None named: every numeric column that is not given.
    evidence : mapping of column to value
    """

    kind: Literal["moments"] = "moments"


@dataclass(frozen=True)
class Sample(Given):
    """Rows drawn given some values.

    Parameters
    ----------
    n : int
        From 1 to a million; a server's limit for one request may be lower.
    variables : tuple of str, or str
        The columns to return; none named: all.
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
        _name_some(self, "variables")
        if not isinstance(self.n, Integral) or self.n < 1:
            raise InvalidParameter("n", self.n, "1 or more")
        if self.n > MAX_SAMPLES:
            raise InvalidParameter("n", self.n, f"at most {MAX_SAMPLES:,}")
        check_seed(self.seed)


@dataclass(frozen=True)
class Map(ColumnQuery):
    """Most probable joint values of the chosen columns given others, with the rest marginalized.

    Parameters
    ----------
    variables : tuple of str, or str
        None named: every column that is not given; without the numeric ones, unless the solver is 'bt' or 'kbt'.
    evidence : mapping of column to value
    solver : 'bt', 'ng', 'amap', 'beam', 'kbt' or 'exact'
    time_limit_s : float
        After which `exact` answers with the best so far.
    k : int
        Trees of `kbt` and `exact`, samples of `beam`; from 1 to 1,000.
    seed : int
        Seed of `beam`.
    best : int
        Number of assignments to return, the most probable first, from 1 to 1,000: by `exact` each proved, by `kbt`
        those of its trees.

    Raises
    ------
    InvalidParameter
        If the time limit, k, seed or best is out of range.
    """

    solver: Solver = "exact"
    time_limit_s: float = 10.0
    k: int = 10
    seed: int = 0
    best: int = 1
    kind: Literal["map"] = "map"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.time_limit_s >= 0 and math.isfinite(self.time_limit_s)):
            raise InvalidParameter("time_limit_s", self.time_limit_s, "zero or more seconds")
        if not 1 <= self.k <= MAX_TREES:
            raise InvalidParameter("k", self.k, f"1 to {MAX_TREES:,}")
        if not 1 <= self.best <= MAX_TREES:
            raise InvalidParameter("best", self.best, f"1 to {MAX_TREES:,}")
        if self.best > 1 and self.solver not in RANKING_SOLVERS:
            raise InvalidParameter(
                "best",
                self.best,
                because=f"solver {self.solver!r} returns one assignment only; use {' or '.join(RANKING_SOLVERS)}",
            )
        check_seed(self.seed)


@dataclass(frozen=True)
class Impute(ColumnQuery):
    """Best guess of each missing value separately: the mode of a discrete column, the mean of a numeric one.

    Parameters
    ----------
    variables : tuple of str, or str
        None named: every column that is not given.
    evidence : mapping of column to value
    """

    kind: Literal["impute"] = "impute"


@dataclass(frozen=True)
class Surprise:
    """Surprise of given values: their log-likelihood, and its rank among rows drawn from the model.

    Parameters
    ----------
    n : int
        Rows that are drawn, of which the same columns are seen; from 1 to 100,000.

    Raises
    ------
    InvalidParameter
        If n or seed is out of range.
    """

    evidence: Evidence = field(default_factory=dict)
    n: int = 1000
    seed: int = 0
    kind: Literal["surprise"] = "surprise"

    def __post_init__(self) -> None:
        _check_draws(self.n, self.seed)


@dataclass(frozen=True)
class DrawQuery:
    """Fields common to queries about structures that may draw graphs.

    Parameters
    ----------
    present, absent : tuple of str, or str
        Known edges, each as "parent->child".
    prior : "order" or "graph"
        "order": graphs weigh by their number of orders, exactly; "graph": corrected by importance weights of draws, with
        standard errors.
    n, seed : int
        Number of draws, from 1 to 100,000, and their seed.

    Raises
    ------
    InvalidParameter
    """

    present: tuple[str, ...] = field(default=(), kw_only=True)
    absent: tuple[str, ...] = field(default=(), kw_only=True)
    prior: GraphPrior = field(default="order", kw_only=True)
    n: int = field(default=1000, kw_only=True)
    seed: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        _name_some(self, "present", "absent")
        _check_draws(self.n, self.seed)


@dataclass(frozen=True)
class Edges(DrawQuery):
    """Posterior probability of each edge, given known edges; see `DrawQuery`."""

    present: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    kind: Literal["edges"] = field(default="edges", kw_only=True)


@dataclass(frozen=True)
class Graph:
    """Most probable graph, given known edges.

    Parameters
    ----------
    present, absent : tuple of str, or str
        Known edges, each as "parent->child".
    """

    present: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    kind: Literal["graph"] = "graph"

    def __post_init__(self) -> None:
        _name_some(self, "present", "absent")


@dataclass(frozen=True)
class Graphs(DrawQuery):
    """Graphs drawn from the posterior, given known edges; with prior "graph" each draw has a weight; see `DrawQuery`."""

    n: int = 1
    kind: Literal["graphs"] = field(default="graphs", kw_only=True)


@dataclass(frozen=True)
class Paths(DrawQuery):
    """Probability that one column is an ancestor of another, exact for few columns, else from draws; see `DrawQuery`."""

    present: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    kind: Literal["paths"] = field(default="paths", kw_only=True)


@dataclass(frozen=True)
class Effects(DrawQuery):
    """Average change of each column when another is set one unit higher, over structures; for linear Gaussian models.

    Parameters
    ----------
    level : float
        Probability that an effect lies in its interval, which is estimated from draws.
    present, absent, prior, n, seed
        As of `DrawQuery`.

    Raises
    ------
    InvalidParameter
    """

    level: float = 0.9
    kind: Literal["effects"] = field(default="effects", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.level < 1:
            raise InvalidParameter("level", self.level, "a number between 0 and 1")


@dataclass(frozen=True)
class Score:
    """Log score of a graph, and its odds against the best graph.

    Parameters
    ----------
    edges : tuple of str, or str
        All its edges, each as "parent->child".
    bif : str
        Or the text of a network in the Bayesian Interchange Format, of which the edges count.

    Raises
    ------
    InvalidParameter
        If both are given.
    """

    edges: tuple[str, ...] = ()
    bif: str = ""
    kind: Literal["score"] = "score"

    def __post_init__(self) -> None:
        _name_some(self, "edges")
        if self.edges and self.bif:
            raise InvalidParameter("bif", f"{self.bif[:40]}…", because="give either edges or bif, not both")


def _name_some(query: object, *fields: str) -> None:
    """Convert a single name to a tuple, because a string is a sequence of letters and a dict one of names."""
    for field_name in fields:
        names = getattr(query, field_name)
        if isinstance(names, Mapping) or not isinstance(names, Iterable):
            raise InvalidParameter(field_name, names, "names of columns; put known values into evidence")
        object.__setattr__(query, field_name, (names,) if isinstance(names, str) else tuple(names))


def _check_draws(n: int, seed: int) -> None:
    if not 1 <= n <= MAX_GRAPHS:
        raise InvalidParameter("n", n, f"1 to {MAX_GRAPHS:,} draws")
    check_seed(seed)


InferenceQuery = Marginal | Conditional | Moments | Sample | Map | Impute
Query = InferenceQuery | Surprise
StructureQuery = Edges | Graph | Graphs | Paths | Effects | Score
AnyQuery = Query | StructureQuery


def check_query_type(query: object, allowed: UnionType = Query) -> None:
    """Refuse anything but a query of an allowed type with evidence given as a mapping from column to value.

    Raises InvalidParameter.
    """
    if not isinstance(query, allowed):
        *names, last = (kind.__name__ for kind in get_args(allowed))
        raise InvalidArgument("query", query, f"a {', '.join(names)} or {last} of fewpass")
    for name in ("evidence", "likely", "do"):
        if not isinstance(evidence := getattr(query, name, {}), Mapping):
            raise InvalidParameter(name, evidence, "a mapping from column to value")
