"""Encode batches; the plan for each Arrow schema is computed once and cached."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from learners.errors import InvalidBuffers, SourceError
from learners.kernels.arrays import Codes, Floats, Integers, Mask
from learners.schema.encoding import column_code_kernels as kernels
from learners.schema.hash_kernels import BEGIN, LENGTH, Words, fill_text_hash_table
from learners.schema.schema import Attribute
from learners.schema.times_and_durations import time_kind_and_ticks

MAX_PLANS = 8  # Arrow schemas remembered; a training has one, a served model as many as its clients
NUMBERS = {
    pa.int8(): kernels.INT8,
    pa.int16(): kernels.INT16,
    pa.int32(): kernels.INT32,
    pa.int64(): kernels.INT64,
    pa.uint8(): kernels.UINT8,
    pa.uint16(): kernels.UINT16,
    pa.uint32(): kernels.UINT32,
    pa.uint64(): kernels.UINT64,
    pa.float32(): kernels.FLOAT32,
    pa.float64(): kernels.FLOAT64,
}
TIMES = {pa.date32(): kernels.DAYS, pa.timestamp("us"): kernels.MICROSECONDS}  # others by pyarrow, slower
TEXT = {pa.string(): kernels.TEXT32, pa.large_string(): kernels.TEXT64}
BYTES = (pa.uint8(), pa.int8())
MAX_ROOMY_SLOTS = 1024  # of a table of words

_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


class BatchPlan(NamedTuple):
    """Plan for encoding batches of one Arrow schema."""

    arrow_schema: pa.Schema
    columns: kernels.Plan  # for the kernel
    byte_tables: Codes  # (., 256) codes
    largest: Codes  # (.,) int64
    # List of (attribute, column): for whoever makes codes of columns that the kernel does not read.
    slow: list[tuple[int, int]]
    absent: list[int]  # attributes without a column
    others: list[int]  # columns without an attribute


class BatchEncoder:
    """Encoder of attributes, batch by batch; threads may share one.

    `dtype`: of the codes.
    `slowly`: `slowly(i, column, codes)` writes the codes of a column of any type, or raises SchemaError.
    `byte_table`: `byte_table(i, type)` gives the code of each byte, and the largest code if each value is its own code,
    else -1.
    """

    def __init__(
        self,
        attributes: Sequence[Attribute],
        dtype: type[np.uint8] | type[np.uint16],
        slowly: Callable[[int, pa.Array, Codes], None],
        byte_table: Callable[[int, pa.DataType], tuple[Codes, int]],
    ) -> None:
        self.attributes, self.dtype = tuple(attributes), dtype
        self.slowly, self.byte_table = slowly, byte_table
        self.place = {attribute.name: i for i, attribute in enumerate(attributes)}
        of_text = [i for i, attribute in enumerate(attributes) if is_text_attribute(attribute)]
        tables = [text_hash_table([str(v) for v in attributes[i].values], attributes[i].first_code) for i in of_text]
        self.words, first_slots, masks = concatenate_text_tables(tables)
        self.tables = dict(zip(of_text, zip(first_slots.tolist(), masks.tolist(), strict=False), strict=False))
        self.of_marks = frozenset(i for i in of_text if attributes[i].reading is not None)
        self.cuts = np.concatenate([np.empty(0), *(np.array(attribute.cuts, np.float64) for attribute in attributes)])
        sizes = [len(attribute.cuts) for attribute in attributes]
        self.cut_starts = [int(end) - size for end, size in zip(np.cumsum(sizes), sizes, strict=True)]
        self.plans: list[BatchPlan] = []

    def codes(self, batch: pa.RecordBatch, is_trusted: bool = True) -> Codes:
        """Return the codes (n_attributes, n_rows) of a batch; absent columns get the unseen code. See `codes_and_most`."""
        return self.codes_and_most(batch, is_trusted)[0]

    def codes_and_most(self, batch: pa.RecordBatch, is_trusted: bool = True) -> tuple[Codes, Integers]:
        """Return the codes (n_attributes, n_rows) of a batch, and each attribute's largest code (n_attributes,) int64.

        `is_trusted`: if false, the batch is checked as `batch.validate(full=True)` does. Dictionary indices are
        always checked, because Parquet pages may be damaged. Raises SchemaError if the type of a column does not fit;
        InvalidBuffers if a buffer is invalid.
        """
        plan = self.plan_of(batch.schema)
        if not is_trusted:
            check_arrow_buffers(batch, full=False)
            for place in plan.others:
                check_batch_column(batch, place)
        x: Codes = np.empty((len(self.attributes), batch.num_rows), self.dtype)
        most = np.zeros(len(self.attributes), np.int64)
        for i in plan.absent:
            x[i] = most[i] = self.attributes[i].n_values
        for i, place in plan.slow:
            column = column_with_sound_indices(batch, place)
            if not is_trusted:
                check_batch_column(batch, place)
            self.slowly(i, column, x[i])
            most[i] = x[i].max(initial=0)
        if plan.columns.children.size and batch.num_rows:
            found, largest = (
                np.zeros(plan.columns.children.size, np.uint8),
                np.zeros(plan.columns.children.size, np.int64),
            )
            lent = batch.__arrow_c_array__()  # given back when the capsules are forgotten
            address = np.uint64(_pointer(lent[1], b"arrow_array"))
            tables = (plan.byte_tables, plan.largest)
            kernels.batch_codes(address, plan.columns, self.words, tables, self.cuts, x, found, largest)
            del lent
            for j, i in enumerate(plan.columns.rows.tolist() if self.of_marks else ()):
                if i in self.of_marks and largest[j] == self.attributes[i].unseen_code:
                    found[j] = kernels.STRANGE  # an unknown text, perhaps one that stands for a missing value
            if found.any():
                self._look_closer(batch, plan, found, x, is_trusted)
                largest = x[plan.columns.rows].max(axis=1)
            most[plan.columns.rows] = largest
        return x, most

    def tails(self, batch: pa.RecordBatch) -> tuple[Integers, Mask]:
        """Count the numbers of an encoded batch below the training minimum, above the maximum, and in the outermost
        quantiles, (n_attributes, 4) int64; also returns for which attributes this is known, (n_attributes,) bool.
        """
        columns = self.plan_of(batch.schema).columns
        counts = np.zeros((len(self.attributes), 4), np.int64)
        is_read = np.zeros(len(self.attributes), bool)
        is_read[columns.rows[columns.kinds < kernels.TEXT32]] = True
        if is_read.any() and batch.num_rows:
            lent = batch.__arrow_c_array__()
            kernels.numeric_tail_counts(np.uint64(_pointer(lent[1], b"arrow_array")), columns, self._edges, counts)
            del lent
        return counts, is_read & ~np.isnan(self._edges[:, 0])

    @cached_property
    def _edges(self) -> Floats:
        nothing = (np.nan,) * 4
        return np.array([one.edges or nothing for one in self.attributes], np.float64).reshape(-1, 4)

    def _look_closer(self, batch: pa.RecordBatch, plan: BatchPlan, found: Codes, x: Codes, is_trusted: bool) -> None:
        for j in np.flatnonzero(found).tolist():
            place = int(plan.columns.children[j])
            if found[j] == kernels.STRANGE or not is_trusted:
                check_batch_column(batch, place)
            if found[j] == kernels.STRANGE:  # and valid all the same
                i = int(plan.columns.rows[j])
                self.slowly(i, batch.column(place), x[i])

    def plan_of(self, arrow_schema: pa.Schema) -> BatchPlan:
        """Return the plan for an Arrow schema, cached."""
        for plan in self.plans:
            if plan.arrow_schema.equals(arrow_schema):
                return plan
        plan = self._new_plan(arrow_schema)
        self.plans = [plan, *self.plans[: MAX_PLANS - 1]]  # another thread may do the same: either list is good
        return plan

    def _new_plan(self, arrow_schema: pa.Schema) -> BatchPlan:
        try:
            place_of = {name: place for place, name in enumerate(arrow_schema.names)}
        except UnicodeDecodeError as error:
            raise InvalidBuffers(f"The name of a column is not UTF-8: {error}") from error
        types = arrow_schema.types  # which are made anew each time they are asked for
        columns, slow, absent = [], [], []
        tables: list[Codes] = []
        largest: list[int] = []
        for i, attribute in enumerate(self.attributes):
            if attribute.name not in place_of:
                absent.append(i)
                continue
            place = place_of[attribute.name]
            kind, indices = self._kinds(i, types[place])
            if kind == kernels.NOTHING:
                slow.append((i, place))
                continue
            start, size = self.tables.get(i, (self.cut_starts[i], len(attribute.cuts)))
            if kind in (kernels.BYTES, kernels.BITS):
                start = len(tables)
                lut, limit = self.byte_table(i, types[place])
                tables.append(lut)
                largest.append(limit)
            codes = (attribute.missing_code, attribute.unseen_code, attribute.first_code)
            columns.append((place, i, kind, indices, *codes, start, size))
        luts: Codes = np.array(tables).reshape(len(tables), 256).astype(self.dtype)
        table = np.array(columns, np.int64).reshape(len(columns), len(kernels.Plan._fields))
        used = {column[0] for column in columns} | {place for _, place in slow}
        return BatchPlan(
            arrow_schema,
            kernels.Plan(*np.ascontiguousarray(table.T)),
            luts,
            np.array(largest, np.int64),
            slow,
            absent,
            [place for place in range(len(arrow_schema)) if place not in used],
        )

    def _kinds(self, i: int, arrow_type: pa.DataType) -> tuple[int, int]:
        """Return the kernel's kinds of a column's values and indices; NOTHING if it does not support them."""
        attribute, nothing = self.attributes[i], kernels.NOTHING
        if attribute.part is not None:
            return nothing, nothing
        if attribute.kind == "numeric":
            kind = TIMES.get(arrow_type, nothing) if attribute.is_time else NUMBERS.get(arrow_type, nothing)
            return kind, nothing
        if i not in self.tables:
            if arrow_type == pa.bool_():
                return kernels.BITS, nothing
            return kernels.BYTES if arrow_type in BYTES else nothing, nothing
        if pa.types.is_dictionary(arrow_type):
            return TEXT.get(arrow_type.value_type, nothing), NUMBERS[arrow_type.index_type]
        return TEXT.get(arrow_type, nothing), nothing


class IndexCheck:
    """Checks dictionary indices for validity, batch by batch; threads may share one."""

    def __init__(self) -> None:
        self._indexed: tuple[pa.Schema, Integers, Integers] | None = None

    def require_sound(self, batch: pa.RecordBatch, path: str) -> None:
        """Refuse a batch with dictionary indices out of range. Raises SourceError naming the path."""
        place = self.unsound_column(batch)
        if place >= 0:
            raise SourceError(
                path, f"column {batch.schema.names[place]!r} is damaged. Restore the file from its source."
            )

    def unsound_column(self, batch: pa.RecordBatch) -> int:
        """Return the position of the first column with a dictionary index out of range; -1 without one."""
        _, places, kinds = self._of(batch.schema)
        if not places.size:
            return -1
        lent = batch.__arrow_c_array__()
        return int(kernels.first_invalid_dictionary_column(np.uint64(_pointer(lent[1], b"arrow_array")), places, kinds))

    def _of(self, arrow_schema: pa.Schema) -> tuple[pa.Schema, Integers, Integers]:
        """Return the dictionary columns and the kinds of their indices, cached because the batches of a file share a
        schema.
        """
        known = self._indexed
        if known is None or not known[0].equals(arrow_schema):
            # pa.types.is_dictionary would take as long as looking at the indices.
            indexed = [(at, kind) for at, kind in enumerate(arrow_schema.types) if kind.id == pa.lib.Type_DICTIONARY]
            kinds = np.array([NUMBERS[kind.index_type] for _, kind in indexed], np.int64)
            known = self._indexed = arrow_schema, np.array([at for at, _ in indexed], np.int64), kinds
        return known


def check_arrow_buffers(values: pa.RecordBatch | pa.Array, full: bool = True) -> None:
    """Validate the lengths of a batch or column or, with `full`, every value. Raises InvalidBuffers."""
    try:
        values.validate(full=full)
    except pa.ArrowInvalid as error:
        raise InvalidBuffers(str(error)) from error


def check_batch_column(batch: pa.RecordBatch, place: int) -> None:
    """Validate every value of a column. Raises InvalidBuffers naming the column."""
    try:
        check_arrow_buffers(batch.column(place))
    except InvalidBuffers as error:
        raise InvalidBuffers(f"Column {batch.schema.names[place]!r}: {error}") from error


def column_with_sound_indices(batch: pa.RecordBatch, place: int) -> pa.Array:
    """Return a column after validating its dictionary indices, if any. Raises InvalidBuffers."""
    column = batch.column(place)
    if isinstance(column, pa.DictionaryArray):
        check_batch_column(batch, place)
    return column


def is_text_attribute(attribute: Attribute) -> bool:
    """Return whether an attribute's values are text other than times, which have several spellings."""
    is_text = attribute.kind == "nominal" and bool(attribute.values) and isinstance(attribute.values[0], str)
    return is_text and time_kind_and_ticks(attribute.arrow_type) is None


