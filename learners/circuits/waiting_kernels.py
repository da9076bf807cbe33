"""Assumed density filtering of sums of two that wait for each other: sixteen at a time, wherever they stand in the plan.

The nodes of one row update parameters of their own, so it does not matter when they do. Those of which the step of the third
order is too far wait again, for Newton's steps.
"""
# mypy: disallow-untyped-defs=False, check-untyped-defs=False

from __future__ import annotations

from learners.circuits.large_count_kernels import bend_of
from learners.circuits.pair_kernels import FARTHEST, MOST_FOLLOWED, curved_step, filter_two, write_two
from learners.circuits.projection_kernels import (
    COUNT,
    LAST_STEP,
    MOVED,
    PULL,
    SLOPE,
    SMALL_SHARE,
    TOTAL,
    WELL_CONDITIONED,
    pair_matched,
    reciprocals,
)
from learners.kernels.jit import inner_kernel, kernel
from learners.kernels.simd import N_LANES, bits_of, greater, lanes_from, magnitude, put_from, where

# Rows of the room of one block: what a step needs, of which the first rows get its results; then how far nodes have moved.
N_ROWS = 9
# Newton's steps together; what needs more, or moves so far that its logarithm needs more terms, is solved by itself.
MOST_STEPS, FARTHEST_SQUARE = 8, 0.03


@inner_kernel
def digamma_steps(x, d):
    """As `digamma_step` of lanes; also which are right, as marks."""
    y = x + d
    is_small = (x < 8.0) | (y < 8.0)
    before, _ = reciprocals(x)
    after, slope = reciprocals(y)
    moved, slope = where(is_small, before - after, 0.0 * x), where(is_small, slope, 0.0 * x)
    shift = where(is_small, 8.0 + 0.0 * x, 0.0 * x)
    x, y = x + shift, y + shift
    s = d / (x + y)
    t = s * s
    log_ratio = 1.0 / 7.0 + t * (1.0 / 9.0 + t * (1.0 / 11.0 + t * (1.0 / 13.0)))
    log_ratio = 2.0 * s * (1.0 + t * (1.0 / 3.0 + t * (0.2 + t * log_ratio)))
    inverse = 1.0 / (x * y)
    a, b = y * inverse, x * inverse
    p, q = a * a, b * b
    apart = d * (a + b) * inverse
    series = 1.0 / 12.0 - (p + q) * (1.0 / 120.0) + (p * p + p * q + q * q) * (1.0 / 252.0)
    series = series - (p + q) * (p * p + q * q) * (1.0 / 240.0)
    moved = moved + log_ratio + 0.5 * d * inverse + apart * series
    slope = slope + b + q * (0.5 + b * (1.0 / 6.0 - q * (1.0 / 30.0 - q * (1.0 / 42.0 - q * (1.0 / 30.0)))))
    return moved, slope, t < FARTHEST_SQUARE


@inner_kernel
def newton_of_sixteen(alpha, other, total, share, share_other, slope, slope_other, pull):
    """As `newton_of_two` of lanes, a pull of zero where slopes are not known; also which lanes are right, as marks."""
    r = share + share_other
    both = r / total
    up, down = share / alpha - both, share_other / other - both
    d, d_other = pair_matched(alpha, other, total, share, share_other)
    fewer = where(alpha < other, alpha, other)
    is_near = (pull > 0.0) & (r < SMALL_SHARE) & (r < SMALL_SHARE * fewer)
    b = (up * slope + down * slope_other) * pull
    d, d_other = where(is_near, (up + b) * slope, d), where(is_near, (down + b) * slope_other, d_other)
    is_right = total > 0.0
    for _ in range(MOST_STEPS):
        move, curvature, is_near = digamma_steps(total, d + d_other)
        own, bend, is_near_own = digamma_steps(alpha, d)
        own_other, bend_other, is_near_other = digamma_steps(other, d_other)
        inverse = 1.0 / (bend * bend_other)
        slope, slope_other = bend_other * inverse, bend * inverse
        left = 1.0 - curvature * (slope + slope_other)
        pull = curvature / left
        g, g_other = (move - own + up) * slope, (move - own_other + down) * slope_other
        b = (g + g_other) * pull
        before, before_other, after = alpha + d, other + d_other, total + d + d_other
        step = greater(g + b * slope, -0.9 * before)
        step_other = greater(g_other + b * slope_other, -0.9 * before_other)
        d, d_other = d + step, d_other + step_other
        is_done = (LAST_STEP * before >= magnitude(step)) & (LAST_STEP * before_other >= magnitude(step_other))
        is_possible = is_right & (left > WELL_CONDITIONED) & is_near & is_near_own & is_near_other
        # A lane that is done takes part in further steps, which move it by less than the last digits that digammas have.
        is_right = is_possible & is_done
        if bits_of(is_right) == bits_of(is_possible):
            break
        is_right = is_possible
    # Slopes follow the last step.
    is_right = is_right & is_done
    follow, follow_other = bend_of(slope / before) * step, bend_of(slope_other / before_other) * step_other
    grown = bend_of(1.0 / (curvature * after)) * (step + step_other)
    pull = 1.0 / (left / curvature + (grown - follow - follow_other))
    return d, d_other, slope + follow, slope_other + follow_other, pull, is_right


