"""Compile a circuit's structure to the order in which kernels process it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learners.circuits.circuit import Circuit, cached_on_circuit, cached_on_circuit_structure
from learners.circuits.evaluation.leaf_distributions import max_leaf_log_densities
from learners.circuits.kernels import (
    CATEGORICAL,
    GAUSSIAN,
    INDICATOR,
    LOOKUP,
    NUMERIC,
    PRODUCT,
    PRODUCT_OF,
    PRODUCT_OF_TWO,
    SUM,
    SUM_OF,
    SUM_OF_TWO,
    TABLE,
    TABLE_OF_TWO,
    node_depths,
)
from learners.kernels.arrays import Floats, Integers, Mask, concatenate_ranges, read_only_array

# Variables of at most so many values have a row of zeros and ones per value, over which a distribution is a dot product
# that vectorises; those of more values are looked up row by row.
MOST_PLANES = 4
ONE_ENTRY, NO_ENTRY = -2, -1


class Plan(NamedTuple):
    """Slots hold one value per row: first the planes (one per value of a small domain), then the operations, children
    first.

    A sum over distinct indicators of one variable, or a categorical leaf, is one operation whose entries are the
    probabilities of the values: a table (over planes), or a lookup with one more entry for a missing value.
    """

    # (n_segments + 1,) int64: operations of a segment are of one kind and need nothing of each other.
    segments: Integers
    segment_kind: Integers  # (n_segments,) int64
    # (n_operations + 1,) int64: entries of operation i: starts[i] to starts[i + 1]. Its slot is n_planes + i.
    starts: Integers
    child: Integers  # (n_entries,) int64: slot of each entry's child; 0 for entries of lookups
    variable: Integers  # (n_operations,) int64: of tables, lookups and numeric leaves; else -1
    plane_starts: Integers  # (n_variables + 1,) int64: planes of each variable; empty for numeric and large domains
    n_values: Integers  # (n_variables,) int64
    needs_planes: bool  # whether a plane is a child of something else than a table
    root: int  # slot of the root
    # (n_operations, 4) float64: of numeric leaves: kind, two parameters, logarithm by which the density is divided.
    numeric: Floats
    extras: Floats  # (n_parameters,) float64: the circuit's leaf parameters
    extra: Integers  # (n_operations,) int64: where further parameters of a numeric leaf start in them


class Compiled(NamedTuple):
    """A plan, with the circuit nodes and edges of its slots and entries."""

    plan: Plan
    slot: Integers  # (n_nodes,) int64: slot of each node; -1 for an indicator that has none
    edge: Integers  # (n_entries,) int64: edge of the circuit that an entry is; -1 if none
    # (n_entries,) int64: leaf parameter that an entry is; NO_ENTRY if none, ONE_ENTRY for a weight of one.
    parameter: Integers
    node: Integers  # (n_operations,) int64
    # (n_variables,) float64: logarithm by which the densities of a numeric variable are divided, so that no value
    # exceeds one.
    log_offset: Floats

    @property
    def n_slots(self) -> int:
        """Number of planes and operations."""
        return int(self.plan.plane_starts[-1]) + self.node.size


def compiled_circuit(circuit: Circuit) -> Compiled:
    """Return the circuit's plan, cached; circuits that differ in their weights share all of it except numeric leaves."""
    return cached_on_circuit(circuit, _compile)


def _compile(circuit: Circuit) -> Compiled:
    first = cached_on_circuit_structure(circuit, _compile_structure)
    if not (circuit.kind >= GAUSSIAN).any():
        return first
    log_offset = max_leaf_log_densities(circuit)
    return first._replace(
        plan=first.plan._replace(numeric=_numeric(circuit, first.node, log_offset), extras=circuit.leaf_parameters),
        log_offset=read_only_array(log_offset),
    )


def _entry_weights(circuit: Circuit) -> Floats:
    """Return the weight of every entry, (n_entries,) float64; 1 for entries of products."""
    plan = compiled_circuit(circuit)
    weight = np.zeros(plan.edge.size)
    is_edge, is_parameter = plan.edge >= 0, plan.parameter >= 0
    weight[is_edge] = np.exp(circuit.log_weight[plan.edge[is_edge]])
    weight[is_parameter] = np.exp(circuit.leaf_parameters[plan.parameter[is_parameter]])
    weight[plan.parameter == ONE_ENTRY] = 1.0
    return read_only_array(weight)


