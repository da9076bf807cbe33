"""Hold-out by time or order: rows at random, the latest, or the last ones represent future rows."""

from __future__ import annotations

import datetime
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from learners.errors import LearnerError, UnknownColumn
from learners.kernels.arrays import Mask
from learners.passes.sources.row_filter import Selection, Since
from learners.passes.sources.source import Condition, Fragment, Source, SourceFile
from learners.registry.later_rows import losses_of_later_rows
from learners.schema.overrides import ColumnOverride
from learners.schema.times_and_durations import moment_text
from service.requests.json_values import JSONMapping, JSONObject
from service.requests.problems import InvalidRequest
from service.requests.requests import TrainRequest

SAMPLED, READ = 20_000, 500_000  # rows that decide, and of about how many they are
FEWEST = 1_000
# Later or other rows among those sampled, which are few where a window keeps few rows of its files.
FEWEST_COMPARED = 50
# New values of a column that grows with the order of the rows, and the largest share of smaller ones.
FEWEST_STEPS, MOST_FALLS = 50, 0.01
WORSE, DEVIATIONS = 1.05, 3.0  # later rows disagree with rows at random where their log loss is so much greater


@dataclass(frozen=True)
class KeptBack:
    """Choice of held-out rows: decided once and stored with the training, since a reader must not change it.

    `by`: "random", "time" with a column and the last time that is learned, or "order" with how many rows are learned.
    `later`, `random`: log losses of networks on later rows, and on rows at random, where they were compared.
    `goes_on`: a column that grows with the order of the rows, where the last ones are predicted worse and no column has times.
    `is_worse`: later rows are predicted worse than rows at random, by so much that the training warns.
    `is_learned`: the held-out rows were learned once the model was measured; `newest` is the latest time among all rows then.
    """

    by: Literal["random", "time", "order"]
    column: str = ""
    until: str = ""
    n_first: int = 0
    later: float | None = None
    random: float | None = None
    goes_on: str = ""
    is_learned: bool = False
    newest: str = ""
    is_worse: bool = True

    @classmethod
    def of(cls, facts: object) -> KeptBack:
        """Parse the result of `facts`; "random" for trainings of earlier releases."""
        return cls(**facts) if isinstance(facts, dict) else cls("random")

    def facts(self) -> JSONObject:
        """Return the choice as JSON values."""
        return {name: value for name, value in asdict(self).items() if name != "is_worse" or not value}

    def decides_by(self, holdout_by: str) -> str:
        """Return which rows decide how a learner uses growing columns, see `learners.registry.recipes.learner`."""
        return "order" if self.goes_on and holdout_by == "auto" else holdout_by

    def _not_learned(self) -> str:
        return "" if self.is_learned else " It has not learned them: --holdout 0 learns them, too."

    def newest_rows_line(self) -> str:
        """Return the loss of the newest rows beside that of rows at random, where rows have times and a random hold-out measured."""
        if self.by != "random" or not self.column or self.later is None or self.random is None:
            return ""
        return (
            f"naive Bayes and kDB, trained on older rows, have a log loss of {self.later:.3f} on the newest rows by {self.column!r} and of "
            f"{self.random:.3f} on random ones; --holdout-by time measures this model on the newest rows"
        )

    def warnings(self) -> list[str]:
        """Return a warning if later rows have a higher loss than rows at random."""
        if self.later is None or self.random is None or not self.is_worse:
            return []
        losses = f"log loss {self.later:.3f} beside {self.random:.3f} for rows at random, by naive Bayes and kDB"
        if self.by == "time":
            return [
                f"Later rows are predicted worse than rows at random ({losses}), so the model is measured on the newest ones by "
                f"{self.column!r} (after {moment_text(datetime.datetime.fromisoformat(self.until))}); use --holdout-by random to evaluate on random rows "
                f"(docs/limits.md#time).{self._not_learned()}"
            ]
        decided = f", and decide whether {self.goes_on!r}, which grows with them, is used" if self.goes_on else ""
        return [
            f"The last rows in the given order are predicted worse ({losses}){decided}: future rows may be like them. Use --holdout-by "
            "order to evaluate on the last rows (docs/limits.md#time)."
        ]


