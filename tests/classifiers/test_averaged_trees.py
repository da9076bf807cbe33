"""TAN averaged over all trees, against the enumeration of every tree."""

import itertools
import json
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fewpass import TAN
from learners import Source, drive, load_model
from learners.classifiers.averaged_trees import (
    GRID,
    AveragedTrees,
    empirical_bayes_tree_posterior,
    most_probable_tree_edges,
    tree_edge_probabilities,
    tree_posterior,
)
from learners.classifiers.tree_sum_kernels import log_spanning_tree_sum_of_logs
from learners.counts.pairwise import PairwiseCounts
from learners.errors import InvalidArray, InvalidParameter
from learners.registry import recipes
from learners.schema import Chunk
from tests.naive import trees as naive
from tests.strategies import schema_of


def log_weights_of(n, seed, spread):
    logs = np.random.default_rng(seed).normal(size=(n, n)) * spread
    logs = np.where(np.triu(np.ones((n, n), bool), 1), logs, 0.0)
    logs = logs + logs.T
    np.fill_diagonal(logs, -np.inf)
    return logs


def naive_logs(logs):
    return [sum(logs[i, j] for i, j in edges) for edges in naive.all_trees(len(logs))]


def test_the_enumeration_is_complete():
    assert [len(set(map(frozenset, naive.all_trees(n)))) for n in range(1, 7)] == [1, 1, 3, 16, 125, 1296]


@given(n=st.integers(1, 6), seed=st.integers(0, 10_000), spread=st.sampled_from([0.0, 1.0, 300.0, 20_000.0]))
def test_the_sum_is_that_of_all_trees(n, seed, spread):
    """However far the weights lie apart: no double holds e^20,000."""
    logs = log_weights_of(n, seed, spread)
    assert log_spanning_tree_sum_of_logs(logs) == pytest.approx(
        np.logaddexp.reduce(naive_logs(logs)), rel=1e-12, abs=1e-9
    )


def test_nothing_is_lost_where_a_determinant_cancels():
    """Two groups bound by e^700 and joined by an edge of e^-700, which a Laplacian in doubles does not see."""
    logs = np.full((6, 6), -np.inf)
    for group in ((0, 1, 2), (3, 4, 5)):
        for i, j in itertools.combinations(group, 2):
            logs[i, j] = logs[j, i] = 700.0
    logs[2, 3] = logs[3, 2] = -700.0
    assert log_spanning_tree_sum_of_logs(logs) == pytest.approx(2 * (math.log(3.0) + 1400.0) - 700.0, rel=1e-14)


@given(n=st.integers(1, 6), seed=st.integers(0, 10_000), spread=st.sampled_from([0.0, 1.0, 300.0]))
def test_edges_are_as_probable_as_in_all_trees(n, seed, spread):
    logs = log_weights_of(n, seed, spread)
    of_trees = naive_logs(logs)
    weights = np.exp(np.array(of_trees) - np.logaddexp.reduce(of_trees))
    expected = np.zeros((n, n))
    for edges, weight in zip(naive.all_trees(n), weights, strict=True):
        for i, j in edges:
            expected[i, j] += weight
    found = tree_edge_probabilities(logs)
    np.testing.assert_allclose(found, expected + expected.T, atol=1e-9)
    assert found.sum() == pytest.approx(2 * max(0, n - 1))
    best = {frozenset(edge) for edge in most_probable_tree_edges(logs)}
    assert sum(logs[tuple(edge)] for edge in best) == pytest.approx(max(of_trees))


def problem(n, n_rows, seed, n_classes=2):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 4, n)
    y = rng.integers(0, n_classes, n_rows)
    is_copy = rng.random((n, n_rows)) < 0.5
    x = np.stack([np.where(is_copy[i], (y + i) % v, rng.integers(0, v, n_rows)) for i, v in enumerate(sizes)])
    schema = schema_of(sizes, n_classes)
    pairs = PairwiseCounts(schema)
    pairs.update(Chunk(np.ascontiguousarray(x.astype(np.uint8)), y.astype(np.uint8)))
    return schema, pairs, x, y, sizes


