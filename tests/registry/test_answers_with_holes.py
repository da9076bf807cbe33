"""Every learner, estimator and pattern of nulls, absent and unseen columns: each row gets a distribution, whatever its neighbours are."""

import itertools

import numpy as np
import pyarrow as pa
import pytest

from learners.classifiers.recipes import ESTIMATORS
from learners.models.explanation import explain
from learners.passes.learner import drive
from learners.passes.sources.source import Source
from learners.registry.recipes import LEARNERS, learner
from learners.schema.encoding.encode import encode

TARGET = "class"
NETWORKS = ("nb", "tan", "kdb", "skdb")
CASES = [
    *((name, {"estimator": estimator}) for name in NETWORKS for estimator in ESTIMATORS),
    *((name, {"estimator": "m", "m": 0.0}) for name in NETWORKS),
    ("tan", {"average": True}),
    *((name, {}) for name, entry in LEARNERS.items() if entry.takes_target and name not in NETWORKS),
]
STATES = ("a", "b", "null", "absent", "unseen")


def training_rows():
    """Columns that exclude classes, and two whose nulls each belong to one class."""
    return pa.table(
        {
            "u": ["a", "a", "b", "b"] * 10,
            "v": ["a", "a", "b", "b"] * 10,
            "w": ["a", None, "a", None] * 10,
            "x": ["b", None, "b", "a"] * 10,
            TARGET: ["A", "A", "B", "B"] * 10,
        }
    )


def rows_with_every_state(schema):
    """Codes of all combinations of states of the four columns: (4, 5^4)."""
    names = [attribute.name for attribute in schema.attributes]
    states = [list(row) for row in itertools.product(STATES, repeat=len(names))]
    values = {"a": "a", "b": "b", "null": None, "absent": None, "unseen": "z"}
    columns = {name: pa.array([values[row[i]] for row in states], pa.string()) for i, name in enumerate(names)}
    (batch,) = pa.table(columns).to_batches()
    chunk = encode(batch, schema)
    absent = np.array([[row[i] == "absent" for row in states] for i in range(len(names))])
    x = np.where(absent, schema.domain_sizes[:, np.newaxis], chunk.x).astype(chunk.x.dtype)
    x.setflags(write=False)
    return type(chunk)(x, None), states


@pytest.mark.parametrize(("name", "parameters"), CASES)
def test_every_row_gets_a_distribution(name, parameters):
    model = drive(learner(name, parameters, TARGET), Source.of_table(training_rows()), threads=1)
    rows, states = rows_with_every_state(model.schema)
    answers = model.predict_proba(rows)
    for state, answer in zip(states, answers, strict=True):
        assert np.isfinite(answer).all() and answer.min() >= 0.0, f"{state}: {answer}"
        assert answer.sum() == pytest.approx(1.0, abs=1e-9), state
    for row in range(0, rows.n_rows, 37):
        alone = model.predict_proba(rows.rows(slice(row, row + 1)))[0]
        assert alone == pytest.approx(answers[row], abs=1e-6), states[row]
    assert explain(model, rows.rows(slice(0, 40))).probabilities == pytest.approx(answers[:40], abs=1e-6)


def test_a_row_that_neither_reading_of_its_null_allows_gets_the_class_shares():
    model = drive(learner("nb", {"estimator": "m", "m": 0.0}, TARGET), Source.of_table(training_rows()), threads=1)
    batch = pa.RecordBatch.from_pydict({"u": ["a", "a"], "v": ["b", "a"], "w": [None, "a"], "x": ["b", "b"]})
    impossible, usual = model.predict_proba(encode(batch, model.schema))
    assert impossible == pytest.approx([0.5, 0.5])
    assert usual == pytest.approx([1.0, 0.0])
