"""`SumProductNetwork`: the same class over every way of learning circuits and every form of a table."""

import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import check_estimator

from fewpass import CircuitPosterior, SumProductNetwork
from learners.errors import InvalidParameter, SchemaError, UnknownColumn
from learners.models.query import Conditional, Marginal, Moments

WAYS = {
    "em": {"structure": "chow-liu", "leaves": "gaussian"},
    "adf": {"learning": "adf", "structure": "random", "leaves": "gaussian"},
    "bmm": {"learning": "bmm", "structure": "random"},
    "none": {"learning": "none", "structure": "learnspn"},
    "gibbs": {"iterations": 30, "draws": 10},
}


def frame_of(n=300, seed=0):
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, n)
    return pd.DataFrame(
        {
            "x": rng.normal(6.0 * group, 1.0),
            "word": np.array(["u", "v", "w"])[(group + (rng.random(n) < 0.1)) % 3],
            "class": np.array(["a", "b"])[group],
        }
    )


@pytest.fixture(scope="module", params=WAYS)
def fitted(request):
    return (CircuitPosterior if request.param == "gibbs" else SumProductNetwork)(
        target="class", **WAYS[request.param]
    ).fit(frame_of())


def test_every_way_of_learning_answers_alike(fitted):
    rows = frame_of(80, seed=1)
    logs = fitted.score_samples(rows)
    assert logs.shape == (80,) and fitted.score(rows) == pytest.approx(logs.mean())
    p = fitted.predict_proba(rows)
    assert p.sum(axis=1) == pytest.approx(np.ones(80)) and fitted.classes_.tolist() == ["a", "b"]
    # The class of a row is part of its likelihood: those of both classes add up to that without it.
    each = np.stack([fitted.score_samples(rows.assign(**{"class": name})) for name in "ab"])
    assert np.logaddexp(*each) == pytest.approx(fitted.score_samples(rows.drop(columns="class")))
    posterior = np.exp(each - np.logaddexp(*each)).T
    is_clear = np.abs(p[:, 0] - 0.5) > 0.1  # draws are averaged in two ways
    assert is_clear.sum() > 60 and np.array_equal(posterior.argmax(axis=1)[is_clear], p.argmax(axis=1)[is_clear])
    answer = fitted.query(Conditional(("class",), {"word": "w"}))
    assert sum(answer["distributions"]["class"].values()) == pytest.approx(1)
    assert ("intervals" in answer) == isinstance(fitted, CircuitPosterior)
    assert fitted.feature_names_in_.tolist() == ["x", "word"] and fitted.n_features_in_ == 2


def test_rows_that_are_drawn_have_the_columns_and_types_of_the_table(fitted):
    drawn = fitted.sample(400, random_state=0)
    assert drawn.dtypes.tolist() == frame_of().dtypes.tolist() and list(drawn) == ["x", "word", "class"]
    assert drawn.equals(fitted.sample(400, random_state=0)) and not drawn.equals(fitted.sample(400, random_state=1))
    p = np.exp(fitted.query(Marginal({"class": "a"}))["log_probability"])
    assert (drawn["class"] == "a").mean() == pytest.approx(p, abs=4 * np.sqrt(0.25 / 400) + 0.02)
    assert set(fitted.sample(20, given={"class": "b"})["class"]) == {"b"}


def test_gaps_are_filled(fitted):
    rows = frame_of(60, seed=2)
    holes = rows.copy()
    holes.loc[::3, "word"] = None
    holes.loc[1::3, "x"] = np.nan
    full = fitted.impute(holes)
    assert not full.isna().any().any() and list(full) == list(rows)
    assert full[holes.notna()].equals(rows[holes.notna()])
    drawn = fitted.impute(holes, "draw", seed=1)
    assert not drawn.isna().any().any() and drawn.equals(fitted.impute(holes, "draw", seed=1))


