"""How the rows of each class spread over the values of each column, beside the rows of training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from learners.classifiers.lookup.lookup import LookupModel
from learners.kernels.arrays import Integers
from learners.models.model import Model
from learners.monitoring.count_layout import Watched
from learners.monitoring.drift_tests import Limits
from learners.monitoring.two_sample import compare_counts, divergence
from learners.schema import Attribute, Chunk
from learners.schema.schema import labels_of

MOST_VALUES = 10
MISSING, UNSEEN, OTHERS = "(missing)", "(not seen in training)", "(others)"
LIMITS = Limits()


class ColumnRows(NamedTuple):
    """One column."""

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
        """As JSON has it."""
        column, values, rows, change, is_changed = stored
        return cls(column, tuple(values), tuple(map(tuple, rows)), change, is_changed)


class ColumnCounts:
    """Rows by class and code of some columns, added up chunk by chunk.

    `model`: a classifier.
    `columns`: of its attributes.
    """

    def __init__(self, model: Model, columns: Sequence[str]) -> None:
        self._watched = Watched(model)  # which counts an ensemble by the cut points of its joint member
        places = {attribute.name: i for i, attribute in enumerate(self._watched.codes.attributes)}
        self._places = [places[name] for name in columns]
        n_classes = model.schema.n_classes + 1  # the last one are classes that the model does not know
        self._counts = [np.zeros((n_classes, self._attribute(i).n_values + 1), np.int64) for i in self._places]

    def add(self, rows: Chunk) -> None:
        """Count rows whose class is known."""
        y, x = np.asarray(rows.y, np.int64), self._watched.recoded(rows.x)
        for i, counts in zip(self._places, self._counts, strict=True):
            found = np.bincount(y * counts.shape[1] + x[i], minlength=counts.size)
            np.add(counts, found.reshape(counts.shape), out=counts)

    def rows(self) -> tuple[ColumnRows, ...]:
        """Each column; the classes are those of the model."""
        return tuple(self._rows(i, counts) for i, counts in zip(self._places, self._counts, strict=True))

    def _rows(self, i: int, counts: Integers) -> ColumnRows:
        attribute = self._attribute(i)
        trained = _of_training(self._watched.member, i)
        change, is_changed = None, False
        if trained is not None:
            whole = counts.sum(axis=0)
            change = divergence(whole, trained)
            is_changed = change >= LIMITS.nats and compare_counts(whole, trained).p_value <= LIMITS.q
        names, groups = _groups(attribute, counts.sum(axis=0))
        rows = tuple(tuple(int(own[group].sum()) for group in groups) for own in counts[:-1])
        return ColumnRows(attribute.name, names, rows, change, is_changed)

    def _attribute(self, i: int) -> Attribute:
        return self._watched.codes.attributes[i]


def _of_training(model: LookupModel | None, i: int) -> Integers | None:
    """(n_values + 1,) int64: the rows of training by the code of an attribute, where the model keeps them."""
    if model is None or i not in model.network.order:
        return None
    tree = model.trees[model.network.order.index(i)]
    cells = slice(int(tree.cell_starts[int(tree.level_starts[-2])]), None)
    counts = np.zeros(model.schema.attributes[i].n_values + 1, np.int64)
    np.add.at(counts, tree.cell_value[cells], tree.cell_count[cells])
    return counts


def _groups(attribute: Attribute, counts: Integers) -> tuple[tuple[str, ...], list[Integers]]:
    """The codes that stand together, and the names of these groups."""
    labels = labels_of(attribute)
    values = np.arange(int(attribute.has_missing), attribute.n_values)
    if attribute.kind == "numeric" and values.size > MOST_VALUES:
        parts = [part for part in np.array_split(values, MOST_VALUES) if part.size]
        groups = [(_joined(labels[part[0]], labels[part[-1]]), part) for part in parts]
    else:
        kept = values
        if values.size > MOST_VALUES:
            kept = np.sort(values[np.argsort(-counts[values], kind="stable")[: MOST_VALUES - 1]])
        groups = [(labels[code], np.array([code])) for code in kept.tolist()]
        groups += [(OTHERS, np.setdiff1d(values, kept))] if kept.size < values.size else []
    groups += [(MISSING, np.array([0]))] if attribute.has_missing else []
    groups += [(UNSEEN, np.array([attribute.n_values]))] if counts[-1] else []
    return tuple(name for name, _ in groups), [codes for _, codes in groups]


def _joined(first: str, last: str) -> str:
    """Several neighbouring intervals as one: (a, b] and (c, d] are (a, d]."""
    return first if first == last else f"{first.partition(',')[0]},{last.partition(',')[2]}"
