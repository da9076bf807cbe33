"""Numeric leaves: means, variances, modes and peaks; and their probability, moments and draws when truncated to a
range.
"""

from __future__ import annotations

import math

import numpy as np
import scipy

from learners.circuits.circuit import Circuit, cached_on_circuit
from learners.circuits.evaluation.density_kernels import (
    MOST_CELLS,
    REACH,
    inverse_transform_leaf_value,
    nearest_grid_value,
    transform_leaf_value,
    transformed_log_density,
    write_leaf_moments,
)
from learners.circuits.kernels import (
    EXPONENTIAL,
    GAUSSIAN,
    KNOTS,
    LOG_NORMAL,
    N_KNOTS,
    ORIGIN,
    POISSON,
    QUANTILE,
    ROUNDED,
    STEP,
    STUDENT,
)
from learners.kernels.arrays import Floats, Integers, Mask, read_only_array

# A piece of a smooth density, in standard deviations, on which Gauss-Legendre nodes have all digits.
PIECE = 0.5
NODES, WEIGHTS = np.polynomial.legendre.leggauss(16)


def leaf_range_log_probabilities(circuit: Circuit, leaves: Integers, low: float, high: float) -> Floats:
    """Return the log probability that each numeric leaf lies in a range, ends included, (n_leaves,) float64.

    For a leaf over grid cells, this is the probability of all cells whose recorded number is in the range.
    """
    starts, p = circuit.leaf_starts, circuit.leaf_parameters
    logs = [_log_mass(int(circuit.kind[i]), p[starts[i] : starts[i + 1]], low, high) for i in leaves.tolist()]
    return np.array(logs).reshape(leaves.size)


def _log_mass(kind: int, p: Floats, low: float, high: float) -> float:
    if not low <= high:
        return -np.inf
    if kind == POISSON:
        return _log_poisson(float(p[0]), low, high)
    if kind == EXPONENTIAL:
        low = max(low, 0.0)
        return float(-p[0] * low + np.log1p(-np.exp(-p[0] * (high - low)))) if high > low else -np.inf
    ends = standardised_range_bounds(kind, p, low, high)
    if kind == STUDENT:
        below, above = scipy.special.stdtr(p[2], reflect_to_lower_tail(*ends))
        with np.errstate(divide="ignore"):
            return float(np.log(above - below))
    return float(normal_interval_log_probability(*ends))


def standardised_range_bounds(kind: int, p: Floats, low: float, high: float) -> tuple[float, float]:
    """Return the standardized ends of a range for a leaf; with a grid, the outer ends of its first and last cell."""
    if kind not in (GAUSSIAN, STUDENT):
        p = np.ascontiguousarray(p)
        step = float(p[2 + STEP])
        if step > 0.0:
            first, last = grid_range_bounds(p, low, high)
            low, high = first - 0.5 * step, last + 0.5 * step
            if not low < high:
                return np.inf, np.inf
        low, high = _warped(kind, p, low), _warped(kind, p, high)
    return (low - p[0]) / p[1], (high - p[0]) / p[1]


def reflect_to_lower_tail(low: float | Floats, high: float | Floats) -> tuple[Floats, Floats]:
    """Reflect ranges of a symmetric density to the tail in which their masses are accurate."""
    is_above = np.greater(low, -high)
    return np.where(is_above, -high, low), np.where(is_above, -low, high)


def grid_range_bounds(p: Floats, low: float, high: float) -> tuple[float, float]:
    """Return the first and last number of a leaf's grid in a range; recorded numbers are multiples of the step up to
    rounding.
    """
    step, origin = float(p[2 + STEP]), float(p[2 + ORIGIN])
    return (
        origin + step * np.ceil((low - origin) / step - 1e-6),
        origin + step * np.floor((high - origin) / step + 1e-6),
    )


def _warped(kind: int, p: Floats, x: float) -> float:
    if np.isinf(x) or (kind == LOG_NORMAL and x <= 0.0):
        return np.inf if x > 0.0 else -np.inf
    return float(transform_leaf_value(kind, p, 2, x)[0])


