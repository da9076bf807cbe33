"""Structures of network classifiers, from (conditional) mutual information given as lists."""

import itertools

import networkx as nx

# The documented rule for ties: information that differs by less than this is equal, and the earlier column wins.
SAME_NATS = 1e-12


def _is_more(a, b):
    return a > b + SAME_NATS


def _take_best(candidates, value):
    """The candidate of highest value, the first in column order of equal ones."""
    best = None
    for candidate in sorted(candidates):
        if best is None or _is_more(value(candidate), value(best)):
            best = candidate
    return best


def k_dependence(with_class, between, k):
    """Sahami (1996), section 3, step by step: (order, parents of each)."""
    left, order, parents = set(range(len(with_class))), [], []
    while left:
        attribute = _take_best(left, lambda a: with_class[a])
        candidates, chosen = set(order), []
        while candidates and len(chosen) < k:
            chosen.append(_take_best(candidates, lambda a, of=attribute: between[of][a]))
            candidates.remove(chosen[-1])
        order.append(attribute)
        parents.append(tuple(chosen))
        left.remove(attribute)
    return order, parents


def maximum_spanning_tree(between):
    """The set of undirected edges (i, j), i < j."""
    return {(min(edge), max(edge)) for edge in nx.maximum_spanning_edges(_graph(between), data=False)}


def _graph(between):
    pairs = itertools.combinations(range(len(between)), 2)
    graph = nx.empty_graph(len(between))
    graph.add_weighted_edges_from((i, j, between[i][j]) for i, j in pairs)
    return graph


def weight(between, edges):
    """Sum of the information on the edges of a tree."""
    return sum(between[i][j] for i, j in edges)


def is_unique_tree(between, edges):
    """Whether every edge outside the tree is lighter than all edges on the path that it would close."""
    tree = nx.Graph(list(edges))
    for i, j in set(itertools.combinations(range(len(between)), 2)) - edges:
        path = itertools.pairwise(nx.shortest_path(tree, i, j))
        if not _is_more(min(between[a][b] for a, b in path), between[i][j]):
            return False
    return True


def directed_from(root, edges):
    """The parent of every node when the edges point away from the root; None for the root."""
    tree = nx.Graph(list(edges))
    tree.add_node(root)
    return {root: None} | dict(nx.bfs_predecessors(tree, root))


def root_of(with_class):
    """The attribute of highest I(X; Y)."""
    return _take_best(range(len(with_class)), lambda a: with_class[a])
