"""Report of a model on labelled rows: its metrics, and the distribution of each class's rows over the columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from learners.classifiers.lookup.lookup import LookupModel
from learners.errors import NoImportances
from learners.evaluation.column_losses import ColumnLoss
from learners.evaluation.metrics import (
    Metrics,
    RowScores,
    class_prior_baseline_losses,
    metrics_from_row_scores,
    reliability_diagram_points,
)
from learners.kernels.arrays import Integers
from learners.models.model import Model
from learners.monitoring.count_layout import Watched
from learners.monitoring.drift_findings import Limits
from learners.monitoring.two_sample_tests import count_divergence_nats, g_test_counts
from learners.registry.importance import column_importances
from learners.schema import Attribute, Chunk

MOST_VALUES = 10
MISSING, UNSEEN, OTHERS = "(missing)", "(not seen in training)", "(others)"
LIMITS = Limits()

MOST_CLASSES = 20  # of a table of confusions; beyond, the most frequent mistakes stand for it
MOST_MISTAKES = 20
MOST_COLUMNS = 12
UNKNOWN = "(a class not learned)"


class Mistake(NamedTuple):
    """Rows of one class that were predicted as another."""

    of_class: str
    predicted: str
    n_rows: int


class Share(NamedTuple):
    """Share of one column in the class information of all columns."""

    column: str
    share: float
    loss: float | None = (
        None  # by which the log loss grows on these rows without it; None in reports of earlier releases
    )
    error: float | None = None  # standard error of that


class Point(NamedTuple):
    """One point of a reliability diagram."""

    confidence: float
    right: float
    n_rows: int


@dataclass(frozen=True, eq=False)
class ModelReport:
    """Quality of a model on some rows, and the importance of its columns."""

    metrics: Metrics
    floor: dict[str, float]  # what knowing the class shares alone loses on the same rows
    n_rows: int  # rows that were answered
    classes: tuple[str, ...]
    # (n_classes, n_classes) int64: rows by true class and most probable class; without cells beyond `MOST_CLASSES`
    # classes.
    confusion: Integers
    mistakes: tuple[Mistake, ...]  # the most frequent confusions
    calibration: tuple[Point, ...]
    shares: tuple[Share, ...]  # the greatest first; empty where the model tells none
    # Tuple of (str, str): columns that the model does not use, each with the reason.
    left_out: tuple[tuple[str, str], ...]
    # How the rows of each class spread over the columns that tell most, and what has changed since training; of more
    # than `MOST_CLASSES` classes none.
    columns: tuple[ColumnRows, ...] = ()

    @property
    def gain(self) -> float:
        """Relative reduction of the log loss against the class shares; negative if it is higher."""
        return 1.0 - self.metrics.log_loss / self.floor["log_loss"] if self.floor["log_loss"] > 0 else 0.0

    @property
    def verdict(self) -> str:
        """Summary of the report in one sentence."""
        right, points = 100 * (1 - self.metrics.zero_one_loss), math.ceil(100 * self.metrics.ece)
        unit = "point" if points == 1 else "points"
        better = "better" if self.gain >= 0 else "worse"
        return f"Right {right:.0f} of 100; calibrated within {points} {unit}; {abs(self.gain):.0%} {better} than the class shares."

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-compatible values, with the verdict; with many classes, only the mistakes name
        them.
        """
        report = asdict(self) | {"confusion": self.confusion.tolist(), "verdict": self.verdict}
        return report if self.confusion.size else report | {"classes": []}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> ModelReport:
        """Build a report from the output of `to_dict`."""
        return cls(
            Metrics(**content["metrics"]),
            dict(content["floor"]),
            content["n_rows"],
            tuple(content["classes"]),
            np.array(content["confusion"], np.int64),
            tuple(Mistake(*each) for each in content["mistakes"]),
            tuple(Point(*each) for each in content["calibration"]),
            tuple(Share(*each) for each in content["shares"]),
            tuple((column, reason) for column, reason in content["left_out"]),
            tuple(ColumnRows.read(each) for each in content.get("columns", ())),
        )


