"""scikit-learn's own checks, weights, learning in parts."""

import pickle
import subprocess
import sys
import warnings

import numpy as np
import pyarrow as pa
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from learners import KDB, NB, SKDB, TAN
from learners.errors import ColumnWarning, InvalidParameter, LearnerError, SchemaError
from learners.passes.column_summaries import ColumnSummaries
from tests.naive.information import freedom, mutual_information


@parametrize_with_checks([NB(m=1.0), TAN(m=1.0), KDB(k=2, m=1.0), SKDB(k=2, m=1.0), NB(estimator="hdp-map")])
@pytest.mark.filterwarnings("ignore::learners.errors.ColumnWarning", "ignore::sklearn.exceptions.SkipTestWarning")
def test_scikit_learn_finds_nothing_wrong(estimator, check):
    check(estimator)


@pytest.fixture
def table():
    rng = np.random.default_rng(5)
    y = rng.integers(0, 3, 300)
    words = np.array(["u", "v", "w", "x"])
    columns = {f"a{i}": words[(rng.integers(0, 2, 300) + y * (i > 0)) % 4] for i in range(4)}
    return pa.table(columns | {"size": rng.normal(y, 1.0), "class": np.array(["no", "maybe", "yes"])[y]})


def arrays_of(estimator):
    header, arrays = estimator.model_.to_arrays()
    return header["parents"], {name: array.tobytes() for name, array in arrays.items()}


def test_a_large_weight_makes_no_large_batch(table):
    weights = np.ones(table.num_rows, int)
    weights[7] = 200_000
    assert NB(m=1.0).fit(table, "class", sample_weight=weights).model_.facts["n_rows"] == table.num_rows - 1 + 200_000


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([0.5] * 300, "row 0 must be a whole number"),
        ([1] * 299 + [-1], "row 299 must be a whole number"),
        ([float("nan")] * 300, "whole number from 0 to"),
        ([1] * 7, "one weight for each of the 300 rows"),
        ([0] * 300, "all weights are zero"),
        (["a"] * 300, "one number for each row"),
        ([[1]] * 300, "one number for each row"),
    ],
)
def test_other_weights_are_refused(weights, message, table):
    with pytest.raises(InvalidParameter, match=message):
        NB().fit(table, "class", sample_weight=weights)


def test_weights_beside_paths_are_refused():
    with pytest.raises(InvalidParameter, match="with paths, name the column"):
        NB(target="class").fit("some.parquet", sample_weight=[1])


@pytest.mark.parametrize("make", [NB, lambda: KDB(k=2), lambda: SKDB(k=2, estimator="hdp-map")])
def test_learning_in_parts_gives_the_model_of_all_rows(make, table):
    whole = make().fit(table, "class")
    parts = make()
    for first in (0, 50, 120):
        parts.partial_fit(table.slice(first, {0: 50, 50: 70, 120: 180}[first]), "class")
    assert arrays_of(parts) == arrays_of(whole)


def test_classes_that_come_later_are_declared(table):
    is_no = pa.compute.equal(table["class"], "no")
    model = NB().partial_fit(table.filter(is_no), "class", classes=["yes", "no", "maybe"])
    assert model.classes_.tolist() == ["maybe", "no", "yes"]
    probabilities = model.predict_proba(table)
    assert np.allclose(probabilities.sum(axis=1), 1) and (probabilities.argmax(axis=1) == 1).all()
    model.partial_fit(table.filter(pa.compute.invert(is_no)), "class")
    assert np.allclose(model.predict_proba(table), NB().fit(table, "class").predict_proba(table))
    with pytest.raises(SchemaError, match="only one class, 'no'"):
        NB().fit(table.filter(is_no), "class")


def test_parts_of_other_tables_are_refused(table):
    model = NB().partial_fit(table, "class")
    with pytest.raises(InvalidParameter, match="the rows so far had the classes in 'class'"):
        model.partial_fit(table, "a0")
    by_position = NB().partial_fit(np.eye(4), [0, 1, 0, 1])
    with pytest.raises(SchemaError, match="X has 3 features, but NB is expecting 4 features"):
        by_position.partial_fit(np.eye(3), [0, 1, 0])


def test_log_probabilities_are_logarithms(table):
    model = KDB(k=2).fit(table, "class")
    assert np.array_equal(model.predict_log_proba(table), np.log(model.predict_proba(table)))


def test_importances_of_naive_bayes_are_corrected_mutual_information(table):
    model = NB(columns={"size": "drop"}).fit(table, "class")
    y, nothing = table["class"].to_numpy(), np.zeros(300)
    columns = [table[name].to_numpy() for name in model.feature_names_in_[:4]]
    told = [max(0.0, mutual_information(x, y) - freedom(x, y, nothing) / 600) for x in columns]
    assert np.allclose(model.feature_importances_[:4], np.array(told) / sum(told))


def test_importances_where_nothing_is_told_or_there_is_no_network(table):
    model = NB().fit(table, "class")
    noise = NB(columns={"a": "nominal"}).fit(pa.table({"a": [1, 2] * 50, "class": ["a", "a", "b", "b"] * 25}), "class")
    assert noise.feature_importances_.tolist() == [0.0]
    model._columns.model = object.__new__(type("Other", (), {"kind": "other"}))
    with pytest.raises(LearnerError, match="'other' have no importances"):
        model.feature_importances_  # noqa: B018
    assert not hasattr(model, "feature_importances_")


def test_a_fitted_estimator_can_be_pickled_after_it_has_answered(table):
    model = NB().fit(table, "class")
    row = {"a1": "u", "size": 0.5}
    expected = model.predict_proba(row)
    assert np.array_equal(pickle.loads(pickle.dumps(model)).predict_proba(row), expected)


def test_what_a_pass_has_collected_is_not_changed_by_declared_classes(table):
    """It may be stored at that moment."""
    summaries = ColumnSummaries("class")
    summaries.update(table.to_batches()[0])
    before = list(summaries.classes)
    from learners.estimators.labels import knowing

    def passes():
        found = yield summaries
        return list(found.classes)

    made = knowing(passes(), ["later"])
    next(made)
    with pytest.raises(StopIteration) as stopped:
        made.send(summaries)
    assert stopped.value.value == [*before, "later"] and summaries.classes == before


def test_scikit_learn_is_imported_with_the_first_estimator_only():
    told = (
        "import sys, learners; learners.Source, learners.encode, learners.learner, learners.load_model, "
        "learners.record_classifier; assert 'sklearn' not in sys.modules; learners.NB; assert 'sklearn' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", told], check=True, timeout=120)


def test_nothing_is_said_where_nothing_is_lost(table):
    with warnings.catch_warnings():
        warnings.simplefilter("error", ColumnWarning)
        model = NB().fit(table, "class")
        model.predict(table)
        model.predict_proba({"a1": "u"})
