"""Kernels for causal effects, ancestors, and regressions on sets of candidates, over graphs and lattice steps."""

from __future__ import annotations

import numpy as np

from learners.kernels.intrinsics import popcount
from learners.kernels.jit import kernel
from learners.kernels.scaled_arithmetic import scaled_add, scaled_divide


@kernel
def graph_causal_effects(r, orders, parents, chi_square, normals, means, draws):
    """Compute the effect of every node on every other in each graph.

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
            # The Cholesky factor of the parents' part.
            for i in range(n):
                for j in range(i + 1):
                    total = r[members[i], members[j]]
                    for t in range(j):
                        total -= triangle[i, t] * triangle[j, t]
                    triangle[i, j] = np.sqrt(total) if i == j else total / triangle[j, j]
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


@kernel
def subset_regression_coefficients(r, work, betas):
    """Compute the regression of a node on every set of candidates, by the sweep operator.

    r (k + 1, k + 1) float64: the scale matrix of the candidates and then of the node; work (k + 1, k + 1, k + 1)
    scratch; OUT betas (2^k, k), zero for candidates that are not in the set.
    """
    k = r.shape[0] - 1
    at = np.full(k + 1, k, np.int64)
    for i in range(k + 1):
        for j in range(k + 1):
            work[k, i, j] = r[i, j]
    for index in range(1 << k):
        # The lowest bit that is set is the highest that has changed.
        highest = np.int64(popcount(np.uint64((index & -index) - 1))) if index > 0 else k - 1
        for b in range(highest, -1, -1):
            at[b] = at[b + 1]
            if (index >> b) & 1:
                above, out = work[at[b + 1]], work[b]
                pivot = above[b, b]
                for i in range(k + 1):
                    if i != b:
                        factor = above[i, b] / pivot
                        for j in range(k + 1):
                            out[i, j] = above[i, j] - factor * above[b, j]
                        out[i, b] = -factor
                for j in range(k + 1):
                    out[b, j] = above[b, j] / pivot
                out[b, b] = 1.0 / pivot
                at[b] = b
        swept = work[at[0]]
        for j in range(k):
            betas[index, j] = swept[j, k] if (index >> j) & 1 else 0.0


@kernel
def average_over_subsets(betas, m, e):
    """Replace betas[S] by the mean of betas over the subsets of S, weighted by m 2^(256 e), which is replaced by its
    sums.

    betas (2^k, k), m (2^k,), e (2^k,); all in place.
    """
    h = 1
    while h < m.size:
        for base in range(0, m.size, 2 * h):
            for lo in range(base, base + h):
                hi = lo + h
                total, top = scaled_add(m[lo], np.int64(e[lo]), m[hi], np.int64(e[hi]))
                if total == 0.0:
                    continue
                share = scaled_divide(m[lo], np.int64(e[lo]), total, top)
                for j in range(betas.shape[1]):
                    betas[hi, j] += share * (betas[lo, j] - betas[hi, j])
                m[hi] = total
                e[hi] = top
        h *= 2


@kernel
def source_causal_effects(source, lattice, shares, betas, beta_starts, scores_starts, candidates, effects):
    """Compute the mean effect of a source on every node, given the nodes that come first.

    betas flat: node i's (2^k_i, k_i) table from beta_starts[i] on; scores_starts (d + 1,) of `FamilyScores`; candidates
    (d, most) int64, -1 where there are fewer; OUT effects (n, d), zeros at first: the last row is of all nodes.
    """
    d = effects.shape[1]
    for s in range(lattice.sets.size):
        has_source = (lattice.sets[s] >> np.uint64(source)) & np.uint64(1)
        for edge in range(lattice.starts[s], lattice.starts[s + 1]):
            node, target, share = lattice.nodes[edge], lattice.targets[edge], shares[edge]
            if share == 0.0:
                continue
            if node == source:
                effects[target, node] += share
            elif has_source:
                for other in range(d):
                    effects[target, other] += share * effects[s, other]
                k = 0
                while k < candidates.shape[1] and candidates[node, k] >= 0:
                    k += 1
                first = beta_starts[node] + (lattice.places[edge] - scores_starts[node]) * k
                through = 0.0
                for j in range(k):
                    through += effects[s, candidates[node, j]] * betas[first + j]
                effects[target, node] += share * through


@kernel
def descendant_probabilities(source, d, lattice, shares, alpha, exponent, starts, byte_places, ternary, p):
    """Compute the probability that each node is a descendant of a source, over the lattice of all orders.

    p[t(S) + t(D)] is the probability of the set D of the source's descendants (including itself) among the first
    nodes S, given S; t adds up powers of three. shares of `lattice_kernels.lattice_step_probabilities`; ternary
    (2^d,) int64; OUT p (3^d,), initially zero.

    References: Parviainen, Koivisto (2011), Ancestor relations in the presence of unobserved variables, section 4.
    """
    p[0] = 1.0
    for s in range(lattice.sets.size):
        has_source = (s >> source) & 1
        for edge in range(lattice.starts[s], lattice.starts[s + 1]):
            share = shares[edge]
            if share == 0.0:
                continue
            node, place = lattice.nodes[edge], lattice.places[edge]
            power = ternary[1 << node]
            target = ternary[lattice.targets[edge]]
            if not has_source:
                p[target + (power if node == source else 0)] += share * p[ternary[s]]
                continue
            rest = s ^ (1 << source)
            within = rest
            while True:
                descendants = within | (1 << source)
                value = p[ternary[s] + ternary[descendants]]
                if value > 0.0:
                    free = starts[node]
                    outside = s & ~descendants
                    for byte in range(byte_places.shape[1]):
                        free += byte_places[node, byte, (outside >> (8 * byte)) & 255]
                    none = scaled_divide(alpha[free], np.int64(exponent[free]), alpha[place], np.int64(exponent[place]))
                    p[target + ternary[descendants]] += share * value * none
                    p[target + ternary[descendants] + power] += share * value * max(0.0, 1.0 - none)
                if within == 0:
                    break
                within = (within - 1) & rest
