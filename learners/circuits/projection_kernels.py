"""One-step moments of a sum's weights, and the Dirichlet that has them."""

from __future__ import annotations

import numpy as np

from learners.jit import kernel

BMM, ADF, ADF_CLOSED, BMM_2017, ADF_2017 = range(5)
MOST_STEPS = 30
# Newton's last step, relative to the pseudo-count: the error that remains is of its square.
LAST_STEP = 1e-5
CERTAIN = 1.0 - 1e-15


@kernel
def _reciprocals(x):
    """Sums of 1/(x + k) and of 1/(x + k)² for k = 0..7, with one division."""
    p, p_1, p_2 = x, 1.0, 0.0
    for k in range(1, 8):
        factor = x + k
        p_2 = p_2 * factor + 2.0 * p_1
        p_1 = p_1 * factor + p
        p *= factor
    inverse = 1.0 / p
    first = p_1 * inverse
    return first, first * first - p_2 * inverse


@kernel
def digamma_step(x, d):
    """ψ(x + d) - ψ(x) and ψ'(x + d), to 1e-9 of each, for x and x + d > 0."""
    y = x + d
    moved, slope = 0.0, 0.0
    if x < 8.0 or y < 8.0:
        before, _ = _reciprocals(x)
        after, slope = _reciprocals(y)
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


@kernel
def matched_total(total, r, counts_apart, shares_apart, both_apart):
    """Sum of the pseudo-counts of the Dirichlet with the same means and the same sum of second moments.

    Of pairs of different entries: counts_apart = Σ α_j α_l, shares_apart = Σ λ_j α_l, both_apart = Σ λ_j λ_l. In these
    nothing cancels: (1 - Σ E[w²]) / (Σ E[w²] - Σ E[w]²) becomes a ratio of sums of positive terms.
    """
    a, b, c = total, total + 1.0, total + 2.0
    scale = 1.0 / (a * b * c)
    scale_b = a * c * scale
    above = (c - 2.0 * r) * counts_apart + 2.0 * a * shares_apart
    below = (b * c - 4.0 * r * b + r * r * c) * scale * c * scale * counts_apart
    below += 2.0 * (2.0 * b - r * c) * scale * scale_b * shares_apart + scale_b * scale_b * both_apart
    return above * scale / below


@kernel
def _apart(count, total, begin, end, r, shares):
    """The three sums over pairs that `matched_total` needs."""
    counts_apart, shares_apart, both_apart = 0.0, 0.0, 0.0
    for e in range(begin, end):
        share = shares[0, e - begin]
        others = total - count[e]
        counts_apart += count[e] * others
        shares_apart += share * others
        both_apart += share * (r - share)
    return counts_apart, shares_apart, both_apart


@kernel
def _match_moments(count, weight, total, i, begin, end, r, shares):
    """Bayesian moment matching: the means, and the sum of the second moments."""
    a = total[i]
    counts_apart, shares_apart, both_apart = _apart(count, a, begin, end, r, shares)
    matched = matched_total(a, r, counts_apart, shares_apart, both_apart)
    scale = 1.0 / (a * (a + 1.0))
    p, q = (a + 1.0 - r) * scale, a * scale
    for e in range(begin, end):
        mean = p * count[e] + q * shares[0, e - begin]
        weight[e] = mean
        count[e] = mean * matched
    total[i] = matched


@kernel
def _by_newton(count, weight, total, i, begin, end, r, shares):
    """Assumed density filtering: solve ψ(α_j + δ_j) - ψ(α_j) = ψ(Σ(α + δ)) - ψ(Σα) + λ_j/α_j - r/Σα for δ.

    shares[0] holds λ; shares[1] gets the constants, shares[2] δ, shares[3] and [4] gradient and curvature. Newton's step
    is that of Minka (2000), equations 15 to 18; it starts at the matched moments.
    """
    n = end - begin
    a = total[i]
    counts_apart, shares_apart, both_apart = _apart(count, a, begin, end, r, shares)
    matched = matched_total(a, r, counts_apart, shares_apart, both_apart)
    inverse = 1.0 / a
    scale = matched * inverse / (a + 1.0)
    # δ = mean · matched - α, without subtracting what is nearly equal.
    p, q = ((matched - a) * (a + 1.0) - r * matched) * inverse / (a + 1.0), a * scale
    grown = 0.0
    for j in range(n):
        alpha, share = count[begin + j], shares[0, j]
        if alpha > 0.0:
            shares[1, j] = share / alpha - r * inverse
            shares[2, j] = p * alpha + q * share
            grown += shares[2, j]
    for _ in range(MOST_STEPS):
        move, curvature = digamma_step(a, grown)
        numerator, denominator = 0.0, 1.0 / curvature
        for j in range(n):
            alpha = count[begin + j]
            if alpha > 0.0:
                own, slope = digamma_step(alpha, shares[2, j])
                slope = 1.0 / slope
                gradient = (move - own + shares[1, j]) * slope
                shares[3, j] = gradient
                shares[4, j] = slope
                numerator += gradient
                denominator -= slope
        b = numerator / denominator
        largest, grown = 0.0, 0.0
        for j in range(n):
            alpha = count[begin + j]
            if alpha > 0.0:
                before = alpha + shares[2, j]
                step = shares[3, j] + b * shares[4, j]
                # A pseudo-count stays positive.
                step = max(step, -0.9 * before)
                shares[2, j] += step
                grown += shares[2, j]
                largest = max(largest, abs(step) - LAST_STEP * before)
        if largest <= 0.0:
            break
    a += grown
    inverse = 1.0 / a
    total[i] = a
    for j in range(n):
        if count[begin + j] > 0.0:
            count[begin + j] += shares[2, j]
            weight[begin + j] = count[begin + j] * inverse