def text_hash_table(values: Sequence[str], first_code: int) -> Words:
    """Build the hash table of distinct texts with ascending codes from `first_code`; the number of slots is a power of
    two.
    """
    encoded = [value.encode() for value in values]
    text = np.frombuffer(b"".join(encoded) or b"\0", np.uint8)
    starts = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    n_slots = 1 << max(3, (2 * len(values)).bit_length())
    # A second probe is a branch that nobody can foretell, so a small table grows until there is none.
    most = max(n_slots, min(MAX_ROOMY_SLOTS, 16 * n_slots))
    while True:
        slots = np.zeros((n_slots, 4), np.int64)
        slots[:, LENGTH] = -1
        words = Words(slots, np.zeros(sum(len(word) // 8 for word in encoded) + 1, np.int64))
        n_displaced = fill_text_hash_table(np.uint64(text.ctypes.data), starts, first_code, n_slots - 1, words)
        if not n_displaced or n_slots >= most:
            return words
        n_slots *= 2


def concatenate_text_tables(tables: Sequence[Words]) -> tuple[Words, Integers, Integers]:
    """Concatenate several tables; returns also the first slot and the mask of each."""
    if not tables:
        tables = [text_hash_table([], 0)]
    n_slots = np.array([len(table.slots) for table in tables], np.int64)
    shifts = np.cumsum([0, *(table.more.size for table in tables)])
    slots = np.concatenate([table.slots for table in tables])
    slots[:, BEGIN] += np.repeat(shifts[:-1], n_slots)
    return Words(slots, np.concatenate([table.more for table in tables])), np.cumsum(n_slots) - n_slots, n_slots - 1
