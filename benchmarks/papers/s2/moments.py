"""Moments of all weights after one row: right, and linear in the size of the network."""

from __future__ import annotations

import time

import numpy as np

from benchmarks import map_circuits
from benchmarks.papers.page import Measured, Page, table
from benchmarks.papers.s2.published import arrays_of, edge_shares, normalised, of_sums, random_counts
from learners.circuits.circuit import Circuit
from learners.circuits.kernels import INDICATOR, PRODUCT, SUM

FUNCTIONS = {"w": lambda a, b: a / (a + b), "w²": lambda a, b: a * (a + 1) / ((a + b) * (a + b + 1))}


def small_network(seed: int) -> Circuit:
    """Three variables; products share their children, so that it is no tree."""
    rng = np.random.default_rng(seed)
    nodes = [(INDICATOR, v, [value], [], []) for v in range(3) for value in range(2)]
    for v in range(3):
        nodes += [(SUM, -1, [], [2 * v, 2 * v + 1], [p, 1 - p]) for p in rng.random(2)]
    mixed = len(nodes)
    nodes += [(PRODUCT, -1, [], [6 + int(a), 8 + int(b)], [1.0, 1.0]) for a, b in rng.integers(0, 2, (3, 2))]
    share = rng.dirichlet(np.ones(3))
    nodes.append((SUM, -1, [], [mixed, mixed + 1, mixed + 2], share.tolist()))
    nodes += [(PRODUCT, -1, [], [mixed + 3, 10 + c], [1.0, 1.0]) for c in range(2)]
    nodes.append((SUM, -1, [], [mixed + 4, mixed + 5], [0.4, 0.6]))
    return map_circuits.built(nodes, [2, 2, 2])


def induced_trees(circuit: Circuit, node: int) -> list[tuple[frozenset[int], dict[int, int]]]:
    """Every induced tree below a node: the edges of its sums, and the value of each variable."""
    first, last = circuit.child_starts[node], circuit.child_starts[node + 1]
    if circuit.kind[node] == INDICATOR:
        value = int(circuit.leaf_parameters[circuit.leaf_starts[node]])
        return [(frozenset(), {int(circuit.variable[node]): value})]
    if circuit.kind[node] == SUM:
        return [
            (edges | {e}, values)
            for e in range(first, last)
            for edges, values in induced_trees(circuit, int(circuit.children[e]))
        ]
    trees: list[tuple[frozenset[int], dict[int, int]]] = [(frozenset(), {})]
    for e in range(first, last):
        below = induced_trees(circuit, int(circuit.children[e]))
        trees = [(edges | more, {**values, **others}) for edges, values in trees for more, others in below]
    return trees


def largest_errors(seed: int) -> tuple[float, float]:
    """Return the errors of E[w] and E[w²] after one row against all induced trees: by three cases, and by the two of equation 12."""
    circuit, rng = small_network(seed), np.random.default_rng(seed)
    counts = 3 * random_counts(circuit, seed)
    weight, x = normalised(circuit, counts), rng.integers(0, 2, 3)
    kind, starts, children, variable, value = arrays_of(circuit)
    values, derivatives, shares = np.empty(circuit.n_nodes), np.empty(circuit.n_nodes), np.zeros(circuit.n_edges)
    edge_shares(kind, starts, children, weight, variable, value, x, values, derivatives, shares)
    trees = [
        edges
        for edges, of_tree in induced_trees(circuit, circuit.n_nodes - 1)
        if all(of_tree[v] == x[v] for v in range(3))
    ]
    masses = np.array([np.prod(weight[list(edges)]) for edges in trees])
    parent = np.repeat(np.arange(circuit.n_nodes), np.diff(starts))
    totals = np.bincount(parent, counts, circuit.n_nodes)
    worst, worst_of_two = 0.0, 0.0
    for e in np.flatnonzero(of_sums(circuit)).tolist():
        a, rest = counts[e], totals[parent[e]] - counts[e]
        siblings = {f for f in range(circuit.n_edges) if parent[f] == parent[e]}
        by_trees = {f for f in siblings if f != e}
        for function in FUNCTIONS.values():
            # Under a tree each sum on it has one row more on its edge; the others keep their prior.
            means = [function(a + (e in edges), rest + len(by_trees & edges)) for edges in trees]
            of_trees = float(np.average(means, weights=masses))
            node_share = shares[list(siblings)].sum()
            prior, own, other = function(a, rest), function(a + 1, rest), function(a, rest + 1)
            by_shares = (1 - node_share) * prior + shares[e] * own + (node_share - shares[e]) * other
            worst = max(worst, abs(of_trees - by_shares))
            of_two = (1 - shares[e]) * prior + shares[e] * own
            worst_of_two = max(worst_of_two, abs(of_trees - of_two))
    return worst, worst_of_two


def measure(is_quick: bool) -> Measured:
    """Errors on small networks, and nanoseconds an edge on larger ones."""
    n_networks, n_rows = (20, 200) if is_quick else (200, 2_000)
    errors = np.max([largest_errors(seed) for seed in range(n_networks)], axis=0)
    rows = []
    for name in ("nltcs", "plants", "plants_rat"):
        circuit = map_circuits.circuit(name)
        kind, starts, children, variable, value = arrays_of(circuit)
        weight, x = np.exp(circuit.log_weight), np.zeros(circuit.n_variables, np.int64)
        values, derivatives, shares = np.empty(circuit.n_nodes), np.empty(circuit.n_nodes), np.zeros(circuit.n_edges)
        own = (kind, starts, children, weight, variable, value, x, values, derivatives, shares)
        edge_shares(*own)
        started = time.process_time()
        for _ in range(n_rows):
            edge_shares(*own)
        seconds = (time.process_time() - started) / n_rows
        widest = int(np.diff(starts)[circuit.kind == PRODUCT].max())
        rows.append(
            [name, f"{circuit.n_edges:,}", widest, f"{1e6 * seconds:.1f}", f"{1e9 * seconds / circuit.n_edges:.1f}"]
        )
    text = [
        "Theorem 2: all moments in time and space linear in the size of the network. The paper has no table.",
        "",
        f"Largest difference to the moments by enumeration of all induced trees, over {n_networks} networks that are not trees: {errors[0]:.1e} "
        f"with three cases for a weight (its own edge counts one row more, another edge of its sum does, or none), "
        f"{errors[1]:.1e} with the two of equation 12 read literally, which leave the second to the prior.",
        "",
    ]
    heads = ["circuit", "edges", "widest product", "µs a row, all edges", "ns an edge"]
    return Measured(
        text + table(heads, rows),
        "small networks drawn at random, and three circuits of the data folder.",
        f"0 to {n_networks - 1}",
        "the largest difference; times are means over rows, in CPU seconds of one thread.",
        (
            "the derivative of a product's child multiplies the other children, which is quadratic in the width of a product",
        ),
    )


PAGE = Page("S2", "s2-moments", "Algorithm 1 and theorem 2: moments in linear time", measure)
