"""SkDB's selection of attributes and parents by leave-one-out loss, in one more pass."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from learners.classifiers import selection_kernels as kernels
from learners.classifiers.estimates.context_tree import (
    BLOCK_CELLS,
    Level,
    Levels,
    context_row_counts,
    interpolate_levels,
    leave_one_out_concentration,
    n_informative_parents,
)
from learners.classifiers.lookup import look_up_tables
from learners.classifiers.structure import Structure
from learners.errors import EmptyStatistic
from learners.kernels import arrays
from learners.kernels.arrays import (
    Float32s,
    Floats,
    Int32s,
    Integers,
    Uint64s,
    concatenate_arrays,
    freeze_arrays,
    unique_integers,
)
from learners.passes.statistic import Statistic
from learners.schema import Chunk, Schema

M = 1.0  # the pseudo-count of m-estimates, and of every root (Martínez et al. 2016, section 4)
DENSE_ROWS = 1 << 14
LOSSES = ("squared", "zero-one")


@dataclass(frozen=True)
class Selection:
    """Result of the selection pass."""

    n_attributes: int  # how many of the first attributes of the order to use
    k: int  # how many of the first parents of each to use
    # (k + 1, n + 1) float64: mean leave-one-out loss for each number of parents and each prefix of the order.
    mean_loss: Floats


class PrefixLosses(Statistic):
    """Sums of leave-one-out losses for every number of parents and every prefix of the attributes.

    Losses are summed in integer multiples of 2^-30, so that sums are exact.

    `measure`: the measure of kDB's structure with the largest k, from all rows of the pass.
    `class_counts`, (n_classes,) int64.
    `loss`, "squared" or "zero-one": (1 - P(y | x))^2, or whether another class is more probable.

    References
    ----------
    Martínez, Webb, Chen, Zaidi (2016), Scalable learning of Bayesian network classifiers, JMLR 17(44), section 4.
    """

    stage = "measuring prefixes"

    def __init__(self, schema: Schema, measure: Measure, class_counts: Integers, loss: str = "squared") -> None:
        self.schema, self.structure, self.mixes = schema, measure.structure, measure.mixes
        self.class_counts, self.loss = class_counts, loss
        self._tables, self._digest = measure.tables, measure.digest
        self._start()

    def _start(self) -> None:
        self.n_rows = 0
        k = max((len(parents) for parents in self.structure.parents), default=0)
        self.losses = np.zeros((k + 1, len(self.structure.order) + 1), np.int64)

    @property
    def spec(self) -> dict[str, object]:
        """Specification of the statistic, including a digest of the counts that it evaluates."""
        return {
            "statistic": "prefix losses",
            "loss": self.loss,
            "mixes": self.mixes,
            "order": list(self.structure.order),
            "parents": [list(parents) for parents in self.structure.parents],
            "counts": self._digest,
        }

    def empty(self) -> PrefixLosses:
        """Return a statistic of no rows that shares the tables."""
        fresh = object.__new__(PrefixLosses)
        fresh.__dict__.update(self.__dict__)
        fresh._start()
        return fresh

    def update(self, rows: Chunk) -> None:
        """Add the losses of a chunk, whose rows must have been counted by the trees."""
        assert rows.y is not None
        self.n_rows += rows.n_rows
        add = kernels.add_two_class_selection_losses if self.class_counts.size == 2 else kernels.add_selection_losses
        x, y = (codes.astype(np.uint16, copy=False) for codes in (rows.x, rows.y))
        freeze_arrays(x, y)  # one compiled signature, whatever the width of codes
        add(self._tables, x, y, self.loss == "zero-one", self.losses)

    def _combine(self, other: PrefixLosses, sign: int) -> None:
        self.n_rows += sign * other.n_rows
        self.losses += sign * other.losses

    def to_arrow(self) -> pa.Table:
        """Return a table with one row per number of parents: the sums over the prefixes, and the number of rows."""
        losses = pa.array(self.losses.tolist(), pa.list_(pa.int64()))
        return pa.table({"losses": losses, "n_rows": np.full(self.losses.shape[0], self.n_rows)})

    def from_arrow(self, table: pa.Table) -> PrefixLosses:
        """Build the statistic from the output of `to_arrow`."""
        read = self.empty()
        read.losses = np.array(table["losses"].to_pylist(), np.int64)
        read.n_rows = int(table["n_rows"][0].as_py())
        return read

    def best(self) -> Selection:
        """Return the prefix and number of parents with the lowest loss, the smallest on ties. Raises EmptyStatistic
        without rows.
        """
        if not self.n_rows:
            raise EmptyStatistic("No rows were measured, so feature selection is impossible.")
        flat = self.losses.T.ravel()  # prefix by prefix: the first of the least is the smallest model
        n_attributes, k = divmod(int(flat.argmin()), self.losses.shape[0])
        return Selection(n_attributes, k, self.losses / (self.n_rows * float(kernels.ONE)))

    def __eq__(self, other: object) -> bool:
        """Return whether the same losses were measured."""
        if not isinstance(other, PrefixLosses):
            return NotImplemented
        return self.n_rows == other.n_rows and self.spec == other.spec and np.array_equal(self.losses, other.losses)


class Measure(NamedTuple):
    """Structure and tables used to compute losses."""

    structure: Structure  # without the last parents that tell nothing, if these are dropped
    tables: kernels.LossTables
    digest: str  # of the counts behind the tables
    mixes: bool  # whether the estimates of a context are mixed with those of the context without its last parent


class _Entry(NamedTuple):
    """One level in the kernels' layout."""

    is_dense: bool
    words: Uint64s
    shift: int
    keys: Integers
    log_probability: Float32s
    left_out: Float32s


