"""Numeric columns of a circuit: intervals for structure learning, then a density for each, possibly of a transform
under which leaves are normal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np
import scipy

from learners.circuits.circuit import Circuit, CircuitArrays
from learners.circuits.kernels import (
    CATEGORICAL,
    EXPONENTIAL,
    GAUSSIAN,
    INDICATOR,
    LOG_NORMAL,
    POISSON,
    QUANTILE,
    ROUNDED,
    STUDENT,
    SUM,
)
from learners.errors import SchemaError
from learners.kernels.arrays import Floats, Integers, concatenate_ranges
from learners.schema.discretise import Histogram, floats_from_ordered_keys
from learners.schema.schema import MASSES, Attribute, Distribution, Schema

# Decimals that a recorded step may have, and how near to a multiple of the step a number must be, as a share of itself.
MOST_DECIMALS = 9
NEAR, NEAR_OF_FLOATS = 1e-9, 2e-7
# Numbers beyond so many steps are not told apart by doubles.
MOST_STEPS = 2**40
# Knots of a quantile transform: about half the square root of the rows.
FEWEST_KNOTS, MOST_KNOTS = 8, 64
# Least distance of two knots, in standard deviations of the column for each unit of the normal quantile.
LEAST_GAP = 1e-3


@dataclass(frozen=True)
class Grid:
    """The numbers origin + k · step for integers k."""

    step: float
    origin: float


NO_GRID = Grid(0.0, 0.0)


def coarsest_decimal_grid(x: Floats, arrow_type: str = "double") -> Grid | None:
    """Return the coarsest decimal grid that contains all numbers; None if no grid does.

    x (n,) is ascending and distinct; numbers of the Arrow type "float" have seven digits.
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
    """A monotone transform of a column, as stored in leaves."""

    grid: Grid  # of step 0, if leaves are densities
    is_log: bool
    # x, z (n_knots,) float64: places and normal quantiles of knots; empty of a transform without.
    x: Floats
    z: Floats

    @property
    def extras(self) -> Floats:
        """Leaf parameters after centre and spread."""
        own = [self.grid.step, self.grid.origin]
        return np.array([*own, self.x.size, *self.x, *self.z] if self.x.size else own)

    def of(self, x: Floats) -> Floats:
        """Apply the transform, (n,) float64; the log of zero on a grid is that of a quarter of a step."""
        if self.is_log:
            return np.log(np.maximum(x, self.grid.step / 4.0))
        if not self.x.size:
            return x
        i = np.clip(np.searchsorted(self.x, x, side="right") - 1, 0, self.x.size - 2)
        slope = np.diff(self.z) / np.diff(self.x)
        return self.z[i] + slope[i] * (x - self.x[i])

    def widths(self, x: Floats) -> Floats:
        """Return the widths of the cells of numbers, (n,) float64; zero for a density."""
        half = self.grid.step / 2.0
        return self.of(x + half) - self.of(x - half)


