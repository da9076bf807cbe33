"""Parameters for learning posteriors over structures, in terms of the columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Self

from learners.errors import InvalidParameter, UnknownColumn
from learners.models.parameters import Parameters
from learners.orders.scores.bdeu_bge import BGePrior
from learners.orders.scores.known_edges import find_directed_cycle, format_directed_path, format_edge
from learners.orders.scores.scores import Edge, StructurePrior

ARROW = "->"


@dataclass(frozen=True)
class OrderParameters(Parameters):
    """Parameters of a posterior over structures. Raises InvalidParameter.

    Parameters
    ----------
    score : "auto", "bge" or "bdeu"
        How families are scored: "bge" takes columns as numbers, "bdeu" as categories. These are the marginal likelihoods of
        linear Gaussian families, for tables of numbers only; and of families of nominal columns, to which numeric ones are
        cut. By default BGe where every column is numeric.
    method : "auto", "exact" or "blocks"
        Sum over all orders, or over those of a lattice that grows up to its limit. By default exactly where memory
        allows.
    candidates : int, optional
        Candidate parents of each column; by default all others for "exact", and 16 for "blocks".
    max_parents : int, optional
        Most parents of a column. By default no limit for BGe; for BDeu 4, and more where the table is small.
    prior : "fair" or "uniform"
        What is equally probable beforehand: all sizes of parent sets, or all parent sets.
    required, forbidden : tuple of str
        Edges that must or must not exist, each as "parent->child".
    tiers : tuple of tuple of str
        Columns in groups; none has a parent in a later group. Columns in no group are free.
    edge_log_odds : mapping of str to float
        Log odds for edges, each as "parent->child": log(p / (1 - p)) for a belief of p.
    alpha_mu, alpha_w, t : float, optional
        Numbers of the normal-Wishart prior, see `BGePrior`.
    standardise : bool
        Standardise columns to mean 0 and standard deviation 1 for BGe. Effects are in the columns'
        own units in both cases.
    ess : float
        Equivalent sample size of BDeu.
    n_bins : int
        Most intervals of a numeric column that is cut.
    max_states : int
        A numeric column of at most this many different numbers, all whole, has states: it is nominal, unless the
        score is BGe.
    max_values : int
        Values that a nominal column keeps; rarer ones share one code.
    screen_for : tuple of str
        Columns to keep of a table of more than 64, beside those with most information about any of them.
    keep_rows : bool
        Keep the distinct rows of nominal columns in the model (up to 16 MiB), so that `score` can count any family.
    sets : int
        Most sets in the lattice of "blocks".
    draws : int
        Number of independent draws of a Markov chain to estimate the coverage of "blocks".
    seed : int
        Start of the random numbers; the same seed gives the same model.
    """

    score: Literal["auto", "bge", "bdeu"] = "auto"
    method: Literal["auto", "exact", "blocks"] = "auto"
    candidates: int | None = None
    max_parents: int | None = None
    prior: Literal["fair", "uniform"] = "fair"
    required: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()
    tiers: tuple[tuple[str, ...], ...] = ()
    edge_log_odds: Mapping[str, float] = field(default_factory=dict)
    alpha_mu: float = 1.0
    alpha_w: float | None = None
    t: float | None = None
    standardise: bool = True
    ess: float = 1.0
    n_bins: int = 4
    max_states: int = 10
    max_values: int = 1024
    screen_for: tuple[str, ...] = ()
    keep_rows: bool = True
    sets: int = 400_000
    draws: int = 200
    seed: int = 0

    def __post_init__(self) -> None:
        self.check_whole_numbers(
            candidates=(1, 24),
            max_parents=(0, 63),
            n_bins=(2, 256),
            max_states=(0, 65_000),
            max_values=(2, 65_000),
            sets=(100, 100_000_000),
            draws=(2, 100_000),
            seed=(0, 2**32 - 1),
        )
        if not 0 < self.ess < 1e9:
            raise InvalidParameter("ess", self.ess, "a number above zero")
        for edge, odds in self.edge_log_odds.items():
            if not math.isfinite(odds):
                raise InvalidParameter(f"edge_log_odds[{edge!r}]", odds, "finite log odds, or required and forbidden")

    def without(self, gone: Sequence[str], names: Sequence[str]) -> Self:
        """Restrict the parameters to the remaining columns, dropping constraints and beliefs about removed ones.

        Raises UnknownColumn, InvalidParameter.
        """
        everyone = [*names, *gone]

        def stays(text: str, where: str) -> bool:
            return max(parse_edge(text, everyone, where)) < len(names)

        return replace(
            self,
            forbidden=tuple(text for text in self.forbidden if stays(text, "forbidden")),
            tiers=tuple(tuple(name for name in group if name not in gone) for group in self.tiers),
            edge_log_odds={text: odds for text, odds in self.edge_log_odds.items() if stays(text, "edge_log_odds")},
        )

    def bge(self) -> BGePrior:
        """Prior of the BGe score."""
        return BGePrior(self.alpha_mu, self.alpha_w, self.t)

    def structure_prior(self, names: Sequence[str]) -> StructurePrior:
        """Return the prior over graphs of these columns. Raises UnknownColumn; InvalidParameter if it contradicts
        itself, naming the edges.
        """
        required = _edges_of("required", self.required, names)
        forbidden = _edges_of("forbidden", self.forbidden, names) | _against_tiers(self.tiers, names)
        cycle = find_directed_cycle(required)
        if cycle:
            path = format_directed_path(cycle, names)
            raise InvalidParameter(
                "required", list(self.required), because=f"{path} is a cycle, so no graph has all these edges"
            )
        for edge in sorted(required & forbidden):
            raise InvalidParameter("required", format_edge(edge, names), because="forbidden or tiers contradict it")
        log_odds = {parse_edge(text, names, "edge_log_odds"): float(odds) for text, odds in self.edge_log_odds.items()}
        return StructurePrior(self.prior, required, forbidden, log_odds)


def parse_edge(text: str, names: Sequence[str], where: str) -> Edge:
    """Parse an edge "parent->child". Raises UnknownColumn, InvalidParameter."""
    known = {name: place for place, name in enumerate(names)}
    pieces = text.split(ARROW)
    splits = [(ARROW.join(pieces[:cut]).strip(), ARROW.join(pieces[cut:]).strip()) for cut in range(1, len(pieces))]
    if not splits:
        raise InvalidParameter(where, text, "an edge such as 'parent->child'")
    for parent, child in splits:
        if parent in known and child in known:
            if parent == child:
                raise InvalidParameter(where, text, because="a column cannot be its own parent")
            return known[parent], known[child]
    raise UnknownColumn(next(name for name in splits[0] if name not in known), names)


def _edges_of(where: str, texts: Sequence[str], names: Sequence[str]) -> frozenset[Edge]:
    return frozenset(parse_edge(text, names, where) for text in texts)


def _against_tiers(tiers: Sequence[Sequence[str]], names: Sequence[str]) -> frozenset[Edge]:
    """Return every edge from a later group to an earlier one."""
    tier: dict[int, int] = {}
    for number, group in enumerate(tiers):
        for name in group:
            if name not in names:
                raise UnknownColumn(name, names)
            if names.index(name) in tier:
                raise InvalidParameter("tiers", name, because="a column may be in one group only")
            tier[names.index(name)] = number
    return frozenset((a, b) for a in tier for b in tier if tier[a] > tier[b])
