"""The passes that a learner announces are those that it makes: files are opened so many times, and no more."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from learners import Source
from learners.passes.learner import drive
from learners.passes.sources import parquet
from learners.registry import recipes

ROWS = 400
LEARNERS = [
    ("nb", {}),
    ("tan", {}),
    ("tan", {"average": True}),
    ("kdb", {"k": 2}),
    ("skdb", {"k": 2}),
    ("eskdb", {"members": 2}),
    ("auto", {"members": 2}),
    ("xgboost", {}),
    ("orders", {}),
    ("spn", {"structure": "chow-liu", "learning": "em", "passes": 3}),
    ("spn", {"structure": "hclt", "learning": "em", "passes": 3, "states": 2}),
    ("spn", {"structure": "chow-liu", "learning": "adf"}),
]


@pytest.fixture
def opened(tmp_path, monkeypatch):
    """A table of one file, and the times that it was opened to be read."""
    random = np.random.default_rng(0)
    columns = {name: random.integers(0, 3, ROWS).astype(str) for name in "abc"}
    columns["y"] = np.where(random.random(ROWS) < 0.8, columns["a"], columns["b"])
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    times = []
    inner = pq.ParquetFile

    def count(*arguments, **more):
        times.append(1)
        return inner(*arguments, **more)

    source = Source.open(tmp_path / "t.parquet")
    monkeypatch.setattr(parquet.pq, "ParquetFile", count)
    return source, times


@pytest.mark.parametrize(("name", "parameters"), LEARNERS)
def test_files_are_opened_once_a_pass(name, parameters, opened):
    source, times = opened
    target = None if name in ("spn", "orders") else "y"
    learner = recipes.learner(name, parameters, target)
    numbers = set()
    model = drive(learner, source, threads=1, on_progress=lambda one: numbers.add((one.pass_number, one.n_passes)))
    made = len(times)
    if name == "xgboost":  # reads as often as XGBoost asks, and announces nothing
        assert learner.n_passes is None
    else:
        assert made == max(number for number, _ in numbers)
    if learner.n_passes is not None:
        assert made == learner.n_passes
    if parameters.get("learning") == "em":
        assert made == 2 + model.facts["em_passes"]  # the schema, pairs, and one for each iteration
        assert model.facts["n_rows"] == ROWS