def fit_density_transform(distribution: str, x: Floats, n: Integers, grid: Grid) -> Warp:
    """Fit the transform of a "rounded" distribution, or of a lognormal or quantile one, rounded or not.

    x (n_values,) is ascending, and n (n_values,) is the count of each number.
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


# Least width of a Gaussian, in standard deviations of the column.
NARROWEST = 1e-3
# Bound of rates in means of the column: the least rate of a Poisson, and of the mean of an exponential.
LEAST_MEAN = 1e-3
# Beyond this, sums of squares leave double precision; and so do those of numbers that differ by less than its reciprocal.
LARGEST = 1e140
# Least distance of the logarithms of a column's ends, in the last places of doubles there: of nearer ones too few differ.
LEAST_PLACES = 1000.0
# Degrees of freedom of Student leaves: tails that one row in a thousand shows.
FREEDOM = 4.0
# Least width of a leaf, in normal quantiles and in recorded steps.
NARROWEST_QUANTILE, NARROWEST_STEP = 0.01, 0.05
LOGARITHMIC = ("lognormal", "rounded-lognormal")
LEAF_KINDS: dict[str, int] = {
    "gaussian": GAUSSIAN,
    "poisson": POISSON,
    "exponential": EXPONENTIAL,
    "student": STUDENT,
    "rounded": ROUNDED,
    "lognormal": LOG_NORMAL,
    "rounded-lognormal": LOG_NORMAL,
    "quantile": QUANTILE,
    "rounded-quantile": QUANTILE,
}


@dataclass(frozen=True)
class Densities:
    """A density for each interval of a numeric column."""

    distribution: Distribution
    # mean, std (n_intervals,) float64: of the numbers in each interval, or of their transforms.
    mean: Floats
    std: Floats
    # Least standard deviation that a Gaussian or exponential leaf may ever have: a number recorded in steps of δ has an
    # error of δ/√12 of its own, and a density that is narrower tells of the recording. Of a transform: in its units.
    narrowest: float
    # (n_extras,) float64: further parameters of all leaves: degrees of freedom, or step, grid and knots.
    extras: Floats = field(default_factory=lambda: np.empty(0))

    @property
    def parameters(self) -> Floats:
        """Parameters of the leaves, (n_intervals, n_parameters) float64."""
        if self.distribution not in ("poisson", "exponential"):
            own = np.stack([self.mean, self.std], axis=1)
            return np.concatenate([own, np.tile(self.extras, (len(own), 1))], axis=1)
        return (self.mean if self.distribution == "poisson" else 1.0 / self.mean)[:, np.newaxis]


def schema_with_distributions(schema: Schema, distributions: Mapping[str, str | None], default: str) -> Schema:
    """Assign distributions to numeric attributes by name, or else the default; "intervals" means none."""
    attributes = []
    for attribute in schema.attributes:
        distribution = distributions.get(attribute.name) or default
        is_open = attribute.kind == "numeric" and attribute.distribution is None and distribution != "intervals"
        changed = replace(attribute, distribution=cast("Distribution", distribution)) if is_open else attribute
        attributes.append(changed)
    return replace(schema, attributes=tuple(attributes))


def interval_densities(attribute: Attribute, histogram: Histogram) -> Densities:
    """Fit a density for each interval of an attribute with a distribution, from the histogram of its numbers.

    Raises SchemaError if the column holds numbers that the distribution does not support, or none.
    """
    assert attribute.distribution is not None
    require_column_numbers(attribute.name, histogram)
    low = floats_from_ordered_keys(histogram.keys << histogram.level)
    high = floats_from_ordered_keys((histogram.keys << histogram.level) | ((1 << histogram.level) - 1))
    check_distribution_support(attribute, attribute.distribution, low, high, histogram.level)
    x, n = low / 2 + high / 2, histogram.counts.sum(axis=1).astype(np.float64)
    interval = np.searchsorted(np.array(attribute.cuts), low)
    if LEAF_KINDS[attribute.distribution] >= ROUNDED:
        return _warped(attribute, histogram.level, x, n, interval)
    overall, spread, mean, squares = _moments(interval, n, x, 0.0, len(attribute.cuts) + 1)
    steps = np.diff(x)
    narrowest = max(NARROWEST * spread, float(steps.min()) / np.sqrt(12.0) if steps.size else 0.0) or 1.0
    if attribute.distribution in ("poisson", "exponential"):
        mean = np.maximum(mean, LEAST_MEAN * overall or 1.0)
    std = np.maximum(np.sqrt(squares), narrowest)
    if attribute.distribution != "student":
        return Densities(attribute.distribution, mean, std, narrowest)
    return Densities("student", mean, std * np.sqrt(1.0 - 2.0 / FREEDOM), narrowest, np.array([FREEDOM]))


def require_column_numbers(name: str, histogram: Histogram) -> None:
    """Refuse a column without numbers. Raises SchemaError."""
    if not histogram.keys.size:
        raise SchemaError(
            f"Column {name!r} has no numbers, so its density cannot be learned. Drop it, or use 'intervals'.",
            name,
        )


def _warped(attribute: Attribute, level: int, x: Floats, n: Floats, interval: Integers) -> Densities:
    """Fit a normal distribution of the column's transform for each interval."""
    assert attribute.distribution is not None
    grid: Grid | None = NO_GRID
    if attribute.distribution in MASSES:
        grid = coarsest_decimal_grid(x, attribute.arrow_type) if level == 0 else None
    if grid is None:
        raise SchemaError(
            f"Column {attribute.name!r} is not recorded on a grid (multiples of one decimal step), which {attribute.distribution!r} needs. "
            "Choose another distribution, such as 'quantile'.",
            attribute.name,
        )
    warp = fit_density_transform(attribute.distribution, x, n.astype(np.int64), grid)
    _, spread, mean, squares = _moments(interval, n, warp.of(x), warp.widths(x) ** 2 / 12.0, len(attribute.cuts) + 1)
    if attribute.distribution == "rounded":
        narrowest = NARROWEST_STEP * grid.step
    else:
        narrowest = NARROWEST_QUANTILE if warp.x.size else NARROWEST * spread or 1.0
    return Densities(attribute.distribution, mean, np.maximum(np.sqrt(squares), narrowest), narrowest, warp.extras)


