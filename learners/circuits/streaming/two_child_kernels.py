"""One-step updates of nodes of two pseudo-counts, as most nodes of a learned circuit are.

The nodes of one row update parameters of their own, so it does not matter when they do: assumed density filtering takes them
in blocks, in a loop that the compiler turns into vector instructions.
"""

from __future__ import annotations

from learners.circuits.streaming.projection_kernels import (
    ADF,
    COUNT,
    FARTHEST,
    LARGE,
    MOST_FOLLOWED,
    MOVED,
    PULL,
    SLOPE,
    TOTAL,
    WEIGHT,
    bend_of,
    beyond_half,
    followed,
    matched_total,
    moved_by,
    project,
    third_of,
)
from learners.kernels.jit import inner_kernel, kernel

# Nodes of a block, and what a step needs of each: pseudo-counts, their sum, shares, slopes, pull; then what it gives: pseudo-counts,
# slopes, pull, and the farthest move. One flat array, so that the compiler sees that rows don't overlap.
N_BLOCK = 16
ALPHA, OTHER, SUM, SHARE, SHARE_OTHER, BEND, BEND_OTHER, KNOWN = range(0, 8 * N_BLOCK, N_BLOCK)
NEW_ALPHA, NEW_OTHER, NEW_BEND, NEW_BEND_OTHER, NEW_PULL, FARTHEST_MOVE = range(8 * N_BLOCK, 14 * N_BLOCK, N_BLOCK)
N_ROOM = 14 * N_BLOCK


@inner_kernel
def put_two(entry, node, i, e, share, share_other, block, k, room):
    """Make node i, whose entries are e and the next, the k-th of a block."""
    block[k] = i
    room[ALPHA + k], room[OTHER + k] = entry[COUNT, e], entry[COUNT, e + 1]
    room[BEND + k], room[BEND_OTHER + k] = entry[SLOPE, e], entry[SLOPE, e + 1]
    room[SUM + k], room[KNOWN + k] = node[TOTAL, i], node[PULL, i]
    room[SHARE + k], room[SHARE_OTHER + k] = share, share_other


@inner_kernel
def series_of_block(room):
    """Assumed density filtering of pairs of pseudo-counts to the third order of the row's shares, from slopes that are known.

    With c_j the right side of the equation of `project`, g = ψ(Σ(α + δ)) - ψ(Σα) and s = 1/ψ': the Taylor series of δ_j by c_j + g, and that of
    their sum by g, of which each derivative is s times that of the one before: s, s s', s (s'² + s s'').
    """
    for k in range(N_BLOCK):
        alpha, other, total = room[ALPHA + k], room[OTHER + k], room[SUM + k]
        share, share_other = room[SHARE + k], room[SHARE_OTHER + k]
        inverse = 1.0 / (alpha * other * total)
        u, v, w = other * total * inverse, alpha * total * inverse, alpha * other * inverse
        both = (share + share_other) * w
        up, down = share * u - both, share_other * v - both
        # What x exceeds 1/ψ'(x) by; where x is large it is told by x, so that nothing drifts.
        near, near_other, near_total = 0.5 - beyond_half(u), 0.5 - beyond_half(v), 0.5 - beyond_half(w)
        excess = near if alpha >= LARGE else alpha - room[BEND + k]
        excess_other = near_other if other >= LARGE else other - room[BEND_OTHER + k]
        slope, slope_other = alpha - excess, other - excess_other
        left_known = 1.0 / room[KNOWN + k]
        left = excess + excess_other - near_total if total >= LARGE else left_known
        slope_total = left + slope + slope_other
        pull = 1.0 / left
        ratio, ratio_other, ratio_total = slope * u, slope_other * v, slope_total * w
        bend, bend_other, bend_total = bend_of(ratio), bend_of(ratio_other), bend_of(ratio_total)
        half, half_other, half_total = 0.5 * bend, 0.5 * bend_other, 0.5 * bend_total
        third, third_other, third_total = third_of(ratio), third_of(ratio_other), third_of(ratio_total)
        # What the first order leaves, then the second, goes into g again.
        g = (up * slope + down * slope_other) * pull
        d, d_other = moved_by(up + g, slope, half, third), moved_by(down + g, slope_other, half_other, third_other)
        g += (d + d_other - moved_by(g, slope_total, half_total, third_total)) * pull
        d, d_other = moved_by(up + g, slope, half, third), moved_by(down + g, slope_other, half_other, third_other)
        g += (d + d_other - moved_by(g, slope_total, half_total, third_total)) * pull
        d, d_other = moved_by(up + g, slope, half, third), moved_by(down + g, slope_other, half_other, third_other)
        grown = d + d_other
        follow, follow_other = followed(d, up + g, bend, third), followed(d_other, down + g, bend_other, third_other)
        room[NEW_ALPHA + k], room[NEW_OTHER + k] = alpha + d, other + d_other
        room[NEW_BEND + k], room[NEW_BEND_OTHER + k] = slope + follow, slope_other + follow_other
        room[NEW_PULL + k] = 1.0 / (left + (followed(grown, g, bend_total, third_total) - follow - follow_other))
        room[FARTHEST_MOVE + k] = max(max(abs(d) * u, abs(d_other) * v), abs(grown) * w)


@kernel
def filter_block(entry, node, starts, block, n_nodes, room, shares):
    """Assumed density filtering of the n_nodes nodes that `put_two` has put into a block."""
    series_of_block(room)
    for k in range(n_nodes):
        i = block[k]
        e, farthest, pull = starts[i], room[FARTHEST_MOVE + k], room[NEW_PULL + k]
        # What is not a number fails.
        if node[MOVED, i] < MOST_FOLLOWED and farthest <= FARTHEST and pull > 0.0:
            alpha, other = room[NEW_ALPHA + k], room[NEW_OTHER + k]
            total = alpha + other
            inverse = 1.0 / total
            entry[COUNT, e], entry[COUNT, e + 1] = alpha, other
            entry[WEIGHT, e], entry[WEIGHT, e + 1] = alpha * inverse, other * inverse
            entry[SLOPE, e], entry[SLOPE, e + 1] = room[NEW_BEND + k], room[NEW_BEND_OTHER + k]
            node[TOTAL, i], node[PULL, i] = total, pull
            node[MOVED, i] += farthest
        else:
            shares[0, 0], shares[0, 1] = room[SHARE + k], room[SHARE_OTHER + k]
            project(entry, node, i, e, e + 2, shares[0, 0] + shares[0, 1], ADF, shares)


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
