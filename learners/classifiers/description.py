"""A network as people read it: tables and a graph."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from learners.classifiers.estimates.context_tree import ContextTree, Estimates
from learners.classifiers.structure import Structure
from learners.kernels.arrays import Array, Floats, Integers
from learners.schema import Schema

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
    """Nodes (class first) with domain and context-tree sizes, and edges in the order of the parents."""
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
    """`attributes`, `attribute_values`, `left_out`, and `classes` with their (n_classes,) rows."""
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
    """What else is known of a training, as JSON."""
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
    """The model as tables.

    Those of `describe_schema_as_tables`, `edges`, `contexts` and `cells` (with the posterior variance of each probability if there is one),
    `facts` (what else the training found, as JSON), and for SkDB `selection` (the mean loss of every
    number of parents and attributes).
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
    """One row per node of a context tree."""
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
    """One row per (context, value) that occurred."""
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
    """All parts one behind the other, each asked for when its turn comes, as so many numbers of a type."""
    whole = np.empty(size, dtype)
    first = 0
    for part in parts:
        whole[first : first + part.size] = part
        first += part.size
    return whole
