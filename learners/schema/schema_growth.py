"""Growing schemas: map the codes of one schema to another."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learners.kernels.arrays import Integers
from learners.schema.schema import Attribute, Schema


class CodeMaps(NamedTuple):
    """Code in the new schema for each code of the old one; -1 without one."""

    attributes: tuple[Integers, ...]  # tuple of (n_values,) int64
    classes: Integers  # (n_classes,) int64
    # Attributes of which the old codes do not determine the new ones, as their cut points moved: all of them are -1.
    unknown: frozenset[int] = frozenset()


def schema_code_maps(old: Schema, new: Schema) -> CodeMaps | None:
    """Return the maps that convert counts from the old schema to the new one.

    `old`, `new`: of the same attributes in the same order, with the same cut points; domains and classes may differ.
    Returns None if counts by the old schema do not determine those by the new one. A value that the new
    schema lacks has no code there, unless rare values share one.
    """
    maps = partial_code_maps(old, new)
    return None if maps is None or maps.unknown else maps


def partial_code_maps(old: Schema, new: Schema) -> CodeMaps | None:
    """Return the maps of `schema_code_maps` for the given attributes only; the others may be `unknown`.

    Returns None if the attributes differ.
    """
    names = [[attribute.name for attribute in schema.attributes] for schema in (old, new)]
    if old.target != new.target or names[0] != names[1]:
        return None
    maps = [_attribute_map(before, after) for before, after in zip(old.attributes, new.attributes, strict=True)]
    place = {name: code for code, name in enumerate(new.classes)}
    return CodeMaps(
        tuple(
            np.full(before.n_values, -1, np.int64) if codes is None else codes
            for before, codes in zip(old.attributes, maps, strict=True)
        ),
        np.array([place.get(name, -1) for name in old.classes], dtype=np.int64),
        frozenset(index for index, codes in enumerate(maps) if codes is None),
    )


def _attribute_map(old: Attribute, new: Attribute) -> Integers | None:
    if (old.kind, old.cuts, old.groupings, old.part) != (new.kind, new.cuts, new.groupings, new.part):
        return None
    if old.n_folded and not (new.n_folded and set(new.values) <= set(old.values)):
        return None  # what became a value of its own, or nothing at all, is somewhere among the folded ones
    first = new.first_code
    codes = [0 if new.has_missing else -1] if old.has_missing else []
    if old.kind == "numeric":
        codes += range(first, first + len(old.cuts) + 1)
    else:
        place = {value: first + j for j, value in enumerate(new.values)}
        absent = new.n_values - 1 if new.n_folded else -1
        codes += [place.get(value, absent) for value in old.values]
    return np.array(codes + ([new.n_values - 1] if old.n_folded else []), dtype=np.int64)