def _table_sums(circuit: Circuit) -> Mask:
    """Return the sums whose children are distinct indicators (of one variable, by completeness)."""
    n_nodes = circuit.n_nodes
    parents = np.repeat(np.arange(n_nodes), np.diff(circuit.child_starts))
    is_indicator = circuit.kind[circuit.children] == INDICATOR
    others = np.bincount(parents[~is_indicator], minlength=n_nodes)
    first = circuit.leaf_starts[circuit.children[is_indicator]]
    pairs = np.stack([parents[is_indicator], circuit.leaf_parameters[first].astype(np.int64)], axis=1)
    _, at, times = np.unique(pairs, axis=0, return_index=True, return_counts=True)
    repeated = np.bincount(pairs[at[times > 1], 0], minlength=n_nodes)
    return (circuit.kind == SUM) & (others == 0) & (repeated == 0)


def _operation_kinds(circuit: Circuit, is_table: Mask) -> Integers:
    """Return the kind of each node's operation, (n_nodes,) int64; -1 for indicators without one."""
    n_children = np.diff(circuit.child_starts)
    kind = np.full(circuit.n_nodes, NUMERIC, np.int64)
    for node_kind, many, two in ((SUM, SUM_OF, SUM_OF_TWO), (PRODUCT, PRODUCT_OF, PRODUCT_OF_TWO)):
        kind[(circuit.kind == node_kind)] = many
        kind[(circuit.kind == node_kind) & (n_children == 2)] = two
    variable = _variables(circuit, is_table)
    domain = circuit.n_values[variable]
    is_finite = is_table | (circuit.kind == CATEGORICAL)
    kind[is_finite] = TABLE
    kind[is_finite & (domain == 2)] = TABLE_OF_TWO
    kind[is_finite & (domain > MOST_PLANES)] = LOOKUP
    # An indicator of a large domain has no plane: what is no table and refers to it, looks it up.
    parents = np.repeat(np.arange(circuit.n_nodes), np.diff(circuit.child_starts))
    needed = np.zeros(circuit.n_nodes, bool)
    needed[circuit.children[~is_table[parents]]] = True
    needed[circuit.root] = True
    is_indicator = circuit.kind == INDICATOR
    kind[is_indicator] = np.where(needed & (domain > MOST_PLANES), LOOKUP, -1)[is_indicator]
    return kind


def _variables(circuit: Circuit, is_table: Mask) -> Integers:
    """Return the variable of leaves and table sums, (n_nodes,) int64."""
    variable = circuit.variable.copy()
    variable[is_table] = circuit.variable[circuit.children[circuit.child_starts[:-1][is_table]]]
    return variable


