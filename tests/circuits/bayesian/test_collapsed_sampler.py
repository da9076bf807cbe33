from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from learners.circuits.bayesian.chains import chain_acceptance_rate
from learners.circuits.bayesian.collapsed_sampler import InMemory, LazySampler, Moves
from learners.circuits.bayesian.leaf_kernels import (
    GAUSSIANS,
    gaussian_log_normaliser,
    gaussian_log_normaliser_step,
    log_rising_factorial,
)
from learners.errors import InvalidParameter
from tests.circuits.bayesian.problems import (
    EXPONENTIAL,
    GAUSSIAN,
    MIXED,
    POISSON,
    PROBLEMS,
    THREE,
    WORDS,
    prior_of,
    rows_of,
)
from tests.naive import bayesian_circuits as naive

COLUMNS = (*THREE, *MIXED)


def p_value(observed, expected):
    """Of Pearson's test; cells that are expected less than five times are one."""
    rare = expected < 5
    observed = np.append(observed[~rare], observed[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    if expected[-1] == 0:
        assert observed[-1] == 0
        observed, expected = observed[:-1], expected[:-1]
    return stats.chi2.sf(((observed - expected) ** 2 / expected).sum(), expected.size - 1)


def frequency_p_value(sampler, posterior, n, thin):
    """Of the frequencies of all assignments in n states of a chain, against their posterior probabilities."""
    random, counts = np.random.default_rng(3), dict.fromkeys(posterior, 0)
    state = sampler.init(random)
    for _ in range(n):
        for _ in range(thin):
            state, _ = sampler.step(random, state)
        counts[tuple(map(tuple, state.choices.tolist()))] += 1
    return p_value(np.array([counts[key] for key in posterior]), n * np.array(list(posterior.values())))


@pytest.fixture(scope="module", params=PROBLEMS)
def enumerated(request):
    """A tiny problem, and its posterior by enumeration."""
    columns, n_rows = PROBLEMS[request.param]
    prior, x = prior_of(columns, seed=1), rows_of(columns, n_rows, seed=2)
    assert np.isnan(x).any()
    return prior, InMemory(x), naive.posterior(prior, x)[0]


@pytest.mark.parametrize("moves", [Moves(1, 0), Moves(0.5, 2)])
def test_frequencies_of_all_assignments_are_those_of_enumeration(enumerated, moves):
    """Every third state of a chain, 1,500 of them; Pearson's test with a false alarm in ten thousand."""
    prior, rows, posterior = enumerated
    assert frequency_p_value(LazySampler(prior, rows, moves), posterior, 1500, 3) > 1e-4


@pytest.mark.parametrize("enumerated", ["mixed"], indirect=True)
def test_a_wrong_prior_is_noticed(enumerated):
    """The power of the test above: another concentration of the sums is found out."""
    prior, rows, posterior = enumerated
    other = prior_of(prior.columns, seed=1, strengths=replace(prior.strengths, alpha=1.0))
    assert frequency_p_value(LazySampler(other, rows), posterior, 4000, 1) < 1e-6


@settings(max_examples=25)
@given(
    columns=st.lists(st.sampled_from([GAUSSIAN, EXPONENTIAL, POISSON, WORDS, *MIXED]), min_size=1, max_size=3),
    n_rows=st.integers(1, 6),
    n_children=st.integers(2, 4),
    seed=st.integers(0, 1000),
)
def test_the_log_joint_is_that_of_the_definition(columns, n_rows, n_children, seed):
    prior, x = prior_of(columns, n_children, seed), rows_of(columns, n_rows, seed)
    trees = list(naive.induced_trees(naive.tree_of(prior)))
    rng = np.random.default_rng(seed)
    taken = [trees[i] for i in rng.integers(0, len(trees), n_rows)]
    state = LazySampler(prior, InMemory(x)).state_of(np.array([choices for choices, _, _ in taken], np.uint8))
    assert state.log_joint == pytest.approx(naive.log_joint(prior, x, taken), abs=1e-8)


def swept(sampler, n):
    """The state of a chain after n sweeps."""
    state = sampler.init(np.random.default_rng(0))
    for sweep in range(n):
        state, info = sampler.step(np.random.default_rng([0, sweep]), state)
        assert info.log_joint == state.log_joint
    return state


def test_a_state_that_was_kept_goes_on_with_the_same_bits():
    prior, rows = prior_of(COLUMNS, 3), InMemory(rows_of(COLUMNS, 200))
    state, again = (swept(LazySampler(prior, rows), n) for n in (5, 0))
    for sweep in range(5):
        kept = LazySampler(prior, rows).state_of(again.choices.copy())
        assert kept.log_joint == again.log_joint
        again, _ = LazySampler(prior, rows).step(np.random.default_rng([0, sweep]), kept)
    assert np.array_equal(state.choices, again.choices)
    assert all(np.array_equal(a, b) for a, b in zip(state.tallies, again.tallies, strict=True))
    assert state.log_joint == again.log_joint


class InBlocks(InMemory):
    """Rows that come a few at a time."""

    def blocks(self):
        for first in range(0, self.n_rows, 7):
            where = slice(first, min(first + 7, self.n_rows))
            yield where, self.x[where]


def test_blocks_do_not_matter():
    prior, x = prior_of(COLUMNS, 3), rows_of(COLUMNS, 50)
    ours, theirs = (swept(LazySampler(prior, rows), 3) for rows in (InMemory(x), InBlocks(x)))
    assert np.array_equal(ours.choices, theirs.choices)
    assert ours.log_joint == theirs.log_joint


def test_a_step_leaves_its_state_as_it_is_and_tells_its_proposals():
    prior, rows = prior_of(COLUMNS, 2), InMemory(rows_of(COLUMNS, 100))
    sampler = LazySampler(prior, rows, Moves(2, 3))
    state = sampler.init(np.random.default_rng(0))
    before = state.choices.copy(), state.tallies.leaf.copy(), state.tallies.counts.copy()
    following, info = sampler.step(np.random.default_rng(1), state)
    assert np.array_equal(before[0], state.choices)
    assert np.array_equal(before[1], state.tallies.leaf) and np.array_equal(before[2], state.tallies.counts)
    assert not np.array_equal(following.choices, state.choices)
    assert info.proposals.sum(axis=1).tolist() == [200, 300]
    assert all(0 < chain_acceptance_rate(own) < 1 for own in info.proposals)


def test_new_rows_enter_behind_those_that_are_known():
    prior, x = prior_of(COLUMNS, 2), rows_of(COLUMNS, 60)
    known = swept(LazySampler(prior, InMemory(x[:40])), 1)
    state = LazySampler(prior, InMemory(x), Moves(1, 2), known.choices).init(np.random.default_rng(2))
    assert state.choices.shape == (60, 9)
    assert np.array_equal(state.choices[:40], known.choices)
    assert state.tallies.counts[0].sum() == 60


def test_far_out_the_tables_are_continued():
    """A table of few rows and one of many tell the same."""
    prior = prior_of(THREE)
    few, many = prior.hyper(10), prior.hyper(5000)
    for n in (11, 100, 4000):
        assert gaussian_log_normaliser(few, n) == pytest.approx(many[GAUSSIANS, n], rel=1e-12)
        assert gaussian_log_normaliser_step(few, n) == pytest.approx(
            gaussian_log_normaliser_step(many, n), abs=1e-7 if n < 50 else 1e-10
        )
        for table in (2, 3, 4):
            a = [0, 0, prior.strengths.exponential, prior.strengths.alpha, 2 * prior.strengths.alpha][table]
            assert log_rising_factorial(few, table, a, n) == pytest.approx(many[table, n], rel=1e-12)


@pytest.mark.parametrize("moves", [Moves(0, 0), Moves(-1, 2), Moves(1, float("nan"))])
def test_moves_out_of_range_are_refused(moves):
    prior = prior_of(THREE)
    with pytest.raises(InvalidParameter, match=r"moves=.*of each kind, and some"):
        LazySampler(prior, InMemory(rows_of(THREE, 3)), moves)
