"""Top-down sampling of rows from a circuit."""

from __future__ import annotations

import numpy as np

from learners.circuits.evaluation.density_kernels import inverse_transform_leaf_value, log_poisson, nearest_grid_value
from learners.circuits.evaluation.evaluate_kernels import SMALLEST
from learners.circuits.kernels import CATEGORICAL, GAUSSIAN, INDICATOR, POISSON, PRODUCT, ROUNDED, STEP, STUDENT, SUM
from learners.circuits.queries.posterior_kernels import upward_node_values
from learners.kernels.jit import inner_kernel, kernel
from learners.kernels.random import random_bits

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
# Below this rate a Poisson number is found by adding up probabilities, from it on by transformed rejection.
LARGE_RATE = 10.0


@kernel
def draw_uniform(state):
    """Draw a number in the open interval (0, 1); advances state (1,) uint64.

    References: Steele, Lea, Flood (2014), Fast splittable pseudorandom number generators, section 2.
    """
    state[0] += GOLDEN
    return (np.float64(random_bits(state[0]) >> np.uint64(12)) + 0.5) * (1.0 / 4503599627370496.0)


@kernel
def draw_normal(state):
    """Draw a standard normal number, by Box and Muller (1958)."""
    radius = np.sqrt(-2.0 * np.log(draw_uniform(state)))
    return radius * np.cos(2.0 * np.pi * draw_uniform(state))


@kernel
def draw_poisson(rate, state):
    """Draw a Poisson number; for large rates by Hörmann (1993), The transformed rejection method, algorithm PTRS."""
    if rate < LARGE_RATE:
        k, p, u = 0.0, np.exp(-rate), draw_uniform(state)
        while u > p and k < 1000.0:
            u -= p
            k += 1.0
            p *= rate / k
        return k
    b = 0.931 + 2.53 * np.sqrt(rate)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    v_r = 0.9277 - 3.6224 / (b - 2.0)
    while True:
        u = draw_uniform(state) - 0.5
        v = draw_uniform(state)
        u_s = 0.5 - abs(u)
        k = np.floor((2.0 * a / u_s + b) * u + rate + 0.43)
        if u_s >= 0.07 and v <= v_r:
            return k
        if k < 0.0 or (u_s < 0.013 and v > u_s):
            continue
        if np.log(v * inverse_alpha / (a / (u_s * u_s) + b)) <= log_poisson(rate, k):
            return k


@inner_kernel
def draw_leaf_value(kind, n, parameters, first, state):
    """Draw a value of a leaf's variable."""
    a = parameters[first]
    if kind == INDICATOR:
        return a
    if kind == CATEGORICAL:
        u = draw_uniform(state)
        last = 0
        for value in range(n):
            p = parameters[first + value]
            if p > 0.0:
                last = value
                u -= p
                if u < 0.0:
                    break
        return np.float64(last)
    if kind == GAUSSIAN:
        return a + parameters[first + 1] * draw_normal(state)
    if kind == POISSON:
        return draw_poisson(a, state)
    if kind >= ROUNDED:
        x = inverse_transform_leaf_value(
            np.int64(kind), parameters, first + 2, a + parameters[first + 1] * draw_normal(state)
        )
        return nearest_grid_value(parameters, first + 2, x) if parameters[first + 2 + STEP] > 0.0 else x
    if kind == STUDENT:
        freedom = parameters[first + 2]
        # Bailey (1994), Polar generation of random variates with the t-distribution: the product of radius and angle.
        radius = np.sqrt(freedom * (draw_uniform(state) ** (-2.0 / freedom) - 1.0))
        return a + parameters[first + 1] * radius * np.cos(2.0 * np.pi * draw_uniform(state))
    return -np.log(draw_uniform(state)) / a


@inner_kernel
def choose_child_edge(weight, values, children, first, last, u):
    """Choose a child edge of a sum, in proportion to its weight (n_edges,) times its value (n_nodes,), by the number u."""
    chosen = first
    for e in range(first, last):
        share = weight[e] * values[children[e]]
        if share > 0.0:
            chosen = e
            u -= share
            if u < 0.0:
                break
    return chosen


@kernel
def sample_missing_in_row(arrays, weight, values, seed, row, stack, out):
    """Fill the NaNs in OUT out (n_draws, n_variables) of a row, by following an induced tree from the root for each
    draw.

    Children of sums are chosen by `choose_child_edge`. A draw depends on its seed, row and number. stack
    (n_nodes,) int64 is scratch.
    """
    child_starts, children, kinds = arrays.child_starts, arrays.children, arrays.kind
    variable, n_values = arrays.variable, arrays.n_values
    leaf_starts, parameters = arrays.leaf_starts, arrays.parameters
    state = np.empty(1, np.uint64)
    for i in range(out.shape[0]):
        state[0] = random_bits(random_bits(random_bits(seed + GOLDEN) + np.uint64(row)) + np.uint64(i))
        stack[0] = kinds.size - 1
        depth = 1
        while depth:
            depth -= 1
            node = stack[depth]
            kind = kinds[node]
            first, last = child_starts[node], child_starts[node + 1]
            if kind == SUM:
                u = draw_uniform(state) * values[node]
                stack[depth] = children[choose_child_edge(weight, values, children, first, last, u)]
                depth += 1
            elif kind == PRODUCT:
                for e in range(first, last):
                    stack[depth] = children[e]
                    depth += 1
            else:
                v = variable[node]
                if np.isnan(out[i, v]):
                    out[i, v] = draw_leaf_value(kind, n_values[v], parameters, leaf_starts[node], state)


@kernel
def sample_missing_in_rows(arrays, x, seed, places, values, stack, out):
    """Draw samples for every row of x; OUT out (n_rows, n_draws, n_variables), whose first entry is -inf if the root is
    too small.

    places (n_rows,) int64 are the rows' numbers; values (n_nodes,) float64 and stack (n_nodes,) int64 are scratch.
    """
    for row in range(x.shape[1]):
        upward_node_values(arrays, x, row, values)
        if not values[values.size - 1] > SMALLEST:
            out[row, 0, 0] = -np.inf
            continue
        sample_missing_in_row(arrays, arrays.weight, values, seed, places[row], stack, out[row])
