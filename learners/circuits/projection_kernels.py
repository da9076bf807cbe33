"""One-step moments of a sum's weights, and the Dirichlet that has them."""

from __future__ import annotations

import numpy as np

from learners.circuits.large_count_kernels import LARGE, SHARE_OF_SQUARE, bend_of, beyond_half, small_exp
from learners.kernels.jit import inner_kernel, kernel

BMM, ADF, ADF_CLOSED, BMM_2017, ADF_2017 = range(5)
# Rows of what is known of entries and of nodes. One array each: arrays taken from a tuple are counted, which costs more than
# an update does.
COUNT, WEIGHT, SLOPE = range(3)
TOTAL, PULL, MOVED = range(3)
MOST_STEPS = 30
# Newton's last step, relative to the pseudo-count: the error that remains is of its square.
LAST_STEP = 1e-4
# Below this r, in units of the least pseudo-count or one, Newton starts with the step from the old pseudo-counts; above it
# at the matched moments, which are exact at 1.
SMALL_SHARE = 0.25
# Below this r that first step is enough: its error is of r². Its curvatures are kept until r adds up to MOST_MOVED.
TINY_SHARE, MOST_MOVED, UNKNOWN = 1e-4, 1e-3, 1.0
CERTAIN = 1.0 - 1e-15
# Where one weight is all but one, Newton's system is singular to the digits that digammas have: the moments are matched instead.
WELL_CONDITIONED = 1e-6


@inner_kernel
def _by_logarithms(entry, node, i, begin, end, shares):
    """As `large_two` for any number of pseudo-counts; shares[1] holds the constants c, shares[2] gets δ. Whether it is right; then the slopes are known."""
    n, n_parameters = end - begin, 0
    grown, more = 0.0, 0.0
    for j in range(n):
        alpha = entry[COUNT, begin + j]
        if alpha > 0.0:
            n_parameters += 1
            own = beyond_half(1.0 / alpha)
            more += own
            shares[3, j] = small_exp(shares[1, j])
            shares[2, j] = alpha - 0.5 + own
            grown += shares[2, j] * shares[3, j]
    before = 0.5 * (n_parameters - 1) + beyond_half(1.0 / node[TOTAL, i]) - more
    left = before - grown
    if not left > 0.1:
        return False
    f = grown / left
    node[PULL, i] = 1.0 / before
    for j in range(n):
        if entry[COUNT, begin + j] > 0.0:
            entry[SLOPE, begin + j] = shares[2, j]
            shares[2, j] *= shares[3, j] + f + shares[3, j] * f
        else:
            shares[2, j] = 0.0
    return True


@inner_kernel
def reciprocals(x):
    """Sums of 1/(x + k) and of 1/(x + k)² for k = 0..7, with one division."""
    # The product p of all x + k is a polynomial of u = x (x + 7), as (x + k) (x + 7 - k) = u + k (7 - k).
    u, by_x = x * (x + 7.0), 2.0 * x + 7.0
    p = u * (720.0 + u * (252.0 + u * (28.0 + u)))
    p_u = 720.0 + u * (504.0 + u * (84.0 + 4.0 * u))
    p_uu = 504.0 + u * (168.0 + 12.0 * u)
    inverse = 1.0 / p
    first = p_u * by_x * inverse
    return first, first * first - (p_uu * by_x * by_x + 2.0 * p_u) * inverse


@kernel
def digamma_step(x, d):
    """ψ(x + d) - ψ(x) and ψ'(x + d), to 1e-9 of each, for x and x + d > 0."""
    y = x + d
    moved, slope = 0.0, 0.0
    if x < 8.0 or y < 8.0:
        before, _ = reciprocals(x)
        after, slope = reciprocals(y)
        moved = before - after
        x += 8.0
        y += 8.0
    # log(y / x) without a logarithm where they are close, and without cancelling.
    s = d / (x + y)
    t = s * s
    if t < 0.01:
        log_ratio = 2.0 * s * (1.0 + t * (1.0 / 3.0 + t * (0.2 + t * (1.0 / 7.0 + t * (1.0 / 9.0)))))
    else:
        log_ratio = np.log(y / x)
    inverse = 1.0 / (x * y)
    a, b = y * inverse, x * inverse
    p, q = a * a, b * b
    # p - q = 1/x² - 1/y², and the same of higher powers, each with the factor d.
    apart = d * (a + b) * inverse
    series = 1.0 / 12.0 - (p + q) * (1.0 / 120.0) + (p * p + p * q + q * q) * (1.0 / 252.0)
    series -= (p + q) * (p * p + q * q) * (1.0 / 240.0)
    moved += log_ratio + 0.5 * d * inverse + apart * series
    slope += b + q * (0.5 + b * (1.0 / 6.0 - q * (1.0 / 30.0 - q * (1.0 / 42.0 - q * (1.0 / 30.0)))))
    return moved, slope


