import numpy as np
import pyarrow as pa
import pytest

from learners import KDB, NB, encode, load_model
from learners.classifiers.estimates.context_tree import context_tree_from_cells
from learners.classifiers.estimates.hdp import Chain, HDPParameters
from learners.errors import InvalidParameter
from service.operations.bench import KnownNetwork
from tests.naive.known_networks import posterior


def table_of(network, n_rows, seed):
    x, y = network.draw(n_rows, np.random.default_rng(seed))
    return x, pa.table({f"a{i}": codes.astype(str) for i, codes in enumerate(x)} | {"class": y.astype(str)})


@pytest.mark.parametrize("estimator", ["hdp", "hdp-map"])
def test_most_intervals_hold_the_true_probability(estimator):
    """90 % intervals of a network of the right structure hold the truth in 80 to 99 % of fresh rows."""
    network = KnownNetwork.random(6, 3, 2, 0, seed=4)
    _, train = table_of(network, 3000, 1)
    x, test = table_of(network, 4000, 2)
    model = NB(estimator=estimator, iterations=500).fit(train, "class")
    low, high = model.predict_interval(test, 0.9)
    truth, mean = posterior(network, x), model.predict_proba(test)
    assert np.all((low <= mean) & (mean <= high) & (low >= 0) & (high <= 1))
    assert 0.8 < np.mean((low <= truth) & (truth <= high)) < 0.99


def test_intervals_are_those_of_the_draws():
    """One attribute, two classes: the spread of P(y | x) over draws of all probabilities from their posterior."""
    counts = np.array([8, 4, 30, 90])
    y, x = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    rows = pa.table({"a": np.repeat(x, counts).astype(str), "class": np.repeat(y, counts).astype(str)})
    model = NB(estimator="hdp", iterations=5000).fit(rows, "class")
    low, high = model.predict_interval(pa.table({"a": ["0"]}), 0.9)
    chain = Chain(context_tree_from_cells(y, np.zeros((4, 0), int), x, counts, 2), HDPParameters(), 0)
    rng = np.random.default_rng(0)
    drawn = np.empty(4000)
    for i in range(drawn.size):
        chain.sweep(5)
        a = chain.state.weight[:2]  # concentration times the root's probabilities
        theta = [rng.dirichlet(counts[2 * k : 2 * k + 2] + a)[0] for k in (0, 1)]
        prior = rng.dirichlet([12, 120])
        joint = prior * theta
        drawn[i] = joint[0] / joint.sum()
    assert np.abs(np.quantile(drawn, [0.05, 0.95]) - [low[0, 0], high[0, 0]]).max() < 0.04


def test_more_rows_and_lower_levels_narrow_them():
    network = KnownNetwork.random(5, 3, 3, 1, seed=0)
    _, test = table_of(network, 200, 9)
    widths = []
    for n_rows in (300, 30_000):
        _, train = table_of(network, n_rows, 1)
        model = KDB(k=2, estimator="hdp-map").fit(train, "class")
        for level in (0.9, 0.5):
            low, high = model.predict_interval(test, level)
            widths.append(float((high - low).mean()))
    assert widths[0] > widths[1] > widths[2] > widths[3] > 0


def test_a_stored_model_keeps_them_and_wrong_use_is_named():
    network = KnownNetwork.random(4, 3, 2, 1, seed=0)
    _, train = table_of(network, 500, 1)
    model = KDB(estimator="hdp-map").fit(train, "class")
    again = load_model(*model.model_.to_arrays())
    chunk = encode(train, again.schema)
    assert np.array_equal(again.credible_intervals(chunk)[0], model.model_.credible_intervals(chunk)[0])
    with pytest.raises(InvalidParameter, match="above 0 and below 1"):
        model.predict_interval(train, 1.5)
    with pytest.raises(InvalidParameter, match="m-estimates"):
        KDB(estimator="m").fit(train, "class").predict_interval(train)
