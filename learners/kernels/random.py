"""Single-threaded random variates; every function takes a counter and returns the next one."""

from __future__ import annotations

import numpy as np

from learners.kernels.arrays import Array
from learners.kernels.jit import inner_kernel, kernel

# The tables of so many customers are drawn by inversion; beyond it, the gaps between new tables are drawn.
TABULATED = 48
STEP = np.uint64(0x9E3779B97F4A7C15)


def _seatings() -> Array:
    """Return the table [n, t] of S(n, t) / (n - 1)!, by S(n + 1, t) = S(n, t - 1) + n S(n, t)."""
    seatings = np.zeros((TABULATED + 1, TABULATED + 1))
    seatings[1, 1] = 1.0
    for n in range(1, TABULATED):
        seatings[n + 1, 1:] = seatings[n, 1:] + seatings[n, :-1] / n
    return seatings


def _ziggurat(n_layers: int, r: float, area: float) -> tuple[Array, Array]:
    """Return the right edges of the layers of equal area, the base first, and the density at them."""
    x = np.empty(n_layers + 1)
    x[0], x[1], x[n_layers] = area * np.exp(0.5 * r * r), r, 0.0
    for layer in range(2, n_layers):
        x[layer] = np.sqrt(-2.0 * np.log(area / x[layer - 1] + np.exp(-0.5 * x[layer - 1] ** 2)))
    return x, np.exp(-0.5 * x * x)


RECIPROCALS = np.concatenate([[0.0], 1.0 / np.arange(1, TABULATED + 1)])
SEATINGS = _seatings()
ZIGGURAT_R = 3.6541528853610088
ZIGGURAT_X, ZIGGURAT_F = _ziggurat(256, ZIGGURAT_R, 0.00492867323399)


# Random numbers are those of splitmix64 (Steele, Lea, Flood 2014): the state is a counter, which every function takes and
# gives back as a number, so that it stays in a register. In loops the arrays of a plan are taken out of it first: a look into
# the tuple costs two atomic operations.


@inner_kernel
def random_bits(counter):
    """Return the random uint64 at a counter."""
    z = (counter ^ (counter >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def random_bits_array(counters: Array) -> Array:
    """Return `random_bits` at each of many counters, (...) uint64."""
    with np.errstate(over="ignore"):
        z = (counters ^ (counters >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@kernel
def uniform_variate(counter):
    """Return the 53-bit number in [0, 1) at a counter."""
    return np.float64(np.int64(random_bits(counter) >> np.uint64(11))) * 1.1102230246251565e-16


@inner_kernel
def normal_variate(counter):
    """Return a standard normal variate, by the ziggurat of 256 layers (Marsaglia and Tsang 2000; Doornik 2005), and the
    next counter.
    """
    while True:
        counter += STEP
        bits = random_bits(counter)
        layer = np.int64(bits & np.uint64(255))
        u = np.float64(np.int64(bits >> np.uint64(11))) * 2.220446049250313e-16 - 1.0
        x = u * ZIGGURAT_X[layer]
        if abs(x) < ZIGGURAT_X[layer + 1]:
            return x, counter
        if layer == 0:
            while True:
                counter += STEP
                tail = -np.log(1.0 - uniform_variate(counter)) / ZIGGURAT_R
                counter += STEP
                y = -np.log(1.0 - uniform_variate(counter))
                if y + y >= tail * tail:
                    return (ZIGGURAT_R + tail if u > 0 else -ZIGGURAT_R - tail), counter
        low, high = ZIGGURAT_F[layer], ZIGGURAT_F[layer + 1]
        counter += STEP
        if low + uniform_variate(counter) * (high - low) < np.exp(-0.5 * x * x):
            return x, counter


@inner_kernel
def gamma_variate(shape, counter):
    """Return a gamma variate of rate 1 (Marsaglia and Tsang 2000), zero for shape 0, and the next counter."""
    if shape <= 0.0:
        return 0.0, counter
    boost = 1.0
    if shape < 1.0:
        counter += STEP
        boost = (1.0 - uniform_variate(counter)) ** (1.0 / shape)
        shape += 1.0
    d = shape - 1.0 / 3.0
    c = 1.0 / np.sqrt(9.0 * d)
    while True:
        x, counter = normal_variate(counter)
        v = 1.0 + c * x
        if v <= 0.0:
            continue
        v = v * v * v
        counter += STEP
        u = 1.0 - uniform_variate(counter)
        if u < 1.0 - 0.0331 * (x * x) * (x * x) or np.log(u) < 0.5 * x * x + d * (1.0 - v + np.log(v)):
            return boost * d * v, counter


@kernel
def crp_table_count_variate(n, a, counter):
    """Return the number of tables of n customers in a Chinese restaurant of concentration a, P(t) ∝ a^t S(n, t), and
    the next counter.

    Customer i (from 0) takes a new table with probability a / (a + i). For large i, candidates are drawn from
    gaps whose survival function (i / j)^c is at most the true one, and are thinned; exact for any n.
    """
    counter += STEP
    # Up to TABULATED customers by inversion: P(t) ∝ a^(t-1) S(n, t) / (n-1)!, in all ∏ (1 + a / i).
    n_seated = min(n, TABULATED)
    even, odd = 1.0, 1.0  # two products side by side: each multiplication waits for the one before it
    for k in range(1, n_seated - 1, 2):
        odd *= 1.0 + a * RECIPROCALS[k]
        even *= 1.0 + a * RECIPROCALS[k + 1]
    if n_seated % 2 == 0:
        odd *= 1.0 + a * RECIPROCALS[n_seated - 1]
    u = uniform_variate(counter) * (even * odd)
    cumulative, power = SEATINGS[n_seated, 1], 1.0
    t = np.int64(1)
    while u >= cumulative and t < n_seated:
        t += 1
        power *= a
        cumulative += SEATINGS[n_seated, t] * power
    if n <= TABULATED:
        return t, counter
    i = np.float64(TABULATED)
    c = max(a, np.log1p(a / i) / np.log1p(1.0 / i))
    while True:
        counter += STEP
        i = np.floor(i * (1.0 - uniform_variate(counter)) ** (-1.0 / c))
        if i >= n:
            return t, counter
        candidate = -np.expm1(-c * np.log1p(1.0 / i))
        counter += STEP
        t += uniform_variate(counter) * candidate * (a + i) < a
        i += 1.0
