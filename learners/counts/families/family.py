"""A family of attributes: an attribute and its parents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast


@dataclass(frozen=True)
class Family:
    """An attribute and its parents."""

    attribute: int
    parents: tuple[int, ...] = ()  # in the order of the levels of the context tree


def holder_of(family: Family, families: Sequence[Family]) -> Family:
    """The smallest of the families that has all members of another. Raises KeyError if there is none."""
    members = {family.attribute, *family.parents}
    holders = [other for other in families if members <= {other.attribute, *other.parents}]
    if not holders:
        raise KeyError(family)
    return min(holders, key=lambda other: len(other.parents))


def families_of(spec: Mapping[str, object]) -> list[Family]:
    """The families of a specification of family counts."""
    written = cast("Sequence[tuple[int, Sequence[int]]]", spec["families"])
    return [Family(attribute, tuple(parents)) for attribute, parents in written]
