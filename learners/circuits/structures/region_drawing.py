"""Drawings of circuits, large ones by regions: Graphviz text, and SVG without other programs."""

from __future__ import annotations

from html import escape
from typing import NamedTuple

import numpy as np

from learners.circuits.circuit import Circuit
from learners.circuits.kernels import (
    CATEGORICAL,
    EXPONENTIAL,
    GAUSSIAN,
    INDICATOR,
    LOG_NORMAL,
    POISSON,
    PRODUCT,
    QUANTILE,
    ROUNDED,
    STEP,
    STUDENT,
    SUM,
)
from learners.circuits.variables import circuit_columns
from learners.errors import LearnerError
from learners.models.graph_layout import (
    layered_graph_layout,
    svg_edge_path,
    trim_edge_route_to_nodes,
    truncate_xml_text,
)
from learners.schema import Schema

MAX_NODES = 300
SYMBOLS = {SUM: "+", PRODUCT: "×"}
LAWS = {
    GAUSSIAN: "N({:.3g}, {:.3g}²)",
    POISSON: "Poisson({:.3g})",
    EXPONENTIAL: "Exp({:.3g})",
    STUDENT: "t({:.3g}, {:.3g}², {:.3g})",
    ROUNDED: "N({:.3g}, {:.3g}²)",
    LOG_NORMAL: "log N({:.3g}, {:.3g}²)",
    QUANTILE: "N({:.3g}, {:.3g}²) of its quantiles",
}
REGION = -1
# Pixels.
LINE, RADIUS, CHARACTER = 13, 14, 6.6
# How far down its edge a weight stands.
SHARES = (0.3, 0.55, 0.8)
# Characters of a name or value.
LONGEST = 60


class PictureTooLarge(LearnerError, ValueError):
    """Raised if a circuit has too many nodes and regions to draw."""

    def __init__(self, n_nodes: int, n_regions: int, max_nodes: int) -> None:
        super().__init__(
            f"A picture of {n_nodes:,} nodes, or of {n_regions:,} regions, would be unreadable: the limit is {max_nodes:,}. "
            "See the summary of the structure, or train with fewer sums, states or replicas."
        )
        self.n_nodes = n_nodes
        self.max_nodes = max_nodes


class Graph(NamedTuple):
    """Graph to draw, children before parents."""

    kind: list[int]  # sums and products are circles, all others boxes
    labels: list[str]  # what stands in each node, by lines
    edges: list[tuple[int, int, str | None]]  # list of (parent, child, weight in words or None)


def to_dot(circuit: Circuit, schema: Schema | None = None, max_nodes: int = MAX_NODES) -> str:
    """Return the circuit in Graphviz' language; by regions, if it has too many nodes.

    A region represents all nodes over the same columns. Without a schema, columns and values are numbers. Raises
    PictureTooLarge if there are also too many regions.
    """
    graph = _graph(circuit, schema, max_nodes)
    lines = ["digraph circuit {", "  node [fontname=Helvetica fontsize=10];", "  edge [fontname=Helvetica fontsize=8];"]
    for node, label in enumerate(graph.labels):
        shape = "circle" if graph.kind[node] in SYMBOLS else "box"
        quoted = label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        lines.append(f'  {node} [label="{quoted}" shape={shape}];')
    for parent, child, weight in graph.edges:
        label = "" if weight is None else f' [label="{weight}"]'
        lines.append(f"  {parent} -> {child}{label};")
    return "\n".join([*lines, "}"]) + "\n"


def to_svg(circuit: Circuit, schema: Schema | None = None, max_nodes: int = MAX_NODES) -> str:
    """Draw the graph of `to_dot` as an SVG image: the root on top, leaves at the bottom, weights beside the edges of
    sums.
    """
    graph = _graph(circuit, schema, max_nodes)
    texts = [label.split("\n") for label in graph.labels]
    is_round = [kind in SYMBOLS for kind in graph.kind]
    half = [RADIUS if a else max(map(len, text)) * CHARACTER / 2 + 6 for a, text in zip(is_round, texts, strict=True)]
    tall = [2 * RADIUS if a else LINE * len(text) + 6 for a, text in zip(is_round, texts, strict=True)]
    spots = layered_graph_layout(
        [2 * each for each in half], [(parent, child) for parent, child, _ in graph.edges], tall
    )
    x, y = spots.x, spots.y
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {spots.width:.0f} {spots.height:.0f}" '
        f'width="{spots.width:.0f}" height="{spots.height:.0f}" font-family="Helvetica, Arial, sans-serif" font-size="11">',
        f"<title>{escape(repr(circuit))}</title>",
    ]
    routes = [
        trim_edge_route_to_nodes(route, tall[parent], tall[child])
        for (parent, child, _), route in zip(graph.edges, spots.routes, strict=True)
    ]
    parts += [f'<path d="{svg_edge_path(route)}" fill="none" stroke="#9aa5b1"/>' for route in routes]
    for number, ((_, _, weight), route) in enumerate(zip(graph.edges, routes, strict=True)):
        if weight is not None:
            share = SHARES[number % len(SHARES)]  # in turn, so that neighbours lie apart
            (x0, y0), (x1, y1) = route[-2:]
            at_x, at_y = x0 + (x1 - x0) * share * share * (3 - 2 * share), y0 + (y1 - y0) * share
            parts.append(
                f'<text x="{at_x:.1f}" y="{at_y:.1f}" font-size="9" fill="#52606d" '
                f'text-anchor="middle" stroke="#fff" stroke-width="3" paint-order="stroke">{weight}</text>'
            )
    for node, text in enumerate(texts):
        parts += _node(graph.kind[node], x[node], y[node], half[node], tall[node], text)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _node(kind: int, x: float, y: float, half: float, tall: float, text: list[str]) -> list[str]:
    if kind in SYMBOLS:
        fill = "#dbeafe" if kind == SUM else "#fde68a"
        shape = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS}" fill="{fill}" stroke="#52606d"/>'
        return [shape, f'<text x="{x:.1f}" y="{y + 5:.1f}" font-size="16" text-anchor="middle">{text[0]}</text>']
    shape = (
        f'<rect x="{x - half:.1f}" y="{y - tall / 2:.1f}" width="{2 * half:.1f}" height="{tall:.0f}" rx="3" '
        'fill="#f5f7fa" stroke="#52606d"/>'
    )
    first = y - tall / 2 + 14
    return [
        shape,
        *(
            f'<text x="{x:.1f}" y="{first + LINE * i:.1f}" text-anchor="middle">{escape(line)}</text>'
            for i, line in enumerate(text)
        ),
    ]


