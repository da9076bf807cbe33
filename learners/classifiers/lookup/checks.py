"""Validate the arrays of a lookup model before unchecked kernels follow their indices."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import cast

import numpy as np
from numpy.typing import ArrayLike

from learners.classifiers.description import NUMBERS, VARIANCE, unpack_context_trees
from learners.classifiers.estimates.context_tree import ContextTree
from learners.classifiers.lookup import kernels
from learners.classifiers.lookup.compilation import context_strides
from learners.classifiers.lookup.kernels import ManyClassTables
from learners.classifiers.lookup.look_up_tables import Tables
from learners.classifiers.lookup.lookup import MANY_TABLES, TABLES, LookupHeader
from learners.classifiers.structure import Structure
from learners.errors import InvalidArray
from learners.kernels.arrays import Arrays, Mask
from learners.models.model import (
    MOST_ROWS,
    check_array_elements,
    check_array_offsets,
    check_array_type_and_shape,
    check_log_probabilities,
)
from learners.schema import Schema

TYPES: dict[str, type] = dict.fromkeys(kernels.LookupTables._fields, np.int64)
TYPES |= {"dense": np.float32, "vectors": np.float32, "log_prior": np.float64, "is_hierarchical": np.uint8}
TYPES |= {"hash_words": np.uint64, "hash_ranks": np.int32, "key_low": np.uint32, "key_high": np.uint32}
MANY_TYPES: dict[str, type] = dict.fromkeys(ManyClassTables._fields, np.int64)
MANY_TYPES |= {"root_log": np.float32, "rest_log": np.float32, "cell_log": np.float32, "log_prior": np.float64}
MANY_TYPES |= {"rest_class": np.uint16, "cell_class": np.uint16, "branch": np.int32, "pair_value": np.int32}
MANY_TYPES |= {"is_hierarchical": np.uint8}
NO_CODE = "contains codes outside the domain"
NO_LOGARITHM = "contains values that are not log probabilities"
NOT_FINITE = "contains a value that is not finite"
INFINITE = 0x7F80  # the upper half of a float32's infinity; beyond it are NaN and negative numbers


def check_lookup_arrays(header: Mapping[str, object], arrays: Arrays) -> None:
    """Refuse arrays that `LookupModel.to_arrays` could not have written; costs about as much as reading them.

    Raises InvalidArray, naming the array.
    """
    stored = cast(LookupHeader, header)
    schema = Schema.from_json(stored["schema"])
    structure = Structure(tuple(stored["order"]), tuple(tuple(parents) for parents in stored["parents"]))
    known = range(schema.n_attributes)
    if not all(type(a) is int and a in known for a in (*structure.order, *sum(structure.parents, ()))):
        raise InvalidArray("order", "names attributes that are not in the schema")
    if TABLES[0] in arrays:  # or else they are compiled from the rest
        check_lookup_tables(schema, structure, arrays)
    elif MANY_TABLES[0] in arrays:
        _check_many_tables(schema, structure, arrays)
    counts = check_array_type_and_shape(arrays, "class_counts", np.int64, schema.n_classes)
    check_array_elements("class_counts", (counts < 0) | (counts > MOST_ROWS), "contains invalid row counts")
    sizes = schema.domain_sizes[list(structure.order)].tolist()
    if stored["tree_values"] != sizes or len(stored["hierarchical"]) != len(sizes):
        raise InvalidArray("tree_values", "does not match the schema")
    _check_packed(arrays, len(sizes))
    trees = unpack_context_trees(arrays, sizes, stored["hierarchical"]).trees
    for tree, parents in zip(trees, structure.parents, strict=True):
        _check_tree(tree, [schema.n_classes, *schema.domain_sizes[list(parents)].tolist()])


def _check_packed(arrays: Arrays, m: int) -> None:
    """Check the types of packed trees, and that their levels start with a root and have no gaps."""
    levels = check_array_type_and_shape(arrays, "tree_levels", np.int64, m, None)
    check_array_elements("tree_levels", (levels < 0) | (levels > MOST_ROWS), "contains invalid node counts")
    if m and ((levels[:, 0] != 1).any() or ((levels[:, 1:] > 0) & (levels[:, :-1] == 0)).any()):
        raise InvalidArray("tree_levels", "has a tree without one root, or a gap")
    for name in NUMBERS:
        check_array_type_and_shape(arrays, name, np.uint8)
        for part in ("at", "above"):
            check_array_type_and_shape(arrays, f"{name}_{part}", np.uint32)
    for name in ("probability", "rest"):
        estimates = check_array_type_and_shape(arrays, f"estimate_{name}", np.float32)
        check_array_elements(
            f"estimate_{name}", ~((estimates >= 0) & (estimates < np.inf)), "contains invalid estimates"
        )
    if VARIANCE in arrays:
        check_array_elements(
            VARIANCE, check_array_type_and_shape(arrays, VARIANCE, np.uint16) >= INFINITE, "contains invalid variances"
        )


def check_lookup_tables(schema: Schema, structure: Structure, arrays: Arrays) -> None:
    """Refuse lookup tables that do not match a schema and a structure. Raises InvalidArray, naming the array."""
    n_classes, m = schema.n_classes, len(structure.order)
    shapes = {"dense_starts": (m,), "hash_starts": (m + 1,), "hash_shifts": (m,), "vectors": (None, n_classes)}
    shapes |= {"log_prior": (n_classes,), "is_hierarchical": (1,)}
    tables = kernels.LookupTables(
        *(
            check_array_type_and_shape(arrays, f"table_{name}", dtype, *shapes.get(name, ()))
            for name, dtype in TYPES.items()
        )
    )
    check_table_layout(schema, structure, tables)
    _check_hashes(tables)
    check_array_elements("table_dense", ~(tables.dense < np.inf), NO_LOGARITHM)
    is_unknown = np.isnan(tables.vectors)
    is_unknown[_is_rest(tables)] = False  # no rest for a class
    check_array_elements("table_vectors", is_unknown | (tables.vectors == np.inf), NO_LOGARITHM)
    check_array_elements("table_log_prior", ~np.isfinite(tables.log_prior), NOT_FINITE)
    check_log_probabilities("table_log_prior", tables.log_prior)


def check_table_layout(schema: Schema, structure: Structure, tables: kernels.LookupTables) -> None:
    """Refuse lookup tables whose contexts or dense tables do not match a schema and a structure. Raises InvalidArray."""
    strides = [context_strides(schema, a, of_one) for a, of_one in zip(structure.order, structure.parents, strict=True)]
    expected = {"strides": np.concatenate([np.empty(0, np.int64), *strides])}
    _check_layout("table", tables, schema, structure, expected)
    _check_dense(tables)


def _check_layout(
    prefix: str, tables: Tables, schema: Schema, structure: Structure, expected: Mapping[str, ArrayLike]
) -> None:
    """Refuse tables whose attributes, values or parents do not match a schema, a structure, or other expected values."""
    parents = [parent for of_one in structure.parents for parent in of_one]
    by_structure: dict[str, ArrayLike] = {
        "attribute": structure.order,
        "n_values": schema.domain_sizes[list(structure.order)],
        "parent_starts": np.cumsum([0, *map(len, structure.parents)]),
        "parents": parents,
        "parent_sizes": schema.domain_sizes[parents],
    }
    for name, values in (by_structure | dict(expected)).items():
        if not np.array_equal(getattr(tables, name), values):
            raise InvalidArray(f"{prefix}_{name}", "does not follow from the schema and the structure")


def _check_hashes(tables: kernels.LookupTables) -> None:
    """Check that hash tables have a power of two of slots and at least one empty slot, without which a search would not
    end.
    """
    starts, shifts, words, n_vectors = tables.hash_starts, tables.hash_shifts, tables.hash_words, len(tables.vectors)
    check_array_offsets("table_hash_starts", starts, shifts.size, words.size)
    if (np.diff(starts)[tables.dense_starts < 0] == 0).any():
        raise InvalidArray("table_hash_starts", "leaves an attribute without a table")
    has_slots = np.diff(starts) > 0
    fits = np.diff(starts)[has_slots] == 1 << np.maximum(58 - shifts[has_slots], 0)
    if ((shifts < 1) | (shifts > 63)).any() or not fits.all():
        raise InvalidArray("table_hash_shifts", "does not match the sizes of the hash tables")
    is_full = words == np.uint64(2**64 - 1)
    if has_slots.any() and np.logical_and.reduceat(is_full, starts[:-1][has_slots]).any():
        raise InvalidArray("table_hash_words", "has a hash table without an empty slot")
    in_use = np.bitwise_count(words).astype(np.int64)
    if not np.array_equal(tables.hash_ranks, np.cumsum(in_use) - in_use) or int(in_use.sum()) != n_vectors:
        raise InvalidArray("table_hash_ranks", "points past the end of the vectors")
    if tables.key_low.size != n_vectors or tables.key_high.size not in (0, n_vectors):
        raise InvalidArray("table_key_low", "does not have the length of the vectors")


def _is_rest(tables: kernels.LookupTables) -> Mask:
    """Return which rows of the vectors are the rest of a context, by their keys."""
    before = np.concatenate([[0], np.cumsum(np.bitwise_count(tables.hash_words), dtype=np.int64)])
    n_keys = np.repeat(tables.n_values + 1, np.diff(before[tables.hash_starts]))
    keys = tables.key_low.astype(np.int64)
    if tables.key_high.size:
        keys |= tables.key_high.astype(np.int64) << 32
    return np.asarray(keys % n_keys == n_keys - 1)


def _check_dense(tables: kernels.LookupTables) -> None:
    radices = (tables.parent_sizes + 1).tolist()
    for a, start in enumerate(tables.dense_starts.tolist()):
        size = int(tables.n_values[a]) * tables.log_prior.size
        for radix in radices[int(tables.parent_starts[a]) : int(tables.parent_starts[a + 1])]:
            size *= radix  # of Python's integers, which do not overflow
        if start != -1 and not 0 <= start <= start + size <= tables.dense.size:
            raise InvalidArray("table_dense_starts", "points past the end of the dense tables")


def _check_many_tables(schema: Schema, structure: Structure, arrays: Arrays) -> None:
    """Refuse tables of many classes that do not match a schema and a structure, or point out of bounds."""
    sizes, contexts = (
        schema.domain_sizes[list(structure.order)],
        check_array_type_and_shape(arrays, "many_branch", np.int32).shape,
    )
    shapes = {"root_log": (int(sizes.sum()),), "roots": sizes.shape, "child_starts": contexts, "child_ends": contexts}
    shapes |= {"log_prior": (schema.n_classes,), "is_hierarchical": (1,)}
    tables = ManyClassTables(
        *(
            check_array_type_and_shape(arrays, f"many_{name}", dtype, *shapes.get(name, ()))
            for name, dtype in MANY_TYPES.items()
        )
    )
    _check_layout("many", tables, schema, structure, {"value_starts": np.cumsum(sizes) - sizes})
    n, past = tables.branch.size, "points past the end of the contexts"
    check_array_elements("many_roots", (tables.roots < 0) | (tables.roots >= n), past)
    starts, ends = tables.child_starts, tables.child_ends
    check_array_elements("many_child_ends", (starts < 0) | (starts > ends) | (ends > n), past)
    check_array_offsets("many_pair_starts", tables.pair_starts, n, tables.pair_value.size)
    for name, n_parts in (("rest", n), ("cell", tables.pair_value.size)):
        classes, logs = getattr(tables, f"{name}_class"), getattr(tables, f"{name}_log")
        for part in (classes, logs):
            check_array_offsets(f"many_{name}_starts", getattr(tables, f"{name}_starts"), n_parts, part.size)
        check_array_elements(f"many_{name}_class", classes >= schema.n_classes, NO_CODE)
    for name in ("root_log", "rest_log", "cell_log"):
        check_array_elements(f"many_{name}", ~(getattr(tables, name) < np.inf), NO_LOGARITHM)
    check_array_elements("many_log_prior", ~np.isfinite(tables.log_prior), NOT_FINITE)
    check_log_probabilities("many_log_prior", tables.log_prior)


def _check_tree(tree: ContextTree, level_sizes: list[int]) -> None:
    """Check one context tree: every node is below one of the level above, and every code is valid for its column.

    `level_sizes` are the numbers of classes, and of values of each parent.
    """
    edges = tree.level_starts.tolist()
    if len(edges) > len(level_sizes) + 2:
        raise InvalidArray("tree_levels", "has more levels than the structure has parents")
    for (above, first), (_, last), n_branches in zip(pairwise(edges), pairwise(edges[1:]), level_sizes, strict=False):
        parent = tree.parent[first:last]
        check_array_elements(
            "tree_n_children", (parent < above) | (parent >= first), "points to a node that is not on the next level"
        )
        check_array_elements("tree_branch", tree.branch[first:last] >= n_branches, NO_CODE)
    check_array_elements("tree_n_cells", np.diff(tree.cell_starts) == 0, "has a node without a cell")
    check_array_elements("tree_cell_value", tree.cell_value >= tree.n_values, NO_CODE)
    check_array_elements("tree_cell_count", tree.cell_count > MOST_ROWS, "contains invalid row counts")