def normal_interval_log_probability(low: float | Floats, high: float | Floats) -> Floats:
    """Return the log probability that a standard normal variable lies between two numbers, accurate in both tails."""
    below, above = scipy.special.log_ndtr(reflect_to_lower_tail(low, high))
    with np.errstate(divide="ignore", invalid="ignore"):
        log_p: Floats = np.where(above > below, above + np.log(-np.expm1(below - above)), -np.inf)
    return log_p


def _log_poisson(rate: float, low: float, high: float) -> float:
    first, last = max(np.ceil(low), 0.0), np.floor(high)
    if first > last:
        return -np.inf
    # P(N >= n) is the lower incomplete gamma function of n; both tails, and the smaller difference of the two.
    with np.errstate(divide="ignore"):
        at_least = float(scipy.special.gammainc(first, rate)) if first > 0 else 1.0
        beyond = float(scipy.special.gammainc(last + 1.0, rate)) if np.isfinite(last) else 0.0
        below = float(scipy.special.gammaincc(first, rate)) if first > 0 else 0.0
        at_most = float(scipy.special.gammaincc(last + 1.0, rate)) if np.isfinite(last) else 1.0
        return float(np.log(at_least - beyond if at_least < 0.5 else at_most - below))


def truncated_leaf_moments(kind: int, p: Floats, low: float, high: float) -> tuple[float, float]:
    """Return the mean and variance of a numeric leaf with parameters p, truncated to a range, ends included.

    Both are zero if the range has probability zero.
    """
    x, logs, noise = _points(kind, p, low, high)
    most = logs.max(initial=-np.inf)
    if most == -np.inf:
        return 0.0, 0.0
    shares = np.exp(logs - most)
    shares /= shares.sum()
    # Around a point among the numbers, whose spread may be far below their size.
    centre = float(x[logs.argmax()])
    mean = float(shares @ (x - centre))
    return centre + mean, float(shares @ (x - centre - mean) ** 2) + noise


def _points(kind: int, p: Floats, low: float, high: float) -> tuple[Floats, Floats, float]:
    """Return points in the range with their log weights, up to a constant, and the variance added by recording."""
    if kind == POISSON:
        first, last = max(np.ceil(low), 0.0), np.floor(high)
        near = min(max(float(p[0]), first), last)
        reach = REACH * np.sqrt(near + 1.0) + 4 * REACH
        x = np.arange(max(first, np.floor(near - reach)), min(last, np.ceil(near + reach)) + 1.0)
        return x, x * np.log(p[0]) - scipy.special.gammaln(x + 1.0), 0.0
    if kind == EXPONENTIAL:
        low = max(low, 0.0)
        u, logs = _nodes([0.0, min(float(p[0]) * (high - low), 8 * REACH)])
        return low + u / p[0], logs - u, 0.0
    if kind == STUDENT:
        freedom = float(p[2])
        furthest = min(8 * REACH / (freedom - 2.0) + REACH, 300.0)
        ends = np.clip(np.arcsinh(standardised_range_bounds(kind, p, low, high)), -furthest, furthest)
        s, logs = _nodes(ends.tolist())
        z = np.sinh(s)
        return p[0] + p[1] * z, logs + np.log(np.cosh(s)) - 0.5 * (freedom + 1.0) * np.log1p(z * z / freedom), 0.0
    z_low, z_high = standardised_range_bounds(kind, p, low, high)
    near = min(max(0.0, z_low), z_high)
    # The square of a number under a log-normal leaf peaks this much further up.
    above = REACH + 2.0 * float(p[1]) * (kind == LOG_NORMAL)
    z_low, z_high = max(z_low, near - REACH), min(z_high, near + above)
    if not z_low < z_high:
        return np.empty(0), np.empty(0), 0.0
    a, b, extras = float(p[0]), float(p[1]), np.ascontiguousarray(p)
    step = 0.0 if kind == GAUSSIAN else float(p[2 + STEP])
    if step > 0.0:
        first, last = grid_range_bounds(p, low, high)
        around = [inverse_transform_leaf_value(kind, extras, 2, a + b * z) for z in (z_low, z_high)]
        first, last = max(first, grid_range_bounds(p, around[0] - step, np.inf)[0]), min(last, around[1] + step)
        if last - first <= MOST_CELLS * step:
            cells = first + step * np.arange(np.floor((last - first) / step + 1e-6) + 1.0)
            return cells, np.array([transformed_log_density(kind, a, b, extras, 2, x) for x in cells.tolist()]), 0.0
    knots: list[float] = []
    if kind == QUANTILE:
        n = int(p[2 + N_KNOTS])
        knots = ((p[2 + KNOTS + n : 2 + KNOTS + 2 * n] - a) / b).tolist()
    z, logs = _nodes([z_low, *(knot for knot in knots if z_low < knot < z_high), z_high])
    x = (
        np.array([inverse_transform_leaf_value(kind, extras, 2, a + b * own) for own in z.tolist()])
        if step or kind != GAUSSIAN
        else a + b * z
    )
    return x, logs - 0.5 * z * z, step * step / 12.0