@settings(max_examples=8)
@given(n=st.integers(1, 4), seed=st.integers(0, 1000), ess=st.sampled_from([0.5, 3.0]))
@example(n=5, seed=5, ess=1.0)
def test_the_class_posterior_is_the_average_over_all_trees_and_parameters(n, seed, ess):
    schema, pairs, x, y, sizes = problem(n, 12, seed, 3)
    found = tree_posterior(pairs, ess)
    model = AveragedTrees.of(schema, pairs.class_counts, found, {})
    rows = np.stack([np.random.default_rng(seed + k).integers(0, sizes) for k in range(2)], axis=1)
    probabilities = model.predict_proba(Chunk(np.ascontiguousarray(rows.astype(np.uint8)), None))
    for row, told in zip(rows.T, probabilities, strict=True):
        np.testing.assert_allclose(told, naive.class_posterior(x, y, sizes, 3, ess, row), rtol=1e-9)
    of_trees = [naive.log_likelihood(x, y, sizes, 3, edges, ess) for edges in naive.all_trees(n)]
    expected = np.logaddexp.reduce(of_trees) - math.log(len(of_trees))
    assert found.log_evidence == pytest.approx(expected, rel=1e-10)


def test_the_prior_with_the_largest_evidence_is_chosen():
    _, pairs, *_ = problem(4, 60, 3)
    evidence = {ess: tree_posterior(pairs, ess).log_evidence for ess in GRID}
    assert empirical_bayes_tree_posterior(pairs).ess == max(evidence, key=evidence.get)


def test_absent_attributes_are_left_out():
    """Two independent pairs of attributes: without one pair, the class posterior is that of the other alone."""
    schema, pairs, *_ = problem(3, 40, 4)
    model = AveragedTrees.of(schema, pairs.class_counts, tree_posterior(pairs, 1.0), {})
    x = np.array([[0], [9], [9]], np.uint8)
    expected = np.exp(model.log_prior + model.alone[:2])
    np.testing.assert_allclose(model.predict_proba(Chunk(x, None))[0], expected / expected.sum())
    nothing = np.full((3, 1), 9, np.uint8)
    np.testing.assert_allclose(model.predict_proba(Chunk(nothing, None))[0], np.exp(model.log_prior))


def table(n_rows=400, seed=1):
    rng = np.random.default_rng(seed)
    y = rng.random(n_rows) < 0.4
    a = np.where(rng.random(n_rows) < 0.7, np.where(y, "p", "q"), "r")
    return pa.table(
        {"a": a, "b": rng.normal(y * 2.0, 1.0), "c": rng.choice(["u", "v"], n_rows), "y": np.where(y, "yes", "no")}
    )


def test_the_learner_makes_one_pass_after_the_schema_and_the_model_is_read_again():
    accounts = []
    model = drive(recipes.learner("tan", {"average": True}, "y"), Source.of_table(table()), accounts=accounts)
    assert [account.stage for account in accounts] == ["reading the schema", "counting pairs"]
    header, arrays = model.to_arrays()
    header = json.loads(json.dumps(header))
    again = load_model(header, arrays, is_trusted=False)
    estimator = TAN(target="y", average=True).fit(table())
    probabilities = estimator.predict_proba(table(50, 2))
    np.testing.assert_array_equal(
        TAN(target="y", average=True, threads=2).fit(table()).predict_proba(table(50, 2)), probabilities
    )
    assert np.mean(estimator.predict(table(300, 3)) == table(300, 3)["y"].to_numpy()) > 0.75
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    assert again.structure() == model.structure()
    assert sum(edge["rank"] for edge in model.structure()["edges"]) == 2
    assert model.tables()["edges"].num_rows == 3
    for name, change, reason in (
        ("ratios", lambda a: a[:-1], "is float64 of shape"),
        ("ratios", lambda a: -a, "is not a ratio"),
        ("ratios", lambda a: np.full_like(a, 1e300), "is not a ratio"),
        ("alone", lambda a: a * np.nan, "contains a value that is not finite"),
        ("log_weights", lambda a: np.arange(a.size, dtype=float), "is not symmetric"),
    ):
        with pytest.raises(InvalidArray, match=reason):
            load_model(header, arrays | {name: change(arrays[name])}, is_trusted=False)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"average": True, "estimator": "hdp"}, "average=true has its own estimates; leave estimator out"),
        ({"average": True, "m": 1.0}, "average=true has its own estimates: use ess"),
        ({"ess": 1.0}, "it belongs to average=true"),
        ({"average": True, "ess": 0.0}, "a number from 0 to 1e9"),
    ],
)
def test_parameters_that_contradict_each_other_are_refused(parameters, message):
    with pytest.raises(InvalidParameter, match=message):
        recipes.learner("tan", parameters, "y")
