"""One-step updates of nodes of two pseudo-counts: one node, or sixteen at a time, by the same formulas.

Most nodes of a learned circuit are distributions over two values. In a plan they stand in a row, so that sixteen are read,
updated and written at once.
"""
# mypy: disallow-untyped-defs=False, check-untyped-defs=False

from __future__ import annotations

from learners.circuits.large_count_kernels import LARGE, SHARE_OF_SQUARE, bend_of, beyond_half, two_by_logarithms
from learners.circuits.projection_kernels import (
    COUNT,
    MOVED,
    PULL,
    SLOPE,
    TOTAL,
    UNKNOWN,
    WEIGHT,
    matched_total,
    newton_of_two,
    two_matched,
)
from learners.kernels.jit import inner_kernel, kernel
from learners.kernels.simd import (
    bits_of,
    fused,
    greater,
    lanes_from,
    magnitude,
    pairs_from,
    put_from,
    put_pairs,
    where,
)

# A step of the third order moves each pseudo-count, and their sum, by at most FARTHEST of itself; slopes are followed until
# such moves add up to MOST_FOLLOWED.
FARTHEST, MOST_FOLLOWED = 0.01, 0.05


@inner_kernel
def third_of(v):
    """A sixth of s'² + s s'', likewise: to 5e-5 (fitted), of what is at most 0.17."""
    high = fused(v, fused(v, -1.0869947478899683, 3.164556266662349), -2.5445460443719494)
    return v * v * fused(v, fused(v, high, -0.3937476144434825), 1.0273675920919165)


@inner_kernel
def moved_by(c, slope, half, third):
    """How far a pseudo-count moves when ψ of it grows by c."""
    first = c * slope
    return fused(first * c, fused(c, third, half), first)


@inner_kernel
def followed(d, c, bend, third):
    """How far a slope moves with its pseudo-count."""
    return d * fused(3.0 * third - 0.5 * bend * bend, c, bend)


@inner_kernel
def curved_step(alpha, other, total, share, share_other, slope, slope_other, pull):
    """Assumed density filtering of two pseudo-counts to the third order of the row's shares, from slopes that are known.

    With c_j the right side of `_by_newton`, g = ψ(Σ(α + δ)) - ψ(Σα) and s = 1/ψ': the Taylor series of δ_j by c_j + g, and that of
    their sum by g, of which each derivative is s times that of the one before: s, s s', s (s'² + s s'').

    Returns
    -------
    δ of both, slopes of both, pull, and the farthest move relative to a pseudo-count or their sum.
    """
    inverse = 1.0 / (alpha * other * total)
    u, v, w = other * total * inverse, alpha * total * inverse, alpha * other * inverse
    both = (share + share_other) * w
    up, down = share * u - both, share_other * v - both
    # What x exceeds 1/ψ'(x) by; where x is large it is told by x, so that nothing drifts.
    near, near_other = beyond_half(u), beyond_half(v)
    excess = where(alpha >= LARGE, 0.5 - near, alpha - slope)
    excess_other = where(other >= LARGE, 0.5 - near_other, other - slope_other)
    slope, slope_other = alpha - excess, other - excess_other
    left = where(total >= LARGE, excess + excess_other - (0.5 - beyond_half(w)), 1.0 / pull)
    slope_total = left + slope + slope_other
    pull = 1.0 / left
    ratio, ratio_other, ratio_total = slope * u, slope_other * v, slope_total * w
    bend, bend_other, bend_total = bend_of(ratio), bend_of(ratio_other), bend_of(ratio_total)
    half, half_other, half_total = 0.5 * bend, 0.5 * bend_other, 0.5 * bend_total
    third, third_other, third_total = third_of(ratio), third_of(ratio_other), third_of(ratio_total)
    g = (up * slope + down * slope_other) * pull
    # What the first order leaves, then the second, goes into g again.
    for _ in range(2):
        d = moved_by(up + g, slope, half, third)
        d_other = moved_by(down + g, slope_other, half_other, third_other)
        g = g + (d + d_other - moved_by(g, slope_total, half_total, third_total)) * pull
    d = moved_by(up + g, slope, half, third)
    d_other = moved_by(down + g, slope_other, half_other, third_other)
    grown = d + d_other
    follow, follow_other = followed(d, up + g, bend, third), followed(d_other, down + g, bend_other, third_other)
    pull = 1.0 / (left + (followed(grown, g, bend_total, third_total) - follow - follow_other))
    farthest = greater(greater(magnitude(d) * u, magnitude(d_other) * v), magnitude(grown) * w)
    return d, d_other, slope + follow, slope_other + follow_other, pull, farthest


@kernel
def filter_two(entry, node, i, e, f, share, share_other):
    """Assumed density filtering of node i with the entries e and f, which have these shares of the row."""
    count, slope = entry[COUNT], entry[SLOPE]
    alpha, other, total = count[e], count[f], node[TOTAL, i]
    moved = node[MOVED, i]
    r, fewer = share + share_other, min(alpha, other)
    if share_other == 0.0 and fewer >= LARGE and r < SHARE_OF_SQUARE * fewer * fewer:
        d, d_other, s, s_other, pull, is_done = two_by_logarithms(alpha, other, total, r)
        if is_done:
            write_two(entry, node, i, e, f, alpha + d, other + d_other, s, s_other, pull, UNKNOWN)
            return
    if moved < MOST_FOLLOWED:
        d, d_other, s, s_other, pull, farthest = curved_step(
            alpha, other, total, share, share_other, slope[e], slope[f], node[PULL, i]
        )
        if farthest <= FARTHEST and pull > 0.0:
            write_two(entry, node, i, e, f, alpha + d, other + d_other, s, s_other, pull, moved + farthest)
            return
    known = node[PULL, i] if moved < MOST_FOLLOWED else 0.0
    d, d_other, s, s_other, pull = newton_of_two(alpha, other, total, share, share_other, slope[e], slope[f], known)
    write_two(entry, node, i, e, f, alpha + d, other + d_other, s, s_other, pull, 0.0 if pull > 0.0 else UNKNOWN)