@inner_kernel
def matched_total(total, r, counts_apart, shares_apart, both_apart):
    """Sum of the pseudo-counts of the Dirichlet with the same means and the same sum of second moments.

    Of pairs of different entries: counts_apart = Σ α_j α_l, shares_apart = Σ λ_j α_l, both_apart = Σ λ_j λ_l. In these
    nothing cancels: (1 - Σ E[w²]) / (Σ E[w²] - Σ E[w]²) becomes a ratio of sums of positive terms.
    """
    a, b, c = total, total + 1.0, total + 2.0
    above = (c - 2.0 * r) * counts_apart + 2.0 * a * shares_apart
    below = (b * c - 4.0 * r * b + r * r * c) * counts_apart + 2.0 * (2.0 * b - r * c) * a * shares_apart
    return a * b * above / (below + a * a * c * both_apart)


@inner_kernel
def two_matched(alpha, other, total, r):
    """As `matched_total` for two pseudo-counts where all of r is on the first; also the means of both."""
    a, b, c = total, total + 1.0, total + 2.0
    ab, more = a * b, a * r
    matched = ((c - 2.0 * r) * alpha + more) / ((b * c - 4.0 * r * b + r * r * c) * alpha + (2.0 * b - r * c) * more)
    inverse = 1.0 / ab
    return ab * matched, ((b - r) * alpha + more) * inverse, (b - r) * other * inverse


@inner_kernel
def _matched(entry, node, i, begin, end, r, shares):
    """Total that matches the second moments."""
    total = node[TOTAL, i]
    counts_apart, shares_apart, both_apart = 0.0, 0.0, 0.0
    for e in range(begin, end):
        alpha, share = entry[COUNT, e], shares[0, e - begin]
        counts_apart += alpha * (total - alpha)
        shares_apart += share * (total - alpha)
        both_apart += share * (r - share)
    return matched_total(total, r, counts_apart, shares_apart, both_apart)


@inner_kernel
def _match_moments(entry, node, i, begin, end, r, shares):
    """Bayesian moment matching: the means, and the sum of the second moments."""
    a = node[TOTAL, i]
    matched = _matched(entry, node, i, begin, end, r, shares)
    scale = 1.0 / (a * (a + 1.0))
    p, q = (a + 1.0 - r) * scale, a * scale
    for e in range(begin, end):
        mean = p * entry[COUNT, e] + q * shares[0, e - begin]
        entry[WEIGHT, e] = mean
        entry[COUNT, e] = mean * matched
    node[TOTAL, i] = matched


@inner_kernel
def _start_linear(entry, node, i, begin, end, shares):
    """Newton's first step from α itself, where both sides' digammas cancel, with curvatures kept from before."""
    numerator = 0.0
    for j in range(end - begin):
        numerator += shares[1, j] * entry[SLOPE, begin + j]
    b = numerator * node[PULL, i]
    grown = 0.0
    for j in range(end - begin):
        shares[2, j] = (shares[1, j] + b) * entry[SLOPE, begin + j]
        grown += shares[2, j]
    return grown


@inner_kernel
def _start_matched(entry, node, i, begin, end, r, shares):
    """The matched moments less α, without subtracting what is nearly equal."""
    a = node[TOTAL, i]
    b = a + 1.0
    matched = _matched(entry, node, i, begin, end, r, shares)
    inverse = 1.0 / (a * b)
    p, q = ((matched - a) * b - r * matched) * inverse, a * matched * inverse
    grown = 0.0
    for j in range(end - begin):
        shares[2, j] = p * entry[COUNT, begin + j] + q * shares[0, j]
        grown += shares[2, j]
    return grown


@inner_kernel
def _by_newton(entry, node, i, begin, end, r, shares):
    """Assumed density filtering: solve ψ(α_j + δ_j) - ψ(α_j) = ψ(Σ(α + δ)) - ψ(Σα) + λ_j/α_j - r/Σα for δ.

    shares[0] holds λ; shares[1] gets the constants, shares[2] δ, shares[3] the gradient. Newton's step is that of Minka
    (2000), equations 15 to 18.
    """
    inverse, least = 1.0 / node[TOTAL, i], np.inf
    for j in range(end - begin):
        alpha = entry[COUNT, begin + j]
        shares[1, j] = 0.0
        if alpha > 0.0:
            shares[1, j] = shares[0, j] / alpha - r * inverse
            least = min(least, alpha)
    has_slopes = node[MOVED, i] < min(UNKNOWN, MOST_MOVED * least)
    if has_slopes and r < TINY_SHARE * least:
        _start_linear(entry, node, i, begin, end, shares)
        node[MOVED, i] += r
    elif least >= LARGE and r < SHARE_OF_SQUARE * least * least and _by_logarithms(entry, node, i, begin, end, shares):
        node[MOVED, i] = r
    else:
        if has_slopes and r < SMALL_SHARE * min(1.0, least):
            grown = _start_linear(entry, node, i, begin, end, shares)
        else:
            grown = _start_matched(entry, node, i, begin, end, r, shares)
        node[MOVED, i] = 0.0
        _newton_steps(entry, node, i, begin, end, r, grown, shares)
    _add(entry, node, i, begin, end, shares)


