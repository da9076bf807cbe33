"""Lookup tables of a compiled network, for few or many classes, their answers, and their hash tables from keys to rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from learners.classifiers.lookup.kernels import (
    EMPTY,
    LookupTables,
    ManyClassTables,
    fill_lookup_hash_table,
    look_up_class_probabilities,
    look_up_many_class_probabilities,
)
from learners.kernels.arrays import Array, Codes, Floats, Int32s, Integers, Uint32s, Uint64s, freeze_arrays
from learners.passes.threads import available_cores
from learners.schema import Chunk

Tables = LookupTables | ManyClassTables

WORD = 64
CELLS_AT_A_TIME = 1 << 23  # probabilities that are made together: 64 MiB
# Below this many rows a thread costs more than it brings.
PARALLEL_ROWS = 8192
# The arrays of tables with entries for each attribute, and how many of them one attribute needs.
BY_ATTRIBUTE = {
    "attribute": 1,
    "n_values": 1,
    "parent_starts": 2,
    "value_starts": 1,
    "roots": 1,
    "dense_starts": 1,
    "hash_starts": 2,
    "hash_shifts": 1,
}


def smoothed_log_class_prior(class_counts: Integers) -> Floats:
    """Return the log class shares, smoothed by one row so that no class is impossible, (n_classes,) float64."""
    return np.log((class_counts + 1.0 / class_counts.size) / (class_counts.sum() + 1.0))


def slice_lookup_tables(tables: Tables, first: int, last: int) -> Tables:
    """Return the tables of entries first..last-1, with the prior."""
    own = BY_ATTRIBUTE.keys() & set(tables._fields)
    return tables._replace(**{name: getattr(tables, name)[first : last + BY_ATTRIBUTE[name] - 1] for name in own})


def lookup_tables_without_prior(tables: Tables) -> Tables:
    """Return the tables with a zero prior, for the terms of the attributes alone."""
    no_prior = np.zeros(tables.log_prior.size)
    freeze_arrays(no_prior)  # as in a model, so that nothing is compiled again
    return tables._replace(log_prior=no_prior)


def attribute_lookup_tables(tables: Tables, a: int) -> Tables:
    """Return the tables of attribute a alone, without the prior."""
    return lookup_tables_without_prior(slice_lookup_tables(tables, a, a + 1))


def family_lookup_tables(tables: Tables, a: int, n_parents: int) -> Tables:
    """Return the tables of attribute a alone, for codes whose first rows are its parents and whose last row is the
    attribute.
    """
    one = attribute_lookup_tables(tables, a)
    first = int(one.parent_starts[0])
    changed: dict[str, Array] = {
        name: getattr(one, name)[first : first + n_parents]
        for name in ("parent_sizes", "strides")
        if name in one._fields
    }
    changed |= {
        "attribute": np.array([n_parents]),
        "parents": np.arange(n_parents),
        "parent_starts": np.array([0, n_parents]),
    }
    freeze_arrays(*changed.values())
    return one._replace(**changed)


def family_log_probabilities(
    tables: Tables, a: int, shape: Sequence[int], dtype: type[np.uint8] | type[np.uint16]
) -> Floats:
    """Return log P(value | class, parents) of attribute a, back-off resolved, for all codes of its parents and itself.

    The result is (product of shape, n_classes) float64; `shape` is the number of codes of each parent and, last,
    of the attribute, which varies fastest. dtype is that of the schema's codes.
    """
    n_cells = math.prod(shape)
    codes: Codes = np.indices(shape).reshape(len(shape), n_cells).astype(dtype)
    freeze_arrays(codes)  # as the rows of a request: one compiled signature
    logs = np.empty((n_cells, tables.log_prior.size))
    fill_class_log_joints(family_lookup_tables(tables, a, len(shape) - 1), codes, 0, n_cells, logs)
    return logs


def fill_class_log_joints(tables: Tables, x: Codes, first: int, last: int, out: Floats) -> None:
    """Fill rows first..last-1 of `out` (n, n_classes) float64 with log P(class, attributes) of x (n_attributes, n).

    An attribute with an unseen value is ignored.
    """
    _answer(tables, x, first, last, False, out)


def fill_class_probabilities(tables: Tables, x: Codes, first: int, last: int, out: Floats) -> None:
    """Fill in P(class | attributes) by log-sum-exp; parameters as in `fill_class_log_joints`."""
    _answer(tables, x, first, last, True, out)


def _answer(tables: Tables, x: Codes, first: int, last: int, is_normalized: bool, out: Floats) -> None:
    if isinstance(tables, ManyClassTables):
        x = x.astype(np.uint16, copy=False)
        freeze_arrays(x)  # one compiled signature, whatever the width of codes
        look_up_many_class_probabilities(tables, x, first, last, is_normalized, out)
    else:
        look_up_class_probabilities(tables, x, first, last, is_normalized, out)


def attribute_log_factors(tables: Tables, chunk: Chunk) -> Floats:
    """Return log P(x_i | y, parents of x_i) in schema order, (n_attributes, n_rows, n_classes) float64.

    Zero for an attribute that the network leaves out, is absent, or has an unseen value: it does not enter the
    product.
    """
    factors = np.zeros((chunk.x.shape[0], chunk.n_rows, tables.log_prior.size))
    for a, attribute in enumerate(tables.attribute):
        fill_class_log_joints(attribute_lookup_tables(tables, a), chunk.x, 0, chunk.n_rows, factors[attribute])
    return factors


def split_chunk_into_blocks(chunk: Chunk, n_classes: int) -> Iterator[Chunk]:
    """Yield blocks of a chunk's rows with at most `CELLS_AT_A_TIME` probabilities each."""
    n_rows = max(1, CELLS_AT_A_TIME // n_classes)
    if chunk.n_rows <= n_rows:
        yield chunk
        return
    for first in range(0, chunk.n_rows, n_rows):
        yield chunk.rows(slice(first, first + n_rows))


def run_in_row_ranges(
    n_rows: int, threads: int | None, work: Callable[[int, int], object], least: int = PARALLEL_ROWS
) -> None:
    """Process row ranges on several threads, by default one per core, if each gets at least `least` rows."""
    n_parts = n_rows // least
    if n_parts > 1:
        n_parts = min(n_parts, threads or available_cores())
    if n_parts <= 1:
        work(0, n_rows)
        return
    edges = np.linspace(0, n_rows, n_parts + 1).astype(int).tolist()
    with ThreadPoolExecutor(n_parts) as pool:
        for part in [pool.submit(work, first, last) for first, last in pairwise(edges)]:
            part.result()


class Slots(NamedTuple):
    """Hash slots of keys, at most half of them used."""

    words: Uint64s
    shift: int
    order: Int32s  # (n,): the keys in the order of their slots


def build_hash_slots(keys: Integers) -> Slots:
    """Build hash slots for distinct keys (n,) int64."""
    owners, shift = hash_slot_owners(keys)
    is_used = owners != EMPTY
    words = np.packbits(is_used, bitorder="little").view("<u8").astype(np.uint64)
    return Slots(words, shift, owners[is_used])


def hash_slot_owners(keys: Integers) -> tuple[Int32s, int]:
    """Return the position of the key in each slot, or EMPTY, and 64 minus the binary logarithm of the number of slots."""
    bits = max(WORD.bit_length() - 1, int(2 * keys.size - 1).bit_length())
    owners = np.full(1 << bits, EMPTY, np.int32)
    fill_lookup_hash_table(keys, WORD - bits, owners)
    return owners, WORD - bits


def bit_vector_word_ranks(words: Uint64s) -> Int32s:
    """Return the row of the first used slot of each word."""
    n_used = np.bitwise_count(words)
    return (np.cumsum(n_used, dtype=np.int64) - n_used).astype(np.int32)


def split_64_bit_keys(keys: Integers) -> tuple[Uint32s, Uint32s]:
    """Split keys into lower and upper 32 bits; the upper array is empty if all are zero."""
    is_wide = keys.size and int(keys.max()) >= 1 << 32
    return keys.astype(np.uint32), (keys >> 32).astype(np.uint32) if is_wide else np.empty(0, np.uint32)
