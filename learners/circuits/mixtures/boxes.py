"""Numeric columns of a mixture that lie in ranges: a box, which cuts the Gaussian of each component."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy

from learners.circuits.errors import InvalidEvidence
from learners.circuits.evaluation.truncated_leaves import log_normal_mass, truncated_moments, truncated_normal
from learners.circuits.kernels import GAUSSIAN
from learners.kernels.arrays import Floats, Integers

# Correlations between columns in ranges that are rounding errors.
INDEPENDENT = 1e-9


class DependentRanges(InvalidEvidence):
    """Ranges of columns that depend on each other, of which no formula tells the probability."""

    def __init__(self) -> None:
        super().__init__(
            "Columns that depend on each other are given as ranges, and no formula tells how probable they are together: give a range of "
            "one of them, or ask for a marginal, a conditional, moments or guesses from samples (--sample, or sampling in Python and JSON)."
        )


class Box(NamedTuple):
    """Columns that are independent of each other given what is observed, each in a range."""

    places: Integers  # (r,) int64: among the columns that are not observed
    mean: Floats  # (n_components, r, n_rows) float64: before they are cut
    deviation: Floats  # (n_components, r) float64
    slope: Floats  # (n_components, u, r) float64: of every unobserved column for each unit of those in ranges
    ends: Floats  # (r, 2) float64

    @property
    def standard_ends(self) -> tuple[Floats, Floats]:
        """(n_components, r, n_rows) float64, twice: the ends in standard deviations from the mean."""
        scale = self.deviation[:, :, np.newaxis]
        return (self.ends[:, :1] - self.mean) / scale, (self.ends[:, 1:] - self.mean) / scale

    @property
    def log_mass(self) -> Floats:
        """(n_components, n_rows) float64: log probability of the box."""
        return log_normal_mass(*self.standard_ends).sum(axis=1)

    def moments(self, means: Floats, variances: Floats) -> tuple[Floats, Floats]:
        """Means and variances (n_components, u, n_rows) of all unobserved columns in the box, from those before it is cut.

        References: Pearson (1903), On the influence of natural selection on the variability and correlation of organs,
        section 3.
        """
        own = np.empty((2, *self.mean.shape))
        for k, i, row in np.ndindex(self.mean.shape):
            leaf = np.array([self.mean[k, i, row], self.deviation[k, i]])
            own[:, k, i, row] = truncated_moments(GAUSSIAN, leaf, *self.ends[i])
        gain = own[1] - self.deviation[:, :, np.newaxis] ** 2
        means, variances = means + self.slope @ (own[0] - self.mean), variances + self.slope**2 @ gain
        means[:, self.places], variances[:, self.places] = own
        return means, variances

    def moved(self, drawn: Floats, k: int, rows: Integers) -> Floats:
        """(n, u) float64: numbers drawn from a component without the box, some of each row, as ones in the box.

        A column's place in its distribution becomes its place in the distribution cut to the range, and the others follow. They
        are as they should be, as what is left of them is independent of the columns in the box.
        """
        scale, before = self.deviation[k], drawn[:, self.places]
        mean = self.mean[k][:, rows].T
        low, high = (ends[k][:, rows].T for ends in self.standard_ends)
        z = truncated_normal(low, high, scipy.special.ndtr((before - mean) / scale))
        after = np.clip(mean + scale * z, *self.ends.T)
        found: Floats = drawn + (after - before) @ self.slope[k].T
        found[:, self.places] = after
        return found


def box_of(places: Integers, means: Floats, covariance: Floats, ends: Floats) -> Box:
    """The box of some columns (r,) among those that are not observed, of which `means` and `covariance` are.

    Raises DependentRanges if the columns depend on each other given what is observed.
    """
    own = covariance[:, places[:, np.newaxis], places]
    deviation = np.sqrt(np.diagonal(own, axis1=1, axis2=2))
    correlation = own / (deviation[:, :, np.newaxis] * deviation[:, np.newaxis])
    if (np.abs(correlation - np.eye(places.size)) > INDEPENDENT).any():
        raise DependentRanges
    slope = covariance[:, :, places] / deviation[:, np.newaxis] ** 2
    return Box(places, means[:, places], deviation, slope, ends)
