"""Updates of nodes of two pseudo-counts: sixteen at once as one by one, and both as the equations say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import polygamma, psi

from learners.circuits.pair_kernels import FARTHEST, filter_sixteen, filter_two, match_sixteen
from learners.circuits.projection_kernels import ADF, BMM, MOVED, UNKNOWN, project
from learners.circuits.waiting_kernels import N_ROWS, filter_waiting, solve_waiting
from learners.kernels.jit import kernel
from learners.kernels.simd import N_LANES, lanes_from


@kernel
def update_sixteen(entry, node, code, r, is_filtering):
    """Sixteen nodes, where r is positive; which of these were left, as bits."""
    shares = lanes_from(r, 0)
    is_due = shares > 0.0
    if is_filtering:
        return filter_sixteen(
            entry[0], entry[1], entry[2], node[0], node[1], node[2], 0, 0, lanes_from(code, 0), shares, is_due
        )
    match_sixteen(entry[0], entry[1], node[0], 0, 0, lanes_from(code, 0), shares, is_due)
    return 0


def state_of(counts):
    """Entries and nodes of (n, 2) pseudo-counts whose slopes are known."""
    total = counts.sum(axis=1)
    slope, slope_total = 1.0 / polygamma(1, counts), 1.0 / polygamma(1, total)
    entry = np.stack([counts.ravel(), (counts / total[:, None]).ravel(), slope.ravel()])
    return entry, np.stack([total, 1.0 / (slope_total - slope.sum(axis=1)), np.zeros(total.size)])


def drawn(seed):
    """Sixteen pairs of pseudo-counts, which of each is observed, and shares of which some are zero."""
    rng = np.random.default_rng(seed)
    counts = 10.0 ** rng.uniform(-1.5, 3, (N_LANES, 2))
    r = 10.0 ** rng.uniform(-8, -0.01, N_LANES) * (rng.random(N_LANES) < 0.8)
    return counts, rng.integers(0, 2, N_LANES), r


def wrong_by(counts, after, share):
    """By what ψ of the pseudo-counts misses the equations of `_by_newton`; share (2,) are those of the row."""
    wanted = share / counts - share.sum() / counts.sum()
    return (psi(after) - psi(counts)) - (psi(after.sum()) - psi(counts.sum())) - wanted


@given(seed=st.integers(0, 2**32 - 1), rule=st.sampled_from([BMM, ADF]))
def test_sixteen_at_once_are_as_one_by_one(seed, rule):
    counts, code, r = drawn(seed)
    entry, node = state_of(counts)
    before, old = entry.copy(), node.copy()
    left = update_sixteen(entry, node, code.astype(float), r, rule == ADF)
    for k in range(N_LANES):
        two = slice(2 * k, 2 * k + 2)
        if r[k] == 0.0 or left >> k & 1:
            assert np.array_equal(entry[:, two], before[:, two])
            assert np.array_equal(node[:, k], old[:, k])
            continue
        own, single = before[:, two].copy(), old[:, k : k + 1].copy()
        if rule == ADF:
            filter_two(own, single, 0, code[k], 1 - code[k], r[k], 0.0)
        else:
            shares = np.zeros((4, 2))
            shares[0, code[k]] = r[k]
            project(own, single, 0, 0, 2, r[k], rule, shares)
        assert entry[0, two] == pytest.approx(own[0], rel=1e-9)
        assert entry[1, two] == pytest.approx(own[1], rel=1e-9)
        assert node[0, k] == pytest.approx(single[0, 0], rel=1e-9)


@given(seed=st.integers(0, 2**32 - 1), both=st.booleans(), is_known=st.booleans())
def test_one_solves_the_equations(seed, both, is_known):
    counts, _, r = drawn(seed)
    entry, node = state_of(counts)
    if not is_known:
        node[MOVED] = UNKNOWN
    for k in range(N_LANES):
        share = r[k] * (np.array([0.6, 0.4]) if both else np.array([1.0, 0.0]))
        filter_two(entry, node, k, 2 * k, 2 * k + 1, *share)
        after = entry[0, 2 * k : 2 * k + 2]
        # As a share of the pseudo-count, with the digits that SciPy's ψ has.
        assert np.abs(wrong_by(counts[k], after, share) / polygamma(1, after) / after).max() < 2e-7
        assert entry[1, 2 * k : 2 * k + 2] == pytest.approx(after / after.sum())


@given(seed=st.integers(0, 2**32 - 1), n_nodes=st.integers(1, 40), n_sums=st.integers(0, 40))
def test_waiting_ones_solve_the_equations(seed, n_nodes, n_sums):
    """Sums and late nodes, in any order, some with all of the row on one entry and some whose slopes are not known."""
    rng = np.random.default_rng(seed)
    counts = 10.0 ** rng.uniform(-1.5, 3, (n_nodes, 2))
    share = 10.0 ** rng.uniform(-8, -0.01, n_nodes)[:, None] * rng.choice([[1.0, 0.0], [0.0, 1.0], [0.6, 0.4]], n_nodes)
    entry, node = state_of(counts)
    node[MOVED, rng.random(n_nodes) < 0.3] = UNKNOWN
    n_sums = min(n_sums, n_nodes)
    order = rng.permutation(n_nodes)
    waiting, shares, room = np.zeros((2, n_nodes), int), np.zeros((4, n_nodes)), np.empty(N_ROWS * N_LANES)
    waiting[0, :n_sums], shares[:2, :n_sums] = order[:n_sums], share[order[:n_sums]].T
    n_late = n_nodes - n_sums
    waiting[1, :n_late], shares[2:, :n_late] = order[n_sums:], share[order[n_sums:]].T
    starts = 2 * np.arange(n_nodes + 1)
    n_late = filter_waiting(entry, node, starts, waiting, shares, n_sums, n_late, room)
    left = np.sort(waiting[1, :n_late])
    assert np.array_equal(entry[0].reshape(-1, 2)[left], counts[left])
    solve_waiting(entry, node, starts, waiting, shares, n_late, room)
    for k in range(n_nodes):
        after = entry[0, 2 * k : 2 * k + 2]
        assert np.abs(wrong_by(counts[k], after, share[k]) / polygamma(1, after) / after).max() < 2e-7
        assert entry[1, 2 * k : 2 * k + 2] == pytest.approx(after / after.sum())
        assert node[0, k] == pytest.approx(after.sum())


def test_slopes_that_are_followed_stay_right():
    """A thousand small steps, with no slope computed again for most of them."""
    counts = np.array([[0.05, 0.07], [3.0, 0.02], [30.0, 2.0]])
    entry, node = state_of(counts)
    n_followed, rng = 0, np.random.default_rng(0)
    for _ in range(1000):
        for k in range(3):
            two = slice(2 * k, 2 * k + 2)
            now, seen = entry[0, two].copy(), int(rng.integers(2))
            share = np.zeros(2)
            share[seen] = 2e-4
            filter_two(entry, node, k, 2 * k + seen, 2 * k + 1 - seen, 2e-4, 0.0)
            n_followed += 0.0 < node[MOVED, k] < UNKNOWN
            off = wrong_by(now, entry[0, two], share) / polygamma(1, entry[0, two]) / now
            assert np.abs(off).max() < 1e-3 * FARTHEST
            slope = 1.0 / polygamma(1, entry[0, two])
            small = entry[0, two] < 8.0
            assert entry[2, two][small] == pytest.approx(slope[small], rel=2e-4)
    assert n_followed > 1500
