"""k-means beside its definition, and what makes it the same on any processor."""

import numpy as np
import pytest

from learners.circuits.structures import k_means as module
from learners.circuits.structures.k_means import k_means


def points_of(seed, n=300, n_features=12, groups=3):
    rng = np.random.default_rng(seed)
    group = rng.integers(0, groups, n)
    return (rng.random((n, n_features)) < rng.random((groups, n_features))[group]).astype(np.float32), group


@pytest.mark.parametrize("seed", range(5))
def test_each_point_is_nearest_to_the_mean_of_its_cluster(seed):
    points, _ = points_of(seed)
    cluster = k_means(points, 3, np.random.default_rng(seed))
    means = np.stack([points[cluster == c].mean(axis=0, dtype=np.float64) for c in range(3)])
    distances = ((points[:, np.newaxis] - means) ** 2).sum(axis=2)
    # Means are rounded to multiples of 2^-16.
    assert (distances[np.arange(len(points)), cluster] <= distances.min(axis=1) + 12 * 2.0**-14).all()


def test_groups_that_lie_apart_are_the_clusters():
    group = np.arange(90) % 3
    points = np.eye(3, dtype=np.float32)[group].repeat(4, axis=1)
    cluster = k_means(points, 3, np.random.default_rng(0))
    assert len({(g, c) for g, c in zip(group.tolist(), cluster.tolist(), strict=True)}) == 3


def test_several_starts_are_no_worse_than_the_first_of_them():
    points, _ = points_of(3, n=200, groups=8)

    def spread(cluster):
        return sum(((points[cluster == c] - points[cluster == c].mean(axis=0)) ** 2).sum() for c in np.unique(cluster))

    for seed in range(5):
        one, more = (k_means(points, 8, np.random.default_rng(seed), starts=starts) for starts in (1, 4))
        assert spread(more) <= spread(one) + 1e-3


def test_equal_points_and_more_clusters_than_points_end():
    np.testing.assert_array_equal(k_means(np.zeros((5, 2)), 3, np.random.default_rng(0)), np.zeros(5))
    assert len(np.unique(k_means(np.eye(4), 4, np.random.default_rng(0)))) == 4


def test_no_order_of_rows_features_or_sums_changes_a_distance(monkeypatch):
    rng = np.random.default_rng(0)
    points, centres = rng.random((500, 700)), rng.random((6, 700))
    centres = np.rint(centres / module.CENTRE) * module.CENTRE
    block = module._block(points, 0, len(points))
    exact = module._squared_distances(block, centres)
    order = rng.permutation(700)
    np.testing.assert_array_equal(module._squared_distances(block[:, order], centres[:, order]), exact)
    naive = np.zeros_like(exact)
    for feature in range(700):
        naive += (block[:, feature, np.newaxis] - centres[:, feature]) ** 2
    np.testing.assert_array_equal(naive, exact)
    whole = k_means(points, 6, np.random.default_rng(1))
    monkeypatch.setattr(module, "BLOCK", 37)
    np.testing.assert_array_equal(k_means(points, 6, np.random.default_rng(1)), whole)
