"""Row filters: a time window, rows that are not forgotten, a share that is not held out."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from learners.errors import EmptyData, InvalidParameter, SourceError, UnknownColumn
from learners.kernels.arrays import Mask
from learners.passes.sources.path_expansion import by_name_and_number
from learners.passes.sources.source import Condition, Fragment, Source, SourceFile, file_identity
from learners.passes.sources.source_files import split_file_identity
from learners.schema.times_and_durations import moment_text

_UNITS = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
TimeBounds = tuple[datetime.datetime | None, datetime.datetime | None, bool]
FEW_ROWS, FEW_SHARE = 100, 0.01  # in a window: fewer, far after all other rows, look like a wrong time
_FIRST_OF_NS = datetime.datetime(1677, 9, 22)  # a timestamp in nanoseconds cannot be earlier


@dataclass(frozen=True)
class Since(Condition):
    """Condition for rows after a time; rows without a time do not meet it."""

    column: str  # of timestamps or dates
    cut: datetime.datetime

    @property
    def text(self) -> str:
        """Text of the condition; with the file it identifies the rows."""
        return f"{self.column} > {self.cut.isoformat()}"

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that the condition reads."""
        return (self.column,)

    def mask(self, rows: pa.RecordBatch, file: SourceFile, fragment: Fragment, offset: int) -> Mask:
        """Return the rows that meet the condition, (n_rows,) bool."""
        del file, fragment, offset
        column = rows.column(rows.schema.names.index(self.column))
        is_after = pc.greater(column, _scalar(self.cut, column.type)).fill_null(False)
        return np.asarray(is_after.to_numpy(zero_copy_only=False), bool)

    def implies(self, text: str) -> Condition | None:
        """Return the condition with that text, if it is an earlier time of the same column."""
        start = f"{self.column} > "
        if not text.startswith(start):
            return None
        try:
            cut = datetime.datetime.fromisoformat(text[len(start) :])
        except ValueError:  # of a column whose name begins like that
            return None
        is_comparable = (cut.tzinfo is None) == (self.cut.tzinfo is None)
        return Since(self.column, cut) if is_comparable and cut <= self.cut else None