def _nodes(ends: list[float]) -> tuple[Floats, Floats]:
    """Return Gauss-Legendre nodes on pieces between ascending ends, and their log weights."""
    edges = [
        np.linspace(low, high, int(np.ceil((high - low) / PIECE)) + 1)
        for low, high in zip(ends, ends[1:], strict=False)
        if low < high
    ]
    if not edges:
        return np.empty(0), np.empty(0)
    starts, stops = np.concatenate([own[:-1] for own in edges]), np.concatenate([own[1:] for own in edges])
    half, middle = 0.5 * (stops - starts)[:, np.newaxis], 0.5 * (starts + stops)[:, np.newaxis]
    return (middle + half * NODES).ravel(), (np.log(half) + np.log(WEIGHTS)).ravel()


def truncated_leaf_quantiles(kind: int, p: Floats, low: float, high: float, u: Floats) -> Floats:
    """Return the quantiles u (n,) of a numeric leaf with parameters p, truncated to a range, ends included, (n,)
    float64.
    """
    if kind == POISSON:
        x, logs, _ = _points(kind, p, low, high)
        shares = np.exp(logs - logs.max())
        return x[np.searchsorted(np.cumsum(shares)[:-1] / shares.sum(), u)]
    if kind == EXPONENTIAL:
        low = max(low, 0.0)
        numbers: Floats = low - np.log1p(u * np.expm1(-p[0] * (high - low))) / p[0]
        return np.clip(numbers, low, high)
    ends = standardised_range_bounds(kind, p, low, high)
    if kind == STUDENT:
        below, above = scipy.special.stdtr(p[2], reflect_to_lower_tail(*ends))
        sign, share = _mirrored(*ends, u)
        z = sign * scipy.special.stdtrit(p[2], below + (above - below) * share)
    else:
        z = truncated_normal_quantiles(*ends, u)
    if kind in (GAUSSIAN, STUDENT):
        return np.clip(p[0] + p[1] * z, low, high)
    extras = np.ascontiguousarray(p)
    x = np.array([inverse_transform_leaf_value(kind, extras, 2, p[0] + p[1] * own) for own in z.tolist()])
    if p[2 + STEP] > 0.0:
        return np.clip([nearest_grid_value(extras, 2, own) for own in x.tolist()], *grid_range_bounds(p, low, high))
    return np.clip(x, low, high)


def truncated_normal_quantiles(low: float | Floats, high: float | Floats, u: Floats) -> Floats:
    """Return the quantiles u of standard normal variables truncated to ranges."""
    sign, share = _mirrored(low, high, u)
    below, above = scipy.special.log_ndtr(reflect_to_lower_tail(low, high))
    with np.errstate(divide="ignore"):
        logs = np.logaddexp(below + np.log1p(-share), above + np.log(share))
    return sign * scipy.special.ndtri_exp(logs)


