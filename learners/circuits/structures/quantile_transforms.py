"""Transforms of numeric columns under which leaves are normal, and the grids on which columns are recorded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from learners.kernels.arrays import Floats, Integers

# Decimals that a recorded step may have, and how near to a multiple of the step a number must be, as a share of itself.
MOST_DECIMALS = 9
NEAR, NEAR_OF_FLOATS = 1e-9, 2e-7
# Numbers beyond so many steps are not told apart by doubles.
MOST_STEPS = 2**40
# Knots of a quantile transform: about half the square root of the rows.
FEWEST_KNOTS, MOST_KNOTS = 8, 64
# Of the column's standard deviation and for each unit of the normal quantile: no two knots are nearer.
LEAST_GAP = 1e-3


@dataclass(frozen=True)
class Grid:
    """The numbers origin + k · step, k whole."""

    step: float
    origin: float


NO_GRID = Grid(0.0, 0.0)


def grid_of(x: Floats, arrow_type: str = "double") -> Grid | None:
    """The coarsest grid on which all numbers are, in decimals as people record them; None if there is none.

    x (n,) is ascending, each number once; those of the Arrow type "float" have seven digits.
    """
    if x.size < 2 or not np.isfinite(x).all():
        return None
    near = NEAR_OF_FLOATS if arrow_type == "float" else NEAR
    largest = float(np.abs(x).max())
    for decimals in range(MOST_DECIMALS + 1):
        scaled = x * 10.0**decimals
        room = near * np.maximum(np.abs(scaled), 1.0)
        if largest * 10.0**decimals * near > 0.05 or float(scaled[-1] - scaled[0]) > MOST_STEPS:
            return None
        whole = np.rint(scaled)
        if (np.abs(scaled - whole) <= room).all():
            numbers = whole.astype(np.int64)
            step = int(np.gcd.reduce(np.diff(numbers)))
            return Grid(step / 10.0**decimals, float(x[0])) if step else None
    return None


@dataclass(frozen=True, eq=False)
class Warp:
    """A monotone transform of a column, as leaves hold it."""

    grid: Grid  # of step 0, if leaves are densities
    is_log: bool
    # x, z (n_knots,) float64: places and normal quantiles of knots; empty of a transform without.
    x: Floats
    z: Floats

    @property
    def extras(self) -> Floats:
        """What a leaf holds behind its centre and spread."""
        own = [self.grid.step, self.grid.origin]
        return np.array([*own, self.x.size, *self.x, *self.z] if self.x.size else own)

    def of(self, x: Floats) -> Floats:
        """(n,) float64: the transform; the logarithm of zero on a grid is that of a quarter of a step."""
        if self.is_log:
            return np.log(np.maximum(x, self.grid.step / 4.0))
        if not self.x.size:
            return x
        i = np.clip(np.searchsorted(self.x, x, side="right") - 1, 0, self.x.size - 2)
        slope = np.diff(self.z) / np.diff(self.x)
        return self.z[i] + slope[i] * (x - self.x[i])

    def widths(self, x: Floats) -> Floats:
        """(n,) float64: how wide the cells of some numbers are; zero of a density."""
        half = self.grid.step / 2.0
        return self.of(x + half) - self.of(x - half)


def warp_of(distribution: str, x: Floats, n: Integers, grid: Grid) -> Warp:
    """The transform of a distribution that is "rounded", or lognormal or quantile, rounded or not.

    x (n_values,) is ascending, and n (n_values,) how often each number is there.
    """
    none = np.empty(0)
    if not distribution.endswith("quantile"):
        return Warp(grid, distribution.endswith("lognormal"), none, none)
    if x.size < 2:
        return Warp(grid, False, np.array([x[0] - 1.0, x[0] + 1.0]), np.array([-1.0, 1.0]))
    total = float(n.sum())
    level = (np.cumsum(n) - 0.5 * n) / total
    n_knots = int(np.clip(0.5 * np.sqrt(total), FEWEST_KNOTS, MOST_KNOTS))
    places = np.unique(np.searchsorted(level, (np.arange(n_knots) + 0.5) / n_knots).clip(0, x.size - 1))
    if places.size < 2:
        places = np.array([0, x.size - 1])
    mean = float(np.average(x, weights=n))
    gap = LEAST_GAP * float(np.sqrt(np.average((x - mean) ** 2, weights=n)))
    knots, quantiles = [float(x[places[0]])], [float(scipy.special.ndtri(level[places[0]]))]
    for at, z in zip(x[places[1:]].tolist(), scipy.special.ndtri(level[places[1:]]).tolist(), strict=True):
        if at - knots[-1] >= gap * (z - quantiles[-1]) and z > quantiles[-1]:
            knots.append(at)
            quantiles.append(z)
    if len(knots) < 2:
        knots, quantiles = [float(x[0]), float(x[-1])], [-1.0, 1.0]
    return Warp(grid, False, np.array(knots), np.array(quantiles))
