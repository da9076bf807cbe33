"""An ensemble as tables and graphs, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

import pyarrow as pa

from learners.errors import InvalidParameter
from learners.kernels.arrays import Floats, Integers
from learners.schema import Schema


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


def members(
    schema: Schema,
    families: Sequence[tuple[int, tuple[int, ...]]],
    member: Integers,
    alone: Floats,
    parents: Floats,
) -> list[ToldMember]:
    """Of each member its families: attribute, parents, weights; arguments as `EnsembleModel.families` and `Entries`."""
    names = [attribute.name for attribute in schema.attributes]
    found: list[ToldMember] = [{"member": number, "families": []} for number in range(int(member.max(initial=-1)) + 1)]
    for i, (attribute, above) in enumerate(families):
        found[int(member[i])]["families"].append(
            {
                "attribute": names[attribute],
                "parents": [names[parent] for parent in above],
                "weight": float(alone[i]),
                "weight_of_parents": float(parents[i]),
            }
        )
    return found


def member_structure(schema: Schema, every: Sequence[ToldMember], member: int) -> dict[str, object]:
    """Nodes and edges of one member, the class first. Raises InvalidParameter."""
    if not 0 <= member < len(every):
        raise InvalidParameter("member", member, f"the ensemble has the members 0 to {len(every) - 1}")
    target = schema.target or "class"
    nodes: list[Mapping[str, object]] = [{"name": target, "role": "class", "n_values": schema.n_classes}]
    edges = []
    for family in every[member]["families"]:
        nodes.append({"name": family["attribute"], "role": "attribute", "weight": family["weight"]})
        for rank, parent in enumerate([target, *family["parents"]]):
            edges.append({"from": parent, "to": family["attribute"], "rank": rank})
    return {"nodes": nodes, "edges": edges}


def members_table(every: Sequence[ToldMember]) -> pa.Table:
    """One row for each family of each member."""
    rows = [{"member": member["member"], **family} for member in every for family in member["families"]]
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
