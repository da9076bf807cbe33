"""What an ensemble that somebody else has made must be, before kernels follow its indices."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, get_args

import numpy as np

from learners.classifiers.baselines.boosted_checks import check_booster
from learners.classifiers.lookup.checks import check_arrays, check_tables
from learners.classifiers.structure import Structure
from learners.ensembles.correction.forest import check_forest
from learners.ensembles.joints import POOLING, Pooling, arrays_of, headers_of
from learners.ensembles.lookup.compile import PooledFamilies
from learners.errors import InvalidArray
from learners.kernels.arrays import Arrays
from learners.schema import Schema
from learners.schema.checks import check_schema
from learners.schema.encoding.views import Views


def check_ensemble(header: Mapping[str, Any], arrays: Arrays) -> None:
    """Refuse arrays from which no ensemble could have been written.

    Raises InvalidArray, naming the array, and SchemaError of a joint member's schema.
    """
    schema = Schema.from_json(header["schema"])
    if header.get(POOLING, "mean") not in get_args(Pooling):
        raise InvalidArray(POOLING, f"is none of {', '.join(get_args(Pooling))}; a later release may have written it")
    for number, own in enumerate(headers_of(header)):
        check_schema(Schema.from_json(own["schema"]))
        check_arrays(own, arrays_of(number, arrays))
    views = Views(schema).schema
    families = _families(arrays, views.n_attributes)
    check_tables(views, families, arrays)
    n = len(families.order)
    for name, dtype in (("member", np.int64), ("alone", np.float64), ("parents", np.float64)):
        _require(arrays, f"entry_{name}", dtype, n)
    member = arrays["entry_member"]
    if member.size and (member[0] != 0 or not np.isin(np.diff(member), (0, 1)).all()):
        raise InvalidArray("entry_member", "does not number the members one after the other")
    _require(arrays, "entry_spread_dense", np.float16, arrays["table_dense"].size)
    if arrays["entry_spread_vectors"].dtype != np.float16 or (
        arrays["entry_spread_vectors"].shape != arrays["table_vectors"].shape
    ):
        raise InvalidArray("entry_spread_vectors", "does not have the places of the vectors")
    _require(arrays, "class_counts", np.int64, schema.n_classes)
    if header["weights"] is not None:
        check_forest(schema, arrays)
        for i in range(len(header["weights"])):
            if f"booster_{i}" not in arrays:
                raise InvalidArray(f"booster_{i}", "is missing")
            check_booster(schema, f"booster_{i}", arrays[f"booster_{i}"])


def _require(arrays: Arrays, name: str, dtype: type, size: int) -> None:
    array = arrays.get(name)
    if array is None or array.dtype != dtype or array.shape != (size,):
        raise InvalidArray(name, f"is not {size} numbers of type {np.dtype(dtype)}")


def _families(arrays: Arrays, n_views: int) -> Structure:
    """The families that the tables say they have."""
    attribute, starts, parents = (arrays[f"table_{name}"] for name in ("attribute", "parent_starts", "parents"))
    for name, views in (("attribute", attribute), ("parents", parents)):
        if views.dtype != np.int64 or views.ndim != 1 or ((views < 0) | (views >= n_views)).any():
            raise InvalidArray(f"table_{name}", "names views that are not in the schema")
    if starts.dtype != np.int64 or starts.shape != (attribute.size + 1,) or (np.diff(starts) < 0).any():
        raise InvalidArray("table_parent_starts", "does not ascend")
    if starts[0] != 0 or starts[-1] != parents.size:
        raise InvalidArray("table_parent_starts", "does not divide the parents")
    return PooledFamilies(
        tuple(attribute.tolist()), tuple(tuple(parents[low:high].tolist()) for low, high in pairwise(starts.tolist()))
    )
