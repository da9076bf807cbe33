"""Descriptions of a network: tables and a graph for users, and compact arrays for files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, cast

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from learners.classifiers.estimates.context_tree import ContextTree, Estimates
from learners.classifiers.structure import Structure
from learners.errors import InvalidArray
from learners.kernels.arrays import Array, Arrays, Floats, Integers
from learners.schema import Schema

OF_NODES = ("tree_n_children", "tree_n_cells", "tree_branch", "estimate_rest")
OF_CELLS = ("tree_cell_value", "tree_cell_count", "estimate_probability")
VARIANCE = "estimate_variance"
NUMBERS = ("tree_n_children", "tree_n_cells", "tree_branch", "tree_cell_value", "tree_cell_count")

# Given, so that a model without attributes has the same tables, empty.
ATTRIBUTES = pa.schema(
    [
        ("attribute", pa.int64()),
        ("name", pa.string()),
        ("kind", pa.string()),
        ("n_values", pa.int64()),
        ("has_missing", pa.bool_()),
        ("n_folded", pa.int64()),
        ("cuts", pa.list_(pa.float64())),
    ]
)
ATTRIBUTE_VALUES = pa.schema([("attribute", pa.int64()), ("code", pa.int64()), ("value", pa.string())])
LEFT_OUT = pa.schema([("name", pa.string()), ("reason", pa.string())])
CLASSES = pa.schema([("code", pa.int64()), ("class", pa.string()), ("n_rows", pa.int64())])
FACTS = pa.schema([("name", pa.string()), ("value", pa.string())])
EDGES = pa.schema([("from", pa.string()), ("to", pa.string()), ("rank", pa.int64())])


def describe_structure(schema: Schema, structure: Structure, trees: Sequence[ContextTree]) -> dict[str, object]:
    """Return nodes (class first) with domain and context-tree sizes, and edges in parent order."""
    target = schema.target or "class"
    nodes: list[dict[str, object]] = [{"name": target, "role": "class", "n_values": schema.n_classes}]
    edges: list[dict[str, object]] = []
    for attribute, parents, tree in zip(structure.order, structure.parents, trees, strict=True):
        name = schema.attributes[attribute].name
        nodes.append(
            {
                "name": name,
                "role": "attribute",
                "n_values": schema.attributes[attribute].n_values,
                "n_contexts": int(np.diff(tree.level_starts)[-1]),
                "n_cells": int(np.diff(tree.cell_starts)[int(tree.level_starts[-2]) :].sum()),
            }
        )
        edges.append({"from": target, "to": name, "rank": 0})
        edges += [
            {"from": schema.attributes[parent].name, "to": name, "rank": rank} for rank, parent in enumerate(parents, 1)
        ]
    return {"nodes": nodes, "edges": edges}


def describe_schema_as_tables(schema: Schema, class_counts: ArrayLike) -> dict[str, pa.Table]:
    """Return the tables `attributes`, `attribute_values`, `left_out`, and `classes` with their rows (n_classes,)."""
    attributes = [
        {"attribute": i, "name": a.name, "kind": a.kind, "n_values": a.n_values, "has_missing": a.has_missing,
         "n_folded": a.n_folded, "cuts": list(a.cuts)}
        for i, a in enumerate(schema.attributes)
    ]  # fmt: skip
    values = [
        {"attribute": i, "code": code, "value": label}
        for i, a in enumerate(schema.attributes)
        for code, label in enumerate(a.labels())
    ]
    classes = {"code": range(schema.n_classes), "class": schema.classes, "n_rows": np.asarray(class_counts)}
    return {
        "attributes": pa.Table.from_pylist(attributes, ATTRIBUTES),
        "attribute_values": pa.Table.from_pylist(values, ATTRIBUTE_VALUES),
        "left_out": pa.Table.from_pylist([{"name": e.name, "reason": e.reason} for e in schema.left_out], LEFT_OUT),
        "classes": pa.table(classes, schema=CLASSES),
    }


def training_facts_table(facts: Mapping[str, object]) -> pa.Table:
    """Return the facts about a training as a table of JSON values."""
    return pa.table({"name": list(facts), "value": [json.dumps(value) for value in facts.values()]}, schema=FACTS)


def describe_network_as_tables(
    schema: Schema,
    structure: Structure,
    class_counts: Integers,
    trees: Sequence[ContextTree],
    estimates: Sequence[Estimates],
    variances: Sequence[Floats],
    facts: Mapping[str, object],
) -> dict[str, pa.Table]:
    """Return the model as tables.

    These are the tables of `describe_schema_as_tables`, `edges`, `contexts`, `cells` (with the posterior variance
    of each probability, if any), `facts` (further results of the training, as JSON), and for SkDB `selection`
    (the mean loss of every number of parents and attributes).
    """
    tables = describe_schema_as_tables(schema, class_counts) | {
        "edges": pa.Table.from_pylist(describe_structure(schema, structure, trees)["edges"], EDGES),
        "contexts": _contexts(structure, trees, estimates),
        "cells": _cells(structure, trees, estimates, variances),
        "facts": training_facts_table(facts),
    }
    if "selection" in facts:
        losses = np.array(cast("Mapping[str, ArrayLike]", facts["selection"])["mean_loss"])
        k, n_attributes = np.indices(losses.shape)
        tables["selection"] = pa.table(
            {"k": k.ravel(), "n_attributes": n_attributes.ravel(), "mean_loss": losses.ravel()}
        )
    return tables


def _contexts(structure: Structure, trees: Sequence[ContextTree], estimates: Sequence[Estimates]) -> pa.Table:
    """Return a table with one row per node of a context tree."""
    n_nodes = sum(tree.n_nodes for tree in trees)
    return pa.table(
        {
            "attribute": np.repeat(np.array(structure.order, np.int32), [tree.n_nodes for tree in trees]),
            "node": _joined((np.arange(tree.n_nodes) for tree in trees), n_nodes, np.int32),
            "level": _joined((_levels(tree) for tree in trees), n_nodes, np.int32),
            "parent_node": _joined((tree.parent for tree in trees), n_nodes, np.int32),
            "branch": _joined((tree.branch for tree in trees), n_nodes, np.int32),
            "n_rows": _joined((tree.node_counts() for tree in trees), n_nodes, np.int64),
            "rest": _joined((estimate.rest for estimate in estimates), n_nodes, np.float32),
        }
    )


def _cells(
    structure: Structure, trees: Sequence[ContextTree], estimates: Sequence[Estimates], variances: Sequence[Floats]
) -> pa.Table:
    """Return a table with one row per (context, value) that occurred."""
    n_cells = sum(tree.n_cells for tree in trees)
    variance = {"variance": _joined(variances, n_cells, np.float32)} if variances else {}
    return pa.table(
        {
            "attribute": np.repeat(np.array(structure.order, np.int32), [tree.n_cells for tree in trees]),
            "node": _joined((tree.node_of_cell() for tree in trees), n_cells, np.int32),
            "code": _joined((tree.cell_value for tree in trees), n_cells, np.int32),
            "n_rows": _joined((tree.cell_count for tree in trees), n_cells, np.int64),
            "probability": _joined((estimate.probability for estimate in estimates), n_cells, np.float32),
        }
        | variance
    )


def _levels(tree: ContextTree) -> Integers:
    return np.repeat(np.arange(tree.level_starts.size - 1), np.diff(tree.level_starts))


def _joined(parts: Iterable[Integers | Floats], size: int, dtype: type[np.int32 | np.int64 | np.float32]) -> Array:
    """Concatenate the parts, consumed one at a time, into one array of a type."""
    whole = np.empty(size, dtype)
    first = 0
    for part in parts:
        whole[first : first + part.size] = part
        first += part.size
    return whole


class Contents(NamedTuple):
    """Context trees of a model with their estimates."""

    trees: tuple[ContextTree, ...]
    estimates: tuple[Estimates, ...]
    variances: tuple[Floats, ...]  # tuple of (n_cells,) float64: empty if there are none


def round_estimates(estimates: list[Estimates]) -> list[Estimates]:
    """Round estimates to float32 precision, a relative change of at most 6e-8. Empties the list to save memory."""
    rounded = []
    while estimates:
        own = estimates.pop()
        rounded.append(Estimates(round_to_float32(own.probability), round_to_float32(own.rest), own.hierarchical))
    return rounded[::-1]


def round_to_float32(numbers: Floats) -> Floats:
    """Round float64 numbers to float32 precision."""
    return numbers.astype(np.float32).astype(np.float64)


def round_variances_to_bfloat16(variances: list[Floats]) -> list[Floats]:
    """Round variances to eight binary digits, which changes interval widths by 0.2 %. Empties the list."""
    rounded = []
    while variances:
        # Half of what is cut off, so that it is rounded and not cut.
        bits = variances.pop().astype(np.float32).view(np.uint32) + np.uint32(1 << 15)
        rounded.append((bits & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64))
    return rounded[::-1]


def pack_context_trees(contents: Contents) -> dict[str, Array]:
    """Pack all trees into named arrays, one tree after the other.

    `tree_levels` (m, levels) has the number of nodes per level, 0 beyond the last. Each node stores its numbers
    of children and cells and its branch (0 at roots), each cell its value and count. Positions follow from the
    order of nodes and cells. Variances are stored as the upper half of their float32.
    """
    trees = contents.trees
    levels = np.zeros((len(trees), max((tree.level_starts.size - 1 for tree in trees), default=0)), np.int64)
    for i, tree in enumerate(trees):
        levels[i, : tree.level_starts.size - 1] = np.diff(tree.level_starts)
    arrays: dict[str, Array] = {
        "tree_levels": levels,
        "estimate_probability": _float32([estimate.probability for estimate in contents.estimates]),
        "estimate_rest": _float32([estimate.rest for estimate in contents.estimates]),
    }
    numbers = {
        "tree_n_children": [np.bincount(tree.parent[1:], minlength=tree.n_nodes) for tree in trees],
        "tree_n_cells": [np.diff(tree.cell_starts) for tree in trees],
        "tree_branch": [np.maximum(tree.branch, 0) for tree in trees],
        "tree_cell_value": [tree.cell_value for tree in trees],
        "tree_cell_count": [tree.cell_count for tree in trees],
    }
    for name, parts in numbers.items():
        arrays |= _in_bytes(name, np.concatenate([np.empty(0, np.int64), *parts]))
    if contents.variances:
        arrays[VARIANCE] = (_float32(contents.variances).view(np.uint32) >> 16).astype(np.uint16)
    return arrays


def _in_bytes(name: str, numbers: Integers) -> dict[str, Array]:
    """Pack mostly small integers: the lowest byte of each, and the positions and upper bytes of the larger ones."""
    at = np.flatnonzero(numbers > 255)
    above = numbers[at] >> 8
    return {
        name: (numbers & 255).astype(np.uint8),
        f"{name}_at": at.astype(np.uint32),
        f"{name}_above": above.astype(np.uint32),
    }


def _numbers(arrays: Arrays, name: str) -> Integers:
    """Unpack the (n,) int64 numbers of `_in_bytes`."""
    at, above = arrays[f"{name}_at"], arrays[f"{name}_above"].astype(np.int64)
    numbers = arrays[name].astype(np.int64)
    if at.size != above.size or int(at.max(initial=0)) > max(numbers.size - 1, 0):
        raise InvalidArray(f"{name}_at", "points past the end of the numbers")
    numbers[at] += above << 8
    return numbers


def _float32(parts: Sequence[Floats]) -> Array:
    return np.concatenate([np.empty(0, np.float32), *parts]).astype(np.float32)


def unpack_context_trees(arrays: Arrays, n_values: Sequence[int], hierarchical: Sequence[bool]) -> Contents:
    """Unpack the output of `pack_context_trees`, given each tree's number of values and kind. Raises InvalidArray if
    arrays do not fit.
    """
    if "tree_levels" not in arrays:
        raise InvalidArray("tree_levels", "is missing: an earlier version of fewpass wrote this model. Train it again")
    levels = arrays["tree_levels"]
    node_ends = np.cumsum(levels.sum(axis=1))
    n_nodes = int(node_ends[-1]) if node_ends.size else 0
    numbers = {name: _numbers(arrays, name) for name in NUMBERS}
    cell_ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(numbers["tree_n_cells"])])
    n_cells = int(cell_ends[-1])
    for names, size in ((OF_NODES, n_nodes), (OF_CELLS, n_cells), ((VARIANCE,), n_cells)):
        for name in names:
            if name in arrays and arrays[name].size != size:
                raise InvalidArray(name, f"has {arrays[name].size} elements where the trees have {size}")
    trees, estimates, variances = [], [], []
    first = 0
    for i, last in enumerate(node_ends.tolist()):
        nodes, cells = slice(first, last), slice(int(cell_ends[first]), int(cell_ends[last]))
        trees.append(
            _tree(numbers, levels[i], nodes, cells, cell_ends[first : last + 1] - cell_ends[first], n_values[i])
        )
        probability, rest = arrays["estimate_probability"][cells], arrays["estimate_rest"][nodes]
        estimates.append(Estimates(probability.astype(np.float64), rest.astype(np.float64), hierarchical[i]))
        if VARIANCE in arrays:
            bits = arrays[VARIANCE][cells].astype(np.uint32) << 16
            variances.append(bits.view(np.float32).astype(np.float64))
        first = last
    return Contents(tuple(trees), tuple(estimates), tuple(variances))


def _tree(
    numbers: dict[str, Integers], levels: Integers, nodes: slice, cells: slice, cell_starts: Integers, n_values: int
) -> ContextTree:
    level_starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(levels[levels > 0])])
    n_children = numbers["tree_n_children"][nodes]
    if n_children.sum() != n_children.size - 1:
        raise InvalidArray("tree_n_children", "does not visit every node exactly once")
    parent = np.concatenate([np.full(1, -1, np.int64), np.repeat(np.arange(n_children.size), n_children)])
    branch = numbers["tree_branch"][nodes]
    branch[0] = -1
    value = numbers["tree_cell_value"][cells]
    node = np.repeat(np.arange(parent.size), np.diff(cell_starts))
    # Cells are in order of node and value, so that those above are found by bisection.
    key = node * n_values + value
    above = parent[node] * n_values + value
    cell_parent = np.searchsorted(key, above)
    cell_parent[: cell_starts[1]] = -1
    inner = slice(int(cell_starts[1]), None)
    if (np.diff(key) <= 0).any() or not np.array_equal(key[np.minimum(cell_parent[inner], key.size - 1)], above[inner]):
        raise InvalidArray("tree_cell_value", "has a value that its parent node lacks, or values out of order")
    return ContextTree(
        level_starts=level_starts,
        parent=parent,
        branch=branch,
        cell_starts=cell_starts,
        cell_value=value,
        cell_count=numbers["tree_cell_count"][cells],
        cell_parent=cell_parent,
        n_values=n_values,
    )
