"""Layered layout of directed graphs: parents above their children, with few crossings.

References
----------
Sugiyama, Tagawa, Toda (1981), Methods for visual understanding of hierarchical system structures.
"""

import itertools
from collections.abc import Collection, Sequence
from graphlib import TopologicalSorter
from statistics import fmean
from typing import NamedTuple
from unicodedata import category

import numpy as np
import scipy

SWEEPS = 12
GAP = 18.0
# From the foot of a layer to the head of the next; and of a node that is no higher than its name.
BETWEEN = 52.0
HEIGHT = 26.0
# Nodes without edges fill layers as wide as the widest one, or as this.
LEAST_ROW = 900.0
BEND_WIDTH = 8.0
# Beyond so many bends, long edges are drawn straight: their bends would cost more than they clear up.
MAX_BENDS = 4_000

Edge = tuple[int, int]


class Placed(NamedTuple):
    """Centres of the nodes in pixels, and the routes of the edges."""

    # `x`, `y`: one for each node.
    x: list[float]
    y: list[float]
    # Lists of (x, y), one for each edge, from the centre of its parent to that of its child; upright past the
    # layers between them.
    routes: list[list[tuple[float, float]]]
    width: float
    height: float


def layered_graph_layout(
    widths: Sequence[float], edges: Sequence[Edge], heights: Sequence[float] | None = None
) -> Placed:
    """Lay out the nodes of an acyclic graph.

    `widths`: widths of the nodes, in pixels.
    `edges`, sequence of (parent, child): without cycles.
    `heights`: heights of the nodes, in pixels; by default `HEIGHT`.
    Raises ValueError if there is a cycle.
    """
    n = len(widths)
    heights = [HEIGHT] * n if heights is None else heights
    layer = graph_node_layers(n, edges)
    _in_rows(layer, widths, {end for edge in edges for end in edge})
    n_bends = sum(layer[child] - layer[parent] - 1 for parent, child in edges)
    chains, sizes = [], list(widths)
    for parent, child in edges:
        chain = [parent]
        if n_bends <= MAX_BENDS:
            for between in range(layer[parent] + 1, layer[child]):
                chain.append(len(sizes))
                sizes.append(BEND_WIDTH)
                layer.append(between)
        chains.append([*chain, child])
    x = _across(sizes, layer, [pair for chain in chains for pair in zip(chain, chain[1:], strict=False)])
    tall = [0.0] * (max(layer, default=0) + 1)
    for node, height in enumerate(heights):
        tall[layer[node]] = max(tall[layer[node]], height)
    head = list(itertools.accumulate((height + BETWEEN for height in tall), initial=BETWEEN / 2))
    # A node hangs from the head of its layer.
    y = [head[layer[node]] + height / 2 for node, height in enumerate(heights)]
    routes = []
    for chain in chains:
        past = [(x[node], at) for node in chain[:-1] for at in (head[layer[node]], head[layer[node] + 1] - BETWEEN)]
        routes.append([(x[chain[0]], y[chain[0]]), *past[1:], (x[chain[-1]], y[chain[-1]])])
    width = max((place + size / 2 for place, size in zip(x, sizes, strict=True)), default=0.0) + GAP
    return Placed(x[:n], y, routes, width, head[-1])


def trim_edge_route_to_nodes(
    route: Sequence[tuple[float, float]], parent_height: float, child_height: float
) -> list[tuple[float, float]]:
    """Shorten a route to start at the bottom of its parent and end at the top of its child."""
    (x, y), (x_end, y_end) = route[0], route[-1]
    return [(x, y + parent_height / 2), *route[1:-1], (x_end, y_end - child_height / 2)]


def svg_edge_path(route: Sequence[tuple[float, float]]) -> str:
    """Return an edge as an SVG path, vertical at its bends."""
    parts = [f"M{route[0][0]:.1f} {route[0][1]:.1f}"]
    for (x0, y0), (x1, y1) in itertools.pairwise(route):
        middle = (y0 + y1) / 2
        parts.append(f"C{x0:.1f} {middle:.1f} {x1:.1f} {middle:.1f} {x1:.1f} {y1:.1f}")
    return "".join(parts)


