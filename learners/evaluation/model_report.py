"""What there is to say of one model on rows whose class is known: the numbers of its report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from learners.errors import NoImportances
from learners.estimators.importance import importances
from learners.evaluation.metrics import Metrics, evaluate, losses_of_class_shares, reliability
from learners.kernels.arrays import Integers
from learners.models.model import Model

MOST_CLASSES = 20  # of a table of confusions; beyond, the most frequent mistakes stand for it
MOST_MISTAKES = 20


class Mistake(NamedTuple):
    """Rows of one class that were taken for another."""

    of_class: str
    predicted: str
    n_rows: int


class Share(NamedTuple):
    """How much of what the columns tell one of them tells."""

    column: str
    share: float


class Point(NamedTuple):
    """A point of a reliability diagram."""

    confidence: float
    right: float
    n_rows: int


@dataclass(frozen=True, eq=False)
class ModelReport:
    """How good a model is on some rows, and what it is made of.

    Parameters
    ----------
    metrics : Metrics
    floor : dict of float
        What knowing the class shares alone loses on the same rows.
    classes : tuple of str
    confusion : (n_classes, n_classes) int64
        Rows by true class and most probable class.
    calibration : tuple of Point
    shares : tuple of Share
        The greatest first; empty where the model tells none.
    left_out : tuple of (str, str)
        Columns that the model does not use, each with the reason.
    """

    metrics: Metrics
    floor: dict[str, float]
    classes: tuple[str, ...]
    confusion: Integers
    calibration: tuple[Point, ...]
    shares: tuple[Share, ...]
    left_out: tuple[tuple[str, str], ...]

    @property
    def n_rows(self) -> int:
        """Rows that were answered."""
        return int(self.confusion.sum())

    @property
    def gain(self) -> float:
        """By which share the log loss is less than that of the class shares; negative where it is more."""
        return 1.0 - self.metrics.log_loss / self.floor["log_loss"] if self.floor["log_loss"] > 0 else 0.0

    @property
    def verdict(self) -> str:
        """One sentence."""
        right, points = 100 * (1 - self.metrics.zero_one_loss), 100 * self.metrics.ece
        unit = "point" if f"{points:.0f}" == "1" else "points"
        better = "better" if self.gain >= 0 else "worse"
        return f"Right {right:.0f} of 100; calibrated within {points:.0f} {unit}; {abs(self.gain):.0%} {better} than the class shares."

    @property
    def mistakes(self) -> tuple[Mistake, ...]:
        """The most frequent confusions."""
        wrong = self.confusion.copy()
        np.fill_diagonal(wrong, 0)
        order = np.argsort(-wrong, axis=None, kind="stable")[:MOST_MISTAKES]
        pairs = zip(*np.unravel_index(order, wrong.shape), strict=True)
        return tuple(Mistake(self.classes[i], self.classes[j], int(wrong[i, j])) for i, j in pairs if wrong[i, j])


def report_of(model: Model, probabilities: ArrayLike, y: ArrayLike) -> ModelReport:
    """The report of a model on rows that it has answered.

    Parameters
    ----------
    model : Model
    probabilities : (n, n_classes) float64
    y : (n,) integers
        Codes of the true classes.

    Raises
    ------
    EmptyData
        Without rows.
    """
    probabilities, y = np.asarray(probabilities, np.float64), np.asarray(y, np.int64)
    metrics, n_classes = evaluate(probabilities, y), model.schema.n_classes
    cells = np.bincount(y * n_classes + probabilities.argmax(axis=1), minlength=n_classes * n_classes)
    names = [attribute.name for attribute in model.schema.attributes]
    return ModelReport(
        metrics,
        losses_of_class_shares(y, n_classes),
        model.schema.classes,
        cells.reshape(n_classes, n_classes),
        tuple(Point(*point) for point in reliability(probabilities, y)),
        _shares(model, names),
        tuple((entry.name, entry.reason) for entry in model.schema.left_out),
    )


def _shares(model: Model, names: Sequence[str]) -> tuple[Share, ...]:
    try:
        found = importances(model, names)
    except NoImportances:
        return ()
    return tuple(Share(names[i], float(found[i])) for i in np.argsort(-found, kind="stable"))
