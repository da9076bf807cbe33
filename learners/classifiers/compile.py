"""From estimates to look-up tables, back-off resolved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from learners.arrays import Floats, Integers, freeze
from learners.classifiers import kernels
from learners.classifiers.context_tree import ContextTree, Estimates
from learners.classifiers.structure import Structure
from learners.errors import FamilyTooLarge
from learners.schema import Schema

DENSE_FLOATS = 1 << 22
DENSE_RATIO = 16
SMALL_TABLE = 1 << 14


class _Sparse(NamedTuple):
    """Keys and vectors of one attribute (see `kernels.LookupTables`)."""

    keys: Integers
    vectors: Floats


def compile_tables(
    schema: Schema,
    structure: Structure,
    class_counts: Integers,
    trees: Sequence[ContextTree],
    estimates: Sequence[Estimates],
) -> kernels.LookupTables:
    """Compile estimates into the arrays that `kernels.probabilities` reads.

    Parameters
    ----------
    schema : Schema
    structure : Structure
    class_counts : (n_classes,) int64
    trees, estimates : one per entry of `structure.order`

    Returns
    -------
    kernels.LookupTables

    Raises
    ------
    FamilyTooLarge
        If the contexts of an attribute cannot be numbered by 63 bits.
    """
    sizes = [schema.domain_sizes[list(parents)].astype(np.int64) for parents in structure.parents]
    strides = [strides_of(schema, a, parents) for a, parents in zip(structure.order, structure.parents, strict=True)]
    sparse = [
        _sparse_form(tree, estimate, size, stride, schema.n_classes)
        for tree, estimate, size, stride in zip(trees, estimates, sizes, strides, strict=True)
    ]
    hashes = [_hash_table(form.keys) for form in sparse]
    first_rows = np.concatenate([[0], np.cumsum([form.keys.size for form in sparse])]).astype(np.int64)
    # Smoothing of one row, so that no class that occurred is ever impossible beforehand.
    prior = np.log((class_counts + 1.0 / class_counts.size) / (class_counts.sum() + 1.0))
    tables = kernels.LookupTables(
        attribute=np.array(structure.order, np.int64),
        n_values=np.array([tree.n_values for tree in trees], np.int64),
        parent_starts=_starts([len(parents) for parents in structure.parents]),
        parents=np.array([p for parents in structure.parents for p in parents], np.int64),
        parent_sizes=_joined(sizes),
        strides=_joined(strides),
        dense_starts=np.full(len(trees), -1, np.int64),
        dense=np.empty(0, np.float32),
        hash_starts=_starts([keys.size for keys, _, _ in hashes]),
        hash_shifts=np.array([shift for _, _, shift in hashes], np.int64),
        hash_keys=_joined([keys for keys, _, _ in hashes]),
        hash_rows=_joined([rows + first for (_, rows, _), first in zip(hashes, first_rows[:-1], strict=True)]),
        vectors=np.concatenate([form.vectors for form in sparse]).astype(np.float32)
        if sparse
        else np.empty((0, class_counts.size), np.float32),
        log_prior=prior,
        is_hierarchical=np.array([bool(estimates and estimates[0].hierarchical)], np.uint8),
    )
    return _with_dense_tables(tables, [form.vectors.size for form in sparse])


def _starts(sizes: Sequence[int]) -> Integers:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _joined(parts: Sequence[Integers]) -> Integers:
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def strides_of(schema: Schema, attribute: int, parents: Sequence[int]) -> Integers:
    """Place value of each parent in the number of a context, the last parent fastest."""
    strides, place = [], 1
    for parent in reversed(parents):
        strides.append(place)
        place *= int(schema.domain_sizes[parent]) + 1
    if place * (int(schema.domain_sizes[attribute]) + 1) >= 1 << 63:
        names = [entry.name for entry in schema.attributes]
        raise FamilyTooLarge(names[attribute], [names[parent] for parent in parents])
    return np.array(strides[::-1], np.int64)


def _sparse_form(
    tree: ContextTree, estimates: Estimates, sizes: Integers, strides: Integers, n_classes: int
) -> _Sparse:
    """Vectors over the classes for each (context, value) that occurred, and for each context its rest.

    Level by level, each vector starts as that of the context above (back-off), takes the rest of the classes that
    have been in the context, and then the estimates of the values they have had there.
    """
    n_keys = tree.n_values + 1
    root_cells = slice(0, int(tree.cell_starts[1]))
    pair_keys = tree.cell_value[root_cells] + int(sizes @ strides) * n_keys
    probability = np.repeat(estimates.probability[root_cells][:, np.newaxis], n_classes, axis=1)
    context = np.full(tree.n_nodes, int(sizes @ strides), np.int64)
    node_class = np.zeros(tree.n_nodes, np.int64)
    keys, vectors = [], []
    for level in range(1, tree.level_starts.size - 1):
        nodes = slice(int(tree.level_starts[level]), int(tree.level_starts[level + 1]))
        cells = slice(int(tree.cell_starts[nodes.start]), int(tree.cell_starts[nodes.stop]))
        above = tree.parent[nodes]
        if level == 1:
            node_class[nodes] = tree.branch[nodes]
            context[nodes] = context[0]
            step = 0
        else:
            node_class[nodes] = node_class[above]
            step = int(strides[level - 2])
            context[nodes] = context[above] + (tree.branch[nodes] - sizes[level - 2]) * step
        contexts, context_row = np.unique(context[nodes], return_inverse=True)
        node_of_cell = np.repeat(
            np.arange(nodes.stop - nodes.start), np.diff(tree.cell_starts[nodes.start : nodes.stop + 1])
        )
        cell_keys = contexts[context_row[node_of_cell]] * n_keys + tree.cell_value[cells]
        own_keys, own_row = np.unique(cell_keys, return_inverse=True)
        own_context = own_keys // n_keys
        above_context = own_context if step == 0 else _dropped(own_context, int(sizes[level - 2]), step)
        above_row = np.searchsorted(pair_keys, above_context * n_keys + own_keys % n_keys)
        rest = np.full((contexts.size, n_classes), np.nan)
        rest[context_row, node_class[nodes]] = estimates.rest[nodes]
        own_rest = rest[np.searchsorted(contexts, own_context)]
        from_above = probability[above_row]
        backed_off = own_rest * from_above if estimates.hierarchical else own_rest
        own = np.where(np.isnan(own_rest), from_above, backed_off)
        own[own_row, node_class[nodes][node_of_cell]] = estimates.probability[cells]
        keys.append(own_keys)
        vectors.append(own)
        if level == 1:
            # Values of the domain that no row has, in the classes that have rows and in those that have none.
            of_class = estimates.rest[0] * rest if estimates.hierarchical else rest
            rest_vector = np.where(np.isnan(rest), estimates.rest[0], of_class)
        else:
            rest_vector = np.where(np.isnan(rest), 1.0, rest) if estimates.hierarchical else rest
        keys.append(contexts * n_keys + tree.n_values)
        vectors.append(rest_vector)
        pair_keys, probability = own_keys, own
    with np.errstate(divide="ignore"):
        return _Sparse(np.concatenate(keys), np.log(np.concatenate(vectors)))


def _dropped(context: Integers, size: int, stride: int) -> Integers:
    """The contexts with the parent of this place value dropped: its digit becomes the unseen code."""
    digit = context // stride % (size + 1)
    return context + (size - digit) * stride


def _hash_table(keys: Integers) -> tuple[Integers, Integers, int]:
    """Keys, rows and shift of a hash table that is at most half full."""
    bits = max(1, int(2 * keys.size - 1).bit_length())
    hash_keys = np.full(1 << bits, kernels.EMPTY, np.int64)
    hash_rows = np.zeros(1 << bits, np.int64)
    kernels.fill_hash(keys, 64 - bits, hash_keys, hash_rows)
    return hash_keys, hash_rows, 64 - bits


def _with_dense_tables(tables: kernels.LookupTables, n_sparse: Sequence[int]) -> kernels.LookupTables:
    """Add a dense table for every attribute whose contexts are few enough, or not much more than occurred."""
    n_classes = tables.log_prior.size
    freeze(*tables)  # as when predicting: one compiled signature
    parts, starts, n_floats = [], np.full(tables.attribute.size, -1, np.int64), 0
    for a in range(tables.attribute.size):
        parents = slice(int(tables.parent_starts[a]), int(tables.parent_starts[a + 1]))
        n_contexts = (
            int(np.prod(tables.parent_sizes[parents].astype(object) + 1)) if parents.stop > parents.start else 1
        )
        size = n_contexts * int(tables.n_values[a]) * n_classes
        if size > min(DENSE_FLOATS, max(SMALL_TABLE, DENSE_RATIO * n_sparse[a])):
            continue
        table = np.empty((n_contexts, int(tables.n_values[a]), n_classes), np.float32)
        kernels.fill_dense(tables, a, table)
        parts.append(table.ravel())
        starts[a], n_floats = n_floats, n_floats + size
    return tables._replace(dense_starts=starts, dense=np.concatenate(parts) if parts else np.empty(0, np.float32))
