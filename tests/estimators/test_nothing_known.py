"""A record of which nothing is known gets the class shares, as each way of learning estimates them."""

import numpy as np
import pandas as pd
import pytest

from fewpass import TAN, SumProductNetwork
from learners.models.query import Marginal

pytestmark = pytest.mark.filterwarnings("ignore:The data lacks columns of the model")
WAYS = ["em", "adf", "bmm"]


def rows(n_rows, share, seed):
    rng = np.random.default_rng(seed)
    y = rng.random(n_rows) < share
    columns = {f"x{i}": np.where(rng.random(n_rows) < 0.2, ~y, y).astype(str) for i in range(4)}
    return pd.DataFrame(columns | {"class": np.where(y, "yes", "no")})


@pytest.fixture(scope="module", params=[(517, 0.0116), (2000, 0.3), (4000, 0.5)], ids=str)
def table(request):
    return rows(*request.param, seed=1)


@pytest.mark.parametrize("learning", WAYS)
def test_a_circuit_predicts_for_an_empty_record_what_it_says_of_the_class(table, learning):
    model = SumProductNetwork(target="class", learning=learning).fit(table)
    shares = table["class"].value_counts(normalize=True).reindex(list(model.classes_)).to_numpy()
    predicted = model.predict_proba({})[0]
    told = [model.query(Marginal({"class": label}))["probability"] for label in model.classes_]
    assert predicted == pytest.approx(told, rel=1e-6)
    assert predicted == pytest.approx(shares, abs=0.001 if learning == "em" else 0.03)


@pytest.mark.parametrize("ess", [0.5, 5.0, 50.0])
def test_an_average_of_trees_adds_its_prior_to_the_rows_of_each_class(table, ess):
    model = TAN(average=True, ess=ess).fit(table.drop(columns="class"), table["class"])
    counts = table["class"].value_counts().reindex(list(model.classes_)).to_numpy()
    expected = (counts + ess / counts.size) / (len(table) + ess)
    assert model.predict_proba({})[0] == pytest.approx(expected, rel=1e-9)
