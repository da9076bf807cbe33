"""Permutation importance: the increase of a model's log loss when a column's values are shuffled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learners.classifiers.lookup.look_up_tables import split_chunk_into_blocks
from learners.evaluation.metrics import LEAST_PROBABILITY
from learners.kernels.arrays import Floats, Integers
from learners.models.model import Model
from learners.schema import Chunk

MOST_ANSWERS = 200_000  # probabilities of one class of one row: rows times columns times classes
LEAST_ROWS, MOST_ROWS = 200, 2000
MOST_COLUMNS = 200


class ColumnLoss(NamedTuple):
    """Permutation importance of one column."""

    column: str
    loss: float  # by which the mean log loss grows, in nats
    error: float  # standard error of it


class ColumnLosses:
    """Collects labelled rows and measures the permutation importance of each column.

    The values of one column are permuted among the rows, the others stay. The result does not depend on the order
    of the columns, and redundant columns share their importance.

    Parameters
    ----------
    model : Model
        A classifier.

    References
    ----------
    Breiman (2001), Random forests, section 10; Fisher, Rudin, Dominici (2019), All models are wrong, section 3.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        n_answers = max(1, min(MOST_COLUMNS, model.schema.n_attributes) * model.schema.n_classes)
        self._most = int(np.clip(MOST_ANSWERS // n_answers, LEAST_ROWS, MOST_ROWS))
        self._chunks: list[Chunk] = []

    def add(self, rows: Chunk) -> None:
        """Keep rows of known classes, at most the required number, evenly spaced in each chunk."""
        assert rows.y is not None
        known = np.flatnonzero(rows.y < self.model.schema.n_classes)
        if known.size:
            self._chunks.append(rows.rows(known[:: max(1, -(-known.size // self._most))]))

    def measure(self) -> list[ColumnLoss]:
        """Return the columns by decreasing importance; empty without rows."""
        rows = self._rows()
        if rows is None or rows.n_rows < 2:
            return []
        before = self._losses(rows)
        order = np.random.default_rng(0).permutation(rows.n_rows)
        found = []
        for i, attribute in enumerate(self.model.schema.attributes[:MOST_COLUMNS]):
            more = self._losses(self._shuffled(rows, i, order)) - before
            error = float(more.std(ddof=1) / np.sqrt(more.size))
            found.append(ColumnLoss(attribute.name, float(more.mean()), error))
        return sorted(found, key=lambda each: -each.loss)

    def _rows(self) -> Chunk | None:
        """Return at most `_most` of the kept rows, evenly spaced; None without rows."""
        if not self._chunks:
            return None
        y = np.concatenate([chunk.y for chunk in self._chunks if chunk.y is not None])
        numbers = [chunk.numbers for chunk in self._chunks if chunk.numbers is not None]
        x = np.concatenate([chunk.x for chunk in self._chunks], axis=1)
        whole = Chunk(np.ascontiguousarray(x), y, np.concatenate(numbers, axis=1) if numbers else None)
        return whole.rows(np.arange(0, y.size, max(1, -(-y.size // self._most))))

    def _shuffled(self, rows: Chunk, i: int, order: Integers) -> Chunk:
        """Permute the values of one column."""
        x = rows.x.copy()
        x[i] = x[i, order]
        numbers = None if rows.numbers is None else rows.numbers.copy()
        continuous = self.model.schema.continuous
        if numbers is not None and i in continuous:
            place = list(continuous).index(i)
            numbers[place] = numbers[place, order]
        return Chunk(x, rows.y, numbers)

    def _losses(self, rows: Chunk) -> Floats:
        """Return the log loss of each row, (n_rows,) float64."""
        parts = []
        for part in split_chunk_into_blocks(rows, self.model.schema.n_classes):
            assert part.y is not None
            p = self.model.predict_proba(part)[np.arange(part.n_rows), part.y.astype(np.int64)]
            parts.append(-np.log(np.maximum(p, LEAST_PROBABILITY)))
        return np.concatenate(parts)
