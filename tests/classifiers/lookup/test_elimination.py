"""What a network says with attributes missing, against sums over all worlds and against its circuit."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.circuits.model import CircuitModel
from learners.circuits.structures.from_network import network_circuit
from learners.classifiers.lookup import elimination
from learners.classifiers.lookup.elimination import Elimination
from learners.classifiers.lookup.lookup import LookupModel
from learners.models.query import Conditional
from learners.schema import Chunk
from tests.circuits.structures.test_from_network import STRUCTURES, network_joint, trained

TOLERANCE = 1e-5  # tables hold logarithms as float32


def rows_with_holes(seed, sizes, n_rows=12):
    """Codes of which some are missing: (n_attributes, n_rows)."""
    random = np.random.default_rng(seed)
    x = random.integers(0, np.array(sizes)[:, np.newaxis], (len(sizes), n_rows))
    return np.where(random.random(x.shape) < random.random(n_rows), np.array(sizes)[:, np.newaxis], x).astype(np.uint8)


def of_known(joint, row, sizes, n_classes):
    """(n_classes,) probabilities of the class and of what is known of a row, summed over all worlds."""
    p = np.zeros(n_classes)
    for world in itertools.product(*(range(s) if code >= s else [code] for code, s in zip(row, sizes, strict=True))):
        for k in range(n_classes):
            p[k] += joint[(*world, k)]
    return p


@pytest.mark.parametrize("hierarchical", [False, True])
@pytest.mark.parametrize("name", STRUCTURES)
@given(seed=st.integers(0, 2**32 - 1), sizes=st.lists(st.integers(1, 3), min_size=1, max_size=5), c=st.integers(2, 3))
@settings(max_examples=15)
def test_missing_attributes_are_summed_out(name, hierarchical, seed, sizes, c):
    model = trained(seed, sizes, c, STRUCTURES[name], hierarchical, n_rows=30)
    joint, x = network_joint(model), rows_with_holes(seed, sizes)
    logs, answers = model.log_joint(Chunk(x, None)), model.predict_proba(Chunk(x, None))
    for row, log_p, answer in zip(x.T.tolist(), logs, answers, strict=True):
        expected = of_known(joint, row, sizes, c)
        assert np.exp(log_p) == pytest.approx(expected, rel=TOLERANCE)
        assert answer == pytest.approx(expected / expected.sum(), abs=TOLERANCE)


@given(seed=st.integers(0, 2**32 - 1), k=st.sampled_from(["tan", "kdb2", "kdb3"]))
@settings(max_examples=15)
def test_predict_and_query_of_one_network_agree(seed, k):
    sizes = [3, 2, 4, 3, 2]
    model = trained(seed, sizes, 3, STRUCTURES[k], hierarchical=True)
    circuit = CircuitModel(model.schema, network_circuit(model), {})
    x = rows_with_holes(seed, sizes, 6)
    for row, answer in zip(x.T.tolist(), model.predict_proba(Chunk(x, None)), strict=True):
        known = {
            attribute.name: attribute.values[code]
            for attribute, code in zip(model.schema.attributes, row, strict=True)
            if code < attribute.n_values
        }
        (asked,) = circuit.answer([Conditional(("class",), known)])
        by_class = asked["distributions"]["class"]
        assert answer == pytest.approx([by_class[name] for name in model.schema.classes], abs=TOLERANCE)


def test_a_chain_is_followed_through_its_missing_middle():
    """y → a → b: b alone tells of y by way of a."""
    random = np.random.default_rng(0)
    y = random.integers(0, 2, 20_000)
    a = np.where(random.random(y.size) < 0.9, y, 1 - y)
    b = np.where(random.random(y.size) < 0.95, a, 1 - a)
    truth = [(y[b == v] == 1).mean() for v in range(2)]
    from learners.estimators.networks import KDB, TAN

    for estimator in (TAN(), KDB(k=1)):
        fitted = estimator.fit({"a": a.astype(str), "b": b.astype(str), "y": y}, "y")
        assert fitted.predict_proba({"b": ["0", "1"]})[:, 1] == pytest.approx(truth, abs=0.005)
        low, high = fitted.predict_interval({"b": ["1"]})
        assert low[0, 1] < truth[1] < high[0, 1] < low[0, 1] + 0.05


def test_too_wide_a_sum_ends_the_context_instead(monkeypatch):
    model = trained(3, [3, 3, 3], 2, STRUCTURES["kdb2"])
    x = rows_with_holes(3, [3, 3, 3])
    monkeypatch.setattr(elimination, "MOST_CELLS", 1)
    answers = model.predict_proba(Chunk(x, None))
    assert np.allclose(answers.sum(axis=1), 1.0)


def test_whole_rows_are_answered_by_look_ups_alone(monkeypatch):
    model = trained(5, [3, 2, 4], 2, STRUCTURES["kdb2"])
    monkeypatch.setattr(Elimination, "log_joint", None)
    x, nothing = np.zeros((3, 4), np.uint8), np.zeros((3, 4), np.uint8)
    assert model.predict_proba(Chunk(x, None)).shape == (4, 2)
    # A leaf that is missing is no parent of anything: its own term is all that goes.
    leaf = set(range(3)) - set().union(*map(set, model.network.parents))
    nothing[list(leaf)] = model.schema.domain_sizes[list(leaf), np.newaxis]
    assert model.predict_proba(Chunk(nothing, None)).shape == (4, 2)


def test_no_rows_have_no_answers():
    """As where a file's header is written before its rows are read."""
    model = trained(5, [3, 2, 4], 2, STRUCTURES["kdb2"])
    logs, variance = Elimination(model._tables, model.network, model.schema.domain_sizes).log_joint(
        np.zeros((3, 0), np.uint8)
    )
    assert logs.shape == variance.shape == (0, 2)


def test_the_variance_of_a_sum_is_that_of_its_terms_by_their_squared_shares():
    model = trained(7, [3, 3], 2, lambda pairs: STRUCTURES["tan"](pairs), hierarchical=True, n_rows=200)
    parent = model.network.order[0]
    spread = model._tables._replace(
        dense=np.full_like(model._tables.dense, 0.01),
        vectors=np.full_like(model._tables.vectors, 0.01),
        log_prior=np.zeros(2),
    )
    x = np.ones((2, 1), np.uint8)
    x[parent] = 3
    logs, variance = Elimination(model._tables, model.network, model.schema.domain_sizes, spread).log_joint(x)
    joint, k = network_joint(model), 0
    worlds = [joint[(*(v if i == parent else 1 for i in range(2)), k)] for v in range(3)]
    shares = np.array(worlds) / sum(worlds)
    assert isinstance(model, LookupModel)
    assert variance[0, k] == pytest.approx(0.02 * (shares**2).sum(), rel=1e-4)
    assert np.exp(logs[0, k]) == pytest.approx(sum(worlds), rel=1e-5)
