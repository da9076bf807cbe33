"""How probable further rows are under the most probable graph, and averaged over all graphs."""

import math

import numpy as np
import pyarrow as pa
import pytest

from learners.errors import UnknownColumn
from learners.models.estimation import Average
from learners.orders.queries import predictive
from learners.orders.queries.predictive import GraphAverage, NoRows, predictive_log_densities
from learners.orders.scores.bdeu_bge import BGe, BGePrior
from tests.naive import orders as naive
from tests.naive.orders import naive_bdeu
from tests.orders.problems import bge_of, gaussian_table, learned, log_fair, naive_bge

GRAPH = ((1,), (), (0, 1), (2,))


@pytest.mark.parametrize("prior", [BGePrior(), BGePrior(0.3, 7.5, 0.8)])
def test_a_row_is_as_probable_as_it_raises_the_score(prior):
    """p(x | rows, graph) is the marginal likelihood of the rows and x over that of the rows."""
    x = gaussian_table(4, 30, 1) + 0.5
    alpha_w, t = prior.resolved(4)

    def log_score(rows):
        log_family = naive_bge(rows, prior.alpha_mu, alpha_w, t)
        return sum(log_family(node, own) for node, own in enumerate(GRAPH))

    new = gaussian_table(4, 5, 2) * 3 - 1
    expected = [log_score(np.vstack([x, row])) - log_score(x) for row in new]
    np.testing.assert_allclose(predictive_log_densities(bge_of(x, prior), GRAPH, new), expected, rtol=1e-9)


def test_densities_add_up_to_one_in_the_units_of_the_columns():
    rng = np.random.default_rng(3)
    a = rng.normal(5.0, 40.0, 60)
    model = learned(pa.table({"a": a, "b": a / 1000 + rng.normal(0.0, 0.01, 60)}))
    grid_a, grid_b = np.linspace(-400, 400, 801), np.linspace(-0.5, 0.5, 801)
    mesh = np.stack(np.meshgrid(grid_a, grid_b), axis=-1).reshape(-1, 2)
    batch = pa.RecordBatch.from_arrays([pa.array(mesh[:, 0]), pa.array(mesh[:, 1])], names=["a", "b"])
    mass = np.exp(model.log_likelihood(batch)).sum() * (grid_a[1] - grid_a[0]) * (grid_b[1] - grid_b[0])
    assert mass == pytest.approx(1.0, abs=1e-3)


def test_rows_of_words_have_the_probabilities_of_the_tables():
    rng = np.random.default_rng(4)
    a = rng.integers(0, 2, 90)
    b = np.where(rng.random(90) < 0.9, a, 1 - a)
    table = pa.table({"a": pa.array([f"a{v}" for v in a]), "b": pa.array([f"b{v}" for v in b])})
    model = learned(table, ess=2.0)
    assert len(model.best_edges()) == 1
    (batch,) = pa.table({"b": ["b0", "b1", "new"], "a": ["a0", "a0", "a1"]}).to_batches()
    n_0, n_00 = np.sum(a == 0), np.sum((a == 0) & (b == 0))
    expected = [math.log((n_00 + 0.5) / 92), math.log((n_0 - n_00 + 0.5) / 92), math.nan]
    np.testing.assert_allclose(model.log_likelihood(batch), expected)


def test_what_is_missing_is_not_guessed():
    model = learned(pa.table({"a": np.arange(9.0) ** 2 + 0.5, "b": np.arange(9.0) + 0.5}))
    (batch,) = pa.table({"a": [1.0, None], "b": [2.0, 3.0]}).to_batches()
    assert np.isnan(model.log_likelihood(batch)).tolist() == [False, True]
    with pytest.raises(UnknownColumn, match="Column 'b' is not in the table"):
        model.log_likelihood(batch.select(["a"]))
    assert isinstance(model.posterior.bge, BGe)


def by_enumeration(of_rows, old, new, d, order_prior=True):
    """log p(row | rows) of each new row: of every graph, its posterior times what the row raises its score by."""
    prior = lambda node, own: of_rows(old)(node, own) + log_fair(d, len(own))  # noqa: E731
    graphs, weights, _ = naive.graph_posterior(prior, d, order_prior)
    before = [sum(of_rows(old)(node, own) for node, own in enumerate(graph)) for graph in graphs]
    found = []
    for row in new:
        after = of_rows(np.vstack([old, row]))
        ratios = [
            math.exp(sum(after(node, own) for node, own in enumerate(graph)) - log)
            for graph, log in zip(graphs, before, strict=True)
        ]
        found.append(math.log(weights @ np.array(ratios)))
    return found


def numbers():
    """A model of three columns of numbers in units of their own, new rows, and their log densities by enumeration."""
    x, new = gaussian_table(3, 25, 1), gaussian_table(3, 6, 2)
    scale, shift = np.array([10.0, 0.1, 3.0]), np.array([5.0, 0.0, -2.0])
    model = learned(pa.table(dict(zip("abc", (x * scale + shift).T, strict=True))))
    center, spread = (x * scale + shift).mean(axis=0), (x * scale + shift).std(axis=0)
    old, rows = ((own * scale + shift - center) / spread for own in (x, new))
    lost = np.log(spread).sum()
    table = pa.table(dict(zip("abc", (new * scale + shift).T, strict=True)))
    return model, table, lambda prior: np.array(by_enumeration(naive_bge, old, rows, 3, prior)) - lost


def words():
    """The same of three columns of states."""
    codes = np.random.default_rng(7).integers(0, 2, (60, 3))
    codes[:, 2] = np.where(codes[:, 0] == 1, codes[:, 2], codes[:, 1])
    table = lambda rows: pa.table({name: [f"{name}{v}" for v in rows[:, i]] for i, name in enumerate("abc")})  # noqa: E731
    new = np.array([[0, 0, 0], [1, 1, 1], [1, 0, 1]])
    of_rows = lambda rows: naive_bdeu(rows.T, [2, 2, 2], 1.0)  # noqa: E731
    return learned(table(codes)), table(new), lambda prior: by_enumeration(of_rows, codes, new, 3, prior)


@pytest.mark.parametrize("problem", [numbers, words])
def test_rows_averaged_over_graphs_are_as_probable_as_enumeration_says(problem, monkeypatch):
    model, table, expected = problem()
    (batch,) = table.to_batches()
    x = model.rows_of(batch)
    exact = GraphAverage(model.graph_queries, Average(), batch.num_rows)
    np.testing.assert_allclose(exact.log_likelihood(x), expected(True), rtol=1e-6)
    assert exact.to_json() == {"is_exact": True}
    monkeypatch.setattr(predictive, "EXACT_WORK", 0)
    for prior in ("order", "graph"):
        drawn = GraphAverage(model.graph_queries, Average(n=4000, prior=prior), batch.num_rows)
        found = drawn.log_likelihood(x)
        assert np.mean(found) == pytest.approx(
            np.mean(expected(prior == "order")), abs=4 * drawn.to_json()["standard_error"]
        )
        np.testing.assert_allclose(found, expected(prior == "order"), atol=0.1)
    x[0, 0] = np.nan
    assert np.isnan(drawn.log_likelihood(x)).tolist() == [True] + [False] * (batch.num_rows - 1)


def test_without_rows_no_average_of_states():
    table = pa.table({"a": ["u", "v"] * 9, "b": ["u", "u", "v"] * 6})
    with pytest.raises(NoRows, match="keep_rows=true"):
        GraphAverage(learned(table, keep_rows=False).graph_queries, Average(), 3)
