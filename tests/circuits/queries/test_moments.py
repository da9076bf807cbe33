"""One-step moments against the enumeration of induced trees."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import polygamma, psi

from learners.circuits.errors import ImpossibleEvidence
from learners.circuits.kernels import INDICATOR, SUM
from learners.circuits.queries.moments import edge_posteriors, posterior_moments
from learners.circuits.streaming.projection_kernels import digamma_step
from learners.errors import InvalidParameter
from tests.circuits.evaluation.test_evaluate import as_row, random_rows
from tests.circuits.map_circuits import random_circuit
from tests.naive import induced_trees as naive


def of_sums(circuit):
    return np.repeat(circuit.kind == SUM, np.diff(circuit.child_starts))


def a_case(seed, zeros=0.0):
    """A random DAG, pseudo-counts, and a row that is possible."""
    rng = np.random.default_rng(seed)
    circuit = random_circuit(rng, int(rng.integers(1, 5)), zeros=zeros)
    alpha = rng.gamma(1.0, 3.0, circuit.n_edges) + 0.05
    return circuit, alpha, random_rows(rng, circuit, 1)


@given(seed=st.integers(0, 2**32 - 1))
def test_posteriors_are_those_of_all_induced_trees(seed):
    circuit, _, x = a_case(seed, zeros=0.3)
    trees = naive.induced_trees(circuit, as_row(x[:, 0]))
    if sum(value for value, _, _ in trees) == 0:
        with pytest.raises(ImpossibleEvidence, match="row 0"):
            edge_posteriors(circuit, x)
        return
    edge, node = naive.posteriors(circuit, as_row(x[:, 0]))
    posterior = edge_posteriors(circuit, x)
    assert posterior.edge[:, 0] == pytest.approx(edge, abs=1e-12)
    assert posterior.node[:, 0] == pytest.approx(node, abs=1e-12)


@given(seed=st.integers(0, 2**32 - 1))
def test_moments_are_those_of_the_mixture_over_all_induced_trees(seed):
    circuit, alpha, x = a_case(seed)
    expected = naive.one_step_moments(circuit, alpha, as_row(x[:, 0]))
    found = posterior_moments(circuit, alpha, x[:, 0])
    inner = of_sums(circuit)
    for ours, naive_one in zip(found, expected, strict=True):
        assert ours[inner] == pytest.approx(naive_one[inner], rel=1e-9)
        assert np.isnan(ours[~inner]).all()
    parent = np.repeat(np.arange(circuit.n_nodes), np.diff(circuit.child_starts))
    totals = np.bincount(parent[inner], found.mean[inner])
    assert totals[circuit.kind[: totals.size] == SUM] == pytest.approx(1)


def bernoulli():
    from learners.circuits.formats.text import CircuitBuilder

    build = CircuitBuilder([2])
    build.sum([build.leaf(INDICATOR, 0, [value]) for value in range(2)], np.log([0.5, 0.5]))
    return build.circuit()


def test_the_published_rule_lacks_the_siblings_term():
    """After a one, Dir(2, 2) is Dir(2, 3): means 0.4 and 0.6. The paper's equation 12 leaves the zero at 0.5."""
    alpha, x = np.array([2.0, 2.0]), np.array([1])
    exact = posterior_moments(bernoulli(), alpha, x)
    published = posterior_moments(bernoulli(), alpha, x, rule="zhao2017")
    assert exact.mean == pytest.approx([0.4, 0.6])
    assert published.mean == pytest.approx([0.5, 0.6])
    assert exact.log == pytest.approx([psi(2) - psi(5), psi(3) - psi(5)])
    assert published.log == pytest.approx([psi(2) - psi(4), psi(3) - psi(5)])
    assert exact.second == pytest.approx([0.2, 0.4])


def test_bad_parameters_are_refused():
    with pytest.raises(InvalidParameter, match="'exact' or 'zhao2017'"):
        posterior_moments(bernoulli(), np.ones(2), np.array([1]), rule="other")
    with pytest.raises(InvalidParameter, match="positive"):
        posterior_moments(bernoulli(), np.zeros(2), np.array([1]))


def test_digamma_steps_are_those_of_scipy():
    rng = np.random.default_rng(0)
    for _ in range(2000):
        x = 10 ** rng.uniform(-3, 2)
        d = x * rng.uniform(-0.9, 3)
        moved, slope = digamma_step(x, d)
        assert moved == pytest.approx(psi(x + d) - psi(x), rel=1e-8, abs=1e-12)
        assert slope == pytest.approx(polygamma(1, x + d), rel=1e-9)