def _moments(
    interval: Integers, n: Floats, x: Floats, within: Floats | float, size: int
) -> tuple[float, float, Floats, Floats]:
    """Return the mean and spread of all numbers x with counts n, and mean and variance in each interval; empty
    intervals get the overall ones.

    within: variance of the values recorded as each number.
    """
    overall = float(np.average(x, weights=n))
    spread = float(np.sqrt(np.average((x - overall) ** 2, weights=n)))
    total = np.bincount(interval, n, size)
    mean = np.bincount(interval, n * x, size) / np.maximum(total, 1.0)
    squares = np.bincount(interval, n * ((x - mean[interval]) ** 2 + within), size) / np.maximum(total, 1.0)
    empty = total == 0
    mean[empty], squares[empty] = overall, spread**2
    return overall, spread, mean, squares


def check_distribution_support(attribute: Attribute, distribution: str, low: Floats, high: Floats, level: int) -> None:
    """Refuse numbers that a column's distribution does not support. Raises SchemaError.

    low, high (n_bins,) are the ends of the bins of a histogram, whose level is 0 if it is exact.
    """
    wrong = ~(np.isfinite(low) & np.isfinite(high))
    reason = "a finite number"
    if not wrong.any() and distribution in ("poisson", "exponential", "rounded-lognormal"):
        wrong, reason = low < 0, "zero or more"
    if not wrong.any() and distribution == "lognormal":
        wrong, reason = low <= 0, "above zero"
    if not wrong.any() and distribution == "poisson" and level == 0:
        wrong, reason = low != np.floor(low), "a whole number"
    least, most = float(low.min()), float(high.max())
    has_squares = max(-least, most) <= LARGEST and (most == least or most - least >= 1.0 / LARGEST)
    if not wrong.any() and not has_squares:
        raise SchemaError(
            f"Column {attribute.name!r} holds numbers from {least:g} to {most:g}, whose squares leave double precision. Rescale it, or "
            "use 'intervals'.",
            attribute.name,
        )
    if not wrong.any() and distribution in LOGARITHMIC and most > least > 0:
        logarithms = np.log([least, most])
        if logarithms[1] - logarithms[0] < LEAST_PLACES * np.spacing(np.abs(logarithms).max()):
            raise SchemaError(
                f"Column {attribute.name!r} holds numbers from {attribute.number_text(least)} to {attribute.number_text(most)}, whose "
                f"logarithms double precision does not tell apart, as the {distribution} distribution needs. Subtract the least number, or "
                "choose another distribution.",
                attribute.name,
            )
    if wrong.any():
        value = attribute.number_text(float(low[int(np.argmax(wrong))]))
        raise SchemaError(
            f"Column {attribute.name!r} holds {value}, but values of the {distribution} distribution must be {reason}. Choose another "
            "distribution, or 'intervals'.",
            attribute.name,
        )


