"""Pictures of small circuits: Graphviz text, and SVG without any other program."""

from __future__ import annotations

from html import escape

import numpy as np

from learners.circuits.circuit import (
    CATEGORICAL,
    EXPONENTIAL,
    GAUSSIAN,
    INDICATOR,
    POISSON,
    PRODUCT,
    SUM,
    Circuit,
    Integers,
)
from learners.circuits.columns import columns_of
from learners.errors import LearnerError
from learners.schema import Schema

MAX_NODES = 300
SYMBOLS = {SUM: "+", PRODUCT: "×"}
# Pixels.
LAYER_HEIGHT, MARGIN, RADIUS, CHARACTER = 90, 24, 14, 6.6
SWEEPS = 8


class PictureTooLarge(LearnerError, ValueError):
    """A circuit has too many nodes to be drawn."""

    def __init__(self, n_nodes: int, max_nodes: int) -> None:
        super().__init__(
            f"A picture of {n_nodes:,} nodes says nothing: the limit is max_nodes={max_nodes:,}. "
            "Use summary(), or learn with fewer sums, states or replicas to see the structure."
        )
        self.n_nodes = n_nodes
        self.max_nodes = max_nodes


def to_dot(circuit: Circuit, schema: Schema | None = None, max_nodes: int = MAX_NODES) -> str:
    """The circuit in Graphviz' language.

    Parameters
    ----------
    circuit : Circuit
    schema : Schema, optional
        For the names of columns and values; else numbers.
    max_nodes : int

    Returns
    -------
    str

    Raises
    ------
    PictureTooLarge
    """
    labels = _labels(circuit, schema, max_nodes)
    lines = ["digraph circuit {", "  node [fontname=Helvetica fontsize=10];", "  edge [fontname=Helvetica fontsize=8];"]
    for node, label in enumerate(labels):
        shape = "circle" if circuit.kind[node] <= PRODUCT else "box"
        quoted = label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        lines.append(f'  {node} [label="{quoted}" shape={shape}];')
    for parent, child, weight in _edges(circuit):
        label = "" if weight is None else f' [label="{weight}"]'
        lines.append(f"  {parent} -> {child}{label};")
    return "\n".join([*lines, "}"]) + "\n"


def to_svg(circuit: Circuit, schema: Schema | None = None, max_nodes: int = MAX_NODES) -> str:
    """The circuit as an SVG image: the root on top, leaves on the bottom, weights beside the edges of sums.

    Parameters
    ----------
    circuit, schema, max_nodes
        As in `to_dot`.

    Returns
    -------
    str

    Raises
    ------
    PictureTooLarge
    """
    labels = _labels(circuit, schema, max_nodes)
    layer = _layers(circuit)
    texts = [label.split("\n") for label in labels]
    half = [
        RADIUS if circuit.kind[node] <= PRODUCT else max(map(len, text)) * CHARACTER / 2 + 6
        for node, text in enumerate(texts)
    ]
    x = _places(circuit, layer, half)
    y = [MARGIN + 30 + LAYER_HEIGHT * int(layer[-1] - of_node) for of_node in layer]
    width = max(a + b for a, b in zip(x, half, strict=True)) + MARGIN
    tallest = max((len(text) for text in texts), default=1)
    height = max(y) + MARGIN + 8 * tallest
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" font-family="Helvetica, Arial, sans-serif" font-size="11">',
        f"<title>{escape(repr(circuit))}</title>",
    ]
    for parent, child, weight in _edges(circuit):
        parts.append(
            f'<line x1="{x[parent]:.1f}" y1="{y[parent]}" x2="{x[child]:.1f}" y2="{y[child]}" stroke="#9aa5b1"/>'
        )
        if weight is not None:
            # Nearer to the child, where the edges of a sum lie apart.
            at_x, at_y = 0.4 * x[parent] + 0.6 * x[child], 0.4 * y[parent] + 0.6 * y[child]
            parts.append(
                f'<text x="{at_x:.1f}" y="{at_y:.1f}" font-size="9" fill="#52606d" text-anchor="middle" stroke="#fff" '
                f'stroke-width="3" paint-order="stroke">{weight}</text>'
            )
    for node, text in enumerate(texts):
        parts += _node(int(circuit.kind[node]), x[node], y[node], half[node], text)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _node(kind: int, x: float, y: float, half: float, text: list[str]) -> list[str]:
    if kind <= PRODUCT:
        fill = "#dbeafe" if kind == SUM else "#fde68a"
        shape = f'<circle cx="{x:.1f}" cy="{y}" r="{RADIUS}" fill="{fill}" stroke="#52606d"/>'
        return [shape, f'<text x="{x:.1f}" y="{y + 5}" font-size="16" text-anchor="middle">{text[0]}</text>']
    tall = 13 * len(text) + 6
    shape = (
        f'<rect x="{x - half:.1f}" y="{y - tall / 2:.1f}" width="{2 * half:.1f}" height="{tall}" rx="3" '
        'fill="#f5f7fa" stroke="#52606d"/>'
    )
    first = y - tall / 2 + 14
    return [
        shape,
        *(
            f'<text x="{x:.1f}" y="{first + 13 * i:.1f}" text-anchor="middle">{escape(line)}</text>'
            for i, line in enumerate(text)
        ),
    ]


