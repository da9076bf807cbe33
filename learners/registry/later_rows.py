"""Columns such as dates and running numbers whose values only grow: test whether later rows are predicted better
without them.

A time column splits drawn rows into older and newest ones. Fast networks are trained on the older rows with
and without each column whose values are new in the newest rows, and the newest rows decide. The decision
applies to every classifier.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from learners.classifiers import recipes as classifiers
from learners.classifiers.baselines import recipes as baselines
from learners.classifiers.baselines.boosted import XGBoostParameters
from learners.counts.row_samples import DrawnRows
from learners.errors import InvalidParameter
from learners.kernels.arrays import Codes, Floats, Integers, Mask
from learners.models.model import Model
from learners.models.parameters import Parameters
from learners.passes.column_summaries import ColumnSummaries, CutPoints, quantile_binned_schema
from learners.passes.engine import Advance
from learners.passes.learner import Learner, Passes, Rows, RowWork, Work, drive
from learners.passes.sources.source import Source
from learners.passes.sources.source_files import BATCH_ROWS
from learners.schema import Attribute, Chunk, Schema
from learners.schema.encoding.encode import encode
from learners.schema.overrides import ColumnOverride, Overrides
from learners.schema.schema import LeftOut
from learners.schema.time_parts import CYCLES, YEAR, TimePart
from learners.schema.times_and_durations import is_date_or_timestamp

HOLDOUT_BY = ("auto", "time", "order", "random")
GOES_ON = "it only goes on, and later rows are predicted better without it (holdout_by=random keeps it)"
DRAWN, CELLS = 30_000, 2_000_000  # distinct rows that decide, and at most so many values of them
BINS = 250  # of a numeric column: they order the rows by time
# Windows of rows by time, each predicted from all rows before it: one alone would tell what the last weeks were like.
WINDOWS, WINDOW = (0.3, 0.37, 0.44, 0.51, 0.58, 0.65, 0.72, 0.79), 0.2
FEWEST = 200  # rows of a window: fewer decide nothing
# A code is new where a window has it so many times as often as the rows before; a column goes on, where so many rows have one.
TIMES_AS_OFTEN, SHARE_OF_NEW = 10.0, 0.2
MOST_LOOKED_AT, MOST_IN_PARTS = 6, 2
FINE: TimePart = "time of day"
DRAWN_PARTS: tuple[TimePart, ...] = ("hour of the week", FINE, "month")  # hour and weekday follow from the first
YEARS = 2  # of a column whose months are looked at
# Gains that decide, as shares of the log loss: of leaving a column out or taking a part of it, and of a column that stays.
GAIN, WORTH = 0.003, 0.01
DEVIATIONS = 3.0  # standard errors of a gain
LEAST = 1e-9
NOTHING: Overrides = {}
INNER = "\0"  # begins names that no column of a table has
TARGET = f"{INNER}class"
Judges = tuple[tuple[str, Callable[..., Passes[Model]], Parameters], ...]
NETWORKS: Judges = (
    ("nb", classifiers.naive_bayes, classifiers.NetworkParameters()),
    ("kdb", classifiers.kdb, classifiers.KDBParameters(k=1)),
)
TREES: Judges = (("xgboost", baselines.xgboost, XGBoostParameters(rounds=40, learning_rate=0.2)),)
TREE_WINDOWS = WINDOWS[-3:]  # trees take longer than networks, and need the rows of the later windows
FINE_ROWS = 10_000  # drawn rows from which a time of day is tried


class OrderedRows(DrawnRows):
    """Rows that decide which columns to use; their pass is not announced in advance."""

    stage = "drawing older and later rows"
    is_announced = False

    @property
    def spec(self) -> dict[str, object]:
        """Specification of the statistic."""
        return super().spec | {"statistic": "older and later rows"}


# The part by which a column enters; None for a column that is left out.
Choice = Mapping[str, TimePart | None]


class FewerSummaries(ColumnSummaries):
    """Summaries of the same rows whose schema leaves out further columns, and reduces others to a part of their
    times.
    """

    gone: Sequence[str] = ()

    @classmethod
    def of(cls, summaries: ColumnSummaries, choice: Choice) -> FewerSummaries:
        """Return the columns by a choice."""
        fewer = object.__new__(cls)
        gone = tuple(name for name, part in choice.items() if part is None)
        found = {name: column for name, column in summaries.found.items() if name not in gone}
        parts = {name: ColumnOverride(part=part) for name, part in choice.items() if part is not None}
        overrides = {**summaries.overrides, **parts}
        fewer.__dict__.update(vars(summaries) | {"found": found, "gone": gone, "overrides": overrides})
        return fewer

    def build_schema(self, cut_points: CutPoints | None = None, *, by_name: bool = True) -> Schema:
        """Build the schema, recording the reason for the omitted columns."""
        schema = super().build_schema(cut_points, by_name=by_name)
        return replace(
            schema, left_out=(*schema.left_out, *(LeftOut(name, GOES_ON, goes_on=True) for name in self.gone))
        )


@dataclass(frozen=True)
class Timed:
    """Drawn rows as a table of codes, classes last, and the share of rows up to each row's time, (n_rows,) float64."""

    rows: pa.Table
    until: Floats
    parts: Mapping[str, Mapping[TimePart, str]] = field(default_factory=dict)  # columns that hold the parts of others

    def window(self, first: float) -> tuple[pa.Table, pa.Table]:
        """Return the rows within the first share of time, and those of the window after it."""
        is_older = self.until <= first
        return self.rows.filter(pa.array(is_older)), self.rows.filter(
            pa.array(~is_older & (self.until <= first + WINDOW))
        )


