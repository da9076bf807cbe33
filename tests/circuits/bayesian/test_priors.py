"""Complete tree circuits, and priors that are given or fitted."""

import numpy as np
import pytest

from learners.circuits.bayesian.lazy_sampler_kernels import SIZE
from learners.circuits.bayesian.leaf_kernels import FIRST, SECOND
from learners.circuits.bayesian.priors import (
    Column,
    Strengths,
    complete_tree_shape,
    complete_tree_sum_counts,
    empirical_prior,
    leaf_families,
    prior_from_moments,
)
from learners.circuits.kernels import EXPONENTIAL, GAUSSIAN, POISSON
from learners.errors import InvalidParameter
from tests.circuits.bayesian.problems import COUNTS, MIXED, THREE, WORDS, prior_of, rows_of
from tests.naive.bayesian_circuits import induced_trees, tree_of

COLUMNS = (*THREE, *MIXED, *COUNTS)


def prior_of_sample(shares, seed=0, n_children=2):
    shape = complete_tree_shape(len(COLUMNS), n_children)
    sample = rows_of(COLUMNS, 500, missing=0.1)
    strengths = Strengths(gaussian=2.0, exponential=3.0, poisson=4.0)
    return empirical_prior(shape, COLUMNS, strengths, sample, shares, seed), sample


def test_with_all_of_a_column_leaves_fit_its_mean_and_variance():
    """Yokoi, Sato (2024), appendix C."""
    prior, sample = prior_of_sample(np.ones(len(COLUMNS)))
    family = leaf_families(prior.leaf)
    for d in range(len(COLUMNS)):
        known = sample[~np.isnan(sample[:, d]), d]
        own = prior.leaf_column == d
        gaussian, waits, counts = (own & (family == code) for code in (GAUSSIAN, EXPONENTIAL, POISSON))
        assert np.allclose(prior.leaf[gaussian, FIRST], known.mean())
        assert np.allclose(prior.leaf[gaussian, SECOND], 2.0 * known.var())
        assert np.allclose(prior.leaf[waits, FIRST], 3.0 * known.mean())
        assert np.allclose(prior.leaf[counts, FIRST], 4.0 / known.mean())


def test_with_a_small_share_leaves_differ_and_each_is_of_a_subset():
    prior, sample = prior_of_sample(np.full(len(COLUMNS), 0.05))
    known = sample[~np.isnan(sample[:, 0]), 0]
    means = prior.leaf[prior.leaf_column == 0, FIRST]
    n = round(0.05 * known.size)
    expected = known.std() * np.sqrt((1 - n / known.size) / n)
    assert np.unique(means).size > 0.9 * means.size
    assert means.std() == pytest.approx(expected, rel=0.25)
    assert means.mean() == pytest.approx(known.mean(), abs=5 * expected / np.sqrt(16))


def test_families_take_turns_at_each_sum():
    prior, _ = prior_of_sample(np.ones(len(COLUMNS)), n_children=4)
    family = leaf_families(prior.leaf).reshape(-1, 4)
    mixed = family[prior.shape.column == 3]
    assert (np.sort(mixed, axis=1) == [GAUSSIAN, GAUSSIAN, EXPONENTIAL, EXPONENTIAL]).all()
    assert np.unique(mixed[:, 0]).size == 2


def test_the_seed_decides():
    first, again, other = (prior_of_sample(np.full(len(COLUMNS), 0.1), seed)[0].leaf for seed in (0, 0, 1))
    assert np.array_equal(first, again) and not np.array_equal(first, other)


def test_no_prior_is_narrower_than_a_column_allows():
    column = Column(("gaussian",), least_variance=0.25)
    prior = prior_from_moments(complete_tree_shape(1, 2), [column], Strengths(), np.zeros(2), np.zeros(2))
    assert (prior.leaf[:, SECOND] == 0.25).all()


@pytest.mark.parametrize(
    ("families", "n_values"),
    [((), 0), (("normal",), 0), (("categorical",), 0), (("gaussian",), 3), (("categorical", "gaussian"), 3)],
)
def test_families_that_do_not_fit_are_refused(families, n_values):
    with pytest.raises(InvalidParameter, match="families="):
        Column(families, n_values)


@pytest.mark.parametrize("alpha", [0.0, -1.0, float("inf"), float("nan")])
def test_strengths_out_of_range_are_refused(alpha):
    with pytest.raises(InvalidParameter, match=r"alpha=.* a positive number"):
        Strengths(alpha=alpha)


@pytest.mark.parametrize(
    ("n_columns", "n_children", "n_sums"),
    [(9, 2, 117), (9, 4, 1097), (41, 2, 2517), (41, 4, 111_177), (22, 4, 16_969), (35, 4, 62_025), (16, 2, 341)],
)
def test_sums_are_as_many_as_in_the_paper(n_columns, n_children, n_sums):
    """Yokoi, Sato (2024), table 9."""
    assert complete_tree_sum_counts(n_columns, n_children)[0] == n_sums


@pytest.mark.parametrize("n_columns", [1, 2, 3, 5])
def test_every_induced_tree_has_a_leaf_of_each_column(n_columns):
    prior = prior_of([WORDS] * n_columns, seed=n_columns)
    shape = prior.shape
    trees = list(induced_trees(tree_of(prior)))
    assert len(trees) == 2 ** (2 * n_columns - 1)
    for choices, _, leaves in trees:
        assert len(choices) == shape.n_positions
        assert sorted(shape.column[np.array(leaves) // 2].tolist()) == list(range(n_columns))


def test_halves_are_drawn_for_each_product_and_follow_the_seed():
    first, again, other = (complete_tree_shape(8, 3, seed).column for seed in (5, 5, 6))
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    halves = {frozenset(child[: child.size // 2].tolist()) for child in first.reshape(3, -1)}
    assert len(halves) > 1


def test_positions_tell_sizes():
    shape = complete_tree_shape(5, 2)
    assert shape.place[:, SIZE].tolist() == [5, 3, 2, 1, 1, 1, 2, 1, 1]
    assert (shape.n_positions, shape.n_columns) == (9, 5)


@pytest.mark.parametrize(
    ("n_columns", "n_children", "message"),
    [(3, 1, "children=.* from 2 to 256"), (3, 257, "children=.* from 2 to 256"), (0, 2, "at least one column")],
)
def test_shapes_out_of_range_are_refused(n_columns, n_children, message):
    with pytest.raises(InvalidParameter, match=message):
        complete_tree_shape(n_columns, n_children)
