"""Schemas that grow: where the codes of one schema are in another."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learners.kernels.arrays import Integers
from learners.schema.schema import Attribute, Schema


class CodeMaps(NamedTuple):
    """The code in the new schema of each code of the old one; -1 where there is none."""

    attributes: tuple[Integers, ...]  # tuple of (n_values,) int64
    classes: Integers  # (n_classes,) int64


def schema_code_maps(old: Schema, new: Schema) -> CodeMaps | None:
    """How to read counts by the old schema as counts by the new one.

    `old`, `new`: of the same attributes in the same order, with the same cut points; domains and classes may differ.
    Returns None if counts by the old schema do not determine those by the new one. A value that the new
    schema lacks has no code there, unless rare values share one.
    """
    if old.target != new.target or len(old.attributes) != len(new.attributes):
        return None
    maps = []
    for before, after in zip(old.attributes, new.attributes, strict=True):
        codes = _attribute_map(before, after)
        if codes is None:
            return None
        maps.append(codes)
    place = {name: code for code, name in enumerate(new.classes)}
    return CodeMaps(tuple(maps), np.array([place.get(name, -1) for name in old.classes], dtype=np.int64))


def _attribute_map(old: Attribute, new: Attribute) -> Integers | None:
    if (old.name, old.kind, old.cuts) != (new.name, new.kind, new.cuts):
        return None
    if old.n_folded and not (new.n_folded and set(new.values) <= set(old.values)):
        return None  # what became a value of its own, or nothing at all, is somewhere among the folded ones
    first = int(new.has_missing)
    codes = [0 if new.has_missing else -1] if old.has_missing else []
    if old.kind == "numeric":
        codes += range(first, first + len(old.cuts) + 1)
    else:
        place = {value: first + j for j, value in enumerate(new.values)}
        absent = new.n_values - 1 if new.n_folded else -1
        codes += [place.get(value, absent) for value in old.values]
    return np.array(codes + ([new.n_values - 1] if old.n_folded else []), dtype=np.int64)