def selection_loss_tables(
    schema: Schema,
    structure: Structure,
    grown: Iterable[Levels],
    class_counts: Integers,
    mixes: bool = True,
    prunes: bool = False,
) -> Measure:
    """Build the tables of leave-one-out losses of kDB with the largest k.

    `grown` has one entry per entry of `structure.order`, from all rows to be measured; each is emptied before the
    next is requested. `class_counts` (n_classes,) int64. With `mixes`, the estimates of a context are
    interpolated with those of the context without its last parent, as in hierarchical Dirichlet processes;
    m-estimates are not, and choose fewer parents if contexts have only a few rows. With `prunes`, each attribute
    loses its last parents that add no information.
    """
    digest = hashlib.sha256(class_counts.tobytes())
    parents, of_attributes, n_values = [], list[list[_Entry]](), []
    all_parents = iter(structure.parents)
    for levels in grown:  # alone: `zip` and `enumerate` keep what they gave last until they have the next
        own = next(all_parents)
        own = own[: n_informative_parents(levels)] if prunes else own
        parents.append(own)
        n_values.append(levels.n_values)
        del levels.levels[len(own) + 2 :]
        for level in levels.levels:
            for array in (level.branch, level.node, level.value, level.n_rows):
                digest.update(np.ascontiguousarray(array).tobytes())
        sizes = [int(schema.domain_sizes[parent]) for parent in own]
        of_attributes.append(list(_entries(levels, sizes, class_counts.size, mixes)))
        del levels, level
    shortened = Structure(structure.order, tuple(parents))
    tables = _tables(schema, shortened, n_values, class_counts, of_attributes)
    return Measure(shortened, tables, digest.hexdigest(), mixes)


