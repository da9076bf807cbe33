"""Bayesian network classifiers as circuits with the same distribution, for all circuit queries."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from learners.circuits.circuit import Circuit
from learners.circuits.structures.circuit_builder import Blocks
from learners.errors import LearnerError
from learners.kernels.arrays import Array, Floats, Integers

MAX_EDGES = 2_000_000


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
        factors = [
            _Factor(tuple(sorted(own)), np.log(table).transpose(np.argsort(own)))
            for own, table in zip(families, tables, strict=True)
        ]
    blocks = Blocks(n_values)
    for v in plan.order:
        ours = [factor for factor in factors if v in factor.scope]
        factors = [factor for factor in factors if v not in factor.scope]
        factors.append(_summed_out(blocks, v, ours))
    _summed_out(blocks, last, factors)  # also what is left of networks that hang together with nothing
    return blocks.circuit()


def _elimination(families: Sequence[tuple[int, ...]], n_values: Sequence[int]) -> _Plan:
    """Eliminate the attribute whose sums have the fewest edges first; the class, a neighbour of all, comes last."""
    n_classes = n_values[-1]
    neighbours: dict[int, set[int]] = {family[-1]: set() for family in families}
    for family in families:
        for v in family:
            neighbours[v].update(u for u in family if u != v)
    # Scopes of factors that hold nodes: those that summing out has made. The class is in all and not listed.
    scopes: list[set[int]] = []
    n_edges, order = 0, []

    def cost(v: int) -> int:
        return math.prod(n_values[u] for u in neighbours[v]) * n_values[v]

    queue = [(cost(v), v) for v in neighbours]
    heapq.heapify(queue)
    while queue:
        expected, v = heapq.heappop(queue)
        if v not in neighbours:
            continue
        if cost(v) != expected:
            heapq.heappush(queue, (cost(v), v))
            continue
        around = neighbours.pop(v)
        for u in around:
            neighbours[u] |= around - {u}
            neighbours[u].discard(v)
            heapq.heappush(queue, (cost(u), u))
        below = [scope for scope in scopes if v in scope]
        scopes = [scope for scope in scopes if v not in scope] + [around]
        n_edges += n_classes * expected
        if below:
            in_products = set().union(*below) | {v}
            n_edges += n_classes * math.prod(n_values[u] for u in in_products) * (1 + len(below))
        order.append(v)
    return _Plan(tuple(order), n_edges + n_classes * (2 + len(scopes)))


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
