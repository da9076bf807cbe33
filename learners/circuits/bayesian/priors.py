"""The sampler's complete tree circuit, and its prior: the state of each leaf before the first row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import numpy as np
import scipy

from learners.circuits.bayesian.leaf_kernels import ALPHA, CENTRE, FIRST, KIND, LOG, RHO, SECOND
from learners.circuits.kernels import CATEGORICAL, EXPONENTIAL, GAUSSIAN, POISSON
from learners.errors import InvalidParameter
from learners.kernels.arrays import Floats, Integers, read_only_array

# A choice is one byte.
MOST_CHILDREN = 256


class Shape(NamedTuple):
    """A complete tree of sums and binary products over columns, addressed by arithmetic instead of pointers.

    A sum over m > 1 columns has `n_children` products; each splits the columns at random into halves of ⌈m/2⌉ and
    ⌊m/2⌋, and has a sum over either half. A sum over one column has `n_children` leaves. Sums are numbered in
    preorder. So all induced trees have the same shape: a *position* is a sum of an induced tree, in preorder, and
    the position alone determines where its children are.
    """

    n_children: int
    # (n_positions, 6) int64: SIZE: columns of the sums at a position; 1 where they have leaves, and then all else is 0.
    # RIGHT: position of the right half; that of the left one is the next. STRIDE, RIGHT_SUM, LEAF_STRIDE, RIGHT_LEAF:
    # the sum at the left half of child c of sum s is s + 1 + c STRIDE, that at the right half RIGHT_SUM more; leaf
    # sums, numbered apart, alike.
    place: Integers
    column: Integers  # (n_leaf_sums,) int64

    @property
    def n_positions(self) -> int:
        """Number of sums of an induced tree: 2 n_columns - 1."""
        return len(self.place)

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return (self.n_positions + 1) // 2

    @property
    def n_sums(self) -> int:
        """Number of sums of the circuit, including those over leaves."""
        return complete_tree_sum_counts(self.n_columns, self.n_children)[0]

    @property
    def n_leaf_sums(self) -> int:
        """Number of sums over leaves."""
        return int(self.column.size)


@cache
def complete_tree_sum_counts(n_columns: int, n_children: int) -> tuple[int, int]:
    """Return the number of sums of the complete tree, and how many of them are over leaves.

    References: Yokoi, Sato (2024), table 2, for any number of columns.
    """
    if n_columns == 1:
        return 1, 1
    left, right = (
        complete_tree_sum_counts(n_columns - n_columns // 2, n_children),
        complete_tree_sum_counts(n_columns // 2, n_children),
    )
    return 1 + n_children * (left[0] + right[0]), n_children * (left[1] + right[1])


def complete_tree_shape(n_columns: int, n_children: int, seed: int = 0) -> Shape:
    """Build the complete tree over some columns, halved at random; sums have 2 to 256 children. Raises
    InvalidParameter.

    References: Yokoi, Sato (2024), section 3.1: the largest tree with products of two children.
    """
    if not 2 <= n_children <= MOST_CHILDREN:
        raise InvalidParameter("children", n_children, f"a whole number from 2 to {MOST_CHILDREN}")
    if n_columns < 1:
        raise InvalidParameter("n_columns", n_columns, "at least one column")
    places: list[tuple[int, ...]] = []
    _place(n_columns, n_children, places)
    column = np.empty(complete_tree_sum_counts(n_columns, n_children)[1], np.int64)
    _fill(column, np.arange(n_columns), n_children, np.random.default_rng(seed))
    return Shape(n_children, read_only_array(np.array(places, np.int64)), read_only_array(column))


def _place(m: int, n_children: int, places: list[tuple[int, ...]]) -> None:
    """Append the positions of an induced tree over m columns."""
    if m == 1:
        places.append((1, 0, 0, 0, 0, 0))
        return
    here = len(places)
    places.append(())
    (left_sums, left_leaves), (right_sums, right_leaves) = (
        complete_tree_sum_counts(h, n_children) for h in (m - m // 2, m // 2)
    )
    _place(m - m // 2, n_children, places)
    places[here] = (m, len(places), left_sums + right_sums, left_sums, left_leaves + right_leaves, left_leaves)
    _place(m // 2, n_children, places)


def _fill(column: Integers, scope: Integers, n_children: int, rng: np.random.Generator) -> None:
    """Fill in the column of each leaf sum below a sum over a scope."""
    if scope.size == 1:
        column[0] = scope[0]
        return
    half = scope.size - scope.size // 2
    n_left = complete_tree_sum_counts(half, n_children)[1]
    size = column.size // n_children
    for c in range(n_children):
        own, order = column[c * size : (c + 1) * size], rng.permutation(scope)
        _fill(own[:n_left], order[:half], n_children, rng)
        _fill(own[n_left:], order[half:], n_children, rng)


FAMILIES = {"categorical": CATEGORICAL, "gaussian": GAUSSIAN, "poisson": POISSON, "exponential": EXPONENTIAL}
# Tables by the number of rows of a leaf or sum; beyond it logarithms of Γ are told one by one.
TABULATED = 1 << 16
# Leaves draw windows of so many random orders of a column's numbers.
ORDERS = 16
# Least prior, as a share of a column's variance or mean, unless the user says otherwise.
LEAST_SHARE = 1e-6


@dataclass(frozen=True)
class Column:
    """Model of a column. Raises InvalidParameter."""

    # Among which each leaf has one: "categorical" alone, or some of "gaussian", "poisson" and "exponential".
    families: tuple[str, ...]
    n_values: int = 0  # size of a categorical column's domain; else 0
    centre: float = 0.0  # numbers are told less this one
    least_variance: float = 0.0  # no prior of a Gaussian leaf is narrower

    def __post_init__(self) -> None:
        is_finite = self.families == ("categorical",)
        if not self.families or any(family not in FAMILIES for family in self.families):
            raise InvalidParameter("families", self.families, f"some of {', '.join(FAMILIES)}")
        if ("categorical" in self.families) != is_finite or is_finite != (self.n_values > 0):
            raise InvalidParameter(
                "families", self.families, because="a finite domain has categorical leaves, and only these"
            )


@dataclass(frozen=True)
class Strengths:
    """Hyperparameters shared by leaves and sums. Raises InvalidParameter."""

    alpha: float = 1.0  # pseudo-count of each child of a sum
    gaussian: float = 1.0  # a0 of the Normal-Gamma prior: half of the rows that its variance stands for
    rho: float = 0.1  # rows that the prior mean of a Gaussian leaf stands for
    # exponential, poisson: shape α of the Gamma prior of the rate. Of an exponential leaf without rows the expected
    # mean is infinite up to 1, and the expected variance up to 2.
    exponential: float = 3.0
    poisson: float = 1.0
    categorical: float = 1.0  # pseudo-count of each value

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 < value < math.inf:
                raise InvalidParameter(name, value, "a positive number")


@dataclass(frozen=True, eq=False)
class Prior:
    """A Bayesian circuit before the first row."""

    shape: Shape
    columns: tuple[Column, ...]
    strengths: Strengths
    # (n_leaf_sums * n_children, 8) float64, read-only: the empty leaves, see `leaf_kernels`: leaf c of leaf sum s is
    # number s n_children + c.
    leaf: Floats

    @property
    def n_cells(self) -> int:
        """Number of value counts of all categorical leaves."""
        return int(self.leaf[leaf_families(self.leaf) == CATEGORICAL, SECOND].sum())

    @property
    def leaf_column(self) -> Integers:
        """Column of each leaf, (n_leaves,) int64."""
        return np.repeat(self.shape.column, self.shape.n_children)

    def hyper(self, n_rows: int) -> Floats:
        """Return the kernels' tables of the strengths for n_rows rows, (5, n_tabulated) float64, see `leaf_kernels`."""
        own, n = self.strengths, np.arange(max(min(n_rows, TABULATED) + 2, ALPHA + 1), dtype=np.float64)
        shapes = np.zeros(n.size)
        shapes[[CATEGORICAL, GAUSSIAN, POISSON]] = own.categorical, own.gaussian, own.poisson
        shapes[[EXPONENTIAL, RHO, ALPHA]] = own.exponential, own.rho, own.alpha
        whole = self.shape.n_children * own.alpha
        gaussian = scipy.special.gammaln(own.gaussian + n / 2) - np.log(own.rho + n) / 2 - n * math.log(2 * math.pi) / 2
        rises = [scipy.special.gammaln(a + n) - scipy.special.gammaln(a) for a in (own.exponential, own.alpha, whole)]
        return np.stack([shapes, gaussian, *rises])


