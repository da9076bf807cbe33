"""One-step moments of a sum's weights, and the Dirichlet that matches them."""

from __future__ import annotations

import numpy as np

from learners.circuits.streaming.trigamma_kernels import (
    digamma_difference,
    reciprocal_trigamma_excess,
    reciprocal_trigamma_slope,
    reciprocal_trigamma_step,
    reciprocal_trigamma_third_term,
)
from learners.kernels.jit import inner_kernel, kernel

BMM, ADF = range(2)
# Rows of what is known of entries and of nodes. One array each: arrays taken from a tuple are counted, which costs more than
# an update does.
COUNT, WEIGHT, SLOPE = range(3)
TOTAL, PULL, MOVED = range(3)
MOST_STEPS = 30
# Newton's last step, relative to the pseudo-count: the error that remains is of its square.
LAST_STEP = 1e-4
# A step of the third order moves each pseudo-count, and their sum, by at most FARTHEST of itself. Slopes are followed until such
# moves add up to MOST_FOLLOWED; those of pseudo-counts from LARGE on are computed anew, by a series.
FARTHEST, MOST_FOLLOWED, UNKNOWN, LARGE = 0.01, 0.05, 1.0, 8.0
CERTAIN = 1.0 - 1e-15
# Where one weight is all but one, Newton's system is singular to the digits that digammas have: the moments are matched instead.
WELL_CONDITIONED = 1e-6


@inner_kernel
def pseudo_count_step(c, slope, half, third):
    """Return the change of a pseudo-count when its ψ grows by c."""
    return c * slope * (1.0 + c * (half + c * third))


@inner_kernel
def moment_matched_total(total, r, counts_apart, shares_apart, both_apart):
    """Return the sum of the pseudo-counts of the Dirichlet with the same means and the same sum of second moments.

    Over pairs of different entries: counts_apart = Σ α_j α_l, shares_apart = Σ λ_j α_l, both_apart = Σ λ_j λ_l.
    This avoids cancellation: (1 - Σ E[w²]) / (Σ E[w²] - Σ E[w]²) becomes a ratio of sums of positive terms.
    """
    a, b, c = total, total + 1.0, total + 2.0
    above = (c - 2.0 * r) * counts_apart + 2.0 * a * shares_apart
    below = (b * c - 4.0 * r * b + r * r * c) * counts_apart + 2.0 * (2.0 * b - r * c) * a * shares_apart
    return a * b * above / (below + a * a * c * both_apart)


@inner_kernel
def _matched(entry, node, i, begin, end, r, shares):
    """Return the total that matches the second moments."""
    total = node[TOTAL, i]
    counts_apart, shares_apart, both_apart = 0.0, 0.0, 0.0
    for e in range(begin, end):
        alpha, share = entry[COUNT, e], shares[0, e - begin]
        counts_apart += alpha * (total - alpha)
        shares_apart += share * (total - alpha)
        both_apart += share * (r - share)
    return moment_matched_total(total, r, counts_apart, shares_apart, both_apart)