def time_columns(summaries: ColumnSummaries) -> list[str]:
    """Return date and timestamp columns with several values and no override, those with the most values first."""
    found = {
        name: column.histogram.keys.size
        for name, column in summaries.found.items()
        if column.kind == "numeric" and is_date_or_timestamp(column.arrow_type) and not _is_said(summaries, name)
    }
    return sorted((name for name, size in found.items() if size > 1), key=lambda name: (-found[name], name))


def _is_said(summaries: ColumnSummaries, name: str) -> bool:
    return replace(summaries.overrides.get(name, ColumnOverride()), reading=None) != ColumnOverride()


def passes_for_later_rows(passes: Passes[Model], holdout_by: str) -> Passes[Model]:
    """Return the passes of a learner without the columns that harm it on later rows, or with a part of them.

    A column of times costs one pass and some work. A schema that is given or kept costs nothing, because it records which
    columns were left out.

    `holdout_by`: "auto" or "time": later rows are those of later times; "time" wants a column of times. "order": those that come
    later. Raises InvalidParameter.
    """
    request = next(passes)
    summaries = yield request
    if isinstance(request, ColumnSummaries) and request.kept is None and len(summaries.classes) > 1:
        times = time_columns(summaries)
        if holdout_by == "time" and not times:
            raise InvalidParameter(
                "holdout_by",
                "time",
                because="the model learns from no column of dates or timestamps; use order or random",
            )
        if times or holdout_by == "order":
            schema = _with_parts(quantile_binned_schema(summaries, BINS), times)
            n_drawn = int(np.clip(CELLS // (schema.n_attributes + 1), 1_000, DRAWN))
            if holdout_by == "order":
                draw = partial(rows_in_order, n_drawn, summaries.n_rows)
                timed: Timed = yield RowWork(OrderedRows.stage, schema, draw, is_announced=False)
            else:
                timed = rows_by_time((yield OrderedRows(schema, n_drawn)), times[0])
            choice = yield Work("comparing later rows", partial(choice_by_later_rows, timed))
            summaries = FewerSummaries.of(summaries, choice) if choice else summaries
    return (yield from _continued(passes, summaries))


def passes_with_kept_choice(passes: Passes[Model], kept: Schema) -> Passes[Model]:
    """Return the passes of a learner that refreshes, by the choice of its last training."""
    # Schemas from before `goes_on` was stored have the words alone.
    gone = [one.name for one in kept.left_out if one.goes_on or one.reason == GOES_ON]
    choice: dict[str, TimePart | None] = dict.fromkeys(gone)
    choice |= {own.name: own.part for own in kept.attributes if own.part is not None}
    request = next(passes)
    summaries = yield request
    if isinstance(summaries, ColumnSummaries) and choice:
        summaries = FewerSummaries.of(summaries, choice)
    return (yield from _continued(passes, summaries))


def _continued(passes: Passes[Model], answer: object) -> Passes[Model]:
    """Continue passes after the first request was answered."""
    while True:
        try:
            request = passes.send(answer)
        except StopIteration as stop:
            model: Model = stop.value
            return model
        answer = yield request


def _with_parts(schema: Schema, times: Sequence[str]) -> Schema:
    """Return the schema with columns of times repeated, once for each part in `DRAWN_PARTS`."""
    own = {attribute.name: attribute for attribute in schema.attributes if attribute.name in times}
    more = [
        Attribute(name, "numeric", (), CYCLES[part].cuts, one.has_missing, one.arrow_type, part=part)
        for name, one in ((name, own[name]) for name in times if name in own)
        for part in DRAWN_PARTS
        if part != "month" or one.edges[-1] - one.edges[0] >= YEARS * YEAR
    ]
    return replace(schema, attributes=(*schema.attributes, *more[: MOST_IN_PARTS * len(DRAWN_PARTS)]))


def choice_by_later_rows(timed: Timed, threads: int, advance: Advance) -> dict[str, TimePart | None]:
    """Choose how columns enter: as cheap networks of older rows predict later rows best, in successive windows.

    It first leaves out all growing columns. It then restores each one, unchanged or as one of its parts, if that
    lowers the loss enough. Returns the columns that do not enter as they are; empty if that is not better than all
    columns unchanged. `_by_time_of_day` looks at these once more.
    """
    new = columns_that_go_on(timed)
    if not new:
        return {}
    parts = {
        name: {part: column for part, column in timed.parts[name].items() if part != FINE}
        for name in new
        if name in timed.parts
    }
    unused = {column for of_one in timed.parts.values() for column in of_one.values()}
    n_done, n_total = 0, len(WINDOWS) * (2 + len(new) + sum(map(len, parts.values())))

    def losses_without(left_out: Collection[str]) -> Floats:
        nonlocal n_done
        found = []
        for first in WINDOWS:
            found.append(_losses(*timed.window(first), left_out, threads))
            n_done += 1
            advance(n_done, n_total)
        return np.concatenate(found)

    as_they_are, gone = losses_without(unused), unused.union(new)
    losses = losses_without(gone)
    harm = _is_better(losses, as_they_are, GAIN)
    if not parts and not harm:
        return {}
    choice: dict[str, TimePart | None] = dict.fromkeys(new)
    for name in new:
        best: tuple[str, TimePart | None, Floats] | None = None
        ways: list[tuple[str, TimePart | None]] = [(name, None)] if harm else []
        ways += [(column, part) for part, column in parts.get(name, {}).items()]
        for column, part in ways:
            found = losses_without(gone - {column})
            if _is_better(found, losses, GAIN if part else WORTH) and (best is None or found.mean() < best[2].mean()):
                best = column, part, found
        if best is not None:
            column, choice[name], losses = best
            gone = gone - {column}
    if not _is_better(losses, as_they_are, GAIN):
        return {}
    choice = {name: part for name, part in choice.items() if name in gone}
    return choice | _by_time_of_day(timed, choice, gone)


def _by_time_of_day(timed: Timed, choice: Choice, gone: Collection[str]) -> dict[str, TimePart]:
    """Return the columns of a choice that enter by their time of day instead; `gone`: columns that do not enter by it.

    Small trees decide. In place of nothing any gain counts, as most of what a time of day tells together with other
    columns shows in more rows than are drawn: 500,000 flights predicted later ones with a log loss of .423 by it and of
    .454 without, .0005 of which showed in the drawn rows. A time of day of random minutes cost .3 %.
    """

    def losses_without(left_out: Collection[str]) -> Floats:
        return np.concatenate([_losses(*timed.window(first), left_out, 1, judges=TREES) for first in TREE_WINDOWS])

    tried = [name for name in choice if FINE in timed.parts.get(name, {})]
    if not tried or len(timed.rows) < FINE_ROWS:
        return {}
    as_numbers = {
        column: timed.rows[column].cast(pa.int64()) for name in tried for column in timed.parts[name].values()
    }
    timed = replace(
        timed, rows=pa.table({name: as_numbers.get(name, timed.rows[name]) for name in timed.rows.column_names})
    )
    left_out, found = set(gone), dict[str, TimePart]()
    losses = losses_without(left_out)
    for name in tried:
        part, columns = choice[name], timed.parts[name]
        instead = left_out - {columns[FINE]} | ({columns[part]} if part else set())
        new = losses_without(instead)
        if _is_better(new, losses, GAIN) if part else new.mean() < losses.mean():
            left_out, losses, found[name] = instead, new, FINE
    return found


def _is_better(new: Floats, old: Floats, share: float) -> bool:
    """Return whether new log losses are lower by more than chance and by more than a share of the old ones."""
    gains = old - new
    error = gains.std() / np.sqrt(gains.size)
    return bool(gains.mean() > max(share * old.mean(), DEVIATIONS * error))


def _losses(
    older: pa.Table,
    newer: pa.Table,
    left_out: Collection[str],
    threads: int,
    overrides: Overrides = NOTHING,
    judges: Judges = NETWORKS,
) -> Floats:
    """Return the log losses of newer rows, averaged over models trained on older ones, (n_newer,) float64."""
    names = [name for name in older.column_names if name not in left_out]
    y = np.asarray(newer[TARGET])
    if len(names) < 2:
        return _log_losses(np.bincount(older[TARGET], minlength=y.max() + 1) / len(older), y)
    source, schema, chunks, found = Source.of_table(older.select(names)), None, list[Chunk](), []
    for name, recipe, parameters in judges:
        model = drive(Learner(name, recipe(TARGET, parameters, schema, overrides), None), source, threads=threads)
        if schema is None:  # that of all judges, as their parameters for it are the same
            schema = model.schema
            columns = newer.select([name for name in names if name != TARGET])
            chunks = [encode(rows, schema, with_class=False) for rows in columns.to_batches(BATCH_ROWS)]
        known = np.array(schema.class_values(), np.int64)
        by_class = np.zeros((y.size, 1 + max(int(y.max()), int(known.max()))))
        by_class[:, known] = np.concatenate([model.predict_proba(rows) for rows in chunks])
        found.append(_log_losses(by_class, y))
    return np.mean(found, axis=0)


def losses_of_later_rows(
    rows: pa.Table, target: str, overrides: Overrides, is_later: Mask, threads: int
) -> tuple[Floats, Floats]:
    """Compare how well fast networks of the other rows predict later rows and equally many random rows.

    `is_later`: (n_rows,) bool. Returns (n_later,) float64 log losses of the later rows and of the others. Raises what learning does.
    """
    codes = rows[target].combine_chunks().dictionary_encode().indices
    y = codes.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    rows = rows.drop_columns([target]).append_column(TARGET, pa.array(y))
    known = {name: entry for name, entry in overrides.items() if name != target}
    chosen = np.random.default_rng(0).permutation(is_later)
    later, at_random = (
        _losses(rows.filter(pa.array(~part)), rows.filter(pa.array(part)), (), threads, known)
        for part in (is_later, chosen)
    )
    return later, at_random


def _log_losses(p: Floats, y: Integers) -> Floats:
    """Return the log losses of rows given their class probabilities, clipped at LEAST."""
    of_class = p[np.arange(y.size), y] if p.ndim > 1 else p[y]
    return -np.log(np.maximum(of_class, LEAST))


def rows_by_time(sample: DrawnRows, time: str) -> Timed:
    """Order drawn rows by a time column, with the share of rows that are not later."""
    rows = sample.occurrences(2 * sample.n_distinct)
    assert rows.y is not None
    codes = rows.x[[attribute.name for attribute in sample.schema.attributes].index(time)]
    until = np.cumsum(np.bincount(codes)) / max(1, codes.size)
    return _timed(sample.schema, rows.x, rows.y, until[codes])


def rows_in_order(n_drawn: int, n_rows: int, rows: Rows, threads: int, advance: Advance) -> Timed:
    """Select evenly spaced rows, with the share of all rows up to each."""
    del threads
    step, passed, parts = -(-n_rows // n_drawn), 0, list[Chunk]()
    for chunk in rows:
        parts.append(chunk.rows(np.arange(-passed % step, chunk.n_rows, step)))
        passed += chunk.n_rows
        advance(passed, n_rows)
    x = np.concatenate([part.x for part in parts], axis=1)
    y = np.concatenate([part.y for part in parts if part.y is not None])
    return _timed(rows.schema, x, y, np.arange(1, y.size + 1) / y.size)


def columns_that_go_on(timed: Timed) -> list[str]:
    """Return the columns whose values in each window hardly occurred before it, those with the most such rows first.

    Empty if a window has too few rows, or the earlier rows have one class.
    """
    names = [name for name in timed.rows.column_names if not name.startswith(INNER)]
    shares = dict.fromkeys(names, 1.0)
    for first in WINDOWS:
        older, newer = timed.window(first)
        if min(len(older), len(newer)) < FEWEST or pc.count_distinct(older[TARGET]).as_py() < 2:
            return []
        for name in names:
            shares[name] = min(shares[name], _share_of_new_codes(older[name], newer[name]))
    new = sorted((name for name in names if shares[name] > SHARE_OF_NEW), key=lambda name: (-shares[name], name))
    return new[:MOST_LOOKED_AT]


def _share_of_new_codes(older: pa.ChunkedArray, newer: pa.ChunkedArray) -> float:
    """Return the share of newer rows whose code is rare among older rows."""
    both = pa.chunked_array([*older.chunks, *newer.chunks]).combine_chunks().dictionary_encode("encode").indices
    codes = both.to_numpy(zero_copy_only=False)
    size = int(codes.max()) + 1
    before, after = (np.bincount(part, minlength=size) for part in (codes[: len(older)], codes[len(older) :]))
    is_often = after / len(newer) > TIMES_AS_OFTEN * before / len(older)
    return float(after[is_often].sum() / len(newer))


def _timed(schema: Schema, x: Codes, y: Codes, until: Floats) -> Timed:
    """The rows as a table of codes, which networks learn like any other: numeric columns and times of day as numbers, nominal ones and other parts as words."""
    columns: dict[str, pa.Array] = {}
    parts: dict[str, dict[TimePart, str]] = {}
    for attribute, codes in zip(schema.attributes, x, strict=True):
        is_missing = (codes == 0) if attribute.has_missing else np.zeros(codes.size, bool)
        whole = codes.astype(np.int64)
        if attribute.part is None:
            numbers = pa.array(whole, mask=is_missing)
            columns[attribute.name] = numbers if attribute.kind == "numeric" else numbers.cast(pa.string())
            continue
        whole -= attribute.first_code
        of_parts: dict[TimePart, Integers] = {attribute.part: whole}
        if attribute.part == "hour of the week":
            of_parts |= {"hour": whole % 24, "weekday": whole // 24}
        for part, own in of_parts.items():
            if np.unique(own[~is_missing]).size > 1:
                column = f"{INNER}{part} {attribute.name}"
                parts.setdefault(attribute.name, {})[part] = column
                numbers = pa.array(own, mask=is_missing)
                columns[column] = numbers if part == FINE else numbers.cast(pa.string())
    return Timed(pa.table(columns | {TARGET: y.astype(np.int64)}), until, parts)
