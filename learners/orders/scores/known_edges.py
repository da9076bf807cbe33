"""Known edges: their validation, and their conversion to impossible parent sets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter

import numpy as np

from learners.errors import LearnerError
from learners.orders.scores.scores import Edge, FamilyScores, mask_impossible_parent_sets


class ImpossibleEdges(LearnerError, ValueError):
    """Raised if no graph of the posterior has the given edges."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"The given edges are impossible: {reason}.")
        self.reason = reason


@dataclass(frozen=True)
class Edges:
    """Known edges of a graph."""

    # present, absent: pairs of parent and child.
    present: frozenset[Edge] = frozenset()
    absent: frozenset[Edge] = frozenset()

    def __bool__(self) -> bool:
        """Return whether any edges are known."""
        return bool(self.present or self.absent)


def format_edge(edge: Edge, names: Sequence[str]) -> str:
    """Format an edge."""
    return f"{names[edge[0]]}->{names[edge[1]]}"


def format_directed_path(nodes: Iterable[int], names: Sequence[str]) -> str:
    """Format a path."""
    return "->".join(names[node] for node in nodes)


def find_directed_cycle(edges: Iterable[Edge]) -> list[int]:
    """Return a directed cycle among edges, with its first node repeated at the end; empty without one."""
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
    """Drop present edges whose parent is not a candidate."""
    return replace(edges, present=frozenset(edge for edge in edges.present if edge[0] in scores.candidates[edge[1]]))


def check_known_edges(edges: Edges, scores: FamilyScores, names: Sequence[str], can_add: bool = False) -> None:
    """Refuse edges that contradict each other, the prior or, unless more can be added, the candidate parents.

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
    """Set the score of every family that contradicts the edges to -inf; present edges must be from candidates."""
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
