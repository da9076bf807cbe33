"""Log scores of all parent sets of all nodes, within candidates; known edges, and priors over graphs: a factor for each parent set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import Literal

import numpy as np
import scipy

from learners.errors import LearnerError
from learners.kernels.arrays import Floats, Integers, freeze_arrays

BYTE = 256


def mask_impossible_parent_sets(logs: Floats, present: int, absent: int) -> None:
    """Make impossible the sets that lack a bit of `present` or have one of `absent`; logs (2^k,) in place."""
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
        """(d + 1,) int64: where the table of each node begins in `logs`."""
        return np.cumsum([0, *(1 << candidates.size for candidates in self.candidates)])

    def part(self, node: int) -> slice:
        """Where the table of a node is in `logs`."""
        return slice(int(self.starts[node]), int(self.starts[node + 1]))

    def of(self, node: int) -> Floats:
        """The table of a node."""
        return self.logs[self.part(node)]

    @cached_property
    def byte_places(self) -> Integers:
        """(d, n_bytes, 256) int64: what each byte of a set of nodes adds to the index into a node's table.

        The index of a set in `logs` is `starts[node]` and the sum over its bytes; members that are no candidates add
        nothing.
        """
        n_bytes = (self.d + 7) // 8
        places = np.zeros((self.d, n_bytes, BYTE), np.int64)
        values = np.arange(BYTE)
        for node, candidates in enumerate(self.candidates):
            for bit, other in enumerate(candidates.tolist()):
                places[node, other // 8] += ((values >> (other % 8)) & 1) << bit
        return places

    def index(self, node: int, parents: Iterable[int]) -> int | None:
        """Where a parent set is in the node's table; None if a parent is no candidate."""
        position = {other: bit for bit, other in enumerate(self.candidates[node].tolist())}
        bits = [position.get(parent) for parent in parents]
        return None if None in bits else sum(1 << bit for bit in bits if bit is not None)

    def log_score(self, graph: Sequence[Iterable[int]]) -> float:
        """The log score of a graph, given as the parents of each node: -inf if one has parents that are no candidates."""
        total = 0.0
        for node, parents in enumerate(graph):
            index = self.index(node, parents)
            total += -np.inf if index is None else float(self.of(node)[index])
        return total


Edge = tuple[int, int]