def _mirrored(low: float | Floats, high: float | Floats, u: Floats) -> tuple[Floats, Floats]:
    """Return the signs of the reflection by `reflect_to_lower_tail`, and the quantiles for the reflected ranges."""
    is_above = np.greater(low, -high)
    return np.where(is_above, -1.0, 1.0), np.where(is_above, 1.0 - u, u)


HALF_LOG_2_PI = 0.5 * float(np.log(2.0 * np.pi))


def leaf_moments(circuit: Circuit) -> Floats:
    """Return the mean and variance of numeric leaves, (n_nodes, 2) float64, zero for other nodes; (0, 2) without
    numeric leaves.
    """
    return cached_on_circuit(circuit, _leaf_moments)


def _leaf_moments(circuit: Circuit) -> Floats:
    numeric = np.flatnonzero(circuit.kind >= GAUSSIAN)
    moments = np.zeros((circuit.n_nodes if numeric.size else 0, 2))
    if numeric.size:
        write_leaf_moments(numeric, circuit.kind, circuit.leaf_starts, circuit.leaf_parameters, moments)
    for v, (low, high) in circuit.ranges.items():
        for leaf in np.flatnonzero(circuit.variable == v).tolist():
            moments[leaf] = truncated_leaf_moments(
                int(circuit.kind[leaf]), leaf_parameter_slice(circuit, leaf), low, high
            )
    return read_only_array(moments)


def density_leaves(circuit: Circuit) -> Mask:
    """Return which leaves have densities, (n_nodes,) bool; the others have probabilities, including those of grid
    cells.
    """
    kind = circuit.kind
    is_density: Mask = (kind == GAUSSIAN) | (kind == EXPONENTIAL) | (kind == STUDENT)
    warped = np.flatnonzero(kind >= ROUNDED)
    is_density[warped] = circuit.leaf_parameters[circuit.leaf_starts[warped] + 2 + STEP] == 0.0
    return is_density


def density_variables(circuit: Circuit) -> Integers:
    """Return the variables with a density, ascending."""
    return np.unique(circuit.variable[density_leaves(circuit)])


def leaf_parameter_slice(circuit: Circuit, leaf: int) -> Floats:
    """Return the parameters of a leaf."""
    return circuit.leaf_parameters[circuit.leaf_starts[leaf] : circuit.leaf_starts[leaf + 1]]


def leaf_mode(kind: int, p: Floats, low: float = -math.inf, high: float = math.inf) -> float:
    """Return the mode of a numeric leaf with parameters p in a range; NaN if the leaf has no number there."""
    first = float(p[0])
    if kind in (GAUSSIAN, STUDENT):
        return min(max(first, low), high)
    if kind == EXPONENTIAL:
        return max(low, 0.0) if high >= 0.0 else math.nan
    if kind == POISSON:
        return _in_grid(float(math.floor(first)), max(float(np.ceil(low)), 0.0), float(np.floor(high)))
    step, extras = float(p[2 + STEP]), read_only_array(p)
    if step > 0.0:
        low, high = grid_range_bounds(p, low, high)
    if kind == ROUNDED:
        return _in_grid(float(nearest_grid_value(extras, 2, first)) if step > 0.0 else first, low, high)
    peaks = _mode_of_quantile(extras) if kind == QUANTILE else [math.exp(first - float(p[1]) ** 2)]
    # Between two peaks or knots densities rise and then fall, so in a range the best number may be an end.
    peaks = [min(max(x, low), high) for x in peaks] + [x for x in (low, high) if math.isfinite(x)]
    if step > 0.0:
        # Within a segment masses rise and then fall, so the best cell has a peak or knot, or is next to one that has.
        knots = extras[2 + KNOTS : 2 + KNOTS + int(extras[2 + N_KNOTS])].tolist() if kind == QUANTILE else []
        peaks = [
            _in_grid(float(nearest_grid_value(extras, 2, x)) + i * step, low, high)
            for x in [*peaks, *knots]
            for i in (-1, 0, 1)
        ]
    return max(peaks, key=lambda x: float(transformed_log_density(kind, first, float(p[1]), extras, 2, x)))


