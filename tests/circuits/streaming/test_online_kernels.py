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
from learners.circuits.streaming.projection_kernels import ADF, FARTHEST, MOVED, UNKNOWN, project_onto_dirichlet
from learners.circuits.streaming.trigamma_kernels import digamma_difference


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


def state_of(counts):
    """Entries and nodes of (n_nodes, n_children) pseudo-counts whose slopes are known."""
    total = counts.sum(axis=1)
    slope, slope_total = 1.0 / polygamma(1, counts), 1.0 / polygamma(1, total)
    entry = np.stack([counts.ravel(), (counts / total[:, None]).ravel(), slope.ravel()])
    return entry, np.stack([total, 1.0 / (slope_total - slope.sum(axis=1)), np.zeros(total.size)])


def update(entry, node, share):
    """Update nodes of as many children each, one by one, by the shares (n_nodes, n_children) of a row."""
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


def check_solved(update, counts, share, is_unknown):
    """The equations, with the digits that SciPy's ψ has; some of the slopes are not known."""
    entry, node = state_of(counts)
    node[MOVED, is_unknown] = UNKNOWN
    update(entry, node, share)
    for before, after, p, total, own in zip(counts, *entry[:2].reshape(2, *counts.shape), node[0], share, strict=True):
        assert off(before, after, own) < 2e-7
        assert p == pytest.approx(after / after.sum())
        assert total == pytest.approx(after.sum())


@given(seed=st.integers(0, 2**32 - 1), n_nodes=st.integers(1, N_BLOCK))
def test_a_block_solves_the_equations(seed, n_nodes):
    check_solved(update_pairs, *drawn(seed, n_nodes), np.random.default_rng(seed).random(n_nodes) < 0.3)


@given(
    seed=st.integers(0, 2**32 - 1), n_nodes=st.integers(1, 16), n=st.integers(2, 9), most=st.sampled_from([-3.0, -0.01])
)
def test_one_by_one_nodes_solve_the_equations(seed, n_nodes, n, most):
    rng = np.random.default_rng(seed)
    counts = 10.0 ** rng.uniform(-1.0, 3, (n_nodes, n))
    share = 10.0 ** rng.uniform(-8, most, n_nodes)[:, None] * rng.dirichlet(np.full(n, 0.5), n_nodes)
    check_solved(update, counts, share, rng.random(n_nodes) < 0.3)


@given(seed=st.integers(0, 2**32 - 1))
def test_a_block_is_as_one_by_one(seed):
    counts, share = drawn(seed, N_BLOCK)
    entry, node = state_of(counts)
    single, single_node = entry.copy(), node.copy()
    update_pairs(entry, node, share)
    update(single, single_node, share)
    assert entry[:2] == pytest.approx(single[:2], rel=1e-7)
    assert node[0] == pytest.approx(single_node[0], rel=1e-7)


@pytest.mark.parametrize(
    ("update", "counts", "draw", "most_off"),
    [
        (
            update_pairs, [[0.05, 0.07], [3.0, 0.02], [30.0, 2.0]],
            lambda rng: 2e-4 * np.eye(2)[rng.integers(0, 2, 3)], 1e-3 * FARTHEST,
        ),
        (
            update, [[0.05, 0.07, 4.0], [3.0, 0.02, 7.9], [30.0, 2.0, 8.1]],
            lambda rng: 3e-4 * rng.dirichlet(np.ones(3), 3), 1e-5,
        ),
    ],
)  # fmt: skip
def test_slopes_that_are_followed_stay_right(update, counts, draw, most_off):
    """A thousand small steps, with no slope computed again for most of them."""
    shape = np.shape(counts)
    entry, node = state_of(np.array(counts))
    n_followed, rng = 0, np.random.default_rng(0)
    for _ in range(1000):
        before = entry[0].reshape(shape).copy()
        share = draw(rng)
        update(entry, node, share)
        n_followed += np.count_nonzero((node[MOVED] > 0.0) & (node[MOVED] < UNKNOWN))
        for old, after, slope, own in zip(before, *entry[::2].reshape(2, *shape), share, strict=True):
            assert off(old, after, own) < most_off
            is_small = after < 8.0
            assert slope[is_small] == pytest.approx(1.0 / polygamma(1, after)[is_small], rel=2e-4)
    assert n_followed > 1500


def test_digamma_steps_are_those_of_scipy():
    rng = np.random.default_rng(0)
    for _ in range(2000):
        x = 10 ** rng.uniform(-3, 2)
        d = x * rng.uniform(-0.9, 3)
        moved, slope = digamma_difference(x, d)
        assert moved == pytest.approx(psi(x + d) - psi(x), rel=1e-8, abs=1e-12)
        assert slope == pytest.approx(polygamma(1, x + d), rel=1e-9)


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
