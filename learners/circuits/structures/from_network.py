"""Bayesian network classifiers as circuits with the same distribution, for all circuit queries."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from learners.circuits.circuit import Circuit
from learners.circuits.structures.circuit_builder import Blocks
from learners.errors import LearnerError
from learners.kernels.arrays import Array, Floats, Integers

MAX_EDGES = 2_000_000
T = TypeVar("T")


class NetworkTooLarge(LearnerError, ValueError):
    """Raised if the circuit of a network would have too many edges."""

    def __init__(self, n_edges: int, max_edges: int) -> None:
        super().__init__(
            f"The circuit of this network would have {n_edges:,} edges, more than max_edges={max_edges:,}. "
            "Queries are answered without it (fewpass query). Train with fewer parents (a smaller k), fold rare values, or raise max_edges (docs/limits.md#probabilities)."
        )
        self.n_edges = n_edges
        self.max_edges = max_edges


@dataclass(frozen=True, eq=False)
class _Factor:
    """A function of variables: at each of their values a scale times a node of the circuit (or 1)."""

    scope: tuple[int, ...]  # its variables, ascending; the last is the class
    log_scale: Floats  # float64, one axis per variable of the scope
    nodes: Integers | None = None  # int64 of the same shape, or None where there is no node


@dataclass(frozen=True)
class _Plan:
    """Elimination order of the attributes, and the number of edges of the resulting circuit."""

    order: tuple[int, ...]
    n_edges: int


def circuit_from_network_tables(
    parents: Sequence[tuple[int, ...]],
    tables: Sequence[Floats],
    max_edges: int = MAX_EDGES,
    left_out: frozenset[int] = frozenset(),
) -> Circuit:
    """Compile the joint distribution of any discrete Bayesian network to a circuit. Raises NetworkTooLarge.

    tables, float64: p(x | parents) of each variable, with one axis for each of its parents in order, and the last
    for itself. left_out: variables without a leaf; they have no neighbours.
    """
    n_values = [table.shape[-1] for table in tables]
    variables = [v for v in range(len(parents)) if v not in left_out]
    last = _most_shared_root(parents, variables)
    families = [(*parents[v], v) for v in variables]
    return circuit_from_network_families(n_values, families, (tables[v] for v in variables), last, max_edges)


def _most_shared_root(parents: Sequence[tuple[int, ...]], variables: Sequence[int]) -> int:
    """Return the variable that is eliminated last, like the class of a classifier."""
    children = Counter(parent for own in parents for parent in own)
    return max((v for v in variables if not parents[v]), key=lambda v: children[v])


def network_circuit_edges(
    parents: Sequence[tuple[int, ...]], n_values: Sequence[int], left_out: frozenset[int] = frozenset()
) -> int:
    """Return the number of edges of the circuit that `circuit_from_network_tables` would build."""
    variables = [v for v in range(len(parents)) if v not in left_out]
    last = _most_shared_root(parents, variables)
    others = [tuple(u for u in (*parents[v], v) if u != last) for v in variables if v != last]
    return _elimination(others, [*map(int, n_values), int(n_values[last])]).n_edges


def circuit_from_network_families(
    n_values: Sequence[int],
    families: Sequence[tuple[int, ...]],
    tables: Iterable[Floats],
    last: int,
    max_edges: int = MAX_EDGES,
) -> Circuit:
    """Compile the joint distribution of a Bayesian network in which one variable is a neighbour of most others.

    Variables in no family have no leaf. The others are eliminated one by one, cheapest first; a repeated context
    is the same node. So NB and TAN give a circuit as large as their tables, and kDB one that grows with the width
    of its graph. Raises NetworkTooLarge, with the number of edges, before any table is requested.

    families: for each variable with a leaf, its parents, then itself.
    tables, float64: p(x | parents) of each family: one axis for each of its members.
    last: without parents; summed out at the end.
    References: Chavira, Darwiche (2007), Compiling Bayesian Networks Using Variable Elimination; Darwiche (2003),
    section 4.
    """
    others = [tuple(v for v in own if v != last) for own in families if own[-1] != last]
    plan = _elimination(others, [*map(int, n_values), int(n_values[last])])
    if plan.n_edges > max_edges:
        raise NetworkTooLarge(plan.n_edges, max_edges)
    with np.errstate(divide="ignore"):
        factors = _Scoped(
            (tuple(sorted(own)), _Factor(tuple(sorted(own)), np.log(table).transpose(np.argsort(own))))
            for own, table in zip(families, tables, strict=True)
        )
    blocks = Blocks(n_values)
    for v in plan.order:
        factor = _summed_out(blocks, v, factors.take(v))
        factors.add(factor.scope, factor)
    _summed_out(blocks, last, factors.rest())  # also what is left of networks that hang together with nothing
    return blocks.circuit()


class _Scoped(Generic[T]):
    """Items with the variables of each, found by variable in the order in which they were added."""

    def __init__(self, items: Iterable[tuple[Collection[int], T]] = ()) -> None:
        self._items: dict[int, T] = {}
        self._numbers: dict[int, list[int]] = {}
        self._n_added = 0
        for scope, item in items:
            self.add(scope, item)

    def add(self, scope: Collection[int], item: T) -> None:
        """Add an item of these variables."""
        self._items[self._n_added] = item
        for v in scope:
            self._numbers.setdefault(v, []).append(self._n_added)
        self._n_added += 1

    def take(self, variable: int) -> list[T]:
        """Remove and return the items of a variable."""
        numbers = self._numbers.pop(variable, [])
        return [self._items.pop(number) for number in numbers if number in self._items]

    def rest(self) -> list[T]:
        """Return the items that were not taken."""
        return list(self._items.values())


def _elimination(families: Sequence[tuple[int, ...]], n_values: Sequence[int]) -> _Plan:
    """Eliminate the attribute whose sums have the fewest edges first; the class, a neighbour of all, comes last."""
    n_classes = n_values[-1]
    neighbours: dict[int, set[int]] = {family[-1]: set() for family in families}
    for family in families:
        for v in family:
            neighbours[v].update(u for u in family if u != v)
    # Scopes of factors that hold nodes: those that summing out has made. The class is in all and not listed.
    scopes: _Scoped[set[int]] = _Scoped()
    n_edges, order = 0, []
    costs = {v: math.prod(n_values[u] for u in around) * n_values[v] for v, around in neighbours.items()}
    queue = [(cost, v) for v, cost in costs.items()]
    heapq.heapify(queue)
    while queue:
        expected, v = heapq.heappop(queue)
        if costs.get(v) != expected:  # eliminated, or with another cost in the queue
            continue
        around = neighbours.pop(v)
        del costs[v]
        for u in around:
            own = neighbours[u]
            added = around - own - {u}
            own |= added
            own.discard(v)
            costs[u] = costs[u] // n_values[v] * math.prod(n_values[w] for w in added)
            heapq.heappush(queue, (costs[u], u))
        below = scopes.take(v)
        scopes.add(around, around)
        n_edges += n_classes * expected
        if below:
            in_products = set().union(*below) | {v}
            n_edges += n_classes * math.prod(n_values[u] for u in in_products) * (1 + len(below))
        order.append(v)
    return _Plan(tuple(order), n_edges + n_classes * (2 + len(scopes.rest())))


def _summed_out(blocks: Blocks, variable: int, factors: Sequence[_Factor]) -> _Factor:
    """Multiply factors and sum out a variable, as normalized sums."""
    scopes = set[int]().union(*(factor.scope for factor in factors))
    axes = (*sorted(scopes - {variable}), variable)
    shape = tuple(int(blocks.n_values[v]) for v in axes)
    log_weight = np.zeros(shape)
    for factor in factors:
        log_weight = log_weight + _aligned(factor.log_scale, factor.scope, axes)
    products = _products(blocks, variable, factors, axes)
    most = log_weight.max(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        scale = np.log(np.exp(log_weight - most).sum(axis=-1, keepdims=True)) + most
        # Where every term is zero the sum counts for nothing, and any weights do.
        is_zero = most == -np.inf
        log_weight = np.where(is_zero, -np.log(shape[-1]), log_weight - scale)
        scale = np.where(is_zero, -np.inf, scale)
    children = np.broadcast_to(products, shape).reshape(-1, shape[-1])
    nodes = blocks.sums(children, log_weight.reshape(-1, shape[-1]))
    return _Factor(axes[:-1], scale[..., 0], nodes.reshape(shape[:-1]))


def _products(blocks: Blocks, variable: int, factors: Sequence[_Factor], axes: tuple[int, ...]) -> Integers:
    """Return the nodes under the sums: for each value the indicator times the factors' nodes; ignored axes have length
    1.
    """
    with_nodes = [(factor.scope, factor.nodes) for factor in factors if factor.nodes is not None]
    parts = [_aligned(blocks.indicators(variable), (variable,), axes)]
    parts += [_aligned(nodes, scope, axes) for scope, nodes in with_nodes]
    children = np.stack(np.broadcast_arrays(*parts), axis=-1)
    return blocks.products(children.reshape(-1, len(parts))).reshape(children.shape[:-1])


def _aligned(values: Array, scope: tuple[int, ...], axes: tuple[int, ...]) -> Array:
    """Align an array over a scope to the axes of other variables, with length 1 where it lacks them."""
    in_order = [v for v in axes if v in scope]
    turned = np.transpose(values, [scope.index(v) for v in in_order])
    return turned.reshape([turned.shape[in_order.index(v)] if v in in_order else 1 for v in axes])
