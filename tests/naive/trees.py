"""Averages over trees by their definition: every tree."""

import itertools

import networkx as nx
import numpy as np

from tests.naive.orders import naive_bdeu


def all_trees(n):
    """The edges i < j of each of the n^(n - 2) trees over n nodes, by their Prüfer sequences."""
    if n <= 2:
        return [tuple(itertools.combinations(range(n), 2))]
    trees = map(nx.from_prufer_sequence, itertools.product(range(n), repeat=n - 2))
    return [tuple((min(edge), max(edge)) for edge in tree.edges) for tree in trees]


def log_likelihood(x, y, sizes, n_classes, edges, ess):
    """Log marginal likelihood of codes x (n, rows) and classes y given a tree, directed away from node 0."""
    log_family = naive_bdeu(np.vstack([y, x]), [n_classes, *sizes], ess)
    parents = {node + 1: (0,) if parent is None else (0, parent + 1) for node, parent in directed(len(sizes), edges)}
    return log_family(0, ()) + sum(log_family(node, above) for node, above in parents.items())


def directed(n, edges):
    """(node, parent) of a tree directed away from node 0."""
    below = nx.bfs_edges(nx.Graph(list(edges)), 0) if edges else ()
    return [(0, None)][:n] + [(node, parent) for parent, node in below]


def class_posterior(x, y, sizes, n_classes, ess, row):
    """P(y | row) averaged over all trees: how much the row, with each class, raises the marginal likelihood."""
    logs = np.empty((n_classes, len(all_trees(len(sizes)))))
    for k in range(n_classes):
        more_x, more_y = np.concatenate([x, row[:, np.newaxis]], axis=1), np.append(y, k)
        for t, edges in enumerate(all_trees(len(sizes))):
            logs[k, t] = log_likelihood(more_x, more_y, sizes, n_classes, edges, ess)
    logs = np.logaddexp.reduce(logs, axis=1)
    return np.exp(logs - np.logaddexp.reduce(logs))
