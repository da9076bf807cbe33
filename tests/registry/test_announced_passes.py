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
OF_COLUMNS = ("spn", "gibbs", "orders")  # need no class
CLASSIFIERS = [
    ("nb", {}),
    ("tan", {}),
    ("tan", {"average": True}),
    ("kdb", {"k": 2}),
    ("kdb", {"k": 2, "estimator": "m"}),
    ("skdb", {"k": 2}),
    ("eskdb", {"members": 2}),
    ("auto", {"members": 2}),
    ("auto", {"members": 2, "effort": "low"}),
    ("xgboost", {}),
]
OTHERS = [
    ("orders", {}),
    ("gibbs", {"iterations": 20, "draws": 4}),
    ("spn", {"minutes": 0.02, "passes": 3}),
    ("spn", {"structure": "chow-liu", "learning": "em", "passes": 3}),
    ("spn", {"structure": "hclt", "learning": "em", "passes": 3, "states": 2}),
    ("spn", {"structure": "random", "learning": "em", "passes": 3}),
    ("spn", {"structure": "learnspn", "learning": "em", "passes": 3}),
    ("spn", {"structure": "chow-liu", "learning": "adf"}),
    ("spn", {"structure": "chow-liu", "learning": "bmm", "stream_passes": 2}),
    ("spn", {"structure": "random", "learning": "none"}),
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


def passes_of(learner, source):
    """The model; the number of the last pass, and how many passes were announced by then."""
    numbers = []
    model = drive(learner, source, threads=1, on_progress=lambda one: numbers.append((one.pass_number, one.n_passes)))
    return model, *max(numbers)


def test_every_learner_is_counted():
    assert {name for name, _ in [*CLASSIFIERS, *OTHERS]} == set(recipes.LEARNERS)


@pytest.mark.parametrize(("name", "parameters"), [*CLASSIFIERS, *OTHERS])
def test_files_are_opened_once_a_pass(name, parameters, opened):
    source, times = opened
    learner = recipes.learner(name, parameters, None if name in OF_COLUMNS else "y")
    model, last, announced = passes_of(learner, source)
    if name == "xgboost":  # reads as often as XGBoost asks, and announces nothing
        assert announced is None
        return
    assert len(times) == last
    if name not in ("spn", "gibbs"):  # whose passes depend on the columns and on when the likelihood settles
        assert last == announced == learner.n_passes
    if parameters.get("learning") == "em":
        assert last == 2 + model.facts["em_passes"]  # the schema, what the structure needs, and one for each iteration
        assert model.facts["n_rows"] == ROWS


@pytest.mark.parametrize(("name", "parameters"), CLASSIFIERS)
def test_the_pass_that_draws_the_last_rows_is_announced_once_it_is_made(name, parameters, opened):
    source, times = opened
    learner = recipes.learner(name, parameters, "y", holdout_by="order")
    _, last, announced = passes_of(learner, source)
    if name == "xgboost":
        assert announced is None
    else:
        assert len(times) == last == announced == learner.n_passes + 1