def _entries(grown: Levels, sizes: Sequence[int], n_classes: int, mixes: bool) -> Iterator[_Entry]:
    """Yield the estimates of every level below the root, with and without a row, for parents with these domain sizes;
    empties `grown`.

    With `mixes`, each level interpolates its frequencies with the level above, using the concentration with the
    best leave-one-out likelihood. Otherwise the estimates are m-estimates, as in Martínez et al.
    """
    n_values = grown.n_values
    root = grown.levels.pop(0)
    n = root.n_rows.astype(np.float64)
    # Whatever the class, the row that is left out is missing from the root.
    left_out = (n - 1 + M / n_values) / np.maximum(n.sum() - 1 + M, M)
    probability = left_out
    estimates = _Estimates(root.value.astype(np.int64), np.repeat(left_out[:, np.newaxis], n_classes, axis=1))
    number, label = np.zeros(1, np.int64), np.zeros(1, np.int32)
    n_contexts = 1
    for depth in range(len(grown.levels)):
        level = grown.levels.pop(0)
        size = 1 if depth == 0 else sizes[depth - 1]
        label = level.branch if depth == 0 else label[level.above]
        number = number[level.above] * size + (0 if depth == 0 else level.branch)
        n_contexts *= size
        totals = context_row_counts(level)
        weight, probability, left_out = _estimated(level, totals, n_values, probability, left_out, mixes)
        seen, context = unique_integers(number)
        is_dense = n_contexts * n_values <= DENSE_ROWS
        # Of a context of one row nothing stays without it: all estimates are those of the level above, here and further down.
        is_kept = np.full(seen.size, True) if depth == 0 or is_dense else np.bincount(context, totals) > 1
        # Classes that have been in the context, but not with a value.
        nodes = np.flatnonzero(is_kept[context])
        rest = np.full((int(is_kept.sum()), n_classes), np.nan)
        rest[(np.cumsum(is_kept) - 1)[context[nodes]], label[nodes]] = weight / (totals[nodes] + weight)
        cells = np.flatnonzero(is_kept[context][level.node])
        contexts, node = seen[is_kept], level.node[cells]
        del seen, context, is_kept, nodes, totals
        keys, row = unique_integers(number[node] * n_values + level.value[cells])
        estimates = _spread(keys, estimates, n_values, size, contexts, rest, mixes)
        estimates.probability[row, label[node]] = probability[cells]
        del level, contexts, rest
        slots = _slots(keys, n_contexts * n_values if is_dense else None)
        yield _entry(slots, estimates.probability, row, label[node], left_out[cells])
        del slots


def _estimated(
    level: Level, totals: Floats, n_values: int, probability: Floats, left_out: Floats, mixes: bool
) -> tuple[float, Floats, Floats]:
    """Return the weight of the level above, and each cell's estimate with and without one of its rows."""
    if mixes:
        weight = leave_one_out_concentration(level, totals, left_out)
        return (
            weight,
            interpolate_levels(level, totals, probability, weight),
            interpolate_levels(level, totals, left_out, weight, 1),
        )
    uniform = np.full(probability.size, 1.0 / n_values)
    without = interpolate_levels(level, totals, uniform, M, 1)
    is_alone = totals[level.node] == 1  # without its row the context is empty; then the last parent is dropped
    without[is_alone] = left_out[level.cell_above[is_alone]]
    return M, interpolate_levels(level, totals, uniform, M), without


class _Estimates(NamedTuple):
    """Estimates over the classes, one row per (parent codes, value)."""

    keys: Integers  # (r,) ascending
    probability: Floats  # (r, C)


