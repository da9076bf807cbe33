"""Rows with nulls: a null is a value, or it hides one."""

import numpy as np
import pytest

from learners.estimators.networks import KDB, NB, TAN, FewPassClassifier
from learners.schema import Chunk
from learners.schema.encoding.json_records import encode_records

COLUMNS = ("a", "b", "c", "d")


def table(n_rows=4000, seed=0):
    """Four columns that tell of the class, one of them null only for the class x."""
    random = np.random.default_rng(seed)
    y = random.choice(["x", "y"], n_rows)
    columns = {}
    for name in COLUMNS:
        tells = random.random(n_rows) < 0.75
        columns[name] = np.where(tells, y, np.where(y == "x", "y", "x")).astype(object)
    columns["d"][(y == "x") & (random.random(n_rows) < 0.3)] = None
    return columns, y


@pytest.mark.parametrize("learner", [NB, TAN, KDB, FewPassClassifier])
def test_nothing_known_gives_the_class_shares(learner):
    columns, y = table()
    fitted = learner().fit(columns, y)
    shares = [(y == k).mean() for k in fitted.classes_]
    assert fitted.predict_proba([{}])[0] == pytest.approx(shares, abs=0.01)
    assert fitted.predict_proba({})[0] == pytest.approx(shares, abs=0.01)


@pytest.mark.parametrize("learner", [NB, TAN, FewPassClassifier])
def test_a_null_that_training_supports_is_evidence(learner):
    columns, y = table()
    fitted = learner().fit(columns, y)
    assert fitted.predict_proba([{"a": "y", "b": "x", "c": "y", "d": None}])[0, 0] > 0.6


def test_a_few_nulls_of_one_class_are_little_evidence():
    columns, y = table(20_000)
    columns["d"] = np.where(columns["d"] == None, "x", columns["d"])  # noqa: E711  # numpy compares each
    columns["d"][np.flatnonzero(y == "x")[:3]] = None
    fitted = TAN().fit(columns, y)
    absent, null = (fitted.predict_proba([{"a": "y", **more}])[0, 0] for more in ({}, {"d": None}))
    assert absent == pytest.approx(0.25, abs=0.02)
    assert null < 0.8


@pytest.mark.parametrize("learner", [NB, KDB, FewPassClassifier])
def test_values_hidden_at_random_cost_as_much_as_values_not_sent(learner):
    columns, y = table()
    random = np.random.default_rng(1)
    for name in COLUMNS[:3]:  # now and then a null in each, which tells nothing
        columns[name][random.random(y.size) < 0.02] = None
    fitted = learner().fit(columns, y)
    test, truth = table(2000, seed=2)
    test["d"] = np.where(test["d"] == None, "x", test["d"])  # noqa: E711  # numpy compares each
    code = np.searchsorted(fitted.classes_, truth)
    hidden = {name: [None] * truth.size for name in ("a", "b")}
    losses = [
        -np.log(fitted.predict_proba(rows)[np.arange(truth.size), code]).mean()
        for rows in ({name: test[name] for name in ("c", "d")}, {**test, **hidden})
    ]
    assert losses[1] == pytest.approx(losses[0], rel=0.02)


def test_the_weight_of_a_null_is_that_of_its_definition():
    """Two nullable columns, naive Bayes: P(null is a value | row) by Bayes' rule, from the model's own answers and shares."""
    columns, y = table()
    columns["c"][np.random.default_rng(3).random(y.size) < 0.1] = None
    fitted = NB(m=1.0).fit(columns, y)
    model = fitted.model_
    row = {"a": "x", "b": "y", "c": None, "d": None}
    as_value = encode_records([row], model.schema).x
    hidden = encode_records([{"a": "x", "b": "y"}], model.schema).x
    joint_value, joint_hidden = (np.exp(model.log_joint(Chunk(x, None))[0]) for x in (as_value, hidden))
    hiding = 1 / 5 / 6  # 0 to 4 of four columns are hidden with equal probability, and there are six ways to hide two
    p_value = joint_value.sum() / (joint_value.sum() + hiding * joint_hidden.sum())
    expected = p_value * joint_value / joint_value.sum() + (1 - p_value) * joint_hidden / joint_hidden.sum()
    assert fitted.predict_proba([row])[0] == pytest.approx(expected, abs=1e-6)