class ImpossibleEdges(LearnerError, ValueError):
    """No graph of the posterior has the given edges."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"The given edges are impossible: {reason}.")
        self.reason = reason


@dataclass(frozen=True)
class Edges:
    """What is known of a graph."""

    # present, absent: pairs of parent and child.
    present: frozenset[Edge] = frozenset()
    absent: frozenset[Edge] = frozenset()

    def __bool__(self) -> bool:
        """Whether anything is known."""
        return bool(self.present or self.absent)


def format_edge(edge: Edge, names: Sequence[str]) -> str:
    """An edge in words."""
    return f"{names[edge[0]]}->{names[edge[1]]}"


def format_directed_path(nodes: Iterable[int], names: Sequence[str]) -> str:
    """A path in words."""
    return "->".join(names[node] for node in nodes)


def find_directed_cycle(edges: Iterable[Edge]) -> list[int]:
    """A directed cycle among edges, its first node again at the end; empty if there is none."""
    parents: dict[int, list[int]] = {}
    for parent, child in sorted(edges):
        parents.setdefault(child, []).append(parent)
    try:
        TopologicalSorter(parents).prepare()
    except CycleError as error:
        *cycle, _ = error.args[1]
        first = cycle.index(min(cycle))
        return [*cycle[first:], *cycle[: first + 1]]
    return []


def drop_noncandidate_edges(edges: Edges, scores: FamilyScores) -> Edges:
    """The edges without those that are present but from no candidate."""
    return replace(edges, present=frozenset(edge for edge in edges.present if edge[0] in scores.candidates[edge[1]]))


def check_known_edges(edges: Edges, scores: FamilyScores, names: Sequence[str], can_add: bool = False) -> None:
    """Refuse what contradicts itself, the prior or, unless more can be added, the candidate parents.

    Raises ImpossibleEdges, naming the edges at fault.
    """
    for edge in sorted(edges.present & edges.absent):
        raise ImpossibleEdges(f"{format_edge(edge, names)} is both present and absent")
    cycle = find_directed_cycle(edges.present)
    if cycle:
        raise ImpossibleEdges(f"{format_directed_path(cycle, names)} is a cycle")
    within = drop_noncandidate_edges(edges, scores)
    for parent, child in sorted(edges.present - within.present):
        if not can_add:
            raise ImpossibleEdges(
                f"{names[parent]!r} is not among the {scores.candidates[child].size} candidate parents of "
                f"{names[child]!r}; train with more candidates, or with this edge required"
            )
    conditioned = condition_scores_on_edges(scores, within)
    for node in range(scores.d):
        if conditioned.of(node).max() == -np.inf:
            own = [format_edge(edge, names) for edge in sorted(edges.present | edges.absent) if edge[1] == node]
            raise ImpossibleEdges(
                f"no parent set of {names[node]!r} that the prior allows agrees with {', '.join(own)}"
            )


def condition_scores_on_edges(scores: FamilyScores, edges: Edges) -> FamilyScores:
    """The scores with -inf for every family that contradicts the edges; present edges must be from candidates."""
    if not edges:
        return scores
    logs = scores.logs.copy()
    for node in range(scores.d):
        candidates = set(scores.candidates[node].tolist())
        present = scores.index(node, [parent for parent, child in edges.present if child == node])
        absent = scores.index(node, [a for a, child in edges.absent if child == node and a in candidates])
        assert present is not None
        assert absent is not None
        mask_impossible_parent_sets(logs[scores.part(node)], present, absent)
    return replace(scores, logs=logs)


@dataclass(frozen=True)
class StructurePrior:
    """What is believed of a graph before the data.

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
        """(d,) float64: log prior of a set of 0 to d - 1 parents, up to a constant."""
        if self.sizes == "uniform":
            return np.zeros(d)
        k = np.arange(d)
        return np.asarray(scipy.special.gammaln(k + 1) + scipy.special.gammaln(d - k) - scipy.special.gammaln(d))

    def allowed(self, node: int, d: int) -> list[int]:
        """The nodes that may be parents of one."""
        return [other for other in range(d) if other != node and (other, node) not in self.forbidden]

    def required_of(self, node: int) -> list[int]:
        """The nodes that must be parents of one, ascending."""
        return sorted(parent for parent, child in self.required if child == node)


def family_scores_with_prior(
    tables: list[Floats], candidates: tuple[Integers, ...], prior: StructurePrior
) -> FamilyScores:
    """Log scores with the log prior: required parents must be candidates, forbidden ones must not.

    The tables (2^k,) of log marginal likelihoods are not changed.
    """
    d = len(candidates)
    logs = [node_scores_with_prior(table, node, candidates[node], d, prior) for node, table in enumerate(tables)]
    return FamilyScores(candidates, np.concatenate(logs))


def node_scores_with_prior(table: Floats, node: int, candidates: Integers, d: int, prior: StructurePrior) -> Floats:
    """(2^k,) float64: the log scores of one of d nodes with the log prior; its required parents are candidates."""
    extra = np.zeros(1)
    for other in candidates.tolist():
        extra = np.concatenate([extra, extra + prior.log_odds.get((other, node), 0.0)])
    logs = table + extra + prior.of_sizes(d)[np.bitwise_count(np.arange(table.size, dtype=np.uint64))]
    position = {other: bit for bit, other in enumerate(candidates.tolist())}
    mask_impossible_parent_sets(logs, sum(1 << position[parent] for parent in prior.required_of(node)), 0)
    return np.asarray(logs)
