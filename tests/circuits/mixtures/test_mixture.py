"""Densities and conditional distributions of mixtures of Gaussians, against their definitions."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.circuits.errors import ImpossibleEvidence, InvalidCircuit
from learners.circuits.evaluation.evaluate import log_values
from learners.circuits.mixtures import conditioning
from learners.circuits.mixtures.mixture import GaussianMixture
from tests.circuits.mixtures.strategies import example, mixtures, rows_of
from tests.naive import gaussians as naive
from tests.naive.map import logs

SOME = settings(max_examples=25)


@given(mixtures(), st.integers(0, 1000))
@SOME
def test_log_densities_are_those_of_the_definition_with_any_cells_missing(mixture, seed):
    x = rows_of(mixture, 12, seed)
    expected = [naive.log_density(mixture, row) for row in x.T]
    np.testing.assert_allclose(mixture.log_density(x), expected, rtol=1e-9, atol=1e-9)
    whole = rows_of(mixture, 300, seed, missing=0.0)
    one_by_one = [mixture.log_density(whole[:, [row]])[0] for row in range(300)]
    np.testing.assert_array_equal(mixture.log_density(whole), one_by_one)


@given(mixtures(), st.integers(0, 1000))
@SOME
def test_moments_are_those_of_the_conditional_distributions(mixture, seed):
    x = rows_of(mixture, 6, seed)
    variables = mixture.numeric.tolist()
    mean, variance = conditioning.conditional_moments(mixture, x, variables)
    for row, own in enumerate(x.T):
        r = naive.shares(mixture, own)
        parts = [naive.completed(mixture, own, k) for k in range(r.size)]
        expected = sum(r[k] * parts[k][0] for k in range(r.size))
        spread = sum(r[k] * (np.diag(parts[k][1]) + parts[k][0] ** 2) for k in range(r.size)) - expected**2
        np.testing.assert_allclose(mean[row], expected, rtol=1e-8, atol=1e-9 * np.abs(mixture.mean).max())
        np.testing.assert_allclose(variance[row], spread, rtol=1e-6, atol=1e-7 * np.abs(mixture.covariance).max())


@given(mixtures(), st.integers(0, 1000))
@SOME
def test_distributions_are_ratios_of_densities(mixture, seed):
    x = rows_of(mixture, 6, seed)
    discrete = mixture.discrete.tolist()
    if not discrete:
        return
    sizes = mixture.n_values[discrete].tolist()
    tables = conditioning.conditional_joint(mixture, x, discrete)
    single = conditioning.conditional_marginals(mixture, x, discrete)
    for row in range(x.shape[1]):
        expected = np.zeros(sizes)
        for cell in itertools.product(*map(range, sizes)):
            full = x[:, row].copy()
            is_contradicted = any(full[v] >= 0 and full[v] != code for v, code in zip(discrete, cell, strict=True))
            full[discrete] = cell
            expected[cell] = 0.0 if is_contradicted else np.exp(naive.log_density(mixture, full))
        expected /= expected.sum()
        np.testing.assert_allclose(tables[row], expected, rtol=1e-7, atol=1e-12)
        for axis, p in enumerate(single):
            others = tuple(i for i in range(len(sizes)) if i != axis)
            np.testing.assert_allclose(p[row], expected.sum(axis=others), rtol=1e-7, atol=1e-12)


@given(mixtures(), st.integers(0, 1000))
@SOME
def test_marginals_of_one_column_are_those_of_the_diagonal_circuit(mixture, seed):
    x = np.full((mixture.n_values.size, 4), np.nan)
    v = seed % mixture.n_values.size
    x[v] = rows_of(mixture, 4, seed, missing=0.0)[v]
    np.testing.assert_allclose(mixture.log_density(x), log_values(mixture.diagonal(), x), rtol=1e-8, atol=1e-8)


def test_draws_have_the_conditional_moments_and_shares():
    mixture, n = example(), 40_000
    x = np.array([[1.0], [np.nan], [np.nan]])
    rows = conditioning.draw_missing_cells(mixture, x, n, 3, np.zeros(1, np.int64))[0]
    assert (rows[:, 0] == 1.0).all()
    mean, variance = conditioning.conditional_moments(mixture, x, [2])
    (p,) = conditioning.conditional_marginals(mixture, x, [1])
    # Five standard errors; of a variance, of a distribution with at most twice a normal one's fourth moment.
    assert abs(rows[:, 2].mean() - mean[0, 0]) < 5 * np.sqrt(variance[0, 0] / n)
    assert abs(rows[:, 2].var() - variance[0, 0]) < 5 * variance[0, 0] * np.sqrt(6 / n)
    found = np.bincount(rows[:, 1].astype(int), minlength=3) / n
    assert (np.abs(found - p[0]) < 5 * np.sqrt(p[0] * (1 - p[0]) / n) + 1e-9).all()
    # Together, too: the mean in each component differs.
    both = np.full((3, 1), np.nan)
    free = conditioning.draw_missing_cells(mixture, both, n, 3, np.zeros(1, np.int64))[0]
    whole = np.cov(free[:, [0, 2]].T)
    weight = np.exp(mixture.log_weight)
    centre = weight @ mixture.mean
    off = mixture.mean - centre
    expected = np.einsum("k,kij->ij", weight, mixture.covariance + off[:, :, np.newaxis] * off[:, np.newaxis])
    np.testing.assert_allclose(whole, expected, atol=0.15)


def test_a_draw_depends_on_its_own_row_and_number():
    mixture = example()
    x = rows_of(mixture, 5, 1)
    every = conditioning.draw_missing_cells(mixture, x, 4, 9, np.arange(5))
    for row in range(5):
        alone = conditioning.draw_missing_cells(mixture, x[:, [row]], 2, 9, np.array([row]))
        np.testing.assert_array_equal(every[row, :2], alone[0])
    assert not np.array_equal(every, conditioning.draw_missing_cells(mixture, x, 4, 10, np.arange(5)), equal_nan=True)


@given(mixtures(), st.integers(0, 1000), st.integers(1, 4))
@SOME
def test_the_best_tree_is_the_densest_of_the_components_modes(mixture, seed, n_trees):
    x = rows_of(mixture, 1, seed)
    asked = [v for v in range(x.shape[0]) if np.isnan(x[v, 0])]
    if not asked:
        return
    tree, *others = conditioning.best_component_modes(mixture, x, asked, n_trees)
    assert all(other.log_density <= tree.log_density for other in others)
    row = x[:, 0].copy()
    row[asked] = tree.values
    np.testing.assert_allclose(tree.log_density, naive.log_density(mixture, row), rtol=1e-9, atol=1e-9)
    assert tree.log_bound >= tree.log_density
    rng = np.random.default_rng(seed)
    for _ in range(50):
        near = row.copy()
        for v in asked:
            size = mixture.n_values[v]
            spread = np.sqrt(mixture.covariance.max())
            near[v] = rng.integers(0, size) if size else near[v] + rng.normal() * spread * rng.random()
        assert naive.log_density(mixture, near) <= tree.log_bound + 1e-9


def test_evidence_that_no_component_can_have_is_impossible():
    log_share = np.array([logs(0.5, 0.5, 0.0), logs(1.0, 0.0, 0.0)])
    never = GaussianMixture.from_arrays(example().to_arrays() | {"log_share": log_share})
    x = np.array([[0.0, np.inf, 0.0], [2.0, 0.0, 1.0], [np.nan, 0.0, 0.0]])
    assert never.log_density(x).tolist()[:2] == [-np.inf, -np.inf]
    assert np.isfinite(never.log_density(x)[2])
    with pytest.raises(ImpossibleEvidence, match="row 0"):
        conditioning.conditional_moments(never, x, [2])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"covariance": np.ones((2, 2, 2))}, "not positive definite"),
        ({"mean": np.zeros((2, 3))}, "has means, covariances or shares of inconsistent shapes"),
        ({"log_weight": np.log([0.5, 0.6])}, "do not add up to one"),
        ({"log_share": np.zeros((2, 3))}, "do not add up to one"),
        ({"mean": np.full((2, 2), np.nan)}, "not finite"),
        ({"n_values": np.array([3, 2, 2])}, "has means, covariances or shares of inconsistent shapes"),
        ({"n_values": np.array([0, -3, 0])}, "has invalid domains"),
    ],
)
def test_what_is_no_mixture_is_refused(change, reason):
    with pytest.raises(InvalidCircuit, match=reason):
        GaussianMixture.from_arrays(example().to_arrays() | change)
    with pytest.raises(InvalidCircuit, match="has no array 'mean'"):
        GaussianMixture.from_arrays({"log_weight": example().log_weight})
