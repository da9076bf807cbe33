"""Hidden trees by the sum over all states of all variables."""

import itertools
import math

import numpy as np


def log_likelihoods_and_counts(tree, codes):
    """The log likelihood of each row of codes (n, n_rows), and expected counts like the prior, weights and leaves."""
    n_states, n = tree.prior.size, codes.shape[0]
    root = int(np.flatnonzero(tree.tree.parent < 0)[0])
    logs, counts = [], tuple(np.zeros(part.shape) for part in (tree.prior, tree.weights, tree.leaves))
    for row in codes.T:
        worlds = {}
        for states in itertools.product(range(n_states), repeat=n):
            p = tree.prior[states[root]]
            for v in range(n):
                if v != root:
                    p *= tree.weights[v, states[tree.tree.parent[v]], states[v]]
                if row[v] >= 0:
                    p *= tree.leaves[tree.starts[v] + row[v], states[v]]
            worlds[states] = p
        total = math.fsum(worlds.values())
        logs.append(math.log(total))
        for states, p in worlds.items():
            counts[0][states[root]] += p / total
            for v in range(n):
                if v != root:
                    counts[1][v, states[tree.tree.parent[v]], states[v]] += p / total
                if row[v] >= 0:
                    counts[2][tree.starts[v] + row[v], states[v]] += p / total
    return np.array(logs), counts
