"""Stored form of an ensemble's lookup tables: sorted keys, and differences from the rows that they back off to.

Compressed, it takes half to two thirds of the bytes of the tables, and gives them back exactly. A context with few rows answers for most
classes like the context above it, so most differences are zero. Slots of hash tables follow from the keys.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from learners.classifiers.lookup.kernels import LookupTables
from learners.classifiers.lookup.look_up_tables import (
    WORD,
    bit_vector_word_ranks,
    hash_slot_owners,
    split_64_bit_keys,
)
from learners.ensembles.packed_kernels import (
    fill_dense_references,
    lay_out_keys,
    restore_keys,
    restore_rows,
)
from learners.kernels.arrays import (
    Array,
    Arrays,
    Float32s,
    Int32s,
    Integers,
    Uint8s,
    Uint64s,
    freeze_arrays,
    offsets_from_sizes,
    read_only_array,
)

# Terms are multiples of one part in so many. A score sums hundreds of them, and no probability changes by 1e-4.
GRID = np.float32(1 << 16)
MOST_PARTS = 1 << 23  # so that a float32 holds all differences
KEYS, N_KEYS = "packed_keys", "packed_n_keys"
PARTS = ("dense", "vectors")
# Arrays of `LookupTables` that follow from these.
REPLACED = ("dense", "hash_starts", "hash_shifts", "hash_words", "hash_ranks", "key_low", "key_high", "vectors")


class _Rows(NamedTuple):
    """Rows in an order in which each comes before the one that it backs off to."""

    references: Int32s  # (n,) int32: position of that row; -1 without one
    places: Int32s  # (n,) int32: where the row is in the tables


class _Slots(NamedTuple):
    """Hash tables of all attributes."""

    words: Uint64s
    starts: Integers
    shifts: Integers


def are_on_grid(tables: LookupTables) -> bool:
    """Return whether all terms are multiples of 1/GRID, and not too large for the packed form."""
    for terms in (tables.dense, tables.vectors):
        parts = terms * GRID
        if not (np.abs(parts) < MOST_PARTS).all() or (parts != np.rint(parts)).any():
            return False
    return True


def is_packed(arrays: Arrays) -> bool:
    """Return whether arrays hold packed tables."""
    return KEYS in arrays


def layout_of_tables(arrays: Arrays) -> LookupTables:
    """Return tables without terms and keys, of the other arrays by field."""
    nothing: dict[str, Array] = dict.fromkeys(REPLACED, np.empty(0, np.int64))
    return LookupTables(**nothing | dict(arrays))


def pack_tables(tables: LookupTables, spread_dense: Uint8s, spread_vectors: Uint8s) -> dict[str, Array]:
    """Pack tables that are on the grid, and the codes of their variances, into named arrays for `unpack_tables`."""
    n_classes = tables.log_prior.size
    keys = tables.key_low.astype(np.int64)
    if tables.key_high.size:
        keys |= tables.key_high.astype(np.int64) << 32
    edges = np.concatenate([[0], np.cumsum(np.bitwise_count(tables.hash_words), dtype=np.int64)])[tables.hash_starts]
    order, steps = np.empty(keys.size, np.int32), np.empty(keys.size, np.int64)
    for (first, last), end in zip(pairwise(edges.tolist()), _ends(tables), strict=True):
        turned = _turned(keys[first:last], end)
        order[first:last] = first + np.argsort(turned)
        steps[first:last] = np.diff(turned[order[first:last] - first], prepend=0)
    arrays: dict[str, Array] = {N_KEYS: np.diff(edges), KEYS: _without_zeros(_bytes_of(steps))}
    arrays |= {f"table_{name}": array for name, array in tables._asdict().items() if name not in REPLACED}
    by_key = _Rows(_hashed(tables, keys[order], edges)[0].references, order)
    by_cell = _dense_rows(tables, tables.dense.size // n_classes)
    for part, rows, terms, codes in zip(
        PARTS, (by_cell, by_key), (tables.dense, tables.vectors), (spread_dense, spread_vectors), strict=True
    ):
        arrays |= _packed_rows(part, rows, terms.reshape(-1, n_classes), codes.reshape(-1, n_classes))
    return arrays


def _packed_rows(part: str, rows: _Rows, terms: Float32s, codes: Uint8s) -> dict[str, Array]:
    """Return rows (n, n_classes) of terms and codes as changes of the rows that they back off to."""
    n, n_classes = codes.shape
    is_changed, numbers, steps = np.empty((n_classes, n), np.bool_), [np.empty(0, np.int32)], [np.empty(0, np.uint8)]
    has_above = rows.references >= 0
    for k in range(n_classes):
        parts, own = np.rint(terms[rows.places, k] * GRID).astype(np.int32), codes[rows.places, k]
        moved = parts - np.where(has_above, parts[rows.references], 0)
        stepped = own - np.where(has_above, own[rows.references], np.uint8(0))
        is_changed[k] = (moved != 0) | (stepped != 0)
        numbers.append(moved[is_changed[k]])
        steps.append(stepped[is_changed[k]])
    changes = np.concatenate(numbers)
    return {
        f"packed_{part}_masks": np.packbits(is_changed, axis=0, bitorder="little"),
        f"packed_{part}": _without_zeros(_bytes_of(changes << 1 ^ changes >> 31)),
        f"packed_spread_{part}": np.concatenate(steps),
    }


def unpack_tables(arrays: Arrays) -> dict[str, Array]:
    """Return the arrays of a model with its tables and variances as lookups read them, in place of their packed form."""
    n_classes, edges = arrays["table_log_prior"].size, offsets_from_sizes(arrays[N_KEYS])
    tables = layout_of_tables({name: arrays[f"table_{name}"] for name in LookupTables._fields if name not in REPLACED})
    keys = np.empty(int(edges[-1]), np.int64)
    restore_keys(read_only_array(arrays[KEYS]), edges, np.array([*_ends(tables)], np.int64), keys)
    by_key, slots = _hashed(tables, keys, edges)
    by_cell = _dense_rows(tables, arrays["packed_dense_masks"].shape[1])
    restored: list[tuple[Float32s, Uint8s]] = []
    for part, rows in zip(PARTS, (by_cell, by_key), strict=True):
        terms, codes = (np.empty((rows.places.size, n_classes), dtype) for dtype in (np.float32, np.uint8))
        packed = [read_only_array(arrays[f"packed_{name}"]) for name in (f"{part}_masks", part, f"spread_{part}")]
        freeze_arrays(*rows)
        restore_rows(*packed, *rows, float(GRID), terms, codes)
        restored.append((terms, codes))
    (dense, spread_dense), (vectors, spread_vectors) = restored
    by_slot = np.empty_like(keys)
    by_slot[by_key.places] = keys
    low_high, ranks = split_64_bit_keys(by_slot), bit_vector_word_ranks(slots.words)
    own: tuple[Array, ...] = (dense.ravel(), slots.starts, slots.shifts, slots.words, ranks, *low_high, vectors)
    of_tables: dict[str, Array] = {f"table_{name}": array for name, array in zip(REPLACED, own, strict=True)}
    of_entries: dict[str, Array] = {"entry_spread_dense": spread_dense.ravel(), "entry_spread_vectors": spread_vectors}
    freeze_arrays(*of_tables.values(), *of_entries.values())
    others = {name: array for name, array in arrays.items() if not name.startswith("packed_")}
    return others | of_tables | of_entries


def _ends(tables: LookupTables) -> Iterator[int]:
    """Yield the number of keys that each attribute may have, those of contexts that end at a missing parent not counted."""
    starts = tables.parent_starts.tolist()
    for n_values, (first, last) in zip(tables.n_values.tolist(), pairwise(starts), strict=True):
        yield math.prod((tables.parent_sizes[first:last] + 1).tolist()) * (n_values + 1)


def _turned(keys: Integers, end: int) -> Integers:
    """Put keys from `end` on before the others, or back: what they back off to then comes later."""
    return np.where(keys < end, keys + end, keys - end)


def _dense_rows(tables: LookupTables, n_rows: int) -> _Rows:
    references, n_classes = np.full(n_rows, -1, np.int32), tables.log_prior.size
    for a, end in enumerate(_ends(tables)):
        if tables.dense_starts[a] >= 0:
            parents, n_values = slice(*tables.parent_starts[a : a + 2].tolist()), int(tables.n_values[a])
            first = int(tables.dense_starts[a]) // n_classes
            own = references[first : first + end // (n_values + 1) * n_values]
            fill_dense_references(first, n_values, tables.parent_sizes[parents], tables.strides[parents], own)
    return _Rows(references, np.arange(n_rows, dtype=np.int32))


def _hashed(tables: LookupTables, keys: Integers, edges: Integers) -> tuple[_Rows, _Slots]:
    """Return hash tables of keys (n,) in stored order, where those of attribute a are edges[a] to edges[a + 1], and their rows."""
    references, places = np.empty(keys.size, np.int32), np.empty(keys.size, np.int32)
    words, shifts = [np.empty(0, np.uint64)], []
    for a, end in enumerate(_ends(tables)):
        if tables.dense_starts[a] >= 0:
            words.append(words[0])
            shifts.append(WORD - 1)
            continue
        own, parents = slice(int(edges[a]), int(edges[a + 1])), slice(*tables.parent_starts[a : a + 2].tolist())
        owners, shift = hash_slot_owners(keys[own])
        words.append(np.empty(owners.size // WORD, np.uint64))
        shifts.append(shift)
        layout = (end, int(tables.n_values[a]) + 1, tables.parent_sizes[parents], tables.strides[parents])
        lay_out_keys(keys[own], own.start, layout, owners, shift, words[-1], references[own], places[own])
    starts = offsets_from_sizes([own.size for own in words[1:]])
    return _Rows(references, places), _Slots(np.concatenate(words), starts, np.array(shifts, np.int64))


def _bytes_of(numbers: Integers | Int32s) -> Uint8s:
    """Return the bytes (p, n) of numbers (n,), lowest first."""
    return numbers.view(np.uint8).reshape(numbers.size, numbers.itemsize).T


def _without_zeros(planes: Uint8s) -> Uint8s:
    """Leave out the highest bytes (p, ...) if they are zero in all numbers."""
    n_bytes = max((byte + 1 for byte in range(len(planes)) if planes[byte].any()), default=0)
    return np.ascontiguousarray(planes[:n_bytes])