def _in_rows(layer: list[int], widths: Sequence[float], linked: Collection[int]) -> None:
    """Place nodes without edges in layers with room, and the rest in layers below."""
    used = [0.0] * (max(layer, default=0) + 1)
    for node in linked:
        used[layer[node]] += widths[node] + GAP
    longest, place = max([*used, LEAST_ROW]), 0
    for node in (node for node in range(len(widths)) if node not in linked):
        while used[place] and used[place] + widths[node] + GAP > longest:
            place += 1
            used += [0.0] * (place == len(used))
        layer[node] = place
        used[place] += widths[node] + GAP


def graph_node_layers(n_nodes: int, edges: Sequence[Edge]) -> list[int]:
    """Return the layer of each node: one below its lowest parent; without parents, just above its highest child.

    Raises ValueError if there is a cycle.
    """
    parents, children = _neighbours(n_nodes, edges)
    layer = [0] * n_nodes
    for node in TopologicalSorter(dict(enumerate(parents))).static_order():
        layer[node] = max((layer[parent] + 1 for parent in parents[node]), default=0)
    for node in range(n_nodes):
        if not parents[node]:
            layer[node] = min((layer[child] - 1 for child in children[node]), default=0)
    return layer


def _neighbours(n_nodes: int, edges: Sequence[Edge]) -> tuple[list[list[int]], list[list[int]]]:
    """Return the parents and the children of each node."""
    parents: list[list[int]] = [[] for _ in range(n_nodes)]
    children: list[list[int]] = [[] for _ in range(n_nodes)]
    for parent, child in edges:
        parents[child].append(parent)
        children[parent].append(child)
    return parents, children


def _across(sizes: Sequence[float], layer: Sequence[int], links: Sequence[Edge]) -> list[float]:
    """Compute horizontal positions: sort each layer by the means of its neighbours, a few times down and up."""
    rows: list[list[int]] = [[] for _ in range(max(layer, default=-1) + 1)]
    for node, of_node in enumerate(layer):
        rows[of_node].append(node)
    above, below = _neighbours(len(sizes), links)
    x = [0.0] * len(sizes)
    for row in rows:
        right = 0.0
        for node in row:
            x[node] = right + sizes[node] / 2
            right += sizes[node] + GAP
    for sweep in range(SWEEPS):
        is_down = sweep % 2 == 0
        for row in rows if is_down else rows[::-1]:
            near = above if is_down else below
            around = {node: near[node] or above[node] or below[node] or [node] for node in row}
            means = {node: fmean(x[other] for other in around[node]) for node in row}
            row.sort(key=lambda node: (means[node], node))
            _apart(row, [means[node] for node in row], sizes, x)
    least = min((place - size / 2 for place, size in zip(x, sizes, strict=True)), default=0.0)
    return [place - least + GAP for place in x]


def _apart(row: Sequence[int], means: Sequence[float], sizes: Sequence[float], x: list[float]) -> None:
    """Place the nodes of a row as close to their targets as possible, in order and without overlap.

    This is least squares under an order: after subtracting the minimum distances, isotonic regression.
    """
    size = np.array([sizes[node] for node in row])
    least = np.concatenate([[0.0], np.cumsum((size[:-1] + size[1:]) / 2 + GAP)])
    places = scipy.optimize.isotonic_regression(np.asarray(means) - least).x + least
    for node, at in zip(row, places.tolist(), strict=True):
        x[node] = at


def replace_invalid_xml_characters(text: str | None) -> str:
    """Replace characters that XML does not allow, and line breaks."""
    return "".join("\ufffd" if category(c) in ("Cc", "Cs") or c in "\ufffe\uffff" else c for c in str(text))


def truncate_xml_text(text: str, longest: int) -> str:
    """Truncate a text to `longest` characters."""
    return replace_invalid_xml_characters(text if len(text) <= longest else text[: longest - 1] + "…")
