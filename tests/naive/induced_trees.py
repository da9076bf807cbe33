"""Circuits from the definitions: derivatives, marginals and all induced trees; rows are dicts without what is missing."""

import math
from functools import cache

import numpy as np

from learners.circuits.kernels import PRODUCT, SUM
from tests.naive.map import leaf_value, node_values


def derivative(circuit, row, node):
    """Of the root by a node: the root is linear in each node's value."""
    return node_values(circuit, row, {node: 1.0})[-1] - node_values(circuit, row, {node: 0.0})[-1]


def marginal(row, values):
    """Sum of the values {codes: value} of all complete assignments that agree with a row."""
    return math.fsum(value for codes, value in values.items() if row.items() <= dict(enumerate(codes)).items())


def induced_trees(circuit, row):
    """All induced trees of the circuit at a row: (value, the edges of sums in it, the nodes in it)."""

    @cache
    def below(node):
        if circuit.kind[node] not in (SUM, PRODUCT):
            return [(leaf_value(circuit, node, row.get(int(circuit.variable[node]))), frozenset(), frozenset([node]))]
        edges = range(circuit.child_starts[node], circuit.child_starts[node + 1])
        if circuit.kind[node] == SUM:
            return [
                (math.exp(circuit.log_weight[e]) * value, chosen | {e}, nodes | {node})
                for e in edges
                for value, chosen, nodes in below(int(circuit.children[e]))
            ]
        trees = [(1.0, frozenset(), frozenset([node]))]
        for e in edges:
            trees = [(a * b, x | y, s | t) for a, x, s in trees for b, y, t in below(int(circuit.children[e]))]
        return trees

    return below(circuit.root)


def posteriors(circuit, row):
    """Posterior probability of every edge of a sum and of every node to be in the induced tree."""
    trees = induced_trees(circuit, row)
    total = math.fsum(value for value, _, _ in trees)
    edges, nodes = np.zeros(circuit.n_edges), np.zeros(circuit.n_nodes)
    for value, chosen, inside in trees:
        edges[list(chosen)] += value / total
        nodes[list(inside)] += value / total
    return edges, nodes


def one_step_moments(circuit, alpha, row):
    """E[w], E[w²] and E[log w] under the mixture, over all induced trees, of the Dirichlets with the tree counted."""
    from scipy.special import psi

    edges_of = [range(circuit.child_starts[k], circuit.child_starts[k + 1]) for k in range(circuit.n_nodes)]
    sums = [k for k in range(circuit.n_nodes) if circuit.kind[k] == SUM]
    total = {k: math.fsum(alpha[e] for e in edges_of[k]) for k in sums}
    log_weight = np.zeros(circuit.n_edges)
    for k in sums:
        for e in edges_of[k]:
            log_weight[e] = math.log(alpha[e] / total[k])
    prior = circuit.with_parameters(log_weight)
    of_edge, of_node = posteriors(prior, row)
    moments = np.full((3, circuit.n_edges), np.nan)
    for k in sums:
        for e in edges_of[k]:
            moments[:, e] = 0.0
            shares = {(1, 1): of_edge[e], (0, 1): of_node[k] - of_edge[e], (0, 0): 1.0 - of_node[k]}
            for (more_a, more_s), share in shares.items():
                a, s = alpha[e] + more_a, total[k] + more_s
                moments[:, e] += share * np.array([a / s, a * (a + 1) / (s * (s + 1)), psi(a) - psi(s)])
    return moments
