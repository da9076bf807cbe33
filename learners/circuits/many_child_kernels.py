"""Assumed density filtering of sums of the same number of children, any that it is: sixteen nodes at a time."""
# mypy: disallow-untyped-defs=False, check-untyped-defs=False

from __future__ import annotations

from learners.circuits.large_count_kernels import LARGE, bend_of, beyond_half
from learners.circuits.pair_kernels import FARTHEST, MOST_FOLLOWED, followed, moved_by, third_of
from learners.circuits.projection_kernels import ADF, COUNT, MOVED, PULL, SLOPE, TOTAL, UNKNOWN, WEIGHT, project
from learners.kernels.jit import inner_kernel, kernel
from learners.kernels.simd import N_LANES, bits_of, greater, lanes_from, magnitude, put_from, where

# Rows of the room, for each child: pseudo-count, share of the row, slope, constant c, bend, third, reciprocal; these become what they are
# after the step. Then those of the nodes, four: total, pull, moves followed, share of the row.
COUNTS, SHARES, SLOPES, CONSTANTS, BENDS, THIRDS, INVERSES, OF_NODES = range(8)
N_OF_NODES = 4


@inner_kernel
def _lane(room, n, row, j):
    return lanes_from(room, (row * n + j) * N_LANES)


@inner_kernel
def _put(room, n, row, j, given):
    put_from(room, (row * n + j) * N_LANES, given)


@inner_kernel
def put_node(entry, node, i, begin, n, k, r, shares, room):
    """Make node i with n children the k-th of a block; shares[0] are those of its edges."""
    for j in range(n):
        room[(COUNTS * n + j) * N_LANES + k] = entry[COUNT, begin + j]
        room[(SHARES * n + j) * N_LANES + k] = shares[0, j]
        room[(SLOPES * n + j) * N_LANES + k] = entry[SLOPE, begin + j]
    first = OF_NODES * n * N_LANES + k
    room[first], room[first + N_LANES] = node[TOTAL, i], node[PULL, i]
    room[first + 2 * N_LANES], room[first + 3 * N_LANES] = node[MOVED, i], r


@inner_kernel
def _constants(room, n, total, r):
    """Fill the rows of each child; the sums of x - 1/ψ'(x), of slopes, and of slopes times constants, and the least pseudo-count."""
    both = r / total
    excesses, slopes, ups, least = 0.0 * total, 0.0 * total, 0.0 * total, total
    for j in range(n):
        alpha = _lane(room, n, COUNTS, j)
        u = 1.0 / alpha
        c = _lane(room, n, SHARES, j) * u - both
        excess = where(alpha >= LARGE, 0.5 - beyond_half(u), alpha - _lane(room, n, SLOPES, j))
        slope = alpha - excess
        excesses, slopes, ups = excesses + excess, slopes + slope, ups + c * slope
        # What is not a number stays.
        least = where(alpha >= least, least, alpha)
        _put(room, n, SLOPES, j, slope)
        _put(room, n, CONSTANTS, j, c)
        _put(room, n, BENDS, j, bend_of(slope * u))
        _put(room, n, THIRDS, j, third_of(slope * u))
        _put(room, n, INVERSES, j, u)
    return excesses, slopes, ups, least


@inner_kernel
def _step(room, n, j, g):
    """How far the j-th child's pseudo-count moves."""
    c, half = _lane(room, n, CONSTANTS, j) + g, 0.5 * _lane(room, n, BENDS, j)
    return c, moved_by(c, _lane(room, n, SLOPES, j), half, _lane(room, n, THIRDS, j))


@inner_kernel
def _curved(room, n):
    """As `curved_step` for n children; which nodes are done, as bits. Counts, slopes and the rows of nodes become the new ones."""
    total, pull = _lane(room, n, OF_NODES, 0), lanes_from(room, (OF_NODES * n + 1) * N_LANES)
    moved, r = lanes_from(room, (OF_NODES * n + 2) * N_LANES), lanes_from(room, (OF_NODES * n + 3) * N_LANES)
    excesses, slopes, ups, least = _constants(room, n, total, r)
    w = 1.0 / total
    left = where(total >= LARGE, excesses - (0.5 - beyond_half(w)), 1.0 / pull)
    slope_total = left + slopes
    pull = 1.0 / left
    bend, third = bend_of(slope_total * w), third_of(slope_total * w)
    g = ups * pull
    for _ in range(2):
        grown = 0.0 * g
        for j in range(n):
            _, d = _step(room, n, j, g)
            grown = grown + d
        g = g + (grown - moved_by(g, slope_total, 0.5 * bend, third)) * pull
    grown, follows, farthest, after = 0.0 * g, 0.0 * g, 0.0 * g, 0.0 * g
    for j in range(n):
        c, d = _step(room, n, j, g)
        follow = followed(d, c, _lane(room, n, BENDS, j), _lane(room, n, THIRDS, j))
        alpha = _lane(room, n, COUNTS, j) + d
        grown, follows, after = grown + d, follows + follow, after + alpha
        farthest = greater(farthest, magnitude(d) * _lane(room, n, INVERSES, j))
        _put(room, n, COUNTS, j, alpha)
        _put(room, n, SLOPES, j, _lane(room, n, SLOPES, j) + follow)
    farthest = greater(farthest, magnitude(grown) * w)
    pull = 1.0 / (left + (followed(grown, g, bend, third) - follows))
    # Slopes of large ones are told by their pseudo-counts, so these need not be known.
    is_large = least >= LARGE
    is_known = is_large | (moved < MOST_FOLLOWED)
    is_done = is_known & (least > 0.0) & (FARTHEST >= farthest) & (pull > 0.0) & (after > 0.0)
    put_from(room, OF_NODES * n * N_LANES, after)
    put_from(room, (OF_NODES * n + 1) * N_LANES, pull)
    put_from(room, (OF_NODES * n + 2) * N_LANES, where(is_large, 0.0 * r, moved + farthest))
    return bits_of(is_done)


@kernel
def filter_block(entry, node, starts, block, n_nodes, room, shares):
    """Update n_nodes nodes of the same number of children, which `put_node` has put into room: block[k] is the k-th's operation."""
    n = starts[block[0] + 1] - starts[block[0]]
    done = _curved(room, n)
    first = OF_NODES * n * N_LANES
    for k in range(n_nodes):
        i = block[k]
        begin = starts[i]
        if (done >> k) & 1:
            total = room[first + k]
            inverse = 1.0 / total
            for j in range(n):
                alpha = room[(COUNTS * n + j) * N_LANES + k]
                entry[COUNT, begin + j], entry[WEIGHT, begin + j] = alpha, alpha * inverse
                entry[SLOPE, begin + j] = room[(SLOPES * n + j) * N_LANES + k]
            node[TOTAL, i], node[PULL, i] = total, room[first + N_LANES + k]
            node[MOVED, i] = room[first + 2 * N_LANES + k]
            continue
        for j in range(n):
            shares[0, j] = room[(SHARES * n + j) * N_LANES + k]
        project(entry, node, i, begin, begin + n, room[first + 3 * N_LANES + k], ADF, shares)
        if node[MOVED, i] > 0.0:  # slopes of before the step
            node[MOVED, i] = UNKNOWN
