"""XGBoost as a person would use it on the orders of the demo: all rows in memory, texts as codes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from learners.arrays import Floats

ROUNDS, DEPTH = 100, 6  # XGBoost's own defaults


def boosted(files: Sequence[str], test: str, target: str, is_trained: Callable[[], None]) -> Floats:
    """Train on one thread, and predict.

    Parameters
    ----------
    files : sequence of path
    test : path
        The rows to predict.
    target : str
        Of two classes.
    is_trained : callable
        Called when the trees are there.

    Returns
    -------
    (n_test, 2) float64
        Probabilities of the classes in alphabetical order.
    """
    import xgboost

    pa.set_cpu_count(1)
    table = pa.concat_tables([pq.read_table(path) for path in files])
    words = {field.name: _words(table[field.name]) for field in table.schema if pa.types.is_string(field.type)}
    y = _codes(table[target], words, target)
    rows = _rows(table.drop_columns([target]), words)
    del table
    settings = {"objective": "binary:logistic", "tree_method": "hist", "max_depth": DEPTH, "nthread": 1}
    booster = xgboost.train(settings, xgboost.QuantileDMatrix(rows, y, nthread=1), ROUNDS)
    is_trained()
    p = booster.inplace_predict(_rows(pq.read_table(test).drop_columns([target]), words)).astype(np.float64)
    return np.stack([1 - p, p], axis=1)


def _words(column: pa.ChunkedArray) -> pa.Array:
    """The values of a column in alphabetical order."""
    values = pc.unique(column)
    return values.take(pc.array_sort_indices(values))


def _codes(column: pa.ChunkedArray, words: Mapping[str, pa.Array], name: str) -> Floats:
    codes: Floats = pc.index_in(column, words[name]).to_numpy().astype(np.float32)
    return codes


def _rows(table: pa.Table, words: Mapping[str, pa.Array]) -> Floats:
    """(n_rows, n_columns) float32; what is null or new is NaN."""
    columns = []
    for name in table.column_names:
        column = table[name]
        if name in words:
            columns.append(_codes(column, words, name))
            continue
        numbers = column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        columns.append(numbers.to_numpy().astype(np.float32))
    return np.stack(columns, axis=1)
