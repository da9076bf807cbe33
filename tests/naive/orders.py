"""Posteriors over structures by their definition: every graph, every order."""

import itertools
import math
from collections import Counter
from functools import lru_cache

import numpy as np
from scipy.special import multigammaln


def is_acyclic(parents):
    """Whether a graph, given as the parents of each node, has an order."""
    left = set(range(len(parents)))
    while left:
        sources = {node for node in left if not left & set(parents[node])}
        if not sources:
            return False
        left -= sources
    return True


@lru_cache
def all_graphs(d):
    """Every acyclic graph of d nodes, as the parents of each node: 1, 3, 25, 543, 29,281."""
    sets = [
        [parents for n in range(d) for parents in itertools.combinations([j for j in range(d) if j != node], n)]
        for node in range(d)
    ]
    found = []
    stack = [()]
    while stack:
        graph = stack.pop()
        if len(graph) == d:
            found.append(graph)
            continue
        for parents in sets[len(graph)]:
            longer = (*graph, parents)
            if is_acyclic(longer + ((),) * (d - len(longer))):
                stack.append(longer)
    return found


def n_orders(parents):
    """How many orders a graph has."""
    d = len(parents)
    count = {frozenset(): 1}
    for _ in range(d):
        following = {}
        for first, n in count.items():
            for node in range(d):
                if node not in first and set(parents[node]) <= first:
                    longer = first | {node}
                    following[longer] = following.get(longer, 0) + n
        count = following
    return count[frozenset(range(d))]


def graph_posterior(log_family, d, order_prior=True, present=(), absent=()):
    """Every graph with the given edges and its probability; log_family(node, parents) is a log score."""
    graphs = [
        graph
        for graph in all_graphs(d)
        if all(a in graph[b] for a, b in present) and not any(a in graph[b] for a, b in absent)
    ]
    logs = [
        sum(log_family(node, parents) for node, parents in enumerate(graph))
        + (math.log(n_orders(graph)) if order_prior else 0.0)
        for graph in graphs
    ]
    top = max(logs)
    weights = np.exp(np.array(logs) - top)
    return graphs, weights / weights.sum(), top + math.log(weights.sum())


def edge_probabilities(graphs, weights, d):
    """[i, j]: the probability of the edge from i to j."""
    found = np.zeros((d, d))
    for graph, weight in zip(graphs, weights, strict=True):
        for node, parents in enumerate(graph):
            for parent in parents:
                found[parent, node] += weight
    return found


def ancestor_matrix(parents):
    """[i, j]: whether there is a directed path from i to j."""
    d = len(parents)
    one_step = edge_probabilities([parents], [1], d)
    return np.linalg.matrix_power(np.eye(d) + one_step, d) > np.eye(d)


def effect_matrix(parents, r):
    """[i, j]: the sum over directed paths from i to j of the products of mean regression coefficients."""
    d = len(parents)
    b = np.zeros((d, d))
    for node, above in enumerate(parents):
        above = list(above)
        if above:
            b[above, node] = np.linalg.solve(r[np.ix_(above, above)], r[above, node])
    return np.linalg.inv(np.eye(d) - b)


def bge_of_set(x, members, alpha_mu, alpha_w, t):
    """Log marginal likelihood of some columns of x (n, d) under the complete graph; Kuipers, Moffa, Heckerman (2014), (4)."""
    n, d = x.shape
    size = len(members)
    if not size:
        return 0.0
    x = x[:, members]
    mean = x.mean(axis=0)
    deviations = x - mean
    r = t * np.eye(size) + deviations.T @ deviations + n * alpha_mu / (n + alpha_mu) * np.outer(mean, mean)
    return (
        -size * n / 2 * math.log(math.pi)
        + size / 2 * math.log(alpha_mu / (n + alpha_mu))
        + multigammaln((n + alpha_w - d + size) / 2, size)
        - multigammaln((alpha_w - d + size) / 2, size)
        + (alpha_w - d + size) / 2 * size * math.log(t)
        - (n + alpha_w - d + size) / 2 * np.linalg.slogdet(r)[1]
    )


def naive_bdeu(codes, sizes, ess):
    """log p(node | parents) of codes (d, n) by definition; Heckerman, Geiger, Chickering (1995), equation (35)."""

    def log_family(node, parents):
        q = math.prod(int(sizes[parent]) for parent in parents)
        r = int(sizes[node])
        of_parents = Counter(zip(*(codes[parent].tolist() for parent in parents), strict=True) if parents else [])
        if not parents:
            of_parents = Counter({(): codes.shape[1]})
        of_both = Counter(zip(*(codes[column].tolist() for column in (*parents, node)), strict=True))
        total = sum(math.lgamma(ess / q) - math.lgamma(ess / q + n) for n in of_parents.values())
        return total + sum(math.lgamma(ess / (q * r) + n) - math.lgamma(ess / (q * r)) for n in of_both.values())

    return log_family