@dataclass(frozen=True)
class Until(Condition):
    """Condition for rows up to a moment and rows without a time: the complement of `Since`."""

    column: str
    cut: datetime.datetime

    @property
    def text(self) -> str:
        """Description of the condition."""
        return f"{self.column} <= {self.cut.isoformat()}"

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that the condition reads."""
        return (self.column,)

    def mask(self, rows: pa.RecordBatch, file: SourceFile, fragment: Fragment, offset: int) -> Mask:
        """Mask of matching rows, (n_rows,) bool."""
        return ~Since(self.column, self.cut).mask(rows, file, fragment, offset)


@dataclass(frozen=True)
class First(Condition):
    """Condition for the first `n_rows` rows of a file, or for the rest."""

    n_rows: int
    is_kept_back: bool

    @property
    def text(self) -> str:
        """Description of the condition."""
        return f"{'behind' if self.is_kept_back else 'among'} the first {self.n_rows} rows"

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that the condition reads: none."""
        return ()

    def mask(self, rows: pa.RecordBatch, file: SourceFile, fragment: Fragment, offset: int) -> Mask:
        """Mask of matching rows, (n_rows,) bool."""
        before = sum(file.row_groups[: fragment.row_group]) + offset
        is_first = np.arange(before, before + rows.num_rows) < self.n_rows
        return ~is_first if self.is_kept_back else is_first


def choose_kept_back(
    chosen: Selection, request: TrainRequest, target: str | None, overrides: JSONMapping, threads: int
) -> KeptBack:
    """Choose which rows a training holds out. Raises SourceError, or InvalidRequest without times to choose by."""
    if request.holdout_by == "random":
        return KeptBack("random")
    n_rows = sum(chosen.raw.files[index].n_rows for index in chosen.wanted)
    if request.holdout_by == "order":
        return KeptBack("order", n_first=int((1 - request.holdout) * n_rows))
    if request.timestamp is not None and request.timestamp not in chosen.source.arrow_schema.names:
        raise UnknownColumn(request.timestamp, chosen.source.arrow_schema.names)
    names = _time_columns(chosen.source, request, target, overrides)
    if request.holdout_by == "time" and not names:
        raise InvalidRequest(
            "No column has dates or timestamps: use --holdout-by order to keep back the last rows, or random.",
            field="holdout_by",
        )
    if request.holdout_by == "auto" and (n_rows < FEWEST or target not in chosen.source.learnable()):
        return KeptBack("random")
    dropped = {name for name in overrides if name not in names and ColumnOverride.of(name, overrides[name]).drop}
    rows = _sampled(chosen.source, dropped)
    overrides = {name: entry for name, entry in overrides.items() if name not in dropped}
    column = max(names, key=lambda name: pc.count_distinct(rows[name]).as_py(), default=None)
    cut = None if column is None else _cut(rows[column], request.holdout)
    by_time = None if column is None or cut is None else KeptBack("time", column, cut.isoformat())
    if request.holdout_by == "time":
        if by_time is None:
            raise InvalidRequest(
                f"All rows have the same time in {names[0]!r}: use --holdout-by order or random.", field="holdout_by"
            )
        return by_time
    is_later = np.arange(rows.num_rows) >= (1 - request.holdout) * rows.num_rows
    if by_time is not None:
        assert column is not None and cut is not None
        is_later = Since(column, cut).mask(rows.to_batches()[0], *_NOWHERE)
    if min(np.count_nonzero(is_later), np.count_nonzero(~is_later)) < FEWEST_COMPARED:
        return KeptBack("random")
    try:
        later, random = losses_of_later_rows(rows, str(target), overrides, is_later, threads)
    except LearnerError:  # of rows that no network learns from; the training says why, or does with them
        return KeptBack("random")
    error = np.hypot(later.std() / np.sqrt(later.size), random.std() / np.sqrt(random.size))
    if not later.mean() > WORSE * random.mean() + DEVIATIONS * error:
        if by_time is None:
            return KeptBack("random")
        compared = KeptBack("random", column=by_time.column, is_worse=False)
    elif by_time is None:
        compared = KeptBack("random", goes_on=_growing_column(rows, target, overrides))
    else:
        compared = by_time
    return replace(compared, later=float(later.mean()), random=float(random.mean()))


