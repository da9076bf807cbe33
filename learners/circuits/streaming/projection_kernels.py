"""One-step moments of a sum's weights, and the Dirichlet that has them."""

from __future__ import annotations

import numpy as np

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
def reciprocal_trigamma_excess(u):
    """What 1/ψ'(x) exceeds x - 1/2 by, for x = 1/u from LARGE on."""
    return u * (1.0 / 12.0 + u * (1.0 / 24.0 - u * (1.0 / 720.0 + u * (11.0 / 480.0))))


@inner_kernel
def reciprocal_trigamma_slope(v):
    """The derivative of s = 1/ψ'(x), which is -ψ''(x) s², of v = s/x between 0 and 1: to 1.3e-5 of it (fitted)."""
    p = (8.050951218573783 - 1.843872803239406 * v) * v - 15.192651051664543
    p = ((p * v + 16.587541789402415) * v - 11.840798803209488) * v + 6.496028728997377
    return v * (v * v * (p * v - 3.2572118679803093) + 2.0)


@inner_kernel
def reciprocal_trigamma_third_term(v):
    """A sixth of s'² + s s'', likewise: to 5e-5 (fitted), of what is at most 0.17."""
    p = (3.164556266662349 - 1.0869947478899683 * v) * v - 2.5445460443719494
    return v * v * ((p * v - 0.3937476144434825) * v + 1.0273675920919165)


@inner_kernel
def pseudo_count_step(c, slope, half, third):
    """How far a pseudo-count moves when ψ of it grows by c."""
    return c * slope * (1.0 + c * (half + c * third))


@inner_kernel
def reciprocal_trigamma_step(d, c, bend, third):
    """How far a slope moves with its pseudo-count."""
    return d * (bend + c * (3.0 * third - 0.5 * bend * bend))


@inner_kernel
def shifted_reciprocal_sums(x):
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
def digamma_difference(x, d):
    """ψ(x + d) - ψ(x) and ψ'(x + d), to 1e-9 of each, for x and x + d > 0."""
    y = x + d
    moved, slope = 0.0, 0.0
    if x < 8.0 or y < 8.0:
        before, _ = shifted_reciprocal_sums(x)
        after, slope = shifted_reciprocal_sums(y)
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
def moment_matched_total(total, r, counts_apart, shares_apart, both_apart):
    """Sum of the pseudo-counts of the Dirichlet with the same means and the same sum of second moments.

    Of pairs of different entries: counts_apart = Σ α_j α_l, shares_apart = Σ λ_j α_l, both_apart = Σ λ_j λ_l. In these
    nothing cancels: (1 - Σ E[w²]) / (Σ E[w²] - Σ E[w]²) becomes a ratio of sums of positive terms.
    """
    a, b, c = total, total + 1.0, total + 2.0
    above = (c - 2.0 * r) * counts_apart + 2.0 * a * shares_apart
    below = (b * c - 4.0 * r * b + r * r * c) * counts_apart + 2.0 * (2.0 * b - r * c) * a * shares_apart
    return a * b * above / (below + a * a * c * both_apart)


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
    return moment_matched_total(total, r, counts_apart, shares_apart, both_apart)


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
def _by_series(entry, node, i, begin, end, r, shares):
    """Solve the equations of `project_onto_dirichlet` to the third order of the row's shares; whether that is near enough.

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
    """Steps from shares[2], whose sum is grown, until they are small; keeps the curvatures."""
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

    By moment matching, of the means and of the sum of the second moments, or by assumed density filtering: solve ψ(α_j + δ_j) - ψ(α_j) = ψ(Σ(α + δ)) - ψ(Σα) + λ_j/α_j - r/Σα for δ.
    shares[1] gets the constants, shares[2] δ, shares[3] the gradient. Newton's step is that of Minka (2000), equations 15 to 18.
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