@kernel
def _add(entry, node, i, begin, end, shares):
    """Add δ, shares[2], to the pseudo-counts; weights and total follow."""
    a = 0.0
    for j in range(end - begin):
        if entry[COUNT, begin + j] > 0.0:
            entry[COUNT, begin + j] += shares[2, j]
            a += entry[COUNT, begin + j]
    inverse = 1.0 / a
    node[TOTAL, i] = a
    for e in range(begin, end):
        entry[WEIGHT, e] = entry[COUNT, e] * inverse


@inner_kernel
def _newton_steps(entry, node, i, begin, end, r, grown, shares):
    """Steps from shares[2], whose sum is grown, until they are small; keeps the curvatures."""
    n = end - begin
    a = node[TOTAL, i]
    for _ in range(MOST_STEPS):
        move, curvature = digamma_step(a, grown)
        numerator, denominator = 0.0, 1.0 / curvature
        for j in range(n):
            alpha = entry[COUNT, begin + j]
            if alpha > 0.0:
                own, bend = digamma_step(alpha, shares[2, j])
                bend = 1.0 / bend
                shares[3, j] = (move - own + shares[1, j]) * bend
                entry[SLOPE, begin + j] = bend
                numerator += shares[3, j]
                denominator -= bend
        if not denominator * curvature > WELL_CONDITIONED:
            node[MOVED, i] = UNKNOWN
            _start_matched(entry, node, i, begin, end, r, shares)
            return
        pull = 1.0 / denominator
        node[PULL, i] = pull
        b = numerator * pull
        farthest, grown = 0.0, 0.0
        for j in range(n):
            alpha = entry[COUNT, begin + j]
            if alpha > 0.0:
                before = alpha + shares[2, j]
                # A pseudo-count stays positive.
                step = max(shares[3, j] + b * entry[SLOPE, begin + j], -0.9 * before)
                shares[2, j] += step
                grown += shares[2, j]
                farthest = max(farthest, abs(step) - LAST_STEP * before)
                shares[3, j] = step
        if farthest <= 0.0:
            _follow(entry, node, i, begin, end, 1.0 / curvature, shares)
            return


@inner_kernel
def _follow(entry, node, i, begin, end, slope_total, shares):
    """Slopes, and that of the total, follow the last step, shares[3]."""
    grown, follows, after = 0.0, 0.0, node[TOTAL, i]
    for j in range(end - begin):
        if entry[COUNT, begin + j] > 0.0:
            step, slope = shares[3, j], entry[SLOPE, begin + j]
            follow = bend_of(slope / (entry[COUNT, begin + j] + shares[2, j] - step)) * step
            entry[SLOPE, begin + j] = slope + follow
            grown, follows, after = grown + step, follows + follow, after + shares[2, j] - step
    node[PULL, i] = 1.0 / (1.0 / node[PULL, i] + bend_of(slope_total / after) * grown - follows)


@inner_kernel
def pair_matched(alpha, other, total, share, share_other):
    """The matched moments of two less α, as `_start_matched` has them."""
    a, b, r = total, total + 1.0, share + share_other
    apart = 2.0 * alpha * other
    matched = matched_total(a, r, apart, share * other + share_other * alpha, 2.0 * share * share_other)
    inverse = 1.0 / (a * b)
    p, q = ((matched - a) * b - r * matched) * inverse, a * matched * inverse
    return p * alpha + q * share, p * other + q * share_other