@inner_kernel
def _gather(entry, node, starts, waiting, shares, first, n, room):
    """Put what a step needs of n waiting nodes from the first-th on into room; the last one also where there are no more."""
    for k in range(N_LANES):
        j = first + min(k, n - 1)
        i = waiting[j]
        e = starts[i]
        is_known = node[MOVED, i] < MOST_FOLLOWED
        room[k], room[N_LANES + k] = entry[COUNT, e], entry[COUNT, e + 1]
        room[2 * N_LANES + k] = node[TOTAL, i]
        room[3 * N_LANES + k], room[4 * N_LANES + k] = shares[0, j], shares[1, j]
        room[5 * N_LANES + k], room[6 * N_LANES + k] = entry[SLOPE, e], entry[SLOPE, e + 1]
        room[7 * N_LANES + k] = node[PULL, i] if is_known else 0.0
        room[8 * N_LANES + k] = node[MOVED, i]


@inner_kernel
def _put(room, alpha, other, slope, slope_other, pull, moved):
    """Results of a step, where `_scatter` reads them."""
    put_from(room, 0, alpha)
    put_from(room, N_LANES, other)
    put_from(room, 2 * N_LANES, slope)
    put_from(room, 3 * N_LANES, slope_other)
    put_from(room, 4 * N_LANES, pull)
    put_from(room, 5 * N_LANES, moved)


@inner_kernel
def _scatter(entry, node, i, e, k, room):
    """Write the k-th result."""
    write_two(
        entry,
        node,
        i,
        e,
        e + 1,
        room[k],
        room[N_LANES + k],
        room[2 * N_LANES + k],
        room[3 * N_LANES + k],
        room[4 * N_LANES + k],
        room[5 * N_LANES + k],
    )


@inner_kernel
def _lane(room, row):
    return lanes_from(room, row * N_LANES)


@kernel
def filter_waiting(entry, node, starts, waiting, shares, n_sums, n_late, room):
    """Update n_sums nodes of two by the step of the third order; those it is too far for join the late ones. How many these are.

    waiting (2, n_nodes) int64: sums, and late nodes; shares (4, n_nodes) float64 of the two entries of sums, and of late nodes;
    room (N_ROWS * N_LANES,) float64.
    """
    for first in range(0, n_sums, N_LANES):
        n = min(N_LANES, n_sums - first)
        _gather(entry, node, starts, waiting[0], shares[:2], first, n, room)
        alpha, other, moved = _lane(room, 0), _lane(room, 1), _lane(room, 8)
        d, d_other, slope, slope_other, pull, farthest = curved_step(
            alpha, other, _lane(room, 2), _lane(room, 3), _lane(room, 4), _lane(room, 5), _lane(room, 6), _lane(room, 7)
        )
        done = bits_of((moved < MOST_FOLLOWED) & (FARTHEST >= farthest) & (pull > 0.0))
        _put(room, alpha + d, other + d_other, slope, slope_other, pull, moved + farthest)
        for k in range(n):
            i = waiting[0, first + k]
            if (done >> k) & 1:
                _scatter(entry, node, i, starts[i], k, room)
            else:
                waiting[1, n_late] = i
                shares[2, n_late], shares[3, n_late] = shares[0, first + k], shares[1, first + k]
                n_late += 1
    return n_late


@kernel
def solve_waiting(entry, node, starts, waiting, shares, n_late, room):
    """Update n_late nodes of two by Newton's steps; arguments as those of `filter_waiting`."""
    for first in range(0, n_late, N_LANES):
        n = min(N_LANES, n_late - first)
        _gather(entry, node, starts, waiting[1], shares[2:], first, n, room)
        alpha, other, moved = _lane(room, 0), _lane(room, 1), _lane(room, 8)
        d, d_other, slope, slope_other, pull, is_right = newton_of_sixteen(
            alpha, other, _lane(room, 2), _lane(room, 3), _lane(room, 4), _lane(room, 5), _lane(room, 6), _lane(room, 7)
        )
        done = bits_of(is_right & (pull > 0.0))
        _put(room, alpha + d, other + d_other, slope, slope_other, pull, 0.0 * moved)
        for k in range(n):
            i = waiting[1, first + k]
            e = starts[i]
            share, share_other = shares[2, first + k], shares[3, first + k]
            if (done >> k) & 1:
                _scatter(entry, node, i, e, k, room)
            elif share == 0.0:
                filter_two(entry, node, i, e + 1, e, share_other, 0.0)
            else:
                filter_two(entry, node, i, e, e + 1, share, share_other)
