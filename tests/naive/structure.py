"""Structures of network classifiers, from (conditional) mutual information given as lists."""

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
    """Kruskal's algorithm: the set of undirected edges (i, j), i < j."""
    n = len(between)
    group = list(range(n))
    edges = set()
    candidates = [(i, j) for i in range(n) for j in range(i + 1, n)]
    for edge in sorted(candidates, key=lambda edge: -between[edge[0]][edge[1]]):
        kept, absorbed = group[edge[0]], group[edge[1]]
        if kept != absorbed:
            edges.add(edge)
            group = [kept if g == absorbed else g for g in group]
    return edges


def weight(between, edges):
    """Sum of the information on the edges of a tree."""
    return sum(between[i][j] for i, j in edges)


def is_unique_tree(between, edges):
    """Whether every edge outside the tree is lighter than all edges on the path that it would close."""
    n = len(between)
    neighbours = {i: [] for i in range(n)}
    for i, j in edges:
        neighbours[i].append(j)
        neighbours[j].append(i)
    for source in range(n):
        lightest, pending = {source: float("inf")}, [source]
        while pending:
            i = pending.pop()
            for j in neighbours[i]:
                if j not in lightest:
                    lightest[j] = min(lightest[i], between[i][j])
                    pending.append(j)
        for target in range(n):
            edge = (min(source, target), max(source, target))
            if target != source and edge not in edges and not _is_more(lightest[target], between[source][target]):
                return False
    return True


def directed_from(root, edges, n):
    """The parent of every node when the edges point away from the root; None for the root."""
    parent, pending = {root: None}, [root]
    while pending:
        i = pending.pop()
        for j in range(n):
            if (min(i, j), max(i, j)) in edges and j not in parent:
                parent[j] = i
                pending.append(j)
    return parent


def root_of(with_class):
    """The attribute of highest I(X; Y)."""
    return _take_best(range(len(with_class)), lambda a: with_class[a])
