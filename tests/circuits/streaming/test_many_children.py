"""Updates of sums of many children, as the equations say."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import polygamma, psi

from learners.circuits.streaming.projection_kernels import ADF, MOVED, UNKNOWN, project


def state_of(counts):
    """Entries and nodes of (n_nodes, n_children) pseudo-counts whose slopes are known."""
    total = counts.sum(axis=1)
    slope, slope_total = 1.0 / polygamma(1, counts), 1.0 / polygamma(1, total)
    entry = np.stack([counts.ravel(), (counts / total[:, None]).ravel(), slope.ravel()])
    return entry, np.stack([total, 1.0 / (slope_total - slope.sum(axis=1)), np.zeros(total.size)])


def update(entry, node, share):
    """Update nodes of as many children each by the shares (n_nodes, n_children) of a row."""
    n_nodes, n = share.shape
    shares = np.empty((5, n))
    for k in range(n_nodes):
        shares[0] = share[k]
        project(entry, node, k, k * n, k * n + n, share[k].sum(), ADF, shares)


def off(counts, after, share):
    """By what share of itself each pseudo-count misses the equations of `project`."""
    wanted = share / counts - share.sum() / counts.sum()
    missed = (psi(after) - psi(counts)) - (psi(after.sum()) - psi(counts.sum())) - wanted
    return np.abs(missed / polygamma(1, after) / after).max()


@given(
    seed=st.integers(0, 2**32 - 1),
    n_nodes=st.integers(1, 16),
    n=st.integers(2, 9),
    most=st.sampled_from([-3.0, -0.01]),
)
def test_they_solve_the_equations(seed, n_nodes, n, most):
    rng = np.random.default_rng(seed)
    counts = 10.0 ** rng.uniform(-1.0, 3, (n_nodes, n))
    share = 10.0 ** rng.uniform(-8, most, n_nodes)[:, None] * rng.dirichlet(np.full(n, 0.5), n_nodes)
    entry, node = state_of(counts)
    node[MOVED, rng.random(n_nodes) < 0.3] = UNKNOWN
    update(entry, node, share)
    for k in range(n_nodes):
        after = entry[0, n * k : n * k + n]
        assert off(counts[k], after, share[k]) < 2e-7
        assert entry[1, n * k : n * k + n] == pytest.approx(after / after.sum())
        assert node[0, k] == pytest.approx(after.sum())


def test_what_is_no_parameter_stays():
    counts = np.array([[0.5, 0.0, 2.0], [3.0, 1.0, 2.0]])
    entry, node = state_of(np.where(counts > 0.0, counts, 1.0))
    entry[0], entry[1], node[0] = counts.ravel(), (counts / counts.sum(axis=1)[:, None]).ravel(), counts.sum(axis=1)
    node[MOVED] = UNKNOWN
    share = np.array([[1e-3, 0.0, 2e-3], [1e-3, 1e-3, 1e-3]])
    update(entry, node, share)
    assert entry[0, 1] == 0.0
    assert off(counts[0, ::2], entry[0, :3:2], share[0, ::2]) < 2e-7
    assert off(counts[1], entry[0, 3:], share[1]) < 2e-7


def test_slopes_that_are_followed_stay_right():
    """A thousand small steps, with no slope computed again for most of them."""
    counts = np.array([[0.05, 0.07, 4.0], [3.0, 0.02, 7.9], [30.0, 2.0, 8.1]])
    entry, node = state_of(counts)
    n_followed, rng = 0, np.random.default_rng(0)
    for _ in range(1000):
        share = 3e-4 * rng.dirichlet(np.ones(3), 3)
        before = entry[0].reshape(3, 3).copy()
        update(entry, node, share)
        n_followed += np.count_nonzero((node[MOVED] > 0.0) & (node[MOVED] < UNKNOWN))
        for k in range(3):
            after = entry[0, 3 * k : 3 * k + 3]
            assert off(before[k], after, share[k]) < 1e-5
            small = after < 8.0
            assert entry[2, 3 * k : 3 * k + 3][small] == pytest.approx(1.0 / polygamma(1, after)[small], rel=2e-4)
    assert n_followed > 1500