def report_column_counts(model: Model) -> ColumnCounts:
    """Return empty counts for a report, over the columns with the most class information."""
    names = [attribute.name for attribute in model.schema.attributes]
    telling = [share.column for share in _shares(model, names)] or names
    return ColumnCounts(model, telling[:MOST_COLUMNS] if model.schema.n_classes <= MOST_CLASSES else [])


def model_report_from_scores(
    model: Model,
    scores: Sequence[RowScores],
    y: ArrayLike,
    counted: ColumnCounts | None = None,
    losses: Sequence[ColumnLoss] = (),
) -> ModelReport:
    """Build the report of a model on rows that were scored in parts.

    `y`, (n,) integers: codes of the true classes; the code after the last represents classes unknown to the model.
    `counted`: counts of the same rows.
    `losses`: what each column is worth on these rows; by default the model's own importances.
    Raises EmptyData without rows.
    """
    y, n_known = np.asarray(y, np.int64), model.schema.n_classes
    classes = (*model.schema.classes, *([UNKNOWN] if y.size and y.max() >= n_known else []))
    predicted, confidence, is_right = (
        np.concatenate([getattr(part, name) for part in scores]) for name in ("predicted", "confidence", "is_right")
    )
    names = [attribute.name for attribute in model.schema.attributes]
    return ModelReport(
        metrics_from_row_scores(scores),
        class_prior_baseline_losses(y, n_known),
        y.size,
        classes,
        *_confusion(y, predicted.astype(np.int64), classes),
        tuple(Point(*point) for point in reliability_diagram_points(confidence, is_right)),
        _shares_of_losses(losses) if losses else _shares(model, names),
        tuple((entry.name, entry.reason) for entry in model.schema.left_out),
        () if counted is None else counted.rows(),
    )


