"""What the look-up tables of many classes must be, before kernels that check nothing follow the indices in them."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from learners.classifiers.lookup.array_checks import check_starts, refuse, typed
from learners.classifiers.lookup.many_kernels import ManyClassTables
from learners.classifiers.structure import Structure
from learners.errors import InvalidArray
from learners.kernels.arrays import Array, Arrays
from learners.schema import Schema

TYPES: dict[str, type] = dict.fromkeys(ManyClassTables._fields, np.int64)
TYPES |= {"root_log": np.float32, "rest_log": np.float32, "cell_log": np.float32, "log_prior": np.float64}
TYPES |= {"rest_class": np.uint16, "cell_class": np.uint16, "branch": np.int32, "pair_value": np.int32}
TYPES |= {"is_hierarchical": np.uint8}


def check_many_tables(schema: Schema, structure: Structure, arrays: Arrays) -> None:
    """Refuse tables that do not follow from a schema and a structure, or point past their ends.

    Raises
    ------
    InvalidArray
        Naming the array.
    """
    found = ManyClassTables(*(typed(arrays, f"many_{name}", dtype) for name, dtype in TYPES.items()))
    sizes = schema.domain_sizes[list(structure.order)]
    parents = [parent for of_one in structure.parents for parent in of_one]
    expected: dict[str, ArrayLike] = {
        "attribute": structure.order,
        "n_values": sizes,
        "parent_starts": np.cumsum([0, *map(len, structure.parents)]),
        "parents": parents,
        "parent_sizes": schema.domain_sizes[parents],
        "value_starts": np.cumsum(sizes) - sizes,
    }
    for name, values in expected.items():
        if not np.array_equal(getattr(found, name), values):
            raise InvalidArray(f"many_{name}", "does not follow from the schema and the structure")
    _check_contexts(found, len(structure.order), int(sizes.sum()))
    for name in ("rest_class", "cell_class"):
        refuse(f"many_{name}", getattr(found, name) >= schema.n_classes, "holds codes that there are none of")
    for name in ("root_log", "rest_log", "cell_log"):
        refuse(f"many_{name}", ~(getattr(found, name) < np.inf), "holds what is no logarithm of a probability")
    if found.log_prior.size != schema.n_classes or not np.isfinite(found.log_prior).all():
        raise InvalidArray("many_log_prior", "has no finite number for each class")
    if found.is_hierarchical.size != 1:
        raise InvalidArray("many_is_hierarchical", "is not one number")


def _check_contexts(found: ManyClassTables, m: int, n_root: int) -> None:
    n = found.branch.size
    if found.roots.size != m or found.root_log.size != n_root:
        raise InvalidArray("many_roots", "does not have one entry for each attribute")
    refuse("many_roots", (found.roots < 0) | (found.roots >= n), "points past the end of the contexts")
    if found.child_starts.size != n or found.child_ends.size != n:
        raise InvalidArray("many_child_starts", "does not have one entry for each context")
    refuse(
        "many_child_ends",
        (found.child_starts < 0) | (found.child_starts > found.child_ends) | (found.child_ends > n),
        "points past the end of the contexts",
    )
    for name, n_parts, of in (
        ("rest", n, (found.rest_class, found.rest_log)),
        ("pair", n, (found.pair_value,)),
        ("cell", found.pair_value.size, (found.cell_class, found.cell_log)),
    ):
        starts: Array = getattr(found, f"{name}_starts")
        for array in of:
            check_starts(f"many_{name}_starts", starts, n_parts, array.size)
