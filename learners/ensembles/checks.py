"""Validate the arrays of an ensemble from an untrusted file before kernels follow their indices."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from learners.classifiers.description import VARIANCE
from learners.classifiers.lookup.checks import (
    TYPES,
    check_lookup_arrays,
    check_lookup_tables,
    check_table_layout,
)
from learners.classifiers.lookup.kernels import LookupTables
from learners.classifiers.structure import Structure
from learners.ensembles.correction.forest import check_forest
from learners.ensembles.discriminants.gaussian import check_discriminant, has_discriminant
from learners.ensembles.joint_members import (
    MORE,
    POOLED,
    POOLING,
    joint_member_array_prefix,
    joint_member_arrays,
    joint_member_headers,
)
from learners.ensembles.packed_tables import KEYS, N_KEYS, PARTS, REPLACED, is_packed, layout_of_tables, unpack_tables
from learners.ensembles.pool import PooledFamilies
from learners.errors import InvalidArray
from learners.kernels.arrays import Arrays
from learners.models.model import MOST_ROWS, check_array_elements, check_array_offsets, check_array_type_and_shape
from learners.schema import Schema
from learners.schema.checks import check_schema
from learners.schema.encoding.column_views import Views

MOST_KEYS = 1 << 40  # more fit into no file


def check_ensemble(header: Mapping[str, Any], arrays: Arrays) -> None:
    """Refuse arrays that are not a valid ensemble.

    Raises InvalidArray, naming the array, and SchemaError of a joint member's schema.
    """
    schema = Schema.from_json(header["schema"])
    if header.get(POOLING) != POOLED or MORE not in header:
        raise InvalidArray(POOLING, f"is not {POOLED!r}: another form of fewpass wrote this model. Train it again")
    for number, own in enumerate(joint_member_headers(header)):
        check_schema(Schema.from_json(own["schema"]))
        arrays_of_member = joint_member_arrays(number, arrays)
        check_lookup_arrays(own, arrays_of_member)
        if own["order"] and VARIANCE not in arrays_of_member:  # which intervals read
            raise InvalidArray(joint_member_array_prefix(number) + VARIANCE, "is missing")
    views = Views(schema).schema
    families = _families(arrays, views.n_attributes)
    if is_packed(arrays):
        _check_packed(views, families, arrays)
        arrays = unpack_tables(arrays)
    check_lookup_tables(views, families, arrays)
    n = len(families.order)
    for name, dtype in (("member", np.int64), ("alone", np.float64), ("parents", np.float64)):
        check_array_type_and_shape(arrays, f"entry_{name}", dtype, n)
    for name in ("entry_alone", "entry_parents"):
        check_array_elements(name, ~np.isfinite(arrays[name]), "contains a value that is not finite")
    member = arrays["entry_member"]
    if member.size and (member[0] != 0 or not np.isin(np.diff(member), (0, 1)).all()):
        raise InvalidArray("entry_member", "does not number the members consecutively")
    for name in ("dense", "vectors"):
        spread = f"entry_spread_{name}"
        is_of_codes = spread in arrays and arrays[spread].dtype == np.uint8
        # Release 0.2.0 stored them as float16.
        check_array_type_and_shape(
            arrays, spread, np.uint8 if is_of_codes else np.float16, *arrays[f"table_{name}"].shape
        )
    counts = check_array_type_and_shape(arrays, "class_counts", np.int64, schema.n_classes)
    check_array_elements("class_counts", (counts < 0) | (counts > MOST_ROWS), "contains invalid row counts")
    if has_discriminant(arrays):
        check_discriminant(schema, arrays)
    if header["weights"] is not None:
        check_forest(schema, arrays)


def _check_packed(views: Schema, families: Structure, arrays: Arrays) -> None:
    """Refuse packed tables that do not match a schema of views and the families, before they are restored."""
    m, n_classes = len(families.order), views.n_classes
    shapes = {"dense_starts": (m,), "log_prior": (n_classes,), "is_hierarchical": (1,)}
    layout = {
        name: check_array_type_and_shape(arrays, f"table_{name}", TYPES[name], *shapes.get(name, ()))
        for name in LookupTables._fields
        if name not in REPLACED
    }
    counts = check_array_type_and_shape(arrays, N_KEYS, np.int64, m)
    check_array_elements(
        N_KEYS,
        (counts < 0) | (counts > MOST_KEYS) | ((counts > 0) & (layout["dense_starts"] >= 0)),
        "is no count of keys",
    )
    n_rows = {"vectors": int(counts.sum())}
    _check_bytes(arrays, KEYS, 8, n_rows["vectors"])
    for part in PARTS:
        masks = f"packed_{part}_masks"
        bits = check_array_type_and_shape(arrays, masks, np.uint8, -(-n_classes // 8), n_rows.get(part))
        check_array_elements(masks, bits[-1] >> 1 + (n_classes - 1) % 8, "names classes that are not in the schema")
        n_rows[part] = bits.shape[1]
        n_changes = int(np.bitwise_count(bits).sum(dtype=np.int64))
        _check_bytes(arrays, f"packed_{part}", 4, n_changes)
        check_array_type_and_shape(arrays, f"packed_spread_{part}", np.uint8, n_changes)
    starts = layout["dense_starts"]
    check_array_elements("table_dense_starts", (starts >= 0) & (starts % n_classes != 0), "begins within a row")
    dense = np.broadcast_to(np.float32(0.0), n_rows["dense"] * n_classes)
    check_table_layout(views, families, layout_of_tables(layout | {"dense": dense}))


def _check_bytes(arrays: Arrays, name: str, most: int, n: int) -> None:
    """Check the bytes (at most `most`, n) of n numbers."""
    if len(check_array_type_and_shape(arrays, name, np.uint8, None, n)) > most:
        raise InvalidArray(name, f"has more than {most} bytes for a number")


def _families(arrays: Arrays, n_views: int) -> Structure:
    """Return the families recorded in the lookup tables."""
    names = ("table_attribute", "table_parent_starts", "table_parents")
    attribute, starts, parents = (check_array_type_and_shape(arrays, name, np.int64) for name in names)
    for name, views in (("table_attribute", attribute), ("table_parents", parents)):
        check_array_elements(name, (views < 0) | (views >= n_views), "names views that are not in the schema")
    check_array_offsets("table_parent_starts", starts, attribute.size, parents.size)
    return PooledFamilies(
        tuple(attribute.tolist()), tuple(tuple(parents[low:high].tolist()) for low, high in pairwise(starts.tolist()))
    )