@inner_kernel
def _start_matched(entry, node, i, begin, end, r, shares):
    """Compute the matched moments minus α, without cancellation."""
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
def _by_series(entry, node, i, begin, end, r, shares):
    """Solve the equations of `project_onto_dirichlet` to third order in the row's shares; returns whether that is
    accurate enough.

    With g = ψ(Σ(α + δ)) - ψ(Σα) and s = 1/ψ': the Taylor series of δ_j by c_j + g, and that of their sum by g, of which each
    derivative is s times that of the one before: s, s s', s (s'² + s s''). shares[3] gets bends, shares[4] thirds.
    """
    n, total = end - begin, node[TOTAL, i]
    w = 1.0 / total
    excesses, slopes, ups, least = 0.0, 0.0, 0.0, np.inf
    for j in range(n):
        alpha = entry[COUNT, begin + j]
        shares[1, j] = shares[2, j] = 0.0
        if alpha > 0.0:
            u = 1.0 / alpha
            shares[1, j] = shares[0, j] * u - r * w
            # What x exceeds 1/ψ'(x) by; where x is large it is told by x, so that nothing drifts.
            excess = 0.5 - reciprocal_trigamma_excess(u) if alpha >= LARGE else alpha - entry[SLOPE, begin + j]
            slope = alpha - excess
            entry[SLOPE, begin + j] = slope
            excesses += excess
            slopes += slope
            ups += shares[1, j] * slope
            least = min(least, alpha)
            shares[3, j], shares[4, j] = reciprocal_trigamma_slope(slope * u), reciprocal_trigamma_third_term(slope * u)
    is_large = least >= LARGE
    if not (is_large or node[MOVED, i] < MOST_FOLLOWED):
        return False
    left = excesses - (0.5 - reciprocal_trigamma_excess(w)) if total >= LARGE else 1.0 / node[PULL, i]
    slope_total = left + slopes
    pull = 1.0 / left
    bend, third = reciprocal_trigamma_slope(slope_total * w), reciprocal_trigamma_third_term(slope_total * w)
    # What the first order leaves, then the second, goes into g again.
    g, grown, follows, farthest = ups * pull, 0.0, 0.0, 0.0
    for _ in range(2):
        grown = 0.0
        for j in range(n):
            if entry[COUNT, begin + j] > 0.0:
                grown += pseudo_count_step(shares[1, j] + g, entry[SLOPE, begin + j], 0.5 * shares[3, j], shares[4, j])
        g += (grown - pseudo_count_step(g, slope_total, 0.5 * bend, third)) * pull
    grown = 0.0
    for j in range(n):
        alpha = entry[COUNT, begin + j]
        if alpha > 0.0:
            c = shares[1, j] + g
            d = pseudo_count_step(c, entry[SLOPE, begin + j], 0.5 * shares[3, j], shares[4, j])
            shares[2, j], shares[3, j] = d, reciprocal_trigamma_step(d, c, shares[3, j], shares[4, j])
            grown += d
            follows += shares[3, j]
            farthest = max(farthest, abs(d) / alpha)
    farthest = max(farthest, abs(grown) * w)
    pull = 1.0 / (left + (reciprocal_trigamma_step(grown, g, bend, third) - follows))
    # What is not a number fails both.
    if not (farthest <= FARTHEST and pull > 0.0):
        return False
    for j in range(n):
        if entry[COUNT, begin + j] > 0.0:
            entry[SLOPE, begin + j] += shares[3, j]
    node[PULL, i] = pull
    # Slopes of large ones are told by their pseudo-counts.
    node[MOVED, i] = 0.0 if is_large else node[MOVED, i] + farthest
    return True


@inner_kernel
def _newton_steps(entry, node, i, begin, end, r, grown, shares):
    """Run Newton steps from shares[2], whose sum is grown, until they are small; keeps the curvatures."""
    n = end - begin
    a = node[TOTAL, i]
    for _ in range(MOST_STEPS):
        move, curvature = digamma_difference(a, grown)
        numerator, denominator = 0.0, 1.0 / curvature
        for j in range(n):
            alpha = entry[COUNT, begin + j]
            if alpha > 0.0:
                own, bend = digamma_difference(alpha, shares[2, j])
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
        if farthest > 0.0:
            continue
        # Slopes, and that of the total, follow the last step.
        grown, follows, after = 0.0, 0.0, a
        for j in range(n):
            if entry[COUNT, begin + j] > 0.0:
                step, slope = shares[3, j], entry[SLOPE, begin + j]
                follow = reciprocal_trigamma_slope(slope / (entry[COUNT, begin + j] + shares[2, j] - step)) * step
                entry[SLOPE, begin + j] = slope + follow
                grown, follows, after = grown + step, follows + follow, after + shares[2, j] - step
        node[PULL, i] = 1.0 / (1.0 / pull + reciprocal_trigamma_slope(1.0 / curvature / after) * grown - follows)
        return


@kernel
def project_onto_dirichlet(entry, node, i, begin, end, r, rule, shares):
    """Update a node's pseudo-counts α and weights from its posterior r and those of its edges, λ in shares[0].

    Uses moment matching of the means and the sum of second moments, or assumed density filtering: solve ψ(α_j +
    δ_j) - ψ(α_j) = ψ(Σ(α + δ)) - ψ(Σα) + λ_j/α_j - r/Σα for δ. OUT shares[1]: constants, shares[2]: δ, shares[3]:
    gradient. Newton's step is that of Minka (2000), equations 15 to 18.
    """
    if rule == BMM:
        total = node[TOTAL, i]
        matched = _matched(entry, node, i, begin, end, r, shares)
        scale = 1.0 / (total * (total + 1.0))
        p, q = (total + 1.0 - r) * scale, total * scale
        for e in range(begin, end):
            mean = p * entry[COUNT, e] + q * shares[0, e - begin]
            entry[WEIGHT, e] = mean
            entry[COUNT, e] = mean * matched
        node[TOTAL, i] = matched
        return
    if not _by_series(entry, node, i, begin, end, r, shares):
        grown = _start_matched(entry, node, i, begin, end, r, shares)
        node[MOVED, i] = 0.0
        _newton_steps(entry, node, i, begin, end, r, grown, shares)
    a = 0.0
    for j in range(end - begin):
        if entry[COUNT, begin + j] > 0.0:
            entry[COUNT, begin + j] += shares[2, j]
            a += entry[COUNT, begin + j]
    inverse = 1.0 / a
    node[TOTAL, i] = a
    for e in range(begin, end):
        entry[WEIGHT, e] = entry[COUNT, e] * inverse
