"""Log scores of all parent sets of all nodes, within candidates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from learners.kernels.arrays import Floats, Integers, freeze

BYTE = 256


def keep_sets(logs: Floats, present: int, absent: int) -> None:
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
        freeze(self.logs, *self.candidates)

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