def _confusion(y: Integers, predicted: Integers, classes: Sequence[str]) -> tuple[Integers, tuple[Mistake, ...]]:
    """Return the confusion matrix, if there are few classes, and the most frequent mistakes."""
    n = len(classes)
    cells, counts = np.unique(y * n + predicted, return_counts=True)
    dense = np.zeros(n * n if n <= MOST_CLASSES else 0, np.int64)
    if dense.size:
        dense[cells] = counts
    ordered = [k for k in np.argsort(-counts, kind="stable").tolist() if cells[k] // n != cells[k] % n]
    mistakes = tuple(
        Mistake(classes[cells[k] // n], classes[cells[k] % n], int(counts[k])) for k in ordered[:MOST_MISTAKES]
    )
    return dense.reshape((n, n) if dense.size else (0, 0)), mistakes


def _shares(model: Model, names: Sequence[str]) -> tuple[Share, ...]:
    try:
        importances = column_importances(model, names)
    except NoImportances:
        return ()
    return tuple(Share(names[i], float(importances[i])) for i in np.argsort(-importances, kind="stable"))


def _shares_of_losses(losses: Sequence[ColumnLoss]) -> tuple[Share, ...]:
    whole = sum(max(0.0, each.loss) for each in losses)
    return tuple(
        Share(each.column, max(0.0, each.loss) / whole if whole else 0.0, each.loss, each.error) for each in losses
    )


class ColumnRows(NamedTuple):
    """Rows of each class by value of one column."""

    column: str
    # Its values or intervals; of more than `MOST_VALUES`, neighbouring intervals are one, and rare values are the
    # others.
    values: tuple[str, ...]
    rows: tuple[tuple[int, ...], ...]  # rows of each class with each value
    # How far all rows together are from those of training, in nats a row; None where the model keeps no counts of
    # these.
    change: float | None
    is_changed: bool  # whether that is more than chance and more than a trifle

    @classmethod
    def read(cls, stored: Sequence[Any]) -> ColumnRows:
        """Build the record from its JSON form."""
        column, values, rows, change, is_changed = stored
        return cls(column, tuple(values), tuple(map(tuple, rows)), change, is_changed)


class ColumnCounts:
    """Counts of rows by class and code for selected columns, added chunk by chunk.

    `model`: a classifier.
    `columns`: views of its attributes.
    """

    def __init__(self, model: Model, columns: Sequence[str]) -> None:
        self._watched = Watched(model)  # which counts an ensemble by the cut points of its joint member
        places = {attribute.name: i for i, attribute in enumerate(self._watched.codes.attributes)}
        self._places = [places[name] for name in columns]
        n_classes = model.schema.n_classes + 1  # the last one are classes that the model does not know
        self._counts = [np.zeros((n_classes, self._attribute(i).n_values + 1), np.int64) for i in self._places]

    def add(self, rows: Chunk) -> None:
        """Count rows of known class."""
        y, x = np.asarray(rows.y, np.int64), self._watched.recoded(rows.x)
        for i, counts in zip(self._places, self._counts, strict=True):
            cells = np.bincount(y * counts.shape[1] + x[i], minlength=counts.size)
            np.add(counts, cells.reshape(counts.shape), out=counts)

    def rows(self) -> tuple[ColumnRows, ...]:
        """Return the counts of each column, by the model's classes."""
        return tuple(self._rows(i, counts) for i, counts in zip(self._places, self._counts, strict=True))

    def _rows(self, i: int, counts: Integers) -> ColumnRows:
        attribute = self._attribute(i)
        trained = _of_training(self._watched.member, i)
        change, is_changed = None, False
        if trained is not None:
            whole = counts.sum(axis=0)
            change = count_divergence_nats(whole, trained)
            is_changed = change >= LIMITS.nats and g_test_counts(whole, trained).p_value <= LIMITS.q
        names, groups = _groups(attribute, counts.sum(axis=0))
        rows = tuple(tuple(int(own[group].sum()) for group in groups) for own in counts[:-1])
        return ColumnRows(attribute.name, names, rows, change, is_changed)

    def _attribute(self, i: int) -> Attribute:
        return self._watched.codes.attributes[i]


def _of_training(model: LookupModel | None, i: int) -> Integers | None:
    """Return the number of training rows with each code of an attribute, (n_values + 1,) int64, if the model keeps
    them.
    """
    if model is None or i not in model.network.order:
        return None
    tree = model.trees[model.network.order.index(i)]
    cells = slice(int(tree.cell_starts[int(tree.level_starts[-2])]), None)
    counts = np.zeros(model.schema.attributes[i].n_values + 1, np.int64)
    np.add.at(counts, tree.cell_value[cells], tree.cell_count[cells])
    return counts


def _groups(attribute: Attribute, counts: Integers) -> tuple[tuple[str, ...], list[Integers]]:
    """Return the names of groups of codes that are shown together, and the codes of each group."""
    labels = attribute.unique_labels()
    values = np.arange(attribute.first_code, attribute.n_values)
    if attribute.kind == "numeric" and values.size > MOST_VALUES:
        parts = [part for part in np.array_split(values, MOST_VALUES) if part.size]
        groups = [(_joined(labels[part[0]], labels[part[-1]]), part) for part in parts]
    else:
        frequent = values
        if values.size > MOST_VALUES:
            frequent = np.sort(values[np.argsort(-counts[values], kind="stable")[: MOST_VALUES - 1]])
        groups = [(labels[code], np.array([code])) for code in frequent.tolist()]
        groups += [(OTHERS, np.setdiff1d(values, frequent))] if frequent.size < values.size else []
    groups += [(MISSING, np.array([0]))] if attribute.has_missing else []
    groups += [(UNSEEN, np.array([attribute.n_values]))] if counts[-1] else []
    return tuple(name for name, _ in groups), [codes for _, codes in groups]


def _joined(first: str, last: str) -> str:
    """Join adjacent intervals: (a, b] and (c, d] become (a, d]."""
    return first if first == last else f"{first.partition(',')[0]},{last.partition(',')[2]}"
