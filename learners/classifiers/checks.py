"""What the arrays of a look-up model must be, before kernels that check nothing follow the indices in them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import cast

import numpy as np
from numpy.typing import ArrayLike

from learners.arrays import Array, Arrays
from learners.classifiers import kernels
from learners.classifiers.compile import strides_of
from learners.classifiers.lookup import LookupHeader
from learners.classifiers.structure import Structure
from learners.errors import InvalidArray
from learners.schema import Schema

TABLES: dict[str, type] = dict.fromkeys(kernels.LookupTables._fields, np.int64)
TABLES |= {"dense": np.float32, "vectors": np.float32, "log_prior": np.float64, "is_hierarchical": np.uint8}
# What the parts of a tree are as long as.
OF_NODES, OF_CELLS = ("parent", "branch"), ("cell_value", "cell_count", "cell_parent")
MOST_ROWS = 1 << 53  # a float64 holds them all
OF_TREES = ("level_starts", *OF_NODES, "cell_starts", *OF_CELLS)


def check_arrays(header: Mapping[str, object], arrays: Arrays) -> None:
    """Refuse arrays from which no model could have been written; costs about as much as reading them.

    Parameters
    ----------
    header, arrays
        As `LookupModel.to_arrays` makes them.

    Raises
    ------
    InvalidArray
        Naming the array.
    """
    stored = cast(LookupHeader, header)
    schema = Schema.from_json(stored["schema"])
    structure = Structure(tuple(stored["order"]), tuple(tuple(parents) for parents in stored["parents"]))
    known = range(schema.n_attributes)
    if not all(type(a) is int and a in known for a in (*structure.order, *sum(structure.parents, ()))):
        raise InvalidArray("order", "names attributes that the schema has not")
    check_tables(schema, structure, arrays)
    counts = _typed(arrays, "class_counts", np.int64, schema.n_classes)
    _refuse("class_counts", (counts < 0) | (counts > MOST_ROWS), "holds what is no number of rows")
    sizes = schema.domain_sizes[list(structure.order)].tolist()
    if stored["tree_values"] != sizes or len(stored["hierarchical"]) != len(sizes):
        raise InvalidArray("tree_values", "does not fit the schema")
    parts = {field: _parts(arrays, f"tree_{field}", len(sizes)) for field in OF_TREES}
    for i, parents in enumerate(structure.parents):
        tree = {field: parts[field][i] for field in OF_TREES}
        _check_tree(tree, [schema.n_classes, *schema.domain_sizes[list(parents)].tolist()], sizes[i])
    n_nodes, n_cells = arrays["tree_parent"].size, arrays["tree_cell_value"].size
    for name, size in (("probability", n_cells), ("rest", n_nodes), ("variance", n_cells)):
        if name != "variance" or "estimate_variance" in arrays:
            estimates = _typed(arrays, f"estimate_{name}", np.float64, size)
            _refuse(f"estimate_{name}", ~((estimates >= 0) & (estimates < np.inf)), "holds what is no estimate")


def check_tables(schema: Schema, structure: Structure, arrays: Arrays) -> None:
    """Refuse look-up tables that do not follow from a schema and a structure.

    Raises
    ------
    InvalidArray
        Naming the array.
    """
    tables = {name: _typed(arrays, f"table_{name}", dtype) for name, dtype in TABLES.items() if name != "vectors"}
    n_classes, m = schema.n_classes, len(structure.order)
    parents = [p for of_one in structure.parents for p in of_one]
    strides = [strides_of(schema, a, of_one) for a, of_one in zip(structure.order, structure.parents, strict=True)]
    expected: dict[str, ArrayLike] = {
        "attribute": structure.order,
        "n_values": schema.domain_sizes[list(structure.order)],
        "parent_starts": np.cumsum([0, *map(len, structure.parents)]),
        "parents": parents,
        "parent_sizes": schema.domain_sizes[parents],
        "strides": np.concatenate([np.empty(0, np.int64), *strides]),
    }
    for name, values in expected.items():
        if not np.array_equal(tables[name], values):
            raise InvalidArray(f"table_{name}", "does not follow from the schema and the structure")
    vectors = _typed(arrays, "table_vectors", np.float32, None, n_classes)
    _check_hashes(tables, m, len(vectors))
    _check_dense(tables, structure, n_classes)
    for name, logs in (("dense", tables["dense"]), ("vectors", vectors)):
        unusable = logs == np.inf if name == "vectors" else ~(logs < np.inf)  # NaN: no rest for a class
        _refuse(f"table_{name}", unusable, "holds what is no logarithm of a probability")
    log_prior = _typed(arrays, "table_log_prior", np.float64, n_classes)
    _refuse("table_log_prior", ~np.isfinite(log_prior), "holds what is no finite number")
    _typed(arrays, "table_is_hierarchical", np.uint8, 1)


def _check_hashes(tables: Mapping[str, Array], m: int, n_vectors: int) -> None:
    """Hash tables of powers of two slots, of which one at least is empty: or else a search in them would not end."""
    starts, shifts, keys = tables["hash_starts"], tables["hash_shifts"], tables["hash_keys"]
    _check_starts("table_hash_starts", starts, m, keys.size)
    if shifts.size != m or ((shifts < 1) | (shifts > 63)).any() or (np.diff(starts) != 1 << (64 - shifts)).any():
        raise InvalidArray("table_hash_shifts", "does not fit the sizes of the hash tables")
    if m and not np.logical_or.reduceat(keys == kernels.EMPTY, starts[:-1]).all():
        raise InvalidArray("table_hash_keys", "has a hash table without an empty slot")
    rows = tables["hash_rows"]
    if rows.size != keys.size:
        raise InvalidArray("table_hash_rows", "is not as long as the keys")
    _refuse("table_hash_rows", (rows < 0) | (rows >= n_vectors), "leads beyond the vectors")


def _check_dense(tables: Mapping[str, Array], structure: Structure, n_classes: int) -> None:
    starts = tables["dense_starts"]
    if starts.size != len(structure.order):
        raise InvalidArray("table_dense_starts", "has not one entry for each attribute")
    radices = (tables["parent_sizes"] + 1).tolist()
    for a, start in enumerate(starts.tolist()):
        size = int(tables["n_values"][a]) * n_classes
        for radix in radices[int(tables["parent_starts"][a]) : int(tables["parent_starts"][a + 1])]:
            size *= radix  # of Python's integers, which do not overflow
        if start != -1 and not 0 <= start <= start + size <= tables["dense"].size:
            raise InvalidArray("table_dense_starts", "leads beyond the dense tables")


def _check_tree(tree: Mapping[str, Array], level_sizes: list[int], n_values: int) -> None:
    """One context tree: every node below one of the level above it, every cell in a node.

    `level_sizes` are the numbers of classes, and of values of each parent.
    """
    n_nodes, n_cells = tree["parent"].size, tree["cell_value"].size
    for fields, size in ((OF_NODES, n_nodes), (OF_CELLS, n_cells)):
        for field in fields:
            if tree[field].size != size:
                raise InvalidArray(f"tree_{field}", "is not as long as the others")
    _check_starts("tree_level_starts", tree["level_starts"], len(level_sizes) + 1, n_nodes)
    _check_starts("tree_cell_starts", tree["cell_starts"], n_nodes, n_cells)
    _refuse("tree_cell_starts", np.diff(tree["cell_starts"]) == 0, "has a node without a cell")
    edges = tree["level_starts"].tolist()
    if edges[1] != 1 or tree["parent"][0] != -1 or tree["branch"][0] != -1:
        raise InvalidArray("tree_parent", "has a tree without one root")
    for (above, first), (_, last), n_branches in zip(pairwise(edges), pairwise(edges[1:]), level_sizes, strict=False):
        parent, branch = tree["parent"][first:last], tree["branch"][first:last]
        _refuse("tree_parent", (parent < above) | (parent >= first), "leads to a node that is not of the level above")
        _refuse("tree_branch", (branch < 0) | (branch >= n_branches), "holds codes that there are none of")
    value, cell_parent = tree["cell_value"], tree["cell_parent"]
    _refuse("tree_cell_value", (value < 0) | (value >= n_values), "holds codes that there are none of")
    count = tree["cell_count"]
    _refuse("tree_cell_count", (count < 0) | (count > MOST_ROWS), "holds what is no number of rows")
    _refuse("tree_cell_parent", (cell_parent < -1) | (cell_parent >= n_cells), "leads beyond the cells")


def _parts(arrays: Arrays, name: str, m: int) -> list[Array]:
    """The part of each tree in what is one array for all of them."""
    whole, ends = _typed(arrays, name, np.int64), _typed(arrays, f"{name}_ends", np.int64, m)
    _check_starts(f"{name}_ends", np.concatenate([np.zeros(1, np.int64), ends]), m, whole.size)
    return np.split(whole, ends[:-1]) if m else []


def _check_starts(name: str, starts: Array, n_parts: int, end: int) -> None:
    if starts.size != n_parts + 1 or starts[0] != 0 or starts[-1] != end or (np.diff(starts) < 0).any():
        raise InvalidArray(name, "does not ascend from zero to the end of what it divides")


def _typed(arrays: Arrays, name: str, dtype: type, *shape: int | None) -> Array:
    """An array of a type and shape; None for any length."""
    if name not in arrays:
        raise InvalidArray(name, "is missing")
    array = arrays[name]
    shape = shape or (None,)
    fits = len(array.shape) == len(shape) and all(n in (None, k) for n, k in zip(shape, array.shape, strict=True))
    if array.dtype != dtype or not fits:
        described = f"{array.dtype} of shape {array.shape}"
        wanted = ", ".join("any" if n is None else str(n) for n in shape)
        raise InvalidArray(name, f"is {described}, where {np.dtype(dtype)} of shape ({wanted}) belongs")
    return array


def _refuse(name: str, wrong: Array, reason: str) -> None:
    if wrong.any():
        raise InvalidArray(name, f"{reason} (at {int(np.argmax(wrong))})")