@dataclass(frozen=True)
class Excess(Condition):
    """Condition for rows that meet the first conditions but not all of the second."""

    held: tuple[Condition, ...]
    excluded: tuple[Condition, ...]

    @property
    def text(self) -> str:
        """Text of the condition."""
        return f"{_texts(self.held)} but not {_texts(self.excluded)}"

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that the condition reads."""
        return tuple(name for condition in (*self.held, *self.excluded) for name in condition.columns)

    def mask(self, rows: pa.RecordBatch, file: SourceFile, fragment: Fragment, offset: int) -> Mask:
        """Return the rows that meet the condition, (n_rows,) bool."""
        held, excluded = np.ones(rows.num_rows, bool), np.ones(rows.num_rows, bool)
        for condition in self.held:
            held &= condition.mask(rows, file, fragment, offset)
        for condition in self._others:
            excluded &= condition.mask(rows, file, fragment, offset)
        return held & ~excluded

    def held_rows(self) -> dict[int, int] | None:
        """Return at most how many rows of each row group meet the condition, without groups where none does; None if unknown."""
        most: dict[int, int] = {}
        for condition in self._others:
            if (less := condition.left_out()) is None:
                return None
            most = {group: most.get(group, 0) + less.get(group, 0) for group in most.keys() | less.keys()}
        return most

    @property
    def _others(self) -> list[Condition]:
        """Excluded conditions that rows which meet the first ones may not meet."""
        texts = {condition.text for condition in self.held}
        return [condition for condition in self.excluded if condition.text not in texts]


class Selection:
    """Selection of the files and rows to learn from.

    `raw`: all files, with all their rows.
    `conditions`: position of each file to learn from -> the conditions that its rows must fulfil.
    `source`: the rows to learn from.
    """

    def __init__(self, raw: Source, conditions: Mapping[int, Sequence[Condition]]) -> None:
        self.raw = raw
        self.wanted = {index: tuple(own) for index, own in conditions.items()}
        if not self.wanted:
            raise EmptyData("No file has rows in the window.")
        self.source = raw.restricted(self.wanted)
        self._place = {file_identity(file): index for index, file in enumerate(raw.files)}
        left = () if raw.earlier is None else raw.earlier.files
        self._left = {file_identity(file): index for index, file in enumerate(left)}
        # So that all passes of a training share rows that were read once.
        self._divided: dict[str, tuple[list[str], Source | None] | None] = {}

    def and_all(self, conditions: Sequence[Condition]) -> Selection:
        """Add conditions on the rows of all files."""
        return Selection(self.raw, {index: (*own, *conditions) for index, own in self.wanted.items()})

    def divide(self, identity: str) -> tuple[list[str], Source | None] | None:
        """Divide the rows with an identity into wanted rows and a source of the others, read once if they are few.

        Returns the identities of the wanted files that these rows contain, and a source of the unwanted rows, or
        None; or None if the rows are unknown: they belong to no file here, or may not contain the wanted rows.
        """
        if identity not in self._divided:
            self._divided[identity] = self._divide(identity)
        return self._divided[identity]

    def _divide(self, identity: str) -> tuple[list[str], Source | None] | None:
        whole, texts = split_file_identity(identity)
        files = self.raw if whole in self._place else self.raw.earlier
        index = (self._place if files is self.raw else self._left).get(whole)
        if files is None or index is None or texts is None:
            return None
        if self.raw.weight is not None and self.raw.weight.text not in texts:  # plain rows do not contain weighted ones
            return None
        conditions = self.wanted.get(index) if files is self.raw else None
        # Of a whole file that has left it can be told what it was restricted to if that was a window.
        others = [condition for own in self.wanted.values() for condition in own] if conditions is None else conditions
        held = tuple(condition for text in texts if (condition := _condition_of(text, others)) is not None)
        if len(held) < len(texts):
            return None
        if conditions is None:
            return [], files.restricted({index: held})
        excess = Excess(held, conditions)
        rest = self.raw.restricted({index: [excess]})
        most = excess.held_rows()
        return [file_identity(self.source.files[index])], rest if most is None else rest.of_few_rows({index: most})

    def rewritten(self, files: frozenset[str]) -> frozenset[str]:
        """Replace file identities by those of the files that now hold the same rows, in a lake table."""
        for old, new in self.raw.rewrites:
            if old <= files:
                files = (files - old) | new
        return files


def _condition_of(text: str, conditions: Sequence[Condition]) -> Condition | None:
    """Return the condition with that text if the given conditions imply it."""
    for condition in conditions:
        implied = condition if condition.text == text else condition.implies(text)
        if implied is not None:
            return implied
    return None


# Position of a file -> the conditions of its rows that count where the newest row is looked for; the others are forgotten.
Counting = Callable[[int], Sequence[Condition]]


def _all_rows(index: int) -> Sequence[Condition]:
    del index
    return ()


def select_newest_rows(source: Source, length: str, timestamp: str | None, counting: Counting = _all_rows) -> Selection:
    """Select the newest rows.

    `length`: "30d" (also w, h, m): rows whose time is less than that before the newest row's; without a time column, files
    that changed less than that before the newest file. "12f": the last 12 files by name, and the numbers in names by size.
    `timestamp`: the column of times.
    `counting`: the conditions of the rows that may be the newest; the selected rows need not meet them.
    Raises InvalidParameter, UnknownColumn, SourceError or EmptyData.
    """
    size, unit = _size_and_unit(length)
    if unit == "f" and source.snapshot is not None:
        raise InvalidParameter(
            "window", length, because="files of a lake table have no order by name; give a time such as 30d"
        )
    if unit == "f":
        by_name = sorted(range(len(source.files)), key=lambda index: by_name_and_number(source.files[index].path))
        return Selection(source, dict.fromkeys(sorted(by_name[-size:]), ()))
    seconds = size * _UNITS[unit]
    if timestamp is None:
        changed = [file.mtime_ns for file in source.files]
        if any(moment is None for moment in changed):
            raise InvalidParameter(
                "window", length, because="these files have no modification time; name a timestamp column instead"
            )
        newest = max(int(moment or 0) for moment in changed)
        first = newest - seconds * 1_000_000_000
        return Selection(source, {i: () for i, moment in enumerate(changed) if int(moment or 0) > first})
    bounds, (_, latest_of_all) = _bounds_and_newest(source, timestamp, counting)
    since = Since(timestamp, _before(latest_of_all, seconds))
    conditions: dict[int, tuple[Condition, ...]] = {}
    for index, (earliest, latest, has_null) in enumerate(bounds):
        if latest is not None and latest > since.cut:
            is_whole = earliest is not None and earliest > since.cut and not has_null
            conditions[index] = () if is_whole else (since,)
    return Selection(source, conditions)


def _size_and_unit(length: str) -> tuple[int, str]:
    match = re.fullmatch(r"([1-9]\d{0,8})([mhdwf])", length)
    if match is None:
        raise InvalidParameter("window", length, "a number and a unit: m, h, d, w for time, f for files; such as 30d")
    return int(match[1]), match[2]


def newest_time(source: Source, column: str, counting: Counting = _all_rows) -> datetime.datetime:
    """Return the newest time of a row that counts. Raises as `select_newest_rows` does."""
    return _bounds_and_newest(source, column, counting)[1][1]


def _bounds_and_newest(
    source: Source, column: str, counting: Counting
) -> tuple[list[TimeBounds], tuple[str, datetime.datetime]]:
    """Return the time bounds of each file, and the newest time of a row that counts with the path of its file."""
    bounds = [file_time_bounds(source, index, column) for index in range(len(source.files))]
    moments = {source.files[i].path: latest for i, (_, latest, _) in enumerate(bounds) if latest is not None}
    if not moments:
        raise SourceError(source.files[0].path, f"column {column!r} contains no timestamps in any file.")
    _require_one_kind(moments, column)
    newest: tuple[str, datetime.datetime] | None = None
    for latest, index in sorted(
        ((latest, -index) for index, (_, latest, _) in enumerate(bounds) if latest is not None), reverse=True
    ):
        if newest is not None and newest[1] >= latest:
            break
        conditions, path = counting(-index), source.files[-index].path
        own = _bounds_of_rows(source.restricted({-index: conditions}), path, column)[1] if conditions else latest
        if own is not None and (newest is None or own > newest[1]):
            newest = path, own
    if newest is None:
        raise EmptyData(f"Every row with a time in column {column!r} is forgotten.")
    return bounds, newest


def lone_window_warnings(source: Source, length: str, timestamp: str, counting: Counting = _all_rows) -> list[str]:
    """Warn if a time window keeps few rows that lie far after all others, as a single wrong time would cause.

    Few means fewer than `FEW_ROWS` or `FEW_SHARE` of the rows; far means further than the window's length. Reads
    the times of files that overlap the window. Raises as `select_newest_rows` does.
    """
    size, unit = _size_and_unit(length)
    if unit == "f":
        return []
    bounds, (path, newest) = _bounds_and_newest(source, timestamp, counting)
    cut = _before(newest, size * _UNITS[unit])
    n_kept, first, last_before = 0, newest, None
    for index, (_, latest, _) in enumerate(bounds):
        if latest is None or latest <= cut:
            last_before = max(filter(None, (last_before, latest)), default=None)
            continue
        for fragment in source.only({index}).fragments:
            for batch in source.read(fragment, [timestamp]):
                times = batch.column(0).drop_null()
                is_after = pc.greater(times, _scalar(cut, times.type))
                after, before = (
                    _span(path, timestamp, ends["min"], ends["max"])
                    for ends in (pc.min_max(times.filter(is_after)), pc.min_max(times.filter(pc.invert(is_after))))
                )
                n_kept += is_after.true_count
                first = min(filter(None, (first, after[0])))
                last_before = max(filter(None, (last_before, before[1])), default=None)
    n_rows = sum(file.n_rows for file in source.files)
    is_far = last_before is not None and last_before <= _before(first, size * _UNITS[unit])
    if last_before is None or not is_far or n_kept >= max(FEW_ROWS, FEW_SHARE * n_rows):
        return []
    return [
        f"The window {length} keeps {n_kept:,} of {n_rows:,} rows: the newest time in {timestamp!r} is {moment_text(newest)} (in "
        f"{path}), the newest one before the window {moment_text(last_before)}. If the newest time is wrong, correct it or "
        "remove its rows from the data."
    ]


def file_time_bounds(source: Source, index: int, column: str) -> TimeBounds:
    """Return the earliest and latest time in a file and whether any row has none, from its footer or by reading.

    Times are rounded to microseconds, the earliest down and the latest up.

    Raises UnknownColumn; SourceError if the column does not hold timestamps or dates, or one of a year that Python does
    not know.
    """
    if column not in source.arrow_schema.names:
        raise UnknownColumn(column, source.arrow_schema.names)
    file = source.files[index]
    path, kind = file.path, file.arrow_schema.field(column).type
    if pa.types.is_null(kind):
        return None, None, True
    if not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
        raise SourceError(path, f"column {column!r} holds {kind}, not timestamps or dates.")
    from_footer = file.content.bounds(column)
    if from_footer is not None:
        low, high, n_null = from_footer
        return (*_span(path, column, low, high), n_null > 0)
    return _bounds_of_rows(source.only({index}), path, column)


def _bounds_of_rows(source: Source, path: str, column: str) -> TimeBounds:
    """Return the earliest and latest time of the rows of a file, and whether any has none, by reading them."""
    lows, highs, has_null = [], [], False
    for batch in source.batches([column]):
        least_and_greatest = pc.min_max(batch.column(0))
        has_null |= batch.column(0).null_count > 0
        earliest, latest = _span(path, column, least_and_greatest["min"], least_and_greatest["max"])
        if earliest is not None and latest is not None:
            lows.append(earliest)
            highs.append(latest)
    return (min(lows), max(highs), has_null) if lows else (None, None, has_null)


def _span(
    path: str, column: str, low: pa.Scalar, high: pa.Scalar
) -> tuple[datetime.datetime | None, datetime.datetime | None]:
    if not low.is_valid:
        return None, None
    try:
        return _counted(low), _counted(high, is_last=True)
    except OverflowError as error:
        beyond = f"column {column!r} holds a time beyond the years 1 to 9999. Correct it."
        raise SourceError(path, beyond) from error


def _counted(scalar: pa.Scalar, *, is_last: bool = False) -> datetime.datetime:
    """Convert a timestamp or date from its integer, rounding nanoseconds, which Python lacks."""
    kind, ticks = scalar.type, int(scalar.value)
    if pa.types.is_date(kind):
        days = ticks if pa.types.is_date32(kind) else ticks // 86_400_000
        return datetime.datetime(1970, 1, 1) + datetime.timedelta(days=days)
    per_second = _TICKS[kind.unit]
    microseconds = -(-ticks * 10**6 // per_second) if is_last else ticks * 10**6 // per_second
    zone = None if kind.tz is None else datetime.UTC
    return datetime.datetime(1970, 1, 1, tzinfo=zone) + datetime.timedelta(microseconds=microseconds)


def _require_one_kind(moments: Mapping[str, datetime.datetime], column: str) -> None:
    """Refuse a mix of times with and without a zone, which cannot be compared."""
    zoned = [path for path, moment in moments.items() if moment.tzinfo is not None]
    if zoned and len(zoned) < len(moments):
        other = next(path for path in moments if path not in zoned)
        raise SourceError(
            other, f"column {column!r} has no time zone here but one in {zoned[0]}. Make the types agree."
        )


def _before(newest: datetime.datetime, seconds: int) -> datetime.datetime:
    """Return the time this many seconds earlier, or the earliest time that Python represents."""
    try:
        return newest - datetime.timedelta(seconds=seconds)
    except OverflowError:
        return datetime.datetime.min.replace(tzinfo=newest.tzinfo)


def _scalar(moment: datetime.datetime, kind: pa.DataType) -> pa.Scalar:
    if pa.types.is_date(kind):
        # A date stands for its first moment: it is after the cut if the next date begins after it.
        return pa.scalar(moment.date(), kind)
    if kind.unit == "ns":
        moment = max(moment, _FIRST_OF_NS.replace(tzinfo=moment.tzinfo))
    return pa.scalar(moment, kind)


def _texts(conditions: Sequence[Condition]) -> str:
    return json.dumps([condition.text for condition in conditions])
