"""The tables of SkDB's selection: of each row of the data the estimates without it, for every number of parents."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from learners.arrays import Float32s, Floats, Int32s, Integers, Uint64s, freeze
from learners.classifiers import selection_kernels as kernels
from learners.classifiers.context_tree import Levels
from learners.classifiers.kernels import EMPTY, fill_hash
from learners.classifiers.mixing import BLOCK_CELLS, best_concentration, telling_levels
from learners.classifiers.structure import Structure
from learners.schema import Schema

M = 1.0
"""The pseudo-count of m-estimates, and of every root (Martínez et al. 2016, section 4)."""

DENSE_ROWS = 1 << 14
WORD = 64


class Measure(NamedTuple):
    """What losses are measured with.

    Parameters
    ----------
    structure : Structure
        Without the last parents that tell nothing, if these are dropped.
    tables : LossTables
    digest : str
        Of the counts behind the tables.
    mixes : bool
        Whether the estimates of a context are mixed with those of the context without its last parent.
    """

    structure: Structure
    tables: kernels.LossTables
    digest: str
    mixes: bool


@dataclass(frozen=True)
class _Level:
    """One attribute with its first parents: a row per (codes of the parents, value) that occurred."""

    keys: Integers  # (r,) ascending
    n_keys: int | None  # all that there could be; None if they are too many for a dense table
    log_probability: Float32s  # (r, C) from all rows
    log_left_out: Float32s  # (r, C) of the class of a row that is left out; 0 where there is none


class _Entry(NamedTuple):
    """One level as the kernels read it."""

    is_dense: bool
    words: Uint64s
    shift: int
    keys: Integers
    log_probability: Float32s
    left_out: Float32s


def measure(
    schema: Schema,
    structure: Structure,
    grown: Iterable[Levels],
    class_counts: Integers,
    mixes: bool = True,
    prunes: bool = False,
) -> Measure:
    """The tables of leave-one-out losses.

    Parameters
    ----------
    schema : Schema
    structure : Structure
        Of kDB with the largest k.
    grown : iterable of Levels
        One per entry of `structure.order`, from all the rows that will be measured. Each is emptied before the next is asked for.
    class_counts : (n_classes,) int64
    mixes : bool
        Whether the estimates of a context are mixed with those of the context without its last parent, as those of hierarchical
        Dirichlet processes are. m-estimates are not; where contexts have a handful of rows they choose fewer parents.
    prunes : bool
        Whether each attribute loses its last parents that tell nothing of it beyond those before.
    """
    digest = hashlib.sha256(class_counts.tobytes())
    parents, of_attributes, n_values = [], list[list[_Entry]](), []
    given = iter(structure.parents)
    for levels in grown:  # alone: `zip` and `enumerate` keep what they gave last until they have the next
        own = next(given)
        own = own[: telling_levels(levels)] if prunes else own
        parents.append(own)
        n_values.append(levels.n_values)
        del levels.levels[len(own) + 2 :]
        _add_counts(digest, levels)
        sizes = [int(schema.domain_sizes[parent]) for parent in own]
        of_attributes.append(list(_entries(levels, sizes, class_counts.size, mixes)))
        del levels
    shortened = Structure(structure.order, tuple(parents))
    tables = _tables(schema, shortened, n_values, class_counts, of_attributes)
    return Measure(shortened, tables, digest.hexdigest(), mixes)


def _add_counts(digest: hashlib._Hash, grown: Levels) -> None:
    for level in grown.levels:
        for array in (level.branch, level.node, level.value, level.n_rows):
            digest.update(np.ascontiguousarray(array).tobytes())


def _entries(grown: Levels, sizes: Sequence[int], n_classes: int, mixes: bool) -> Iterator[_Entry]:
    """Estimates of every level below the root, with and without a row.

    Parameters
    ----------
    grown : Levels
        Of which none are left then.
    sizes : sequence of int
        Domain sizes of the parents.
    n_classes : int
    mixes : bool
        Whether each level mixes its frequencies with the estimate of the level above, by the concentration that predicts the rows
        best when each is left out. If not: m-estimates, as Martínez et al. have them.
    """
    n_values = grown.n_values
    root = grown.levels.pop(0)
    n = root.n_rows.astype(np.float64)
    # Whatever the class, the row that is left out is missing from the root.
    left_out = (n - 1 + M / n_values) / np.maximum(n.sum() - 1 + M, M)
    probability = left_out
    keys = root.value.astype(np.int64)
    from_above = np.repeat(left_out[:, np.newaxis], n_classes, axis=1)
    number, label = np.zeros(1, np.int64), np.zeros(1, np.int64)
    n_contexts = 1
    for depth in range(len(grown.levels)):
        level = grown.levels.pop(0)
        size = 1 if depth == 0 else sizes[depth - 1]
        label = level.branch.astype(np.int64) if depth == 0 else label[level.above]
        number = number[level.above] * size + (0 if depth == 0 else level.branch)
        n_contexts *= size
        n = level.n_rows.astype(np.float64)
        totals = np.bincount(level.node, n, level.above.size)
        total, from_left_out = totals[level.node], left_out[level.cell_above]
        weight = best_concentration(n, total, from_left_out) if mixes else M
        share = probability[level.cell_above] if mixes else 1.0 / n_values
        probability = (n + weight * share) / (total + weight)
        without = (n - 1 + weight * (from_left_out if mixes else 1.0 / n_values)) / (total - 1 + weight)
        # Without its row a context may be empty; then the last parent is dropped, which is the value of the level above.
        left_out = np.where(total == 1, from_left_out, without)
        del n, total, from_left_out, without, share
        seen, where = np.unique(number, return_inverse=True)
        is_dense = n_contexts * n_values <= DENSE_ROWS
        # Of a context of one row nothing stays without it: all estimates are those of the level above, here and further down.
        is_told = np.full(seen.size, True) if depth == 0 or is_dense else np.bincount(where, totals) > 1
        place = np.cumsum(is_told) - 1
        cells = np.flatnonzero(is_told[where][level.node])
        node = level.node[cells]
        own_keys, row = np.unique(number[node] * n_values + level.value[cells], return_inverse=True)
        contexts, values = np.divmod(own_keys, n_values)
        own = from_above[np.searchsorted(keys, contexts // size * n_values + values)]
        # Classes that have been in the context, but not with this value.
        rest = np.full((int(is_told.sum()), n_classes), np.nan)
        told = np.flatnonzero(is_told[where])
        rest[place[where[told]], label[told]] = (weight / (totals + weight))[told]
        of_context = rest[np.searchsorted(seen[is_told], contexts)]
        np.multiply(of_context, own if mixes else 1.0 / n_values, out=own, where=~np.isnan(of_context))
        del of_context, contexts, values
        own[row, label[node]] = probability[cells]
        log_left_out = np.zeros(own.shape, np.float32)
        log_left_out[row, label[node]] = np.log(left_out[cells])
        del row, node, cells
        yield _entry(_Level(own_keys, n_contexts * n_values if is_dense else None, _logarithms(own), log_left_out))
        del log_left_out
        keys, from_above = own_keys, own


def _logarithms(numbers: Floats) -> Float32s:
    """Of (n, C) float64, without as much memory again."""
    found = np.empty(numbers.shape, np.float32)
    for first in range(0, len(numbers), BLOCK_CELLS):
        found[first : first + BLOCK_CELLS] = np.log(numbers[first : first + BLOCK_CELLS])
    return found


def _entry(level: _Level) -> _Entry:
    """A dense table of all keys, or the rows that differ from the level above in the order of their slots.

    Of two classes what the kernel adds are the log odds of the wrong class.
    """
    told, left_out = level.log_probability, level.log_left_out
    if told.shape[1] == 2:
        told, left_out = np.ascontiguousarray(told[:, ::-1] - left_out), np.empty((0, 2), np.float32)
    if level.n_keys is not None:
        tables = [np.zeros((level.n_keys if rows.size else 0, rows.shape[1]), np.float32) for rows in (told, left_out)]
        for table, rows in zip(tables, (told, left_out), strict=True):
            if rows.size:
                table[level.keys] = rows
        return _Entry(True, np.empty(0, np.uint64), 0, np.empty(0, np.int64), *tables)
    bits = max(WORD.bit_length() - 1, int(2 * level.keys.size).bit_length())
    owners = np.full(1 << bits, EMPTY, np.int32)
    fill_hash(level.keys, WORD - bits, owners)
    is_used = owners != EMPTY
    order = owners[is_used]
    words = np.packbits(is_used, bitorder="little").view("<u8").astype(np.uint64)
    left_out = left_out[order] if left_out.size else left_out
    return _Entry(False, words, WORD - bits, level.keys[order], told[order], left_out)


def _tables(
    schema: Schema,
    structure: Structure,
    n_values: Sequence[int],
    class_counts: Integers,
    of_attributes: list[list[_Entry]],
) -> kernels.LossTables:
    """The arrays that the kernels read: dense tables first, then the rows of hash tables."""
    entries = [entry for entries in of_attributes for entry in entries]
    n_levels = [len(entries) for entries in of_attributes]
    of_attributes.clear()
    dense_sizes = np.array([len(entry.log_probability) if entry.is_dense else 0 for entry in entries], np.int64)
    words = np.concatenate([np.empty(0, np.uint64), *(entry.words for entry in entries)])
    keys = np.concatenate([np.empty(0, np.int64), *(entry.keys for entry in entries)])
    is_wide = keys.size and int(keys.max()) >= 1 << 32
    low, high = keys.astype(np.uint32), (keys >> 32).astype(np.uint32) if is_wide else np.empty(0, np.uint32)
    is_dense = np.array([entry.is_dense for entry in entries], np.uint8)
    hash_starts = _starts([entry.words.size for entry in entries])
    hash_shifts = np.array([entry.shift for entry in entries], np.int64)
    ordered = sorted(entries, key=lambda entry: not entry.is_dense)
    told, left_out = [entry.log_probability for entry in ordered], [entry.left_out for entry in ordered]
    del keys, entries, ordered  # so that of the rows there are only these two lists, which become shorter
    n, share = class_counts.astype(np.float64), M / class_counts.size
    tables = kernels.LossTables(
        attribute=np.array(structure.order, np.int64),
        n_values=np.array(n_values, np.int64),
        parent_starts=_starts([len(parents) for parents in structure.parents]),
        level_starts=_starts(n_levels),
        parents=np.array([p for parents in structure.parents for p in parents], np.int64),
        parent_sizes=np.array([schema.domain_sizes[p] for parents in structure.parents for p in parents], np.int64),
        is_dense=is_dense,
        row_starts=np.array(np.cumsum(dense_sizes) - dense_sizes, np.int64),
        n_dense=np.array([dense_sizes.sum()], np.int64),
        hash_starts=hash_starts,
        hash_shifts=hash_shifts,
        hash_words=words,
        hash_ranks=_ranks(words),
        key_low=low,
        key_high=high,
        log_probability=_stacked(told, n.size),
        left_out=_stacked(left_out, n.size),
        log_prior=np.log((n + share) / (n.sum() - 1 + M)).astype(np.float32),
        log_prior_left_out=np.log((np.maximum(n - 1, 0) + share) / (n.sum() - 1 + M)).astype(np.float32),
    )
    freeze(*tables)
    return tables


def _ranks(words: Uint64s) -> Int32s:
    """The row of the first used slot of each word."""
    n_used = np.bitwise_count(words)
    return (np.cumsum(n_used, dtype=np.int64) - n_used).astype(np.int32)


def _stacked(parts: list[Float32s], n_classes: int) -> Float32s:
    """The rows of all parts; the list is empty then, so that they are in memory once."""
    whole = np.empty((sum(map(len, parts)), n_classes), np.float32)
    end = len(whole)
    while parts:
        part = parts.pop()
        whole[end - len(part) : end] = part
        end -= len(part)
    return whole


def _starts(sizes: Sequence[int]) -> Integers:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
