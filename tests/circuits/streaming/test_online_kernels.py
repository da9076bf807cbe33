"""Nodes of two and of many children: one step against the definition, and slopes that are followed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import polygamma, psi

from learners.circuits.streaming.online_kernels import (
    N_BLOCK,
    N_ROOM,
    filter_binary_node_block,
    write_binary_node_to_block,
)
from learners.circuits.streaming.projection_kernels import (
    ADF,
    FARTHEST,
    MOVED,
    UNKNOWN,
    digamma_difference,
    project_onto_dirichlet,
)


def drawn(seed, n_nodes):
    """Pairs of pseudo-counts, and shares of the row: all on one entry, or on both."""
    rng = np.random.default_rng(seed)
    counts = 10.0 ** rng.uniform(-1.5, 3, (n_nodes, 2))
    r = 10.0 ** rng.uniform(-8, -0.01, n_nodes)
    return counts, r[:, None] * rng.choice([[1.0, 0.0], [0.0, 1.0], [0.6, 0.4]], n_nodes)


def update_pairs(entry, node, share):
    """Assumed density filtering of nodes of two by shares (n, 2), in one block."""
    n_nodes = share.shape[0]
    block, room = np.zeros(N_BLOCK, int), np.ones(N_ROOM)
    for k in range(n_nodes):
        write_binary_node_to_block.py_func(entry, node, k, 2 * k, share[k, 0], share[k, 1], block, k, room)
    filter_binary_node_block(entry, node, 2 * np.arange(n_nodes + 1), block, n_nodes, room, np.zeros((5, 2)))


def wrong_by(counts, after, share):
    """By what ψ of the pseudo-counts misses the equations of `project_onto_dirichlet`; share (2,) are those of the row."""
    wanted = share / counts - share.sum() / counts.sum()
    return (psi(after) - psi(counts)) - (psi(after.sum()) - psi(counts.sum())) - wanted


@given(seed=st.integers(0, 2**32 - 1), n_nodes=st.integers(1, N_BLOCK))
def test_a_block_solves_the_equations(seed, n_nodes):
    """Some of whose slopes are not known; as a share of the pseudo-count, with the digits that SciPy's ψ has."""
    counts, share = drawn(seed, n_nodes)
    entry, node = state_of(counts)
    node[MOVED, np.random.default_rng(seed).random(n_nodes) < 0.3] = UNKNOWN
    update_pairs(entry, node, share)
    for k in range(n_nodes):
        after = entry[0, 2 * k : 2 * k + 2]
        assert np.abs(wrong_by(counts[k], after, share[k]) / polygamma(1, after) / after).max() < 2e-7
        assert entry[1, 2 * k : 2 * k + 2] == pytest.approx(after / after.sum())
        assert node[0, k] == pytest.approx(after.sum())


@given(seed=st.integers(0, 2**32 - 1))
def test_a_block_is_as_one_by_one(seed):
    counts, share = drawn(seed, N_BLOCK)
    entry, node = state_of(counts)
    single, single_node = entry.copy(), node.copy()
    update_pairs(entry, node, share)
    for k in range(N_BLOCK):
        shares = np.zeros((5, 2))
        shares[0] = share[k]
        project_onto_dirichlet(single, single_node, k, 2 * k, 2 * k + 2, share[k].sum(), ADF, shares)
    assert entry[:2] == pytest.approx(single[:2], rel=1e-7)
    assert node[0] == pytest.approx(single_node[0], rel=1e-7)


def test_slopes_of_pairs_that_are_followed_stay_right():
    """A thousand small steps, with no slope computed again for most of them."""
    counts = np.array([[0.05, 0.07], [3.0, 0.02], [30.0, 2.0]])
    entry, node = state_of(counts)
    n_followed, rng = 0, np.random.default_rng(0)
    for _ in range(1000):
        before = entry[0].reshape(3, 2).copy()
        share = 2e-4 * np.eye(2)[rng.integers(0, 2, 3)]
        update_pairs(entry, node, share)
        n_followed += np.count_nonzero((node[MOVED] > 0.0) & (node[MOVED] < UNKNOWN))
        for k in range(3):
            two = slice(2 * k, 2 * k + 2)
            off = wrong_by(before[k], entry[0, two], share[k]) / polygamma(1, entry[0, two]) / before[k]
            assert np.abs(off).max() < 1e-3 * FARTHEST
            slope = 1.0 / polygamma(1, entry[0, two])
            small = entry[0, two] < 8.0
            assert entry[2, two][small] == pytest.approx(slope[small], rel=2e-4)
    assert n_followed > 1500


def test_digamma_steps_are_those_of_scipy():
    rng = np.random.default_rng(0)
    for _ in range(2000):
        x = 10 ** rng.uniform(-3, 2)
        d = x * rng.uniform(-0.9, 3)
        moved, slope = digamma_difference(x, d)
        assert moved == pytest.approx(psi(x + d) - psi(x), rel=1e-8, abs=1e-12)
        assert slope == pytest.approx(polygamma(1, x + d), rel=1e-9)


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
        project_onto_dirichlet(entry, node, k, k * n, k * n + n, share[k].sum(), ADF, shares)


def off(counts, after, share):
    """By what share of itself each pseudo-count misses the equations of `project_onto_dirichlet`."""
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