@kernel
def _in_closed_form(count, weight, total, i, begin, end, r, shares):
    """Assumed density filtering with exp ψ(β) ≈ β - 1/2; by Newton where a pseudo-count is too small for that."""
    n = end - begin
    a = total[i]
    least, n_parameters, sum_of_means = 2.0, 0, 0.0
    for j in range(n):
        alpha = count[begin + j]
        if alpha > 0.0:
            least = min(least, alpha)
            n_parameters += 1
            shares[2, j] = (alpha - 0.5) / (a - 0.5) * np.exp(shares[0, j] / alpha - r / a)
            sum_of_means += shares[2, j]
    if least <= 1.0 or not sum_of_means < 1.0:
        _by_newton(count, weight, total, i, begin, end, r, shares)
        return
    # Σ(β - 1/2) = (Σβ - 1/2) · sum_of_means
    matched = 0.5 * (n_parameters - sum_of_means) / (1.0 - sum_of_means)
    total[i] = matched
    for j in range(n):
        if count[begin + j] > 0.0:
            count[begin + j] = 0.5 + (matched - 0.5) * shares[2, j]
            weight[begin + j] = count[begin + j] / matched


@kernel
def _as_in_2017(count, weight, total, i, begin, end, rule, shares):
    """The published rules, which lack the sibling's term: equations 14 (ADF) and 15 (BMM), the total kept."""
    a = total[i]
    together = 0.0
    for e in range(begin, end):
        alpha, share = count[e], shares[0, e - begin]
        mean = 0.0
        if rule == BMM_2017:
            mean = (1.0 - share) * alpha / a + share * (alpha + 1.0) / (a + 1.0)
        elif alpha > 0.0:
            low = max(alpha - 0.5, 1e-3 * alpha) / (a - 0.5 if a > 1.0 else 0.5 * a)
            mean = low ** (1.0 - share) * ((alpha + 0.5) / (a + 0.5)) ** share
            mean = (0.5 + max(a - 0.5, 0.0) * mean) / a
        weight[e] = mean
        together += mean
    for e in range(begin, end):
        weight[e] /= together
        count[e] = weight[e] * a


@kernel
def project(count, weight, total, i, begin, end, r, rule, shares):
    """Update a node's pseudo-counts and weights from its posterior r and those of its edges, shares[0]."""
    if rule == BMM:
        _match_moments(count, weight, total, i, begin, end, r, shares)
    elif rule == ADF:
        _by_newton(count, weight, total, i, begin, end, r, shares)
    elif rule == ADF_CLOSED:
        _in_closed_form(count, weight, total, i, begin, end, r, shares)
    else:
        _as_in_2017(count, weight, total, i, begin, end, rule, shares)


@kernel
def two_after_match(alpha, other, total, r):
    """Bayesian moment matching of two pseudo-counts where all of r is on the first."""
    matched = matched_total(total, r, 2.0 * alpha * other, r * other, 0.0)
    b = total + 1.0
    scale = matched / (total * b)
    p, q = (b - r) * scale, total * scale
    return p * alpha + q * r, p * other


@kernel
def two_after_newton(alpha, other, total, r):
    """Assumed density filtering of two pseudo-counts where all of r is on the first; as `_by_newton`."""
    b = total + 1.0
    matched = matched_total(total, r, 2.0 * alpha * other, r * other, 0.0)
    inverse = 1.0 / (total * b)
    p, q = ((matched - total) * b - r * matched) * inverse, total * matched * inverse
    d_1, d_2 = p * alpha + q * r, p * other
    constant_2 = -r * b * inverse
    constant_1 = r / alpha + constant_2
    for _ in range(MOST_STEPS):
        move, curvature = digamma_step(total, d_1 + d_2)
        own_1, slope_1 = digamma_step(alpha, d_1)
        own_2, slope_2 = digamma_step(other, d_2)
        g_1, g_2 = move - own_1 + constant_1, move - own_2 + constant_2
        # (1/z - 1/s_1 - 1/s_2) times z s_1 s_2, and the same of the numerator.
        common = curvature * (g_1 * slope_2 + g_2 * slope_1) / (slope_1 * slope_2 - curvature * (slope_1 + slope_2))
        step_1, step_2 = (g_1 + common) / slope_1, (g_2 + common) / slope_2
        before_1, before_2 = alpha + d_1, other + d_2
        step_1, step_2 = max(step_1, -0.9 * before_1), max(step_2, -0.9 * before_2)
        d_1 += step_1
        d_2 += step_2
        if abs(step_1) <= LAST_STEP * before_1 and abs(step_2) <= LAST_STEP * before_2:
            break
    return alpha + d_1, other + d_2


@kernel
def project_one(count, weight, total, i, begin, end, observed, r, rule, shares):
    """As `project` where all of r is on one entry."""
    if rule <= ADF_CLOSED and r >= CERTAIN:
        # A certain observation is a count.
        count[observed] += 1.0
        total[i] += 1.0
        inverse = 1.0 / total[i]
        for e in range(begin, end):
            weight[e] = count[e] * inverse
    elif rule <= ADF and end - begin == 2:
        other = begin + end - 1 - observed
        if rule == BMM:
            a, b = two_after_match(count[observed], count[other], total[i], r)
        else:
            a, b = two_after_newton(count[observed], count[other], total[i], r)
        inverse = 1.0 / (a + b)
        total[i] = a + b
        count[observed], count[other] = a, b
        weight[observed], weight[other] = a * inverse, b * inverse
    else:
        for e in range(begin, end):
            shares[0, e - begin] = 0.0
        shares[0, observed - begin] = r
        project(count, weight, total, i, begin, end, r, rule, shares)
