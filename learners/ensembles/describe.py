"""An ensemble as tables and graphs, for people."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Protocol, TypedDict

import pyarrow as pa

from learners.errors import InvalidParameter
from learners.kernels.arrays import Floats, Integers
from learners.schema import Schema


class Weighted(Protocol):
    """What each family belongs to, and its weights."""

    @property
    def member(self) -> Integers:
        """(n_families,) number of the member."""

    @property
    def alone(self) -> Floats:
        """(n_families,) weight of log P(x_i | y)."""

    @property
    def parents(self) -> Floats:
        """(n_families,) weight of what the parents add."""


class Ensemble(Protocol):
    """What is read of an `EnsembleModel`."""

    schema: Schema
    facts: dict[str, object]

    @property
    def entries(self) -> Weighted:
        """Of each family."""

    @property
    def families(self) -> Sequence[tuple[int, tuple[int, ...]]]:
        """Of each family its attribute and parents."""


class ToldFamily(TypedDict):
    """A family of a member."""

    attribute: str
    parents: list[str]
    weight: float
    weight_of_parents: float


class ToldMember(TypedDict):
    """A member."""

    member: int
    families: list[ToldFamily]


def members(model: Ensemble) -> list[ToldMember]:
    """Of each member its families: attribute, parents, weights."""
    names = [attribute.name for attribute in model.schema.attributes]
    found: list[ToldMember] = []
    for i, (attribute, parents) in enumerate(model.families):
        number = int(model.entries.member[i])
        while len(found) <= number:
            found.append({"member": len(found), "families": []})
        found[number]["families"].append(
            {
                "attribute": names[attribute],
                "parents": [names[parent] for parent in parents],
                "weight": float(model.entries.alone[i]),
                "weight_of_parents": float(model.entries.parents[i]),
            }
        )
    return found


def member_structure(model: Ensemble, member: int) -> dict[str, object]:
    """Nodes and edges of one member, the class first. Raises InvalidParameter."""
    every = members(model)
    if not 0 <= member < len(every):
        raise InvalidParameter("member", member, f"the ensemble has the members 0 to {len(every) - 1}")
    target = model.schema.target or "class"
    nodes: list[Mapping[str, object]] = [{"name": target, "role": "class", "n_values": model.schema.n_classes}]
    edges = []
    for family in every[member]["families"]:
        nodes.append({"name": family["attribute"], "role": "attribute", "weight": family["weight"]})
        for rank, parent in enumerate([target, *family["parents"]]):
            edges.append({"from": parent, "to": family["attribute"], "rank": rank})
    return {"nodes": nodes, "edges": edges}


def members_table(model: Ensemble) -> pa.Table:
    """One row for each family of each member."""
    rows = [{"member": member["member"], **family} for member in members(model) for family in member["families"]]
    schema = pa.schema(
        [
            ("member", pa.int64()),
            ("attribute", pa.string()),
            ("parents", pa.list_(pa.string())),
            ("weight", pa.float64()),
            ("weight_of_parents", pa.float64()),
        ]
    )
    return pa.Table.from_pylist(rows, schema)


def facts_table(model: Ensemble) -> pa.Table:
    """What else is known of the training, as JSON."""
    values = [json.dumps(value) for value in model.facts.values()]
    return pa.table({"name": pa.array(list(model.facts), pa.string()), "value": pa.array(values, pa.string())})
