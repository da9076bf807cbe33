"""Which rows a training job learns from and which it is measured on: window, what was forgotten, hold-out."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from learners.passes.selection import Selection, window
from learners.passes.source import Condition, Fragment, Mask, Source, SourceFile, file_identity
from service.holdout import Share
from service.reports import Report
from service.requests import TrainRequest
from storage.forgotten import Forgotten
from storage.predicates import RowPredicate


@dataclass(frozen=True)
class Not:
    """Rows that a predicate does not match.

    Parameters
    ----------
    predicate : RowPredicate
    """

    predicate: RowPredicate

    @property
    def text(self) -> str:
        """The condition in words."""
        return f"not ({self.predicate.text})"

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that the condition reads."""
        return self.predicate.columns

    def mask(self, rows: pa.RecordBatch, file: SourceFile, fragment: Fragment, offset: int) -> Mask:
        """(n_rows,) bool."""
        del file, fragment, offset
        names = list(self.columns)
        return ~self.predicate.mask(rows.select(names))

    def implies(self, text: str) -> Condition | None:
        """No other condition follows from it."""
        return self if text == self.text else None


@dataclass(frozen=True)
class TrainingRows:
    """The rows of one training.

    Parameters
    ----------
    learned : Selection
        To learn from.
    kept_back : Source or None
        To be measured on.
    """

    learned: Selection
    kept_back: Source | None


def training_rows(
    source: Source, request: TrainRequest, forgotten: Forgotten, report: Report | None = None
) -> TrainingRows:
    """Choose the rows of a request.

    Parameters
    ----------
    source : Source
        All files of the data set.
    request : TrainRequest
    forgotten : Forgotten
        Rules of rows that must not be learned from; files it has not seen are searched for them.
    report : callable, optional
        Gets the progress of such a search; may raise.

    Raises
    ------
    InvalidParameter, UnknownColumn, SourceError, EmptyData, InvalidPredicate
    """
    chosen = Selection(source, dict.fromkeys(range(len(source.files)), ()))
    if request.window is not None:
        chosen = window(source, request.window, request.timestamp)
    for rule in forgotten.rules():
        predicate = RowPredicate(rule.where)
        counts = matching_rows(source, predicate, sorted(chosen.wanted), forgotten, report)
        wanted = {
            index: (*conditions, Not(predicate)) if counts[index] else conditions
            for index, conditions in chosen.wanted.items()
        }
        chosen = Selection(source, wanted)
    if request.keeps_back:
        parts = [chosen.and_all([Share(request.holdout, request.seed, back)]) for back in (False, True)]
        return TrainingRows(parts[0], parts[1].source)
    return TrainingRows(chosen, None)


def matching_rows(
    source: Source,
    predicate: RowPredicate,
    files: Sequence[int],
    forgotten: Forgotten | None = None,
    report: Report | None = None,
) -> dict[int, int]:
    """How many rows of each file a predicate matches; what is known of a file is not counted again.

    `report` gets the progress after each batch, and may raise.
    """
    counts: dict[int, int] = {}
    n_done, n_total = 0, sum(source.files[index].n_rows for index in files)
    for index in files:
        identity = file_identity(source.files[index])
        known = None if forgotten is None else forgotten.count(predicate.text, identity)
        if known is None:
            known = 0
            for batch in source.only({index}).batches(list(predicate.columns)):
                known += int(np.count_nonzero(predicate.mask(batch)))
                if report is not None:
                    report({"stage": "searching rows", "rows_done": n_done, "rows_total": n_total})
            if forgotten is not None:
                forgotten.remember(predicate.text, identity, known)
        counts[index] = known
        n_done += source.files[index].n_rows
    if forgotten is not None:
        forgotten.save()
    return counts