@inner_kernel
def write_two(entry, node, i, e, f, alpha, other, slope, slope_other, pull, moved):
    """The new state of a node of two."""
    total = alpha + other
    inverse = 1.0 / total
    entry[COUNT, e], entry[COUNT, f] = alpha, other
    entry[WEIGHT, e], entry[WEIGHT, f] = alpha * inverse, other * inverse
    entry[SLOPE, e], entry[SLOPE, f] = slope, slope_other
    node[TOTAL, i], node[PULL, i], node[MOVED, i] = total, pull, moved


@inner_kernel
def match_two(entry, node, i, e, f, share, share_other):
    """Bayesian moment matching of node i with the entries e and f, which have these shares of the row."""
    alpha, other, a = entry[COUNT, e], entry[COUNT, f], node[TOTAL, i]
    b, r = a + 1.0, share + share_other
    apart = alpha * share_other + other * share
    matched = matched_total(a, r, 2.0 * alpha * other, apart, 2.0 * share * share_other)
    scale = 1.0 / (a * b)
    p, q = (b - r) * scale, a * scale
    mean, rest = p * alpha + q * share, p * other + q * share_other
    entry[WEIGHT, e], entry[WEIGHT, f] = mean, rest
    entry[COUNT, e], entry[COUNT, f] = mean * matched, rest * matched
    node[TOTAL, i] = matched


@inner_kernel
def match_sixteen(count, weight, total, e, i, code, r, is_due):
    """Bayesian moment matching of the nodes from the i-th on, whose pairs of entries begin at e, where marks say so.

    code and r are lanes: which entry of each pair is observed, and how much of the row is.
    """
    first, second = pairs_from(count, e)
    before = lanes_from(total, i)
    is_second = code == 1.0
    alpha, other = where(is_second, second, first), where(is_second, first, second)
    matched, mean, rest = two_matched(alpha, other, before, r)
    _write_sixteen(count, weight, total, e, i, is_due, is_second, mean * matched, rest * matched, mean, rest, matched)


@inner_kernel
def _write_sixteen(count, weight, total, e, i, is_due, is_second, alpha, other, mean, rest, after):
    first, second = pairs_from(count, e)
    w, w_second = pairs_from(weight, e)
    put_pairs(
        count,
        e,
        where(is_due, where(is_second, other, alpha), first),
        where(is_due, where(is_second, alpha, other), second),
    )
    put_pairs(
        weight,
        e,
        where(is_due, where(is_second, rest, mean), w),
        where(is_due, where(is_second, mean, rest), w_second),
    )
    put_from(total, i, where(is_due, after, lanes_from(total, i)))


@inner_kernel
def filter_sixteen(count, weight, slope, total, pull, moved, e, i, code, r, is_due):
    """As `match_sixteen` by assumed density filtering to the third order; which nodes are due and not done, as bits."""
    first, second = pairs_from(count, e)
    s, s_second = pairs_from(slope, e)
    before, known, so_far = lanes_from(total, i), lanes_from(pull, i), lanes_from(moved, i)
    is_second = code == 1.0
    alpha, other = where(is_second, second, first), where(is_second, first, second)
    bend, bend_other = where(is_second, s_second, s), where(is_second, s, s_second)
    zero = 0.0 * r
    d, d_other, grown, grown_other, new_pull, farthest = curved_step(
        alpha, other, before, r, zero, bend, bend_other, known
    )
    # What is not a number, where nothing is known, fails the comparisons.
    is_done = is_due & (so_far < MOST_FOLLOWED) & (FARTHEST >= farthest) & (new_pull > 0.0)
    fewer = where(alpha < other, alpha, other)
    is_large = is_due & (fewer >= LARGE) & (r < SHARE_OF_SQUARE * fewer * fewer)
    if bits_of(is_large):
        large, large_other, _, _, _, is_right = two_by_logarithms(alpha, other, before, r)
        is_large = is_large & is_right
        d, d_other = where(is_large, large, d), where(is_large, large_other, d_other)
        farthest = where(is_large, UNKNOWN, farthest)
        is_done = is_done | is_large
    alpha, other = alpha + d, other + d_other
    after = alpha + other
    inverse = 1.0 / after
    _write_sixteen(
        count, weight, total, e, i, is_done, is_second, alpha, other, alpha * inverse, other * inverse, after
    )
    put_pairs(
        slope,
        e,
        where(is_done, where(is_second, grown_other, grown), s),
        where(is_done, where(is_second, grown, grown_other), s_second),
    )
    put_from(pull, i, where(is_done, new_pull, known))
    put_from(moved, i, where(is_done, so_far + farthest, so_far))
    return bits_of(is_due) & ~bits_of(is_done)
