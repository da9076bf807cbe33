"""Small data sets as Parquet files."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest


def table(n_rows, n_classes, seed):
    """A nominal and a numeric column that tell something of the class, with missing values."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, n_rows)
    word = np.where(rng.random(n_rows) < 0.7, y, rng.integers(0, n_classes, n_rows))
    number = y + rng.normal(0, 0.7, n_rows)
    words = [None if rng.random() < 0.05 else f"w{value}" for value in word]
    numbers = [None if rng.random() < 0.05 else float(value) for value in number]
    return pa.table({"word": words, "number": numbers, "class": [f"c{value}" for value in y]})


@pytest.fixture
def folder(tmp_path):
    """Two data sets, one with a class of a single row."""
    place = tmp_path / "data"
    place.mkdir()
    pq.write_table(table(120, 2, seed=0), place / "two.parquet")
    rare = table(90, 3, seed=1).slice(0, 89)
    single = pa.table({"word": ["w9"], "number": [9.0], "class": ["rare"]}, schema=rare.schema)
    pq.write_table(pa.concat_tables([rare, single]), place / "rare.parquet")
    return place
