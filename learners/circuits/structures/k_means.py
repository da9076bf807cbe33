"""k-means with the same result on any processor and any number of threads."""

from __future__ import annotations

import math

import numpy as np

from learners.kernels.arrays import Array, Floats, Integers

# Points and centres are whole multiples of these. So a double holds every sum of products exactly, in whatever order BLAS adds
# them up, for up to 2^19 features.
POINT, CENTRE = 2.0**-12, 2.0**-16
# Rows that are converted to doubles at once.
BLOCK = 1 << 13
# It ends when no more than this share of the rows changes its cluster.
SETTLED = 1e-4


def k_means(
    points: Array, n_clusters: int, rng: np.random.Generator, *, starts: int = 1, rounds: int = 300
) -> Integers:
    """Cluster points by k-means, (n,) int64: the numbers of their clusters.

    points (n, n_features): values from 0 to 1; they are rounded to multiples of 2^-12. The start with the smallest sum
    of squared distances wins. `rounds`: the most that Lloyd's algorithm takes.

    References: Lloyd (1982), Least squares quantization in PCM; Arthur, Vassilvitskii (2007), k-means++: each centre
    to start from is the best of a few that are drawn.
    """
    best, least = np.zeros(points.shape[0], np.int64), math.inf
    for _ in range(starts):
        centres = _first_centres(points, n_clusters, rng)
        cluster = np.full(points.shape[0], -1)
        for _ in range(rounds):
            before = cluster
            cluster, distance = _nearest(points, centres)
            if np.count_nonzero(cluster != before) <= SETTLED * cluster.size:
                break
            centres = _means(points, cluster, distance, n_clusters)
        total = float(np.cumsum(distance)[-1])
        if total < least:
            best, least = cluster, total
    return best


def _block(points: Array, start: int, size: int) -> Floats:
    return np.rint(points[start : start + size] / POINT) * POINT


def _squared_distances(block: Floats, centres: Floats) -> Floats:
    """Return the squared distance of each point to each centre, (n, n_centres) float64, without any rounding."""
    squares = np.square(block).sum(axis=1)[:, np.newaxis] + np.square(centres).sum(axis=1)
    return np.asarray(squares - 2.0 * (block @ centres.T))


def _nearest(points: Array, centres: Floats) -> tuple[Integers, Floats]:
    """Return the first of the nearest centres of each point, and its squared distance."""
    cluster, least = np.empty(points.shape[0], np.int64), np.empty(points.shape[0])
    for start in range(0, points.shape[0], BLOCK):
        distances = _squared_distances(_block(points, start, BLOCK), centres)
        cluster[start : start + BLOCK] = distances.argmin(axis=1)
        least[start : start + BLOCK] = distances.min(axis=1)
    return cluster, least


def _means(points: Array, cluster: Integers, distance: Floats, n_clusters: int) -> Floats:
    """Return the mean of each cluster; an empty cluster gets one of the points farthest from their centres."""
    sums = np.zeros((n_clusters, points.shape[1]))
    for start in range(0, points.shape[0], BLOCK):
        belongs = cluster[start : start + BLOCK] == np.arange(n_clusters)[:, np.newaxis]
        sums += belongs.astype(np.float64) @ _block(points, start, BLOCK)
    sizes = np.bincount(cluster, minlength=n_clusters)
    empty = np.flatnonzero(sizes == 0)
    for centre, row in zip(empty, np.argsort(-distance, kind="stable"), strict=False):
        sums[centre], sizes[centre] = _block(points, row, 1)[0], 1
    return np.asarray(np.rint(sums / sizes[:, np.newaxis] / CENTRE) * CENTRE)


def _first_centres(points: Array, n_clusters: int, rng: np.random.Generator) -> Floats:
    """Draw points with probabilities by their squared distance to the centres so far, the best of a few each time."""
    centres = np.empty((n_clusters, points.shape[1]))
    centres[0] = _block(points, int(rng.integers(points.shape[0])), 1)[0]
    nearest = _nearest(points, centres[:1])[1]
    n_draws = 2 + int(math.log(n_clusters))
    for k in range(1, n_clusters):
        up_to = np.cumsum(nearest)
        drawn = np.searchsorted(up_to, rng.random(n_draws) * up_to[-1], side="right").clip(max=points.shape[0] - 1)
        options = np.stack([_block(points, int(row), 1)[0] for row in drawn])
        left = np.concatenate(
            [
                np.minimum(
                    _squared_distances(_block(points, start, BLOCK), options),
                    nearest[start : start + BLOCK, np.newaxis],
                )
                for start in range(0, points.shape[0], BLOCK)
            ]
        )
        chosen = int(np.cumsum(left, axis=0)[-1].argmin())
        centres[k], nearest = options[chosen], left[:, chosen]
    return centres