def leaf_families(leaf: Floats) -> Integers:
    """Return the family of each leaf, (n_leaves,) int64."""
    return leaf[:, KIND].astype(np.int64) & 7


def prior_from_moments(
    shape: Shape, columns: Sequence[Column], strengths: Strengths, means: Floats, variances: Floats, seed: int = 0
) -> Prior:
    """Create a prior whose numeric leaves have given means and variances (n_leaves,), in the columns' own units.

    References: Yokoi, Sato (2024), appendix C: μ0 = mean and b0 = a0 variance, β = α mean, β = α / mean.
    """
    column = np.repeat(shape.column, shape.n_children)
    leaf = np.zeros((column.size, 8))
    families = _families(shape, columns, seed)
    leaf[:, KIND] = 8 * column + families
    n_cells = 0
    for d, own in enumerate(columns):
        leaves = np.flatnonzero(column == d)
        family, mean, variance = families[leaves], means[leaves], variances[leaves]
        leaf[leaves, CENTRE] = own.centre
        if own.n_values:
            leaf[leaves, FIRST] = n_cells + own.n_values * np.arange(leaves.size)
            leaf[leaves, SECOND] = own.n_values
            n_cells += own.n_values * leaves.size
            continue
        first = np.select(
            [family == GAUSSIAN, family == EXPONENTIAL], [mean - own.centre, strengths.exponential * mean], 0.0
        )
        is_poisson = family == POISSON
        first[is_poisson] = strengths.poisson / mean[is_poisson]
        leaf[leaves, FIRST] = first
        leaf[leaves, SECOND] = np.where(
            family == GAUSSIAN, strengths.gaussian * np.maximum(variance, own.least_variance), 0.0
        )
    return Prior(shape, tuple(columns), strengths, _closed(leaf, strengths))