def _graph(circuit: Circuit, schema: Schema | None, max_nodes: int) -> Graph:
    """Return the graph of all nodes, or of all regions."""
    names = [f"X{v}" for v in range(circuit.n_variables)]
    if schema is not None:
        names = [truncate_xml_text(name, LONGEST) for name in circuit_columns(circuit, schema).names]
    if circuit.n_nodes > max_nodes:
        return _regions(circuit, names, max_nodes)
    labels = [_label(circuit, schema, names, node) for node in range(circuit.n_nodes)]
    parents = np.repeat(np.arange(circuit.n_nodes), np.diff(circuit.child_starts)).tolist()
    edges = [
        (parent, child, f"{np.exp(log):.3g}" if circuit.kind[parent] == SUM else None)
        for parent, child, log in zip(parents, circuit.children.tolist(), circuit.log_weight.tolist(), strict=True)
    ]
    return Graph(circuit.kind.tolist(), labels, edges)


def _regions(circuit: Circuit, names: list[str], max_nodes: int) -> Graph:
    """Return a box for all nodes over the same columns, with the numbers of sums and products."""
    regions = circuit_regions(circuit)
    if len(regions) > max_nodes:
        raise PictureTooLarge(circuit.n_nodes, len(regions), max_nodes)
    labels = []
    for region in regions:
        columns = [names[v] for v in region.variables]
        text = ", ".join(columns) if len(columns) <= 3 else f"{len(columns)} columns"
        counted = ((region.n_sums, SYMBOLS[SUM]), (region.n_products, SYMBOLS[PRODUCT]))
        shown = [f"{n:,} {symbol}" for n, symbol in counted if n]
        labels.append("\n".join([text, *([" ".join(shown)] if shown else [])]))
    edges: list[tuple[int, int, str | None]] = [
        (parent, child, None) for parent, region in enumerate(regions) for child in region.children
    ]
    return Graph([REGION] * len(regions), labels, edges)


def _label(circuit: Circuit, schema: Schema | None, names: list[str], node: int) -> str:
    kind, v = int(circuit.kind[node]), int(circuit.variable[node])
    if kind in SYMBOLS:
        return SYMBOLS[kind]
    parameters = circuit.leaf_parameters[circuit.leaf_starts[node] : circuit.leaf_starts[node + 1]].tolist()
    numbers = [str(value) for value in range(int(circuit.n_values[v]))]
    values = circuit_columns(circuit, schema).labels(v) if schema is not None else numbers
    if kind == INDICATOR:
        return f"{names[v]} = {truncate_xml_text(values[int(parameters[0])], LONGEST)}"
    if kind == CATEGORICAL:
        shown = [
            f"{truncate_xml_text(value, LONGEST)}: {np.exp(p):.3g}" for value, p in zip(values, parameters, strict=True)
        ]
        return "\n".join([names[v], *shown[:6], *(["…"] if len(shown) > 6 else [])])
    law = LAWS[kind].format(*parameters)
    if kind >= ROUNDED and parameters[2 + STEP] > 0:
        law += f", in steps of {parameters[2 + STEP]:.3g}"
    return f"{names[v]}\n{law}"


class Region(NamedTuple):
    """All nodes over the same columns."""

    variables: tuple[int, ...]  # ascending
    n_sums: int
    n_products: int
    n_leaves: int
    children: tuple[int, ...]  # the regions that its nodes have children in, as places in the list of regions


def circuit_regions(circuit: Circuit) -> list[Region]:
    """Return the regions of a circuit, those with few columns first; the last one is the root's."""
    scopes, first, region = np.unique(circuit.scopes, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(np.bitwise_count(scopes).sum(axis=1), kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    region = place[region.ravel()]
    counts = np.zeros((order.size, 3), np.int64)
    kind = np.where(circuit.kind == SUM, 0, np.where(circuit.kind == PRODUCT, 1, 2))
    np.add.at(counts, (region, kind), 1)
    parents = region[np.repeat(np.arange(circuit.n_nodes), np.diff(circuit.child_starts))]
    pairs = np.unique(np.stack([parents, region[circuit.children]], axis=1), axis=0)
    below: list[list[int]] = [[] for _ in range(order.size)]
    for parent, child in pairs.tolist():
        if parent != child:
            below[parent].append(child)
    return [
        Region(tuple(circuit.scope(node)), own[0], own[1], own[2], tuple(children))
        for node, own, children in zip(first[order].tolist(), counts.tolist(), below, strict=True)
    ]