def replace_intervals_by_densities(circuit: Circuit, densities: Mapping[int, Densities]) -> Circuit:
    """Replace intervals by densities, one for each value of the variable.

    The density of an interval is one leaf, shared by all parts of the circuit: it replaces the interval's
    indicators, and a categorical leaf becomes a mixture of its column's densities. So every structure found from
    codes has a continuous form, and learning fits each density to the rows of all contexts.
    """
    variables = np.array(sorted(densities), np.int64)
    if not variables.size:
        return circuit
    sizes = np.array([len(densities[int(v)].mean) for v in variables])
    first = np.zeros(circuit.n_variables, np.int64)
    first[variables] = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    n_new = int(sizes.sum())
    is_numeric = np.isin(circuit.variable, variables)
    replaced = is_numeric & (circuit.kind == INDICATOR)
    is_mixture = is_numeric & (circuit.kind == CATEGORICAL)
    left = np.flatnonzero(~replaced)
    # Leaves come first, then the other nodes in their order.
    number = np.empty(circuit.n_nodes, np.int64)
    number[left] = n_new + np.arange(left.size)
    code = circuit.leaf_parameters[circuit.leaf_starts[:-1][replaced]].astype(np.int64)
    number[replaced] = first[circuit.variable[replaced]] + code

    n_children = np.where(is_mixture, circuit.n_values[circuit.variable], np.diff(circuit.child_starts))[left]
    child_starts = np.concatenate([np.zeros(n_new, np.int64), [0], np.cumsum(n_children)])
    children, log_weight = np.empty(child_starts[-1], np.int64), np.empty(child_starts[-1])
    of_mixture = np.repeat(is_mixture[left], n_children)
    children[~of_mixture], log_weight[~of_mixture] = number[circuit.children], circuit.log_weight
    mixtures = np.flatnonzero(is_mixture)
    domains = circuit.n_values[circuit.variable[mixtures]]
    children[of_mixture] = concatenate_ranges(first[circuit.variable[mixtures]], domains)
    log_weight[of_mixture] = circuit.leaf_parameters[concatenate_ranges(circuit.leaf_starts[:-1][mixtures], domains)]

    n_parameters = np.where(is_mixture, 0, np.diff(circuit.leaf_starts))[left]
    others = concatenate_ranges(circuit.leaf_starts[:-1][left], n_parameters)
    of_variable = [densities[int(v)] for v in variables]
    own = [each.parameters for each in of_variable]
    kinds = np.concatenate([np.full(len(each.mean), LEAF_KINDS[each.distribution], np.int8) for each in of_variable])
    n_own = np.concatenate([np.full(len(p), p.shape[1]) for p in own])
    n_values = circuit.n_values.copy()
    n_values[variables] = 0
    return Circuit(
        CircuitArrays(
            np.concatenate([kinds, np.where(is_mixture, SUM, circuit.kind)[left]]),
            child_starts,
            children,
            log_weight,
            np.concatenate([np.repeat(variables, sizes), np.where(is_mixture, -1, circuit.variable)[left]]),
            np.concatenate([[0], np.cumsum(np.concatenate([n_own, n_parameters]))]),
            np.concatenate([*(p.ravel() for p in own), circuit.leaf_parameters[others]]),
            n_values,
        )
    )


def minimum_leaf_deviations(circuit: Circuit, densities: Mapping[int, Densities]) -> Floats:
    """Return the minimum standard deviation, or scale, of leaves, (n_variables,) float64; 0 without a bound."""
    least = np.zeros(circuit.n_variables)
    for v, own in densities.items():
        least[v] = own.narrowest
    return least
