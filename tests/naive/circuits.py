"""Circuits from the definitions: enumeration of worlds; trees, counts and tests one pair at a time."""

from __future__ import annotations

import itertools
import math

import numpy as np

from tests.naive.map import value


def worlds(circuit):
    """Every assignment of the discrete variables, as a dict."""
    domains = [range(n) if n else [None] for n in circuit.n_values.tolist()]
    for codes in itertools.product(*domains):
        yield {v: code for v, code in enumerate(codes) if code is not None}


def joint(circuit):
    """{codes: probability} of all worlds."""
    return {tuple(world.values()): value(circuit, world) for world in worlds(circuit)}


def mutual_information(x, y):
    """Of two lists of codes, None where missing."""
    pairs = [(a, b) for a, b in zip(x, y, strict=True) if a is not None and b is not None]
    n = len(pairs)
    total = 0.0
    for a, b in set(pairs):
        n_ab = pairs.count((a, b))
        n_a, n_b = sum(c == a for c, _ in pairs), sum(d == b for _, d in pairs)
        total += n_ab / n * math.log(n_ab * n / (n_a * n_b))
    return total


def spanning_trees_best(weights):
    """The total weight of the best spanning tree, by trying all sets of edges."""
    n = len(weights)
    edges = list(itertools.combinations(range(n), 2))
    best = -math.inf
    for chosen in itertools.combinations(edges, n - 1):
        group = list(range(n))
        for i, j in chosen:
            old, new = group[i], group[j]
            group = [new if g == old else g for g in group]
        if len(set(group)) <= 1:
            best = max(best, sum(weights[i][j] for i, j in chosen))
    return best


def g_test(x, y):
    """p-value of scipy's G-test of two lists of codes, NaN where missing; 1 if one is constant."""
    from scipy.stats import chi2_contingency

    known = ~(np.isnan(x) | np.isnan(y))
    _, a = np.unique(x[known], return_inverse=True)
    _, b = np.unique(y[known], return_inverse=True)
    table = np.zeros((a.max(initial=0) + 1, b.max(initial=0) + 1))
    np.add.at(table, (a, b), 1)
    if min(table.shape) < 2:
        return 1.0
    return chi2_contingency(table, correction=False, lambda_="log-likelihood").pvalue
