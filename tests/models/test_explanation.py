"""Shapley values of models that are no sums: against their definition, and against sums where a model is one."""

import itertools
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners import Source, drive, encode
from learners.models.explanation import explain, masked_class_log_posteriors, shapley_terms
from learners.registry import recipes


def rows(n_columns, n_rows=300):
    rng = np.random.default_rng(n_columns)
    label = rng.integers(0, 3, n_rows)
    columns = {f"x{i}": (label + rng.integers(0, 3, n_rows) * (i + 1)) % 4 for i in range(n_columns - 1)}
    numbers = label + rng.normal(size=n_rows)
    return pa.table({**{name: c.astype(str) for name, c in columns.items()}, "z": numbers, "class": label.astype(str)})


def learned(learner, n_columns, **parameters):
    table = rows(n_columns)
    return drive(recipes.learner(learner, parameters, "class"), Source.of_table(table), threads=1), table


def chunk_of(model, table, n):
    return encode(table.to_batches()[0].slice(0, n), model.schema, with_class=False)


def naive_terms(model, chunk):
    """The mean over all orders of what each attribute adds."""
    d = chunk.x.shape[0]
    total = 0.0
    for order in itertools.permutations(range(d)):
        known = np.zeros(d, bool)
        terms, before = [None] * d, masked_class_log_posteriors(model, chunk, known)
        for i in order:
            known[i] = True
            after = masked_class_log_posteriors(model, chunk, known)
            terms[i], before = after - before, after
        total = total + np.stack(terms)
    return total / math.factorial(d)


@pytest.fixture(scope="module")
def circuit():
    return learned("spn", 4, structure="hclt", states=3, passes=3)


@pytest.fixture(scope="module")
def trees():
    return learned("tan", 4, average=True)


@pytest.mark.parametrize("name", ["circuit", "trees"])
def test_all_coalitions_are_the_mean_over_all_orders(name, request):
    model, table = request.getfixturevalue(name)
    chunk = chunk_of(model, table, 7)
    prior, terms = shapley_terms(model, chunk)
    np.testing.assert_allclose(terms, naive_terms(model, chunk), atol=1e-9)
    np.testing.assert_allclose(prior + terms.sum(axis=0), np.log(model.predict_proba(chunk)), atol=1e-9)


@pytest.mark.parametrize("n_columns", [4, 11])
def test_of_a_sum_they_are_its_terms(n_columns):
    """Whatever the order, an attribute of naive Bayes adds the same to the log odds: so samples of orders are exact."""
    model, table = learned("nb", n_columns, m=1.0)
    chunk = chunk_of(model, table, 50)
    expected = model.log_terms(chunk)[1]
    found = shapley_terms(model, chunk)[1]
    np.testing.assert_allclose(found - found[..., :1], expected - expected[..., :1], atol=1e-5)


def test_of_many_attributes_they_add_up():
    model, table = learned("spn", 11, structure="hclt", states=2, passes=2)
    chunk = chunk_of(model, table, 20)
    told = explain(model, chunk)
    rank = np.sort(np.log(told.probabilities), axis=1)
    np.testing.assert_allclose(told.log_odds, rank[:, -1] - rank[:, -2], atol=1e-9)
    np.testing.assert_allclose(told.prior + told.contributions.sum(axis=1), told.log_odds, atol=1e-9)


@given(st.sets(st.integers(0, 3)), st.integers(0, 6))
@settings(max_examples=15, deadline=None)
def test_what_is_not_known_adds_nothing(circuit, absent, n):
    model, table = circuit
    left = table.drop_columns([table.column_names[i] for i in sorted(absent)])
    prior, terms = shapley_terms(model, chunk_of(model, left, 6).rows(slice(0, n)))
    assert terms.shape == (4, n, 3) and np.exp(prior).sum() == pytest.approx(1)
    np.testing.assert_allclose(terms[sorted(absent)], 0, atol=1e-9)
