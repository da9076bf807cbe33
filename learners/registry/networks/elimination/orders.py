"""Elimination orders and their clique trees."""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

# Cells of the best tree from which on the slowest rule is tried, too.
MANY_CELLS = 1_000_000


@dataclass(frozen=True)
class Clique:
    """Variables of one table in elimination order: first `eliminated`, then those shared with the parent."""

    scope: tuple[int, ...]
    eliminated: tuple[int, ...]
    parent: int  # place of the parent, after this clique; -1 of a root
    n_cells: int

    @property
    def separator(self) -> tuple[int, ...]:
        """Variables shared with the parent."""
        return self.scope[len(self.eliminated) :]


@dataclass(frozen=True)
class CliqueTree:
    """Cliques, children before parents; `home` maps each variable to the clique that eliminates it."""

    cliques: tuple[Clique, ...]
    home: dict[int, int]

    @property
    def n_cells(self) -> int:
        """Total number of cells of all tables."""
        return sum(clique.n_cells for clique in self.cliques)

    def place_of(self, scope: Collection[int]) -> int:
        """Return the clique that contains all variables of a family or query."""
        return min(self.home[v] for v in scope)


def clique_tree(
    scopes: Sequence[Collection[int]], sizes: Sequence[int], last: Collection[int] = frozenset()
) -> CliqueTree:
    """Return the clique tree of the cheapest elimination order found by several rules.

    Parameters
    ----------
    scopes : the variables of each table
    sizes : of each domain
    last : variables that are summed out, or maximised, after all others

    References
    ----------
    Kjaerulff (1990), Triangulation of graphs: algorithms giving small total state space: the rules of least fill, least
    weight and least weighted fill. Lauritzen, Spiegelhalter (1988): the tree.
    """
    variables = sorted(set().union(*scopes)) if scopes else []
    number = {v: i for i, v in enumerate(variables)}
    neighbours = [0] * len(variables)
    for scope in scopes:
        own = 0
        for v in scope:
            own |= 1 << number[v]
        for v in scope:
            neighbours[number[v]] |= own
    for i in range(len(variables)):
        neighbours[i] &= ~(1 << i)
    own_sizes = [int(sizes[v]) for v in variables]
    is_last = [v in last for v in variables]
    trees = [_tree(_order(neighbours, own_sizes, is_last, rule), variables, own_sizes, is_last) for rule in _RULES[:2]]
    if min(tree.n_cells for tree in trees) > MANY_CELLS:
        trees.append(_tree(_order(neighbours, own_sizes, is_last, _RULES[2]), variables, own_sizes, is_last))
    return min(trees, key=lambda tree: tree.n_cells)


_RULES = ("fill", "weight", "weighted fill")
# Variables in the order in which they are summed out, each with its neighbours at that time.
_Steps = list[tuple[int, int]]


def _order(neighbours: Sequence[int], sizes: Sequence[int], is_last: Sequence[bool], rule: str) -> _Steps:
    """Eliminate the variable with the lowest score first; neighbours are bits of an integer."""
    around = list(neighbours)
    logs = [math.log(size) for size in sizes]

    def score(v: int) -> tuple[bool, float, float]:
        own, fill, weight = around[v], 0, logs[v]
        for u in _bits(own):
            weight += logs[u]
            if rule == "fill":
                fill += (own & ~around[u]).bit_count() - 1
            elif rule == "weighted fill":
                fill += sizes[u] * sum(sizes[other] for other in _bits(own & ~around[u] & ~(1 << u)))
        return is_last[v], fill, weight

    scores = [score(v) for v in range(len(around))]
    queue = [(own, v) for v, own in enumerate(scores)]
    heapq.heapify(queue)
    steps: _Steps = []
    is_left = [True] * len(around)
    while queue:
        expected, v = heapq.heappop(queue)
        if not is_left[v] or scores[v] != expected:
            continue
        is_left[v] = False
        own = changed = around[v]
        steps.append((v, own))
        for u in _bits(own):
            new = own & ~around[u] & ~(1 << u)
            for other in _bits(new):
                changed |= around[u] & around[other]
            around[u] |= own
            around[u] &= ~(1 << v | 1 << u)
        for u in _bits(changed & ~(1 << v)):
            if is_left[u] and (now := score(u)) != scores[u]:
                scores[u] = now
                heapq.heappush(queue, (now, u))
    return steps


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def _tree(steps: _Steps, variables: Sequence[int], sizes: Sequence[int], is_last: Sequence[bool]) -> CliqueTree:
    """Return the cliques of an order; a clique whose variables are all in a child is merged with it."""
    position = {v: i for i, (v, _) in enumerate(steps)}
    joined: dict[int, int] = {}  # of a variable the one whose clique it joins
    for v, own in steps:
        if not own:
            continue
        above = min(_bits(own), key=position.__getitem__)
        own_above = steps[position[above]][1] | 1 << above
        if own == own_above and above not in joined and is_last[above] == is_last[v]:
            joined[above] = v
    eliminated: dict[int, list[int]] = {}
    head: dict[int, int] = {}
    for v, _ in steps:
        head[v] = head[joined[v]] if v in joined else v
        eliminated.setdefault(head[v], []).append(v)
    # A clique comes after its children, as its last variable is summed out after theirs.
    groups = sorted(eliminated.values(), key=lambda group: position[group[-1]])
    place = {group[0]: i for i, group in enumerate(groups)}
    cliques = []
    for group in groups:
        rest = sorted(_bits(steps[position[group[-1]]][1]), key=position.__getitem__)
        scope = [*group, *rest]
        cliques.append(
            Clique(
                tuple(variables[u] for u in scope),
                tuple(variables[u] for u in group),
                place[head[rest[0]]] if rest else -1,
                math.prod(sizes[u] for u in scope),
            )
        )
    return CliqueTree(tuple(cliques), {variables[v]: place[head[v]] for v, _ in steps})
