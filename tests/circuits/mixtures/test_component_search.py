"""Expected moments: laws of a statistic, and EM's step against its definition."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.circuits.mixtures.component_search import OF_WEIGHT, ExpectedMoments
from learners.circuits.mixtures.mixture import GaussianMixture
from tests import laws
from tests.circuits.mixtures.strategies import example, mixtures, rows_of
from tests.naive import gaussians as naive

SOME = settings(max_examples=15)


@given(mixtures(), st.integers(0, 1000), st.integers(0, 40))
@SOME
def test_laws(mixture, seed, cut):
    x = rows_of(mixture, 40, seed)
    empty = ExpectedMoments(mixture)
    parts = [x[:, :cut], x[:, cut:], rows_of(mixture, 7, seed + 1)]
    laws.merging_commutes_and_associates(empty, parts)
    laws.the_empty_statistic_is_neutral(empty, parts)
    laws.what_was_added_can_be_subtracted(empty, parts)
    laws.order_and_partition_do_not_matter(empty, parts, partial(np.concatenate, axis=1))
    laws.arrow_gives_it_back(empty, parts)


@given(mixtures(), st.integers(0, 1000))
@SOME
def test_a_step_is_that_of_the_definition(mixture, seed):
    x = rows_of(mixture, 60, seed)
    moments = ExpectedMoments(mixture)
    moments.update(x)
    found = moments.maximised(0.0, np.zeros(mixture.mean.shape[1]))
    rows, means, covariances = naive.maximised(mixture, x.T)
    np.testing.assert_allclose(np.exp(found.log_weight), (rows + OF_WEIGHT) / (rows + OF_WEIGHT).sum(), rtol=1e-6)
    spread = np.sqrt(np.diagonal(mixture.covariance, axis1=1, axis2=2))
    for k in np.flatnonzero(rows > 0.5):
        np.testing.assert_allclose((found.mean[k] - means[k]) / spread[k], 0.0, atol=1e-4)
        scaled = (found.covariance[k] - covariances[k]) / np.outer(spread[k], spread[k])
        np.testing.assert_allclose(scaled, 0.0, atol=1e-3)
    expected = sum(naive.log_density(mixture, row) for row in x.T)
    assert moments.log_likelihood == pytest.approx(expected, rel=1e-6, abs=1e-3)


def test_moments_of_other_mixtures_do_not_add():
    first = example()
    second = GaussianMixture.from_arrays(first.to_arrays() | {"mean": first.mean + 1.0})
    laws.others_are_refused(ExpectedMoments(first), ExpectedMoments(second), [rows_of(first, 5, 0)])