def _edges(circuit: Circuit) -> list[tuple[int, int, str | None]]:
    """(parent, child, weight in words); no weight under products."""
    parents = np.repeat(np.arange(circuit.n_nodes), np.diff(circuit.child_starts))
    return [
        (parent, child, f"{np.exp(log):.3g}" if circuit.kind[parent] == SUM else None)
        for parent, child, log in zip(
            parents.tolist(), circuit.children.tolist(), circuit.log_weight.tolist(), strict=True
        )
    ]


def _labels(circuit: Circuit, schema: Schema | None, max_nodes: int) -> list[str]:
    """What stands in each node."""
    if circuit.n_nodes > max_nodes:
        raise PictureTooLarge(circuit.n_nodes, max_nodes)
    return [_label(circuit, schema, node) for node in range(circuit.n_nodes)]


def _label(circuit: Circuit, schema: Schema | None, node: int) -> str:
    kind, v = int(circuit.kind[node]), int(circuit.variable[node])
    if kind in SYMBOLS:
        return SYMBOLS[kind]
    columns = columns_of(circuit, schema) if schema is not None else None
    name = columns.names[v] if columns else f"X{v}"
    parameters = circuit.leaf_parameters[circuit.leaf_starts[node] : circuit.leaf_starts[node + 1]].tolist()
    values = columns.labels(v) if columns else [str(value) for value in range(int(circuit.n_values[v]))]
    if kind == INDICATOR:
        return f"{name} = {values[int(parameters[0])]}"
    if kind == CATEGORICAL:
        shown = [f"{value}: {np.exp(p):.3g}" for value, p in zip(values, parameters, strict=True)]
        return "\n".join([name, *shown[:6], *(["…"] if len(shown) > 6 else [])])
    law = {GAUSSIAN: "N({:.3g}, {:.3g}²)", POISSON: "Poisson({:.3g})", EXPONENTIAL: "Exp({:.3g})"}[kind]
    return f"{name}\n{law.format(*parameters)}"


def _layers(circuit: Circuit) -> Integers:
    """(n_nodes,) int64: leaves at 0, every parent above its children, each node as high as its parents allow."""
    starts, children = circuit.child_starts.tolist(), circuit.children
    layer = np.zeros(circuit.n_nodes, np.int64)
    for node in range(circuit.n_nodes):
        below = children[starts[node] : starts[node + 1]]
        layer[node] = layer[below].max() + 1 if below.size else 0
    top = np.full(circuit.n_nodes, layer[-1])
    top[-1] = layer[-1]
    for node in range(circuit.n_nodes - 1, -1, -1):
        below = children[starts[node] : starts[node + 1]]
        top[below] = np.minimum(top[below], top[node] - 1)
    has_parent = np.bincount(children, minlength=circuit.n_nodes) > 0
    return np.where((circuit.kind <= PRODUCT) & has_parent, top, layer)


def _places(circuit: Circuit, layer: Integers, half: list[float]) -> list[float]:
    """Horizontal places: within a layer in the order of the mean place of the neighbours, a few times up and down."""
    parents = np.repeat(np.arange(circuit.n_nodes), np.diff(circuit.child_starts))
    neighbours: list[list[int]] = [[] for _ in range(circuit.n_nodes)]
    for parent, child in zip(parents.tolist(), circuit.children.tolist(), strict=True):
        neighbours[parent].append(child)
        neighbours[child].append(parent)
    rows = [np.flatnonzero(layer == of_row).tolist() for of_row in range(int(layer.max()) + 1)]
    x = [0.0] * circuit.n_nodes
    for row in rows:
        _spread(row, x, half)
    for sweep in range(SWEEPS):
        for row in rows if sweep % 2 else rows[::-1]:
            side = {node: [x[other] for other in neighbours[node]] for node in row}
            means = {node: float(np.mean(places)) if places else x[node] for node, places in side.items()}
            row.sort(key=lambda node: (means[node], node))
            _spread(row, x, half)
    widest = max(sum(2 * half[node] + 12 for node in row) for row in rows)
    for row in rows:
        shift = MARGIN + (widest - sum(2 * half[node] + 12 for node in row)) / 2
        for node in row:
            x[node] += shift
    return x


def _spread(row: list[int], x: list[float], half: list[float]) -> None:
    """Put the nodes of a layer side by side in their order, from zero on."""
    right = 0.0
    for node in row:
        x[node] = right + half[node]
        right += 2 * half[node] + 12
