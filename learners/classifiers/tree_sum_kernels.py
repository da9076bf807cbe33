"""Sums over all spanning trees, without subtraction, for any range of weights."""

from __future__ import annotations

import numpy as np

from learners.kernels.jit import inner_kernel, kernel
from learners.kernels.scaled_arithmetic import BIG, NOTHING, SMALL, STEP, scaled_add, scaled_log, scaled_multiply


@inner_kernel
def _normal(m, e):
    """Normalize the number m 2^(256 e) so that its mantissa is in range."""
    if m == 0.0:
        return 0.0, np.int64(NOTHING)
    while m < 1.0:
        m *= BIG
        e -= 1
    while m >= BIG:
        m *= SMALL
        e += 1
    return m, e


@inner_kernel
def log_spanning_tree_sum(m, e):
    """Compute the log of the sum, over all spanning trees, of the products of their edges' weights m 2^(256 e);
    destroys both.

    m (n, n) float64, e (n, n) int64, of which the entries above the diagonal are used. Nodes are eliminated one
    by one: a node's edges become edges between its neighbours, with weight w_ik w_kj / the sum of w_k; the result
    is the product of these sums. Without subtraction, all digits are accurate however different the weights are.

    References: Kirchhoff (1847); Grassmann, Taksar, Heyman (1985), Regenerative analysis and steady state distributions.
    """
    n = m.shape[0]
    total, top = 1.0, np.int64(0)
    for k in range(n - 1, 0, -1):
        s, f = m[0, k], e[0, k]
        for i in range(1, k):
            s, f = scaled_add(s, f, m[i, k], e[i, k])
        if s == 0.0:
            return -np.inf
        total, top = scaled_multiply(total, top, s, f)
        for i in range(k):
            if m[i, k] == 0.0:
                continue
            share, g = _normal(m[i, k] / s, e[i, k] - f)
            for j in range(i + 1, k):
                w, h = scaled_multiply(share, g, m[j, k], e[j, k])
                m[i, j], e[i, j] = scaled_add(m[i, j], e[i, j], w, h)
    return scaled_log(total, top)


@kernel
def add_log_spanning_tree_sums(x, starts, sizes, ratios, mantissa, exponent, alone, alone_starts, out):
    """Add to the log joint of each row and class the terms of its values and of the trees over them.

    x (n, rows) codes, a code of sizes[i] or more is left out; starts (n, n) int64: offset of the table
    (v_i, v_j, c) of a pair i < j in ratios, the shares p(x_i, x_j | y) / p(x_i | y) p(x_j | y); mantissa (n, n),
    exponent (n, n) of the edge weights; alone (…,) log p(x_i | y), tables (v_i, c) from alone_starts on; IN/OUT
    out (rows, c) float64.
    """
    n, n_classes = x.shape[0], out.shape[1]
    m, e = np.zeros((n, n)), np.zeros((n, n), np.int64)
    for row in range(out.shape[0]):
        for y in range(n_classes):
            for i in range(n):
                a = np.int64(x[i, row])
                is_known = a < sizes[i]
                if is_known:
                    out[row, y] += alone[alone_starts[i] + a * n_classes + y]
                for j in range(i + 1, n):
                    m[i, j], e[i, j] = mantissa[i, j], exponent[i, j]
                    b = np.int64(x[j, row])
                    if is_known and b < sizes[j]:
                        r = ratios[starts[i, j] + (a * sizes[j] + b) * n_classes + y]
                        m[i, j], e[i, j] = _normal(m[i, j] * r, e[i, j])
            out[row, y] += log_spanning_tree_sum(m, e)


@kernel
def log_spanning_tree_sum_of_logs(logs):
    """Compute `log_spanning_tree_sum` of log weights (n, n) above the diagonal; -inf means no edge."""
    n = logs.shape[0]
    m, e = np.zeros((n, n)), np.full((n, n), NOTHING, np.int64)
    for i in range(n):
        for j in range(i + 1, n):
            if logs[i, j] > -np.inf:
                f = np.floor(logs[i, j] / STEP)
                m[i, j] = max(1.0, np.exp(logs[i, j] - f * STEP))
                e[i, j] = np.int64(f)
    return log_spanning_tree_sum(m, e)