def _growing_column(rows: pa.Table, target: str | None, overrides: JSONMapping) -> str:
    """Return a numeric column without an override that grows from row to row, but for a few places; empty without such a column."""
    for name in sorted(rows.column_names):
        kind, is_said = rows[name].type, name in overrides or name == target
        if is_said or not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            continue
        numbers = rows[name].drop_null().to_numpy().astype(np.float64)
        steps = np.diff(numbers)
        falls = np.count_nonzero(steps < 0)
        if np.count_nonzero(steps > 0) >= FEWEST_STEPS and falls <= MOST_FALLS * steps.size:
            return str(name)
    return ""


_NOWHERE: Any = (None, None, 0)  # a condition on columns alone does not ask for a file


def divide_later(chosen: Selection, kept: KeptBack) -> tuple[Selection, Selection]:
    """Split the selection into training rows and held-out rows, by time or order."""
    learned: dict[int, tuple[Condition, ...]] = {}
    back: dict[int, tuple[Condition, ...]] = {}
    passed = 0
    for index, own in chosen.wanted.items():
        n_rows = chosen.raw.files[index].n_rows
        if kept.by == "time":
            cut = datetime.datetime.fromisoformat(kept.until)
            learned[index], back[index] = (*own, Until(kept.column, cut)), (*own, Since(kept.column, cut))
        else:
            n_first = min(max(kept.n_first - passed, 0), n_rows)
            if n_first:
                learned[index] = own if n_first == n_rows else (*own, First(n_first, False))
            if n_first < n_rows:
                back[index] = own if n_first == 0 else (*own, First(n_first, True))
        passed += n_rows
    return Selection(chosen.raw, learned), Selection(chosen.raw, back)


def _time_columns(source: Source, request: TrainRequest, target: str | None, overrides: JSONMapping) -> list[str]:
    """Return the date and timestamp columns: the named one, or all that are not dropped."""
    if request.timestamp is not None:
        return [request.timestamp]
    names = [one.name for one in source.arrow_schema if pa.types.is_timestamp(one.type) or pa.types.is_date(one.type)]
    is_asked = request.holdout_by == "time"
    return [
        name
        for name in names
        if name != target and (is_asked or not ColumnOverride.of(name, overrides.get(name, {})).drop)
    ]


def _sampled(source: Source, dropped: Collection[str]) -> pa.Table:
    """Return rows at equal distances, in order, without the columns that are dropped; numbers of several types as one."""
    thinned = source.thinned(READ)
    step, passed, parts = max(1, -(-thinned.n_rows // SAMPLED)), 0, []
    for batch in thinned.batches([name for name in source.learnable() if name not in dropped]):
        parts.append(batch.take(pa.array(np.arange(-passed % step, batch.num_rows, step))))
        passed += batch.num_rows
    tables = [pa.Table.from_batches([part]) for part in parts]
    return pa.concat_tables(tables, promote_options="permissive").unify_dictionaries().combine_chunks()


def _cut(times: pa.ChunkedArray, share: float) -> datetime.datetime | None:
    """Return the last time before the newest `share` of the rows; None if there is only one time."""
    known = pc.sort_indices(times).to_numpy()[: len(times) - times.null_count]
    if not known.size:
        return None
    ordered = times.take(pa.array(known))
    kind = ordered.type
    if pa.types.is_timestamp(kind):
        ordered = ordered.cast(pa.timestamp("us", kind.tz), safe=False)
    greatest = ordered[-1]
    place = max(int((1 - share) * known.size) - 1, 0)
    while place > 0 and ordered[place] == greatest:
        place = pc.sum(pc.less(ordered, ordered[place])).as_py() - 1
    if place < 0 or ordered[place] == greatest:
        return None
    moment = ordered[place].as_py()
    return moment if isinstance(moment, datetime.datetime) else datetime.datetime.combine(moment, datetime.time())
