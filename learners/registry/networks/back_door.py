"""Which columns confound a cause and its outcome: back-door paths, and what closes them."""

from __future__ import annotations

from learners.orders.lattice.graph_samples import Graph


def descendants(parents: Graph, node: int) -> set[int]:
    """The nodes that a node is an ancestor of."""
    found, new = {node}, {node}
    while new:
        new = {v for v, own in enumerate(parents) if v not in found and new.intersection(own)}
        found |= new
    return found - {node}


def adjustment_set(parents: Graph, cause: int, outcome: int) -> tuple[int, ...]:
    """Columns z by which P(outcome | do(cause)) = sum over z of P(outcome | cause, z) P(z); of which none can be left out.

    `parents`: of each node.
    `cause`, `outcome`: the outcome is no parent of the cause.

    References
    ----------
    Pearl (2009), Causality, section 3.3.1: the back-door criterion. The parents of the cause always meet it.
    """
    backward = tuple(
        tuple(parent for parent in own if parent != cause) for own in parents
    )  # without arcs out of the cause
    chosen = list(parents[cause])
    for parent in parents[cause]:
        fewer = [other for other in chosen if other != parent]
        if outcome not in connected(backward, cause, fewer):
            chosen = fewer
    return tuple(chosen)


def connected(parents: Graph, source: int, given: list[int]) -> set[int]:
    """The nodes that depend on a source given others, by the arcs.

    References
    ----------
    Koller, Friedman (2009), Probabilistic Graphical Models, algorithm 3.1.
    """
    children: list[list[int]] = [[] for _ in parents]
    for v, own in enumerate(parents):
        for parent in own:
            children[parent].append(v)
    above, queue = set[int](), list(given)
    while queue:
        node = queue.pop()
        if node not in above:
            above.add(node)
            queue += parents[node]
    known, found = set(given), set[int]()
    seen, trail = set[tuple[int, bool]](), [(source, True)]
    while trail:
        node, is_upward = step = trail.pop()
        if step in seen:
            continue
        seen.add(step)
        if node not in known:
            found.add(node)
            trail += [(child, False) for child in children[node]]
        if (is_upward and node not in known) or (not is_upward and node in above):
            trail += [(parent, True) for parent in parents[node]]
    return found