def _compile_structure(circuit: Circuit) -> Compiled:
    is_table = _table_sums(circuit)
    kind, variable = _operation_kinds(circuit, is_table), _variables(circuit, is_table)
    depth = np.zeros(circuit.n_nodes, np.int64)
    node_depths(circuit.child_starts, circuit.children, depth)
    depth[kind <= NUMERIC] = 0
    nodes = np.flatnonzero(kind >= 0)
    nodes = nodes[np.lexsort((kind[nodes], depth[nodes]))]
    kind, variable = kind[nodes], np.where(kind <= NUMERIC, variable, -1)[nodes]
    changes = np.flatnonzero((np.diff(kind) != 0) | (np.diff(depth[nodes]) != 0)) + 1
    segments = np.unique(np.concatenate([[0], changes, [nodes.size]]))

    slot, code, plane_starts = _slots(circuit, nodes)
    n_children = np.diff(circuit.child_starts)[nodes]
    domain = circuit.n_values[variable]
    size = np.select([kind < LOOKUP, kind == LOOKUP, kind == NUMERIC], [domain, domain + 1, 0], n_children)
    starts = np.concatenate([[0], np.cumsum(size)])
    first, first_edge = starts[:-1], circuit.child_starts[:-1][nodes]
    child, edge = np.zeros(starts[-1], np.int64), np.full(starts[-1], -1)
    parameter = np.full(starts[-1], NO_ENTRY)

    inner = kind >= SUM_OF
    entries = concatenate_ranges(first[inner], size[inner])
    edge[entries] = concatenate_ranges(first_edge[inner], size[inner])
    child[entries] = slot[circuit.children[edge[entries]]]
    needs_planes = bool((child[entries] < plane_starts[-1]).any()) or bool(slot[circuit.root] < plane_starts[-1])

    tables = kind < LOOKUP
    child[concatenate_ranges(first[tables], size[tables])] = concatenate_ranges(
        plane_starts[variable[tables]], size[tables]
    )
    sums = is_table[nodes]
    edges = concatenate_ranges(first_edge[sums], n_children[sums])
    edge[np.repeat(first[sums], n_children[sums]) + code[circuit.children[edges]]] = edges
    categorical = circuit.kind[nodes] == CATEGORICAL
    entries = concatenate_ranges(first[categorical], domain[categorical])
    parameter[entries] = concatenate_ranges(circuit.leaf_starts[:-1][nodes[categorical]], domain[categorical])
    parameter[starts[1:][kind == LOOKUP] - 1] = ONE_ENTRY
    single = circuit.kind[nodes] == INDICATOR
    parameter[first[single] + code[nodes[single]]] = ONE_ENTRY

    log_offset = max_leaf_log_densities(circuit)
    plan = Plan(
        read_only_array(segments),
        read_only_array(kind[segments[:-1]]),
        read_only_array(starts),
        read_only_array(child),
        read_only_array(variable),
        read_only_array(plane_starts),
        circuit.n_values,
        needs_planes,
        int(slot[circuit.root]),
        _numeric(circuit, nodes, log_offset),
        circuit.leaf_parameters,
        read_only_array(circuit.leaf_starts[nodes] + 2),
    )
    return Compiled(
        plan,
        read_only_array(slot),
        read_only_array(edge),
        read_only_array(parameter),
        read_only_array(nodes),
        read_only_array(log_offset),
    )


def _slots(circuit: Circuit, nodes: Integers) -> tuple[Integers, Integers, Integers]:
    """Return the slot of every node, the code of every indicator, and the start of each variable's planes."""
    has_planes = (circuit.n_values > 0) & (circuit.n_values <= MOST_PLANES)
    plane_starts = np.concatenate([[0], np.cumsum(np.where(has_planes, circuit.n_values, 0))])
    slot, code = np.full(circuit.n_nodes, -1), np.zeros(circuit.n_nodes, np.int64)
    indicators = np.flatnonzero(circuit.kind == INDICATOR)
    code[indicators] = circuit.leaf_parameters[circuit.leaf_starts[indicators]].astype(np.int64)
    in_plane = indicators[has_planes[circuit.variable[indicators]]]
    slot[in_plane] = plane_starts[circuit.variable[in_plane]] + code[in_plane]
    slot[nodes] = plane_starts[-1] + np.arange(nodes.size)
    return slot, code, plane_starts


def _numeric(circuit: Circuit, nodes: Integers, log_offset: Floats) -> Floats:
    numeric = np.zeros((nodes.size, 4))
    operations = np.flatnonzero(circuit.kind[nodes] >= GAUSSIAN)
    node = nodes[operations]
    first, n = circuit.leaf_starts[node], np.diff(circuit.leaf_starts)[node]
    numeric[operations, 0] = circuit.kind[node]
    numeric[operations, 1] = circuit.leaf_parameters[first]
    numeric[operations[n > 1], 2] = circuit.leaf_parameters[first[n > 1] + 1]
    numeric[operations, 3] = log_offset[circuit.variable[node]]
    return read_only_array(numeric)


def compiled_circuit_with_weights(circuit: Circuit) -> tuple[Compiled, Floats]:
    """Return the circuit's plan and its entries' weights, cached."""
    return compiled_circuit(circuit), cached_on_circuit(circuit, _entry_weights)