def prior_from_leaf_parameters(
    shape: Shape, columns: Sequence[Column], strengths: Strengths, leaf: Floats, seed: int = 0
) -> Prior:
    """Create a prior from stored leaf parameters, leaf (n_leaves, 2) float64: FIRST and SECOND."""
    n = shape.n_leaf_sums * shape.n_children
    prior = prior_from_moments(shape, columns, strengths, np.ones(n), np.ones(n), seed)
    own = prior.leaf.copy()
    own[:, [FIRST, SECOND]] = leaf
    return replace(prior, leaf=_closed(own, strengths))


def empirical_prior(
    shape: Shape, columns: Sequence[Column], strengths: Strengths, sample: Floats, shares: Floats, seed: int = 0
) -> Prior:
    """Fit the prior of each leaf to a random share of its column's numbers in a sample of rows.

    sample (n_rows, n_columns) float64, NaN where missing; shares (n_columns,) float64 in (0, 1]: smaller shares
    make leaves more different.

    References: Yokoi, Sato (2024), section 3.4 and appendix C.
    """
    rng = np.random.default_rng(seed)
    column = np.repeat(shape.column, shape.n_children)
    means, variances = np.zeros(column.size), np.zeros(column.size)
    for d, own in enumerate(columns):
        known = sample[~np.isnan(sample[:, d]), d]
        if own.n_values or not known.size:
            continue
        leaves = np.flatnonzero(column == d)
        mean, variance = _of_windows(known, max(2, round(shares[d] * known.size)), leaves.size, rng)
        spread = float(known.var()) or 1.0
        overall = abs(float(known.mean()) + own.centre) or 1.0
        means[leaves] = mean + own.centre
        variances[leaves] = np.maximum(variance, LEAST_SHARE * spread)
        if own.families != ("gaussian",):
            means[leaves] = np.maximum(means[leaves], LEAST_SHARE * overall)
    return prior_from_moments(shape, columns, strengths, means, variances, seed)


def _of_windows(x: Floats, size: int, n: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Return the mean and variance of n random subsets of a size, computed as windows of random orders by two
    differences each.
    """
    size = min(size, x.size)
    mean = float(x.mean())
    orders = np.stack([rng.permutation(x - mean) for _ in range(ORDERS)])
    around = np.concatenate([orders, orders[:, :size]], axis=1)
    sums = np.zeros((2, ORDERS, around.shape[1] + 1))
    np.cumsum(around, axis=1, out=sums[0, :, 1:])
    np.cumsum(around**2, axis=1, out=sums[1, :, 1:])
    order, first = rng.integers(0, ORDERS, n), rng.integers(0, x.size, n)
    total, squares = (s[order, first + size] - s[order, first] for s in sums)
    return mean + total / size, np.maximum(squares / size - (total / size) ** 2, 0.0)


def _families(shape: Shape, columns: Sequence[Column], seed: int) -> Integers:
    """Assign families to leaves, (n_leaves,) int64: those of a sum cycle through the column's families from a random
    start.
    """
    rng = np.random.default_rng([seed, 1])
    start = rng.integers(0, 1 << 30, shape.n_leaf_sums)
    family = np.empty((shape.n_leaf_sums, shape.n_children), np.int64)
    for d, own in enumerate(columns):
        sums = np.flatnonzero(shape.column == d)
        codes = np.array([FAMILIES[name] for name in own.families])
        family[sums] = codes[(start[sums, np.newaxis] + np.arange(shape.n_children)) % codes.size]
    return family.ravel()


def _closed(leaf: Floats, strengths: Strengths) -> Floats:
    """Set LOG of the empty leaves, and make them read-only."""
    family = leaf_families(leaf)
    of_gaussian, of_exponential, of_poisson = (family == code for code in (GAUSSIAN, EXPONENTIAL, POISSON))
    leaf[of_gaussian, LOG] = strengths.gaussian * np.log(leaf[of_gaussian, SECOND])
    leaf[of_exponential, LOG] = strengths.exponential * np.log(leaf[of_exponential, FIRST])
    leaf[of_poisson, LOG] = scipy.special.gammaln(strengths.poisson) - strengths.poisson * np.log(
        leaf[of_poisson, FIRST]
    )
    leaf.setflags(write=False)
    return leaf
