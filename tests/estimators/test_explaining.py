"""Contributions and importances of the columns, of every learner."""

import numpy as np
import pyarrow as pa
import pytest

from fewpass import ESKDB, KDB, NB, SKDB, TAN, CircuitPosterior, FewPassClassifier, SumProductNetwork
from learners import encode, explain
from learners.errors import NoClass
from tests.naive.information import mutual_information

EVERY = {
    "auto": FewPassClassifier,
    "eskdb": ESKDB,
    "nb": NB,
    "tan": TAN,
    "averaged": lambda: TAN(average=True),
    "kdb": KDB,
    "skdb": SKDB,
    "spn": SumProductNetwork,
    "draws": lambda: CircuitPosterior(iterations=20, draws=5),
}


@pytest.fixture(scope="module")
def table():
    """`told` tells most of the class, `some` a little, `noise` nothing; `same` is left out."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 2000)
    some = np.where(rng.random(2000) < 0.7, y, 1 - y)
    told = np.where(rng.random(2000) < 0.95, y, 1 - y)
    columns = {"some": np.array(["u", "v"])[some], "noise": rng.normal(size=2000), "same": ["s"] * 2000}
    return pa.table(columns | {"told": np.array(["l", "m"])[told], "class": np.array(["no", "yes"])[y]})


@pytest.fixture(scope="module", params=EVERY)
def model(request, table):
    return EVERY[request.param]().fit(table, "class")


def test_importances_of_every_learner(model):
    assert model.feature_names_in_.tolist() == ["some", "noise", "same", "told"]
    some, noise, same, told = model.feature_importances_
    assert some + noise + same + told == pytest.approx(1)
    assert told > 2 * some > 4 * noise >= same == 0


def test_importances_of_averaged_trees_and_circuits_are_mutual_information(table):
    """Against the counts; the circuit's own distribution and that of the data differ little here."""
    x, y = ((table[name].to_numpy() == value) for name, value in (("told", "m"), ("class", "yes")))
    from learners.registry.model_kinds import kind_of

    for learner, tolerance in ((TAN(average=True), 0.01), (SumProductNetwork(), 0.05)):
        model = learner.fit(table, "class").model_
        place = [attribute.name for attribute in model.schema.attributes].index("told")
        assert kind_of(model).importances(model)[place] == pytest.approx(mutual_information(x, y), rel=tolerance)


def test_contributions_are_told_in_the_order_of_the_columns(model, table):
    rows = table.slice(0, 20)
    told = model.explain(rows)
    plain = explain(model.model_, encode(rows.combine_chunks().to_batches()[0], model.model_.schema, with_class=False))
    assert told.contributions.shape == (20, 4) and (told.contributions[:, 2] == 0).all()
    for i, attribute in enumerate(model.model_.schema.attributes):
        column = model.feature_names_in_.tolist().index(attribute.name)
        assert np.array_equal(told.contributions[:, column], plain.contributions[:, i])
    assert np.array_equal(told.log_odds, plain.log_odds) and np.array_equal(told.predicted, plain.predicted)
    assert (model.classes_[told.predicted] == model.predict(rows)).all()


def test_a_record_and_no_rows_are_explained(table):
    model = NB().fit(table, "class")
    assert np.array_equal(model.explain({"told": "m"}).log_odds, model.explain([{"told": "m"}]).log_odds)
    assert model.explain(table.slice(0, 0)).contributions.shape == (0, 4)


def test_without_a_class_there_is_nothing_to_explain(table):
    model = SumProductNetwork().fit(table)
    with pytest.raises(NoClass, match="learned without a target"):
        model.explain(table)
    assert not hasattr(model, "feature_importances_")
