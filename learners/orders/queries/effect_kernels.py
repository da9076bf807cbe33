# mypy: disallow-untyped-defs=False, check-untyped-defs=False
"""Effects in single graphs, with drawn and with mean regression coefficients."""

from __future__ import annotations

import numpy as np

from learners.kernels.jit import inner_kernel, kernel


@inner_kernel
def _factor(r, members, n, triangle):
    """Cholesky factor of r restricted to members[:n]; OUT triangle."""
    for i in range(n):
        for j in range(i + 1):
            total = r[members[i], members[j]]
            for t in range(j):
                total -= triangle[i, t] * triangle[j, t]
            triangle[i, j] = np.sqrt(total) if i == j else total / triangle[j, j]


@kernel
def graph_effects(r, orders, parents, chi_square, normals, means, draws):
    """The effect of every node on every other, in each graph.

    r (d, d) the posterior scale matrix; orders (n, d) uint8 and parents (n, d) uint64 of the graphs; chi_square (n, d)
    with the degrees of freedom of each node's conditional precision; normals (n, d, d); OUT means (n, d, d): with the
    mean coefficients; draws (n, d, d): with coefficients drawn from their multivariate t distribution.

    References: Geiger, Heckerman (2002), Parameter priors for directed acyclic graphical models, theorem 5.
    """
    d = r.shape[0]
    triangle = np.empty((d, d))
    members = np.empty(d, np.int64)
    mean, drawn = np.empty(d), np.empty(d)
    for g in range(orders.shape[0]):
        means[g] = 0.0
        draws[g] = 0.0
        for step in range(d):
            node = orders[g, step]
            n = 0
            for other in range(d):
                if (parents[g, node] >> np.uint64(other)) & np.uint64(1):
                    members[n] = other
                    n += 1
            _factor(r, members, n, triangle)
            # Two triangular solves: of L z = r_i, then of L' b = z + noise.
            variance = r[node, node]
            for i in range(n):
                total = r[members[i], node]
                for t in range(i):
                    total -= triangle[i, t] * mean[t]
                mean[i] = total / triangle[i, i]
                variance -= mean[i] * mean[i]
            spread = np.sqrt(max(variance, 0.0) / chi_square[g, node])
            for i in range(n):
                drawn[i] = mean[i] + spread * normals[g, node, i]
            for i in range(n - 1, -1, -1):
                for t in range(i + 1, n):
                    mean[i] -= triangle[t, i] * mean[t]
                    drawn[i] -= triangle[t, i] * drawn[t]
                mean[i] /= triangle[i, i]
                drawn[i] /= triangle[i, i]
            means[g, node, node] = 1.0
            draws[g, node, node] = 1.0
            for i in range(n):
                for source in range(d):
                    means[g, source, node] += means[g, source, members[i]] * mean[i]
                    draws[g, source, node] += draws[g, source, members[i]] * drawn[i]