def _in_grid(x: float, low: float, high: float) -> float:
    """Return the grid number nearest to x between the first and last in a range."""
    return min(max(x, low), high) if low <= high else math.nan


def _mode_of_quantile(p: Floats) -> list[float]:
    """Return the peak of each segment between two knots; if it is at the upper end, the last number in the segment."""
    n = int(p[2 + N_KNOTS])
    x, z = p[2 + KNOTS : 2 + KNOTS + 2 * n].reshape(2, n)
    peaks = []
    for i in range(n - 1):
        if z[i] < p[0] < z[i + 1]:
            peaks.append(float(inverse_transform_leaf_value(QUANTILE, p, 2, p[0])))
        elif p[0] <= z[i]:
            peaks.append(
                float(x[i]) if i or p[0] == z[i] else float(inverse_transform_leaf_value(QUANTILE, p, 2, p[0]))
            )
        else:
            last = i == n - 2
            peaks.append(
                float(inverse_transform_leaf_value(QUANTILE, p, 2, p[0]))
                if last
                else float(np.nextafter(x[i + 1], -np.inf))
            )
    return peaks


def leaf_modes_of_variable(circuit: Circuit, v: int) -> Floats:
    """Return the distinct modes of a numeric variable's leaves, ascending."""
    leaves = np.flatnonzero((circuit.variable == v) & (circuit.kind >= GAUSSIAN))
    return np.unique(
        [leaf_mode(int(circuit.kind[leaf]), leaf_parameter_slice(circuit, leaf)) for leaf in leaves.tolist()]
    )


def max_leaf_log_densities(circuit: Circuit) -> Floats:
    """Return an upper bound of the log density of each numeric variable's leaves, (n_variables,) float64; zero for
    others.
    """
    nodes = np.flatnonzero(circuit.kind >= GAUSSIAN)
    p, first, kind = circuit.leaf_parameters, circuit.leaf_starts[nodes], circuit.kind[nodes]
    height = np.zeros(nodes.size)
    waits, student, log_normal = kind == EXPONENTIAL, kind == STUDENT, kind == LOG_NORMAL
    height[waits] = np.log(p[first[waits]])
    has_spread = (kind == GAUSSIAN) | (kind >= STUDENT)
    height[has_spread] = -np.log(p[first[has_spread] + 1]) - HALF_LOG_2_PI
    if student.any():  # scipy.special is imported when it is asked: .1 s
        freedom = p[first[student] + 2]
        constant = (
            scipy.special.gammaln(0.5 * (freedom + 1.0))
            - scipy.special.gammaln(0.5 * freedom)
            - 0.5 * np.log(np.pi * freedom)
        )
        height[student] = constant - np.log(p[first[student] + 1])
    # At its mode exp(centre - spread²).
    centre, spread = p[first[log_normal]], p[first[log_normal] + 1]
    height[log_normal] += 0.5 * spread**2 - centre
    for i in np.flatnonzero(kind == QUANTILE):
        at = int(first[i]) + 2
        n = int(p[at + N_KNOTS])
        x, z = p[at + KNOTS : at + KNOTS + 2 * n].reshape(2, n)
        height[i] += np.log((np.diff(z) / np.diff(x)).max())
    warped = np.flatnonzero(kind >= ROUNDED)
    height[warped[p[first[warped] + 2] > 0.0]] = 0.0  # masses
    peak = np.full(circuit.n_variables, -np.inf)
    np.maximum.at(peak, circuit.variable[nodes], height)
    peak[np.isneginf(peak)] = 0.0
    return peak