def _spread(
    keys: Integers, above: _Estimates, n_values: int, size: int, contexts: Integers, rest: Floats, mixes: bool
) -> _Estimates:
    """Return estimates of the classes that were not observed in a context, or not with a value, from the level above.

    `keys` (r,) int64; `size` is the last parent's domain size; `contexts` (n,) int64 ascend. `rest` (n, C)
    float64 is each class's remaining probability for values unobserved with it in the context; NaN if the class
    was not observed there.
    """
    spread = np.empty((keys.size, rest.shape[1]))
    for first in range(0, keys.size, BLOCK_CELLS):
        own = spread[first : first + BLOCK_CELLS]
        context, value = np.divmod(keys[first : first + BLOCK_CELLS], n_values)
        own[:] = above.probability[np.searchsorted(above.keys, context // size * n_values + value)]
        of_context = rest[np.searchsorted(contexts, context)]
        np.multiply(of_context, own if mixes else 1.0 / n_values, out=own, where=~np.isnan(of_context))
    return _Estimates(keys, spread)


class _Slots(NamedTuple):
    """Assignment of rows to keys in a dense table, or to slots of a hash table."""

    is_dense: bool
    words: Uint64s
    shift: int
    keys: Integers  # in the order of the slots; none if dense
    n_rows: int
    place: Integers | Int32s  # (r,) of each row


def _slots(keys: Integers, n_keys: int | None) -> _Slots:
    """Assign slots to keys out of `n_keys` possible ones; None means too many for a dense table."""
    if n_keys is not None:
        return _Slots(True, np.empty(0, np.uint64), 0, np.empty(0, np.int64), n_keys, keys)
    words, shift, order = look_up_tables.build_hash_slots(keys)
    place = np.empty(order.size, np.int32)
    place[order] = np.arange(order.size, dtype=np.int32)
    return _Slots(False, words, shift, keys[order], order.size, place)


def _entry(slots: _Slots, probability: Floats, row: Integers, label: Int32s, left_out: Floats) -> _Entry:
    """Build a level's table for the kernels; with two classes, it has the log odds of the wrong class.

    `probability` (r, C) float64 is from all rows; `row` and `label` (m,) belong to each cell, and other classes
    have no rows; `left_out` (m,) float64 is the leave-one-out probability of the cell's class.
    """
    log_probability, log_left_out = (np.zeros((slots.n_rows, probability.shape[1]), np.float32) for _ in range(2))
    for first in range(0, len(probability), BLOCK_CELLS):
        block = slice(first, first + BLOCK_CELLS)
        log_probability[slots.place[block]] = np.log(probability[block])
    log_left_out[slots.place[row], label] = np.log(left_out)
    if probability.shape[1] == 2:
        log_probability = np.ascontiguousarray(log_probability[:, ::-1] - log_left_out)
        log_left_out = np.empty((0, 2), np.float32)
    return _Entry(slots.is_dense, slots.words, slots.shift, slots.keys, log_probability, log_left_out)


def _tables(
    schema: Schema,
    structure: Structure,
    n_values: Sequence[int],
    class_counts: Integers,
    of_attributes: list[list[_Entry]],
) -> kernels.LossTables:
    """Build the kernels' arrays: dense tables first, then the rows of hash tables."""
    entries = [entry for entries in of_attributes for entry in entries]
    n_levels = [len(entries) for entries in of_attributes]
    of_attributes.clear()
    dense_sizes = np.array([len(entry.log_probability) if entry.is_dense else 0 for entry in entries], np.int64)
    words = np.concatenate([np.empty(0, np.uint64), *(entry.words for entry in entries)])
    keys = np.concatenate([np.empty(0, np.int64), *(entry.keys for entry in entries)])
    low, high = look_up_tables.split_64_bit_keys(keys)
    is_dense = np.array([entry.is_dense for entry in entries], np.uint8)
    hash_starts = arrays.offsets_from_sizes([entry.words.size for entry in entries])
    hash_shifts = np.array([entry.shift for entry in entries], np.int64)
    ordered = sorted(entries, key=lambda entry: not entry.is_dense)
    logs, left_out = [entry.log_probability for entry in ordered], [entry.left_out for entry in ordered]
    del keys, entries, ordered  # so that of the rows there are only these two lists, which become shorter
    n, share = class_counts.astype(np.float64), M / class_counts.size
    none = np.empty((0, n.size), np.float32)
    tables = kernels.LossTables(
        attribute=np.array(structure.order, np.int64),
        n_values=np.array(n_values, np.int64),
        parent_starts=arrays.offsets_from_sizes([len(parents) for parents in structure.parents]),
        level_starts=arrays.offsets_from_sizes(n_levels),
        parents=np.array([p for parents in structure.parents for p in parents], np.int64),
        parent_sizes=np.array([schema.domain_sizes[p] for parents in structure.parents for p in parents], np.int64),
        is_dense=is_dense,
        row_starts=np.array(np.cumsum(dense_sizes) - dense_sizes, np.int64),
        n_dense=np.array([dense_sizes.sum()], np.int64),
        hash_starts=hash_starts,
        hash_shifts=hash_shifts,
        hash_words=words,
        hash_ranks=look_up_tables.bit_vector_word_ranks(words),
        key_low=low,
        key_high=high,
        log_probability=concatenate_arrays(logs, none),
        left_out=concatenate_arrays(left_out, none),
        log_prior=np.log((n + share) / (n.sum() - 1 + M)).astype(np.float32),
        log_prior_left_out=np.log((np.maximum(n - 1, 0) + share) / (n.sum() - 1 + M)).astype(np.float32),
    )
    freeze_arrays(*tables)
    return tables
