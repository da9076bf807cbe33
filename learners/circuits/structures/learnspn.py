"""LearnSPN: split independent variables, cluster rows otherwise."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy
from numpy.typing import ArrayLike

from learners.circuits.circuit import Circuit
from learners.circuits.structures.circuit_builder import Blocks, log_normalised_weights
from learners.circuits.structures.k_means import k_means
from learners.circuits.variables import mask_unknown_codes
from learners.counts.information import x_log_x
from learners.errors import EmptyData, InvalidParameter
from learners.kernels.arrays import Float32s, Floats, Integers

# Two variables are dependent if the p-value of their G-test is below this.
SIGNIFICANCE = 0.001
# Children of a sum, and rows that are added to each value of a leaf. Fewer rows are not clustered.
CLUSTERS, PSEUDO_COUNT, MIN_ROWS = 2, 0.1, 100


def learnspn(x: ArrayLike, n_values: Sequence[int], *, max_rows: int = 20_000, seed: int = 0) -> Circuit:
    """Learn the structure and weights of a tree-shaped circuit from a sample of rows of discrete variables.

    If a G-test finds independent groups of variables, they form a product; else the rows are clustered by k-means
    into a sum whose weights are the shares of the clusters. Few rows, or rows that do not cluster, form a product
    of leaves. Raises EmptyData if there are no rows, and InvalidParameter.

    x (n_variables, n_rows): codes; NaN, or a code outside the domain, if missing.
    n_values: size of each domain.
    max_rows: maximum number of rows; larger tables are sampled at random.
    References: Gens, Domingos (2013), Learning the Structure of Sum-Product Networks, section 4.
    """
    if max_rows < 1:
        raise InvalidParameter("max_rows", max_rows, "1 or more")
    sizes = np.asarray(n_values, np.int64)
    x = mask_unknown_codes(x, sizes)
    if not x.shape[1]:
        raise EmptyData("There are no rows to learn a circuit from.")
    rng = np.random.default_rng(seed)
    if x.shape[1] > max_rows:
        x = x[:, np.sort(rng.choice(x.shape[1], max_rows, replace=False))]
    grower = _Grower(x, sizes, rng)
    grower.node(np.arange(x.shape[1]), np.arange(sizes.size), may_split=True)
    return grower.blocks.circuit()


class _Grower:
    """Recursion of LearnSPN, with its constant data."""

    def __init__(self, x: Floats, sizes: Integers, rng: np.random.Generator) -> None:
        self.x, self.sizes, self.rng = x, sizes, rng
        self.blocks = Blocks(sizes)
        self.one_hot, self.starts = _one_hot(x, sizes)
        self.features = _features(x, sizes)

    def node(self, rows: Integers, scope: Integers, may_split: bool) -> int:
        """Add the circuit of the given rows and variables; returns its root."""
        if scope.size == 1 or rows.size < MIN_ROWS:
            return self._leaves(rows, scope)
        if may_split:
            n_groups, group = self._independent_groups(rows, scope)
            if n_groups > 1:
                parts = [self.node(rows, scope[group == g], may_split=False) for g in range(n_groups)]
                return int(self.blocks.products(np.array([parts]))[0])
        cluster = self._clusters(rows, scope)
        sizes = np.bincount(cluster)
        sizes = sizes[sizes > 0]
        if sizes.size < 2:
            return self._leaves(rows, scope)
        children = [self.node(rows[cluster == c], scope, may_split=True) for c in np.unique(cluster)]
        return int(self.blocks.sums(np.array([children]), log_normalised_weights(sizes)[np.newaxis])[0])

    def _leaves(self, rows: Integers, scope: Integers) -> int:
        leaves = []
        for v in scope.tolist():
            counts = _counts(self.x[v, rows], int(self.sizes[v])) + PSEUDO_COUNT
            leaves.append(int(self.blocks.distributions(v, log_normalised_weights(counts)[np.newaxis])[0]))
        return int(self.blocks.products(np.array([leaves]))[0])

    def _independent_groups(self, rows: Integers, scope: Integers) -> tuple[int, Integers]:
        columns = np.concatenate([np.arange(self.starts[v], self.starts[v + 1]) for v in scope])
        sizes = self.starts[scope + 1] - self.starts[scope]
        p_values = independence_p_values(self.one_hot[np.ix_(rows, columns)], sizes)
        from scipy.sparse.csgraph import connected_components

        n_groups, group = connected_components(p_values < SIGNIFICANCE, directed=False)
        return int(n_groups), group

    def _clusters(self, rows: Integers, scope: Integers) -> Integers:
        columns = np.concatenate([self.features[1][v] for v in scope])
        features = self.features[0][np.ix_(rows, columns)]
        n_distinct = len(np.unique(features, axis=0)) if rows.size < 1000 else CLUSTERS
        if n_distinct < 2:
            return np.zeros(rows.size, np.int64)
        return k_means(features, min(CLUSTERS, n_distinct), self.rng, starts=2)


def independence_p_values(one_hot: Float32s, sizes: Integers) -> Floats:
    """Return the p-values of the G-test of every pair of variables; 1 if either is constant.

    (n_variables, n_variables) float64, symmetric; rows that lack one of the two are not counted. one_hot
    (n_rows, Σ sizes) float32 has one column per value of each variable, and zeros where it is missing.

    References: Gens, Domingos (2013), section 4: G = 2 Σ n_ab log(n_ab n / (n_a n_b)), of (A - 1)(B - 1) degrees of
    freedom.
    """
    starts = np.cumsum(sizes) - sizes
    # float32 counts exactly up to 2^24 rows.
    counts = (one_hot.T @ one_hot).astype(np.float64)
    of_left = np.add.reduceat(counts, starts, axis=1)  # (Σ sizes, n): rows with each value where the other is known
    n = np.add.reduceat(of_left, starts, axis=0)
    joint = np.add.reduceat(np.add.reduceat(x_log_x(counts), starts, axis=0), starts, axis=1)
    left = np.add.reduceat(x_log_x(of_left), starts, axis=0)
    g = 2.0 * (joint - left - left.T + x_log_x(n))
    n_left = np.add.reduceat((of_left > 0).astype(np.float64), starts, axis=0)
    degrees = np.maximum(n_left - 1, 0) * np.maximum(n_left.T - 1, 0)
    return np.where(degrees > 0, scipy.special.chdtrc(np.maximum(degrees, 1), np.maximum(g, 0.0)), 1.0)


def _counts(row: Floats, size: int) -> Integers:
    """Count each code in a row, without NaN, (size,) int64."""
    return np.bincount(row[~np.isnan(row)].astype(np.int64), minlength=size)


def _one_hot(x: Floats, sizes: Integers) -> tuple[Float32s, Integers]:
    """Return the one-hot encoding, (n_rows, Σ sizes) float32, and the start of each variable's columns, (n_variables +
    1,).
    """
    columns = [row[:, np.newaxis] == np.arange(size) for row, size in zip(x, sizes.tolist(), strict=True)]
    return np.concatenate(columns, axis=1).astype(np.float32), np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _features(x: Floats, sizes: Integers) -> tuple[Float32s, list[Integers]]:
    """Return features for k-means, (n_rows, n_features) float32, with missing values at the mean, and the columns of
    each variable.
    """
    features: list[Floats] = []
    columns = []
    for row, size in zip(x, sizes.tolist(), strict=True):
        counts = _counts(row, size)
        share = (counts + 1.0) / (counts.sum() + size)
        # One of two values determines the other.
        own = [np.where(np.isnan(row), share[value], row == value) for value in range(int(size == 2), size)]
        columns.append(np.arange(len(features), len(features) + len(own)))
        features += own
    return np.stack(features, axis=1).astype(np.float32), columns
