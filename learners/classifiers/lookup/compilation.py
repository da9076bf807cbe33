"""Compile estimates to lookup tables with back-off resolved, and variances to further tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from learners.classifiers.estimates.context_tree import ContextTree, Estimates
from learners.classifiers.lookup import kernels
from learners.classifiers.lookup.look_up_tables import (
    WORD,
    bit_vector_word_ranks,
    build_hash_slots,
    family_lookup_tables,
    fill_class_log_joints,
    smoothed_log_class_prior,
    split_64_bit_keys,
)
from learners.classifiers.structure import Structure
from learners.errors import FamilyTooLarge
from learners.kernels.arrays import (
    Codes,
    Float32s,
    Floats,
    Integers,
    Uint8s,
    Uint64s,
    concatenate_arrays,
    freeze_arrays,
    offsets_from_sizes,
    unique_integers,
)
from learners.schema import Schema

DENSE_FLOATS = 1 << 22
DENSE_RATIO = 2
SMALL_TABLE = 1 << 14
BLOCK_FLOATS = 1 << 12
BLOCK_ROWS = 1 << 16
# The delta method trusts logarithms that move by a few units; beyond that they say "unknown" all the same.
LARGEST_LOG_VARIANCE = 25.0


class _Sparse(NamedTuple):
    """Keys and vectors of one attribute (see `kernels.LookupTables`)."""

    keys: Integers
    vectors: Float32s


def compile_lookup_tables(
    schema: Schema,
    structure: Structure,
    class_counts: Integers,
    trees: Iterable[ContextTree],
    estimates: Iterable[Estimates],
    most_dense: int | None = None,
) -> kernels.LookupTables:
    """Compile estimates into the arrays that `kernels.look_up_class_probabilities` reads.

    `class_counts` (n_classes,) int64; trees and estimates have one entry per entry of `structure.order`, and are
    consumed one at a time if they come from a generator. A dense table has at most `most_dense` numbers, by
    default depending on the observed contexts. Raises FamilyTooLarge if the contexts of an attribute do not fit
    into 63 bits.
    """
    sizes = [schema.domain_sizes[list(parents)].astype(np.int64) for parents in structure.parents]
    strides = [
        context_strides(schema, a, parents) for a, parents in zip(structure.order, structure.parents, strict=True)
    ]
    prior = smoothed_log_class_prior(class_counts)
    is_hierarchical = np.zeros(1, np.uint8)
    n_values: list[int] = []

    def tables_of(first: int, forms: list[_Form]) -> kernels.LookupTables:
        members = range(first, first + len(forms))
        own_values = [n_values[i] for i in members]
        return _tables_of(structure, members, sizes, strides, own_values, forms, prior, is_hierarchical)

    found: list[_Form] = []
    hashed: list[_Form] = []  # of a few attributes, or of a large one
    for i, (tree, estimate) in enumerate(zip(trees, estimates, strict=True)):
        is_hierarchical = np.array([estimate.hierarchical], np.uint8)
        n_values.append(tree.n_values)
        hashed.append(_hashed(_sparse_form(tree, estimate, sizes[i], strides[i], schema.n_classes)))
        if i == len(structure.order) - 1 or sum(form.vectors.size for form in hashed) > BLOCK_FLOATS:
            block = tables_of(len(found), hashed.copy())
            found += [
                _dense_form(block, a, form, schema.code_dtype, most_dense) or form for a, form in enumerate(hashed)
            ]
            hashed = []
            del block
    return tables_of(0, found)


class _Form(NamedTuple):
    """Compiled form of one attribute: a dense table, or hashed rows."""

    dense: Float32s
    words: Uint64s
    shift: int
    keys: Integers
    vectors: Float32s


def _tables_of(
    structure: Structure,
    members: Sequence[int],
    sizes: Sequence[Integers],
    strides: Sequence[Integers],
    n_values: Sequence[int],
    forms: list[_Form],
    prior: Floats,
    is_hierarchical: Uint8s,
) -> kernels.LookupTables:
    """Concatenate the forms of attributes; empties the list to save memory."""
    words = np.concatenate([np.empty(0, np.uint64), *(form.words for form in forms)])
    dense_sizes = np.array([form.dense.size for form in forms], np.int64)
    hash_starts = offsets_from_sizes([form.words.size for form in forms])
    hash_shifts = np.array([form.shift for form in forms], np.int64)
    dense = np.concatenate([np.empty(0, np.float32), *(form.dense for form in forms)])
    key_parts, vectors = [form.keys for form in forms], [form.vectors for form in forms]
    forms.clear()
    nothing = np.empty(0, np.int64)
    keys = concatenate_arrays(key_parts, nothing)
    key_low, key_high = split_64_bit_keys(keys)
    tables = kernels.LookupTables(
        attribute=np.array([structure.order[i] for i in members], np.int64),
        n_values=np.array(n_values, np.int64),
        parent_starts=offsets_from_sizes([len(structure.parents[i]) for i in members]),
        parents=np.array([p for i in members for p in structure.parents[i]], np.int64),
        parent_sizes=np.concatenate([nothing, *(sizes[i] for i in members)]),
        strides=np.concatenate([nothing, *(strides[i] for i in members)]),
        dense_starts=np.where(dense_sizes > 0, np.cumsum(dense_sizes) - dense_sizes, -1),
        dense=dense,
        hash_starts=hash_starts,
        hash_shifts=hash_shifts,
        hash_words=words,
        hash_ranks=bit_vector_word_ranks(words),
        key_low=key_low,
        key_high=key_high,
        vectors=concatenate_arrays(vectors, np.empty((0, prior.size), np.float32)),
        log_prior=prior,
        is_hierarchical=is_hierarchical,
    )
    freeze_arrays(*tables)  # as when predicting: one compiled signature
    return tables


def context_strides(schema: Schema, attribute: int, parents: Sequence[int]) -> Integers:
    """Return the place value of each parent in the number of a context, the last parent fastest."""
    strides, place = [], 1
    for parent in reversed(parents):
        strides.append(place)
        place *= int(schema.domain_sizes[parent]) + 1
    if 2 * place * (int(schema.domain_sizes[attribute]) + 1) >= 1 << 63:
        names = [entry.name for entry in schema.attributes]
        raise FamilyTooLarge(names[attribute], [names[parent] for parent in parents])
    return np.array(strides[::-1], np.int64)


def _sparse_form(
    tree: ContextTree, estimates: Estimates, sizes: Integers, strides: Integers, n_classes: int
) -> _Sparse:
    """Return vectors over the classes for each observed (context, value), and the rest of each context.

    Level by level, each vector starts as that of the context above (back-off), takes the rest of the classes
    observed in the context, and then the estimates of the values observed with them.
    """
    n_keys = tree.n_values + 1
    root_cells = slice(0, int(tree.cell_starts[1]))
    pair_keys = tree.cell_value[root_cells] + int(sizes @ strides) * n_keys
    probability = np.repeat(estimates.probability[root_cells][:, np.newaxis], n_classes, axis=1)
    context = np.full(tree.n_nodes, int(sizes @ strides), np.int64)
    node_class = np.zeros(tree.n_nodes, np.int64)
    keys, vectors = [], []
    # Contexts that end at a missing parent: see `kernels.LookupTables`.
    end = math.prod(int(size) + 1 for size in sizes) * n_keys
    n_levels = tree.level_starts.size - 1
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
        contexts, context_row = unique_integers(context[nodes])
        node_of_cell = np.repeat(
            np.arange(nodes.stop - nodes.start), np.diff(tree.cell_starts[nodes.start : nodes.stop + 1])
        )
        own_keys, own_row = unique_integers(contexts[context_row[node_of_cell]] * n_keys + tree.cell_value[cells])
        readings = [(0, estimates.probability, estimates.rest)]
        if estimates.averaged is not None and level < n_levels - 1:
            readings.insert(0, (end, *estimates.averaged))
        for start, of_cells, of_nodes in readings:  # the last is what the level below goes on from
            rest = np.full((contexts.size, n_classes), np.nan)
            rest[context_row, node_class[nodes]] = of_nodes[nodes]
            own = np.empty((own_keys.size, n_classes))
            for first in range(0, own_keys.size, BLOCK_ROWS):
                own_context, value = np.divmod(own_keys[first : first + BLOCK_ROWS], n_keys)
                above_context = own_context if step == 0 else _dropped(own_context, int(sizes[level - 2]), step)
                from_above = probability[np.searchsorted(pair_keys, above_context * n_keys + value)]
                own_rest = rest[np.searchsorted(contexts, own_context)]
                if estimates.hierarchical:
                    np.multiply(own_rest, from_above, out=own_rest, where=~np.isnan(own_rest))
                own[first : first + BLOCK_ROWS] = np.where(np.isnan(own_rest), from_above, own_rest)
            own[own_row, node_class[nodes][node_of_cell]] = of_cells[cells]
            if level == 1:
                # Values of the domain that no row has, in the classes that have rows and in those that have none.
                of_class = estimates.rest[0] * rest if estimates.hierarchical else rest
                rest_vector = np.where(np.isnan(rest), estimates.rest[0], of_class)
            else:
                rest_vector = np.where(np.isnan(rest), 1.0, rest) if estimates.hierarchical else rest
            keys += [start + own_keys, start + contexts * n_keys + tree.n_values]
            vectors += [_logarithms(own), _logarithms(rest_vector)]
        pair_keys, probability = own_keys, own
    return _Sparse(np.concatenate(keys), np.concatenate(vectors))


def _logarithms(numbers: Floats) -> Float32s:
    logs = np.empty(numbers.shape, np.float32)
    with np.errstate(divide="ignore"):
        for first in range(0, len(numbers), BLOCK_ROWS):
            logs[first : first + BLOCK_ROWS] = np.log(numbers[first : first + BLOCK_ROWS])
    return logs


def _dropped(context: Integers, size: int, stride: int) -> Integers:
    """Drop the parent with this place value from contexts: its digit becomes the unseen code."""
    digit = context // stride % (size + 1)
    return context + (size - digit) * stride


def _hashed(sparse: _Sparse) -> _Form:
    """Order the rows by hash slot."""
    words, shift, order = build_hash_slots(sparse.keys)
    return _Form(np.empty(0, np.float32), words, shift, sparse.keys[order], sparse.vectors[order])


def _dense_form(
    tables: kernels.LookupTables, a: int, hashed: _Form, dtype: type[np.uint8] | type[np.uint16], most: int | None
) -> _Form | None:
    """Return the dense table of an attribute if it has few contexts, or not many more than were observed; else None."""
    n_classes = tables.log_prior.size
    own = slice(int(tables.parent_starts[a]), int(tables.parent_starts[a + 1]))
    shape = (*(tables.parent_sizes[own] + 1).tolist(), int(tables.n_values[a]))  # codes of the parents and a value
    n_rows = math.prod(shape)
    if most is None:
        most = min(DENSE_FLOATS, max(SMALL_TABLE, DENSE_RATIO * hashed.vectors.size))
    if n_rows * n_classes > most:
        return None
    alone = family_lookup_tables(tables, a, len(shape) - 1)
    table = np.empty((n_rows, n_classes), np.float32)
    for first in range(0, n_rows, BLOCK_ROWS):
        x: Codes = np.array(np.unravel_index(np.arange(first, min(first + BLOCK_ROWS, n_rows)), shape)).astype(dtype)
        freeze_arrays(x)  # as the rows of a request: one compiled signature
        logs = np.empty((x.shape[1], n_classes))
        fill_class_log_joints(alone, x, 0, x.shape[1], logs)
        table[first : first + BLOCK_ROWS] = logs
    no_keys, no_vectors = np.empty(0, np.int64), np.empty((0, n_classes), np.float32)
    return _Form(table.ravel(), np.empty(0, np.uint64), WORD - 1, no_keys, no_vectors)


def compile_lookup_variance_tables(
    schema: Schema,
    structure: Structure,
    class_counts: Integers,
    trees: Sequence[ContextTree],
    estimates: Sequence[Estimates],
    variances: Sequence[Floats],
) -> kernels.LookupTables:
    """Compile lookup tables of the variance of each log probability instead of the log probability.

    Arguments as in `compile_lookup_tables`; `variances` (n_cells,) float64 are the posterior variances of each
    tree's probabilities.
    """
    spreads = [_log_variance(*entry) for entry in zip(trees, estimates, variances, strict=True)]
    tables = compile_lookup_tables(schema, structure, class_counts, trees, spreads)
    tables = tables._replace(log_prior=1.0 / (np.asarray(class_counts, np.float64) + 1.0))
    freeze_arrays(*tables)  # as the model's own tables: one compiled signature
    return tables


def _log_variance(tree: ContextTree, estimates: Estimates, variance: Floats) -> Estimates:
    """Return Var log p ≈ Var p / p², exponentiated because compiling takes logarithms.

    The values without a cell share the rest of their node; each is treated as their mean.
    """
    of_cell = np.minimum(variance / estimates.probability**2, LARGEST_LOG_VARIANCE)
    n_absent = np.maximum(tree.n_values - np.diff(tree.cell_starts), 1)
    left = np.maximum(1.0 - np.add.reduceat(estimates.probability, tree.cell_starts[:-1]), 1e-12)
    mean = left / n_absent
    of_rest = np.minimum((1.0 - mean) / (mean * (tree.node_counts() + 1.0)), LARGEST_LOG_VARIANCE)
    return Estimates(np.exp(of_cell), np.exp(of_rest), hierarchical=False)