@inner_kernel
def newton_of_two(alpha, other, total, share, share_other, slope, slope_other, pull):
    """As `_by_newton` for two pseudo-counts and their shares: both δ, both slopes and the pull.

    A pull of zero says that slopes are not known, given or returned.
    """
    r = share + share_other
    both = r / total
    up, down = share / alpha - both, share_other / other - both
    if pull != 0.0 and r < SMALL_SHARE * min(1.0, alpha, other):
        b = (up * slope + down * slope_other) * pull
        d, d_other = (up + b) * slope, (down + b) * slope_other
    else:
        d, d_other = pair_matched(alpha, other, total, share, share_other)
    for _ in range(MOST_STEPS):
        move, curvature = digamma_step(total, d + d_other)
        own, bend = digamma_step(alpha, d)
        own_other, bend_other = digamma_step(other, d_other)
        # One division for the three reciprocals that are needed.
        inverse = 1.0 / (bend * bend_other)
        slope, slope_other = bend_other * inverse, bend * inverse
        left = 1.0 - curvature * (slope + slope_other)
        if not left > WELL_CONDITIONED:
            d, d_other = pair_matched(alpha, other, total, share, share_other)
            return d, d_other, 0.0, 0.0, 0.0
        pull = curvature / left
        g, g_other = (move - own + up) * slope, (move - own_other + down) * slope_other
        b = (g + g_other) * pull
        before, before_other = alpha + d, other + d_other
        step = max(g + b * slope, -0.9 * before)
        step_other = max(g_other + b * slope_other, -0.9 * before_other)
        d += step
        d_other += step_other
        if abs(step) <= LAST_STEP * before and abs(step_other) <= LAST_STEP * before_other:
            # Slopes follow the last step.
            after = total + d + d_other - (step + step_other)
            follow, follow_other = bend_of(slope / before) * step, bend_of(slope_other / before_other) * step_other
            grown = bend_of(1.0 / (curvature * after)) * (step + step_other)
            slope, slope_other = slope + follow, slope_other + follow_other
            pull = 1.0 / (1.0 / pull + (grown - follow - follow_other))
            break
    return d, d_other, slope, slope_other, pull


@inner_kernel
def _in_closed_form(entry, node, i, begin, end, r, shares):
    """Assumed density filtering with exp ψ(β) ≈ β - 1/2; by Newton where a pseudo-count is too small for that."""
    n = end - begin
    a = node[TOTAL, i]
    least, n_parameters, sum_of_means = 2.0, 0, 0.0
    for j in range(n):
        alpha = entry[COUNT, begin + j]
        if alpha > 0.0:
            least = min(least, alpha)
            n_parameters += 1
            shares[2, j] = (alpha - 0.5) / (a - 0.5) * np.exp(shares[0, j] / alpha - r / a)
            sum_of_means += shares[2, j]
    if least <= 1.0 or not sum_of_means < 1.0:
        _by_newton(entry, node, i, begin, end, r, shares)
        return
    # Σ(β - 1/2) = (Σβ - 1/2) · sum_of_means
    matched = 0.5 * (n_parameters - sum_of_means) / (1.0 - sum_of_means)
    node[TOTAL, i] = matched
    node[MOVED, i] = UNKNOWN
    for j in range(n):
        if entry[COUNT, begin + j] > 0.0:
            entry[COUNT, begin + j] = 0.5 + (matched - 0.5) * shares[2, j]
            entry[WEIGHT, begin + j] = entry[COUNT, begin + j] / matched


@inner_kernel
def _as_in_2017(entry, node, i, begin, end, rule, shares):
    """The published rules, which lack the sibling's term: equations 14 (ADF) and 15 (BMM), the total kept."""
    a = node[TOTAL, i]
    together = 0.0
    for e in range(begin, end):
        alpha, share = entry[COUNT, e], shares[0, e - begin]
        mean = 0.0
        if rule == BMM_2017:
            mean = (1.0 - share) * alpha / a + share * (alpha + 1.0) / (a + 1.0)
        elif alpha > 0.0:
            low = max(alpha - 0.5, 1e-3 * alpha) / (a - 0.5 if a > 1.0 else 0.5 * a)
            mean = low ** (1.0 - share) * ((alpha + 0.5) / (a + 0.5)) ** share
            mean = (0.5 + max(a - 0.5, 0.0) * mean) / a
        entry[WEIGHT, e] = mean
        together += mean
    for e in range(begin, end):
        entry[WEIGHT, e] /= together
        entry[COUNT, e] = entry[WEIGHT, e] * a


@kernel
def project(entry, node, i, begin, end, r, rule, shares):
    """Update a node's pseudo-counts and weights from its posterior r and those of its edges, shares[0]."""
    if rule == BMM:
        _match_moments(entry, node, i, begin, end, r, shares)
    elif rule == ADF:
        _by_newton(entry, node, i, begin, end, r, shares)
    elif rule == ADF_CLOSED:
        _in_closed_form(entry, node, i, begin, end, r, shares)
    else:
        _as_in_2017(entry, node, i, begin, end, rule, shares)


@inner_kernel
def count_one(entry, node, i, begin, end, observed):
    """Update by a certain observation: a count."""
    entry[COUNT, observed] += 1.0
    node[TOTAL, i] += 1.0
    node[MOVED, i] = UNKNOWN
    inverse = 1.0 / node[TOTAL, i]
    for e in range(begin, end):
        entry[WEIGHT, e] = entry[COUNT, e] * inverse
