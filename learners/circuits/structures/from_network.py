"""Bayesian network classifiers as circuits: the same distribution, and every query that circuits answer."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from learners.circuits.circuit import Circuit
from learners.circuits.structures.circuit_builder import Blocks
from learners.errors import LearnerError
from learners.kernels.arrays import Array, Floats, Integers
from learners.schema import Schema

MAX_EDGES = 2_000_000


class NetworkTooLarge(LearnerError, ValueError):
    """The circuit of a network would have too many edges."""

    def __init__(self, n_edges: int, max_edges: int) -> None:
        super().__init__(
            f"The circuit of this network would have {n_edges:,} edges, more than max_edges={max_edges:,}. "
            "Ask for samples with their standard error (fewpass query --sample, or sampling in the query), train with fewer parents (a "
            "smaller k), fold rare values, or raise max_edges."
        )
        self.n_edges = n_edges
        self.max_edges = max_edges


class _Structure(Protocol):
    """The parents of each attribute, as `classifiers.structure.Structure` has them."""

    @property
    def order(self) -> tuple[int, ...]: ...
    @property
    def parents(self) -> tuple[tuple[int, ...], ...]: ...


class _ContextTree(Protocol):
    """The counts of each context, as `classifiers.context_tree.ContextTree` has them."""

    @property
    def parent(self) -> Integers: ...
    @property
    def branch(self) -> Integers: ...
    @property
    def level_starts(self) -> Integers: ...
    @property
    def cell_starts(self) -> Integers: ...
    @property
    def cell_value(self) -> Integers: ...
    @property
    def n_nodes(self) -> int: ...


class _Estimates(Protocol):
    """The probabilities of each context, as `classifiers.context_tree.Estimates` has them."""

    @property
    def probability(self) -> Floats: ...
    @property
    def rest(self) -> Floats: ...
    @property
    def hierarchical(self) -> bool: ...


class NetworkClassifier(Protocol):
    """What is read of a `LookupModel`: its trees hold the counts of each context, its estimates the probabilities."""

    @property
    def schema(self) -> Schema:
        """Of the attributes and the class."""

    @property
    def network(self) -> _Structure:
        """Parents of each attribute, in tree order."""

    @property
    def class_counts(self) -> Integers:
        """(n_classes,) rows of each class."""

    @property
    def trees(self) -> Sequence[_ContextTree]:
        """The context tree of each attribute."""

    @property
    def estimates(self) -> Sequence[_Estimates]:
        """The probabilities of each tree."""


@dataclass(frozen=True, eq=False)
class _Factor:
    """A function of some variables: at each of their values a scale times a node of the circuit (or 1).

    Attributes
    ----------
    scope : tuple of int
        Its variables, ascending; the last is the class.
    log_scale : float64, one axis per variable of the scope
    nodes : int64 of the same shape, or None where there is no node
    """

    scope: tuple[int, ...]
    log_scale: Floats
    nodes: Integers | None = None


@dataclass(frozen=True)
class _Plan:
    """The order in which to sum out the attributes, and the edges of the circuit that comes of it."""

    order: tuple[int, ...]
    n_edges: int


def network_circuit(model: NetworkClassifier, max_edges: int = MAX_EDGES) -> Circuit:
    """The joint distribution of attributes and class of a classifier, as a circuit.

    Variable i is attribute i of the schema with all its codes, missing included; the last variable is the class.
    Attributes that the classifier selected away have no leaf. Attributes are summed out one by one, cheapest first; a
    context that comes up again is the same node. So NB and TAN give a circuit as large as their tables, and kDB one
    that grows with the width of its graph.

    Parameters
    ----------
    model : LookupModel
        NB, TAN, kDB or SkDB.

    Raises
    ------
    NetworkTooLarge
        With the number of edges that it would need; found out before anything is built.

    References
    ----------
    Chavira, Darwiche (2007), Compiling Bayesian Networks Using Variable Elimination; Darwiche (2003), section 4.
    """
    n_classes = model.schema.n_classes
    n_values = np.append(model.schema.domain_sizes, n_classes)
    target = n_values.size - 1
    families = [
        (*parents, attribute) for attribute, parents in zip(model.network.order, model.network.parents, strict=True)
    ]
    plan = _elimination(families, n_values.tolist())
    if plan.n_edges > max_edges:
        raise NetworkTooLarge(plan.n_edges, max_edges)
    factors = []
    for family, tree, estimates in zip(families, model.trees, model.estimates, strict=True):
        table = context_probabilities(tree, estimates, [n_classes, *(int(n_values[v]) for v in family)])
        axes = (target, *family)
        with np.errstate(divide="ignore"):
            factors.append(_Factor(tuple(sorted(axes)), np.log(table).transpose(np.argsort(axes))))
    # The classifier's own smoothing of the prior: see classifiers/compile.py.
    prior = np.log((model.class_counts + 1.0 / n_classes) / (model.class_counts.sum() + 1.0))
    blocks = Blocks(n_values)
    for attribute in plan.order:
        ours = [factor for factor in factors if attribute in factor.scope]
        factors = [factor for factor in factors if attribute not in factor.scope]
        factors.append(_summed_out(blocks, attribute, ours))
    _summed_out(blocks, target, [_Factor((target,), prior), *factors])
    return blocks.circuit()


def tables_circuit(
    parents: Sequence[tuple[int, ...]],
    tables: Sequence[Floats],
    max_edges: int = MAX_EDGES,
    left_out: frozenset[int] = frozenset(),
) -> Circuit:
    """The joint distribution of any Bayesian network of discrete variables, as a circuit.

    Parameters
    ----------
    parents : sequence of tuple of int
        Of each variable.
    tables : sequence of float64 arrays
        p(x | parents) of each: one axis for each parent in order, the last for the variable.
    left_out : set of int
        Variables without a leaf; they have no neighbours.

    Raises
    ------
    NetworkTooLarge
    """
    n_values = [table.shape[-1] for table in tables]
    variables = [v for v in range(len(parents)) if v not in left_out]
    children = [sum(v in own for own in parents) for v in range(len(parents))]
    # Summed out at the end, as the class of a classifier is.
    last = max((v for v in variables if not parents[v]), key=lambda v: children[v])
    families = [(*(p for p in parents[v] if p != last), v) for v in variables if v != last]
    plan = _elimination(families, [*n_values, n_values[last]])
    if plan.n_edges > max_edges:
        raise NetworkTooLarge(plan.n_edges, max_edges)
    factors = []
    for v in variables:
        axes = (*parents[v], v)
        with np.errstate(divide="ignore"):
            factors.append(_Factor(tuple(sorted(axes)), np.log(tables[v]).transpose(np.argsort(axes))))
    blocks = Blocks(n_values)
    for v in (*plan.order, last):
        ours = [factor for factor in factors if v in factor.scope]
        if v == last:  # with what is left of networks that hang together with nothing
            ours = factors
        factors = [factor for factor in factors if v not in factor.scope]
        factors.append(_summed_out(blocks, v, ours))
    return blocks.circuit()


def context_probabilities(tree: _ContextTree, estimates: _Estimates, shape: Sequence[int]) -> Floats:
    """p(x | class, parents) of one attribute for every context, back-off resolved.

    Parameters
    ----------
    tree : ContextTree
    estimates : Estimates
    shape : sequence of int
        Classes, the domain of each parent in the order of the levels, the attribute's own domain.

    Returns
    -------
    float64 of that shape
    """
    p = np.full((1, shape[-1]), float(estimates.rest[0]))
    root = slice(0, int(tree.cell_starts[1]))
    p[0, tree.cell_value[root]] = estimates.probability[root]
    context = np.zeros(tree.n_nodes, np.int64)
    node_of_cell = np.repeat(np.arange(tree.n_nodes), np.diff(tree.cell_starts))
    for level, size in enumerate(shape[:-1], 1):
        # A context that no row has is like the one above it.
        p = np.repeat(p, size, axis=0)
        nodes = slice(int(tree.level_starts[level]), int(tree.level_starts[level + 1]))
        context[nodes] = context[tree.parent[nodes]] * size + tree.branch[nodes]
        rest = estimates.rest[nodes][:, np.newaxis]
        rows = context[nodes]
        p[rows] = rest * p[rows] if estimates.hierarchical else rest
        cells = slice(int(tree.cell_starts[nodes.start]), int(tree.cell_starts[nodes.stop]))
        p[context[node_of_cell[cells]], tree.cell_value[cells]] = estimates.probability[cells]
    return p.reshape(tuple(shape))


def _elimination(families: Sequence[tuple[int, ...]], n_values: Sequence[int]) -> _Plan:
    """Sum out the attribute whose sums have the fewest edges first; the class, a neighbour of all, comes last."""
    n_classes = n_values[-1]
    neighbours: dict[int, set[int]] = {family[-1]: set() for family in families}
    for family in families:
        for v in family:
            neighbours[v].update(u for u in family if u != v)
    # Scopes of factors that hold nodes: those that summing out has made. The class is in all and not listed.
    made: list[set[int]] = []
    n_edges, order = 0, []

    def cost(v: int) -> int:
        return _product(n_values[u] for u in neighbours[v]) * n_values[v]

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
        below = [scope for scope in made if v in scope]
        made = [scope for scope in made if v not in scope] + [around]
        n_edges += n_classes * expected
        if below:
            in_products = set().union(*below) | {v}
            n_edges += n_classes * _product(n_values[u] for u in in_products) * (1 + len(below))
        order.append(v)
    return _Plan(tuple(order), n_edges + n_classes * (2 + len(made)))


def _product(sizes: Iterable[int]) -> int:
    product = 1
    for size in sizes:
        product *= int(size)
    return product


def _summed_out(blocks: Blocks, variable: int, factors: Sequence[_Factor]) -> _Factor:
    """The product of factors, summed over the values of a variable, as normalised sums."""
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
    """The nodes under the sums: of each value the indicator, times the factors' nodes; an axis they ignore has length 1."""
    with_nodes = [(factor.scope, factor.nodes) for factor in factors if factor.nodes is not None]
    parts = [_aligned(blocks.indicators(variable), (variable,), axes)]
    parts += [_aligned(nodes, scope, axes) for scope, nodes in with_nodes]
    children = np.stack(np.broadcast_arrays(*parts), axis=-1)
    return blocks.products(children.reshape(-1, len(parts))).reshape(children.shape[:-1])


def _aligned(values: Array, scope: tuple[int, ...], axes: tuple[int, ...]) -> Array:
    """An array over the variables of a scope with the axes of others, which have length 1 where it lacks them."""
    in_order = [v for v in axes if v in scope]
    turned = np.transpose(values, [scope.index(v) for v in in_order])
    return turned.reshape([turned.shape[in_order.index(v)] if v in in_order else 1 for v in axes])