def test_classes_are_told_apart_and_a_posterior_has_intervals_also_pickled(fitted):
    test = frame_of(200, seed=3)
    assert (fitted.predict(test.drop(columns="class")) == test["class"]).mean() > 0.9
    again, p = pickle.loads(pickle.dumps(fitted)), fitted.predict_proba(test)
    assert np.array_equal(again.predict_proba(test), p)
    if not isinstance(fitted, CircuitPosterior):
        with pytest.raises(InvalidParameter, match=r"interval=0.9 .*learner gibbs"):
            fitted.predict_interval(test)
        return
    low, high = again.predict_interval(test, 0.8)
    assert (low <= p + 1e-9).all() and (p <= high + 1e-9).all()
    assert fitted.query(Moments(("x",), {"class": "a"}))["moments"]["x"]["standard_error"] > 0
    assert fitted.explain(test[:0]).contributions.shape == (0, fitted.n_features_in_)


def test_tables_come_in_every_form(tmp_path):
    frame = frame_of().drop(columns="class")
    pq.write_table(pa.Table.from_pandas(frame), tmp_path / "x.parquet")
    wanted = SumProductNetwork(**WAYS["em"]).fit(frame).score_samples(frame)
    of_file = SumProductNetwork(**WAYS["em"]).fit(str(tmp_path / "x.parquet"))
    assert of_file.score_samples(str(tmp_path / "x.parquet")) == pytest.approx(wanted)
    assert isinstance(of_file.sample(3), pa.Table) and isinstance(of_file.impute(tmp_path / "x.parquet"), pa.Table)
    numbers = frame_of()[["x"]].assign(y=lambda t: t["x"] ** 2).to_numpy()
    of_array = SumProductNetwork(**WAYS["em"]).fit(numbers)
    assert of_array.sample(5).shape == (5, 2) and of_array.score_samples(numbers).shape == (300,)
    assert np.isfinite(of_array.impute(np.array([[np.nan, 1.0]]))).all()
    with pytest.raises(SchemaError, match="X has 3 features, but SumProductNetwork is expecting 2"):
        of_array.score_samples(np.zeros((2, 3)))


def test_what_makes_no_sense_is_refused():
    with pytest.raises(NotFittedError, match="not fitted"):
        SumProductNetwork().score_samples(frame_of())
    fitted = SumProductNetwork(**WAYS["em"]).fit(frame_of().drop(columns="class"))
    with pytest.raises(AttributeError, match="has no attribute 'predict'") as raised:
        fitted.predict(frame_of())
    assert "pass target='…', or y to fit" in str(raised.value.__cause__)
    with pytest.raises(InvalidParameter, match="n_samples=0"):
        fitted.sample(0)
    with pytest.raises(UnknownColumn, match="'wrod' is not in the table"):
        fitted.sample(3, given={"wrod": "u"})
    with pytest.raises(InvalidParameter, match=r"y .ndarray. .* the class column"):
        SumProductNetwork().fit("x.parquet", np.zeros(3))


def test_scikit_learn_clones_and_validates():
    network = SumProductNetwork(**WAYS["em"])
    assert clone(network).get_params() == network.get_params()
    assert np.isfinite(cross_val_score(network, frame_of().drop(columns="class"), cv=3)).all()
    check_estimator(network)


def test_sampling_is_no_way_of_learning_of_one_network():
    with pytest.raises(InvalidParameter, match=r"learning='gibbs' is not allowed: .* learner gibbs .CircuitPosterior"):
        SumProductNetwork(learning="gibbs").fit(frame_of())
    with pytest.raises(TypeError, match=r"'iterations'; sampling is the learner gibbs .CircuitPosterior in Python"):
        SumProductNetwork(iterations=20)


def test_what_an_earlier_release_pickled_as_a_network_is_a_posterior(fitted):
    if isinstance(fitted, CircuitPosterior):
        old = SumProductNetwork.__new__(SumProductNetwork)
        old.__setstate__(vars(fitted) | {"learning": "gibbs", "leaves": None})
        assert type(old) is CircuitPosterior and old.get_params() == fitted.get_params()
        assert np.array_equal(old.predict_proba(frame_of(9)), fitted.predict_proba(frame_of(9)))
