"""Log scores of all parent sets of all nodes within candidates, and priors over graphs with a factor per parent set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
import scipy

from learners.kernels.arrays import Floats, Integers, freeze_arrays

BYTE = 256


def mask_impossible_parent_sets(logs: Floats, present: int, absent: int) -> None:
    """Set sets that lack a bit of `present` or have one of `absent` to -inf; logs (2^k,) in place."""
    if not present and not absent:
        return
    sets = np.arange(logs.size)
    logs[((sets & present) != present) | ((sets & absent) != 0)] = -np.inf


@dataclass(frozen=True)
class FamilyScores:
    """log p_i(G_i) of every node i and every set G_i of its candidate parents."""

    candidates: tuple[Integers, ...]  # tuple of (k_i,) int64, ascending: the nodes that may be parents of each node
    # (sum of 2^k_i,) float64: the nodes' tables one after another; in each, bit j of the index stands for candidate j.
    # -inf is impossible.
    logs: Floats

    def __post_init__(self) -> None:
        # To numba a read-only array is another type, and those of a mapped model are.
        freeze_arrays(self.logs, *self.candidates)

    @property
    def d(self) -> int:
        """Number of nodes."""
        return len(self.candidates)

    @cached_property
    def starts(self) -> Integers:
        """Start of each node's table in `logs`, (d + 1,) int64."""
        return np.cumsum([0, *(1 << candidates.size for candidates in self.candidates)])

    def part(self, node: int) -> slice:
        """Return the slice of a node's table in `logs`."""
        return slice(int(self.starts[node]), int(self.starts[node + 1]))

    def of(self, node: int) -> Floats:
        """Return the table of a node."""
        return self.logs[self.part(node)]

    @cached_property
    def byte_places(self) -> Integers:
        """Contribution of each byte of a set of nodes to the index into a node's table, (d, n_bytes, 256) int64.

        The index of a set in `logs` is `starts[node]` plus the sum over its bytes; members that are not candidates
        contribute nothing.
        """
        n_bytes = (self.d + 7) // 8
        places = np.zeros((self.d, n_bytes, BYTE), np.int64)
        values = np.arange(BYTE)
        for node, candidates in enumerate(self.candidates):
            for bit, other in enumerate(candidates.tolist()):
                places[node, other // 8] += ((values >> (other % 8)) & 1) << bit
        return places

    def index(self, node: int, parents: Iterable[int]) -> int | None:
        """Return the index of a parent set in the node's table; None if a parent is not a candidate."""
        position = {other: bit for bit, other in enumerate(self.candidates[node].tolist())}
        bits = [position.get(parent) for parent in parents]
        return None if None in bits else sum(1 << bit for bit in bits if bit is not None)

    def log_score(self, graph: Sequence[Iterable[int]]) -> float:
        """Return the log score of a graph, given as the parents of each node; -inf if a parent is not a candidate."""
        total = 0.0
        for node, parents in enumerate(graph):
            index = self.index(node, parents)
            total += -np.inf if index is None else float(self.of(node)[index])
        return total


Edge = tuple[int, int]


@dataclass(frozen=True)
class StructurePrior:
    """Prior over graphs.

    References: Eggeling, Viinikka, Vuoksenmaa, Koivisto (2019), On structure priors for learning Bayesian networks,
    section 3.
    """

    # Fair: all sizes of a parent set are equally probable, so a set of k parents has the inverse of the number of such
    # sets; uniform: all parent sets are.
    sizes: Literal["fair", "uniform"] = "fair"
    # required, forbidden: pairs of parent and child.
    required: frozenset[Edge] = frozenset()
    forbidden: frozenset[Edge] = frozenset()
    # Mapping of (parent, child) to float: added to the log prior of every graph that has the edge: the log odds of the
    # edge, all else being equal.
    log_odds: Mapping[Edge, float] = field(default_factory=dict)

    def of_sizes(self, d: int) -> Floats:
        """Return the log prior of a set of 0 to d - 1 parents, up to a constant, (d,) float64."""
        if self.sizes == "uniform":
            return np.zeros(d)
        k = np.arange(d)
        return np.asarray(scipy.special.gammaln(k + 1) + scipy.special.gammaln(d - k) - scipy.special.gammaln(d))

    def allowed(self, node: int, d: int) -> list[int]:
        """Return the allowed parents of a node."""
        return [other for other in range(d) if other != node and (other, node) not in self.forbidden]

    def required_of(self, node: int) -> list[int]:
        """Return the required parents of a node, ascending."""
        return sorted(parent for parent, child in self.required if child == node)


def family_scores_with_prior(
    tables: list[Floats], candidates: tuple[Integers, ...], prior: StructurePrior
) -> FamilyScores:
    """Add the log prior to log scores: required parents must be candidates, forbidden ones must not.

    The tables (2^k,) of log marginal likelihoods are not modified.
    """
    d = len(candidates)
    logs = [node_scores_with_prior(table, node, candidates[node], d, prior) for node, table in enumerate(tables)]
    return FamilyScores(candidates, np.concatenate(logs))


def node_scores_with_prior(table: Floats, node: int, candidates: Integers, d: int, prior: StructurePrior) -> Floats:
    """Return the log scores of one of d nodes with the log prior, (2^k,) float64; its required parents must be
    candidates.
    """
    extra = np.zeros(1)
    for other in candidates.tolist():
        extra = np.concatenate([extra, extra + prior.log_odds.get((other, node), 0.0)])
    logs = table + extra + prior.of_sizes(d)[np.bitwise_count(np.arange(table.size, dtype=np.uint64))]
    position = {other: bit for bit, other in enumerate(candidates.tolist())}
    mask_impossible_parent_sets(logs, sum(1 << position[parent] for parent in prior.required_of(node)), 0)
    return np.asarray(logs)
