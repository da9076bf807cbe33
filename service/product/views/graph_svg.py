"""SVG of a model's graph: layers, searchable and accessible text, edge widths by information.

A node is a box with a name, and below it a bar for each value, which a page fills with probabilities.
"""

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import NamedTuple

from learners.models.graph_layout import (
    HEIGHT,
    layered_graph_layout,
    replace_invalid_xml_characters,
    svg_edge_path,
    trim_edge_route_to_nodes,
    truncate_xml_text,
)
from learners.registry.column_graphs import ColumnGraph, GraphEdge
from learners.wording import count_with_noun

MARGIN = 14.0
# ALIKE: where nothing is known of what an edge tells.
THINNEST, THICKEST, ALIKE = 1.0, 6.0, 1.5
# What an edge tells, by the unit of the graph.
WEIGHT_WORDS = {"probability": "{:.3g} probability", "log loss": "saves {:.3g} of log loss per row"}
BEND = 0.12  # of what lies across the layers, as in boxes.js
# By classes where a page has styles of its own; written out where the picture stands alone.
STYLE = (
    "<style>text{font:12px Helvetica,Arial,sans-serif;fill:#1b2733}.edge-line{stroke:#7a8896;fill:none}.arrow{fill:#7a8896}"
    ".node rect{fill:#f6f8fa;stroke:#4e5d6c}.class rect{fill:#fff3c4;stroke:#5c4300}.other{stroke-dasharray:5 3}"
    "@media(prefers-color-scheme:dark){svg{background:#11171e}text{fill:#e4eaf1}.node rect{fill:#19212b;stroke:#a7b4c2}"
    ".class rect{fill:#4a3b0a;stroke:#ffe7a3}}</style>"
)
CHARACTER = 7.2
LONGEST = 28
# Of a box with bars: its least and its greatest width, a row, and the room for bars that stand upright.
WIDTH, WIDEST, ROW, UPRIGHT, EDGE = 170.0, 240.0, 18.0, 48.0, 6.0
# Beside the words of a value: its probability.
NUMBER = 62.0
# More values than rows: of words the first ones are shown, numbers stand upright side by side.
MOST_ROWS = 7
LONGEST_END = 12


class Bars(NamedTuple):
    """Values shown as bars in a box.

    `is_ordered` means that the values are ascending intervals of numbers; `ends` are, of a column of numbers without
    intervals, the minimum and maximum of training.
    """

    words: Sequence[str]
    is_ordered: bool = False
    ends: tuple[str, str] | None = None

    @property
    def is_upright(self) -> bool:
        """True if the bars are vertical, side by side."""
        return self.is_ordered and len(self.words) > MOST_ROWS


class Box(NamedTuple):
    """A node of a picture; `title` is its tooltip and `kind` its CSS class: "class", "blamed" or empty."""

    name: str
    bars: Bars | None
    title: str
    kind: str = ""

    @property
    def width(self) -> float:
        """Width in pixels."""
        of_name = CHARACTER * len(truncate_xml_text(self.name, LONGEST)) + 16
        if self.bars is None:
            return max(40.0, of_name)
        longest = 0 if self.bars.is_upright else max(map(len, self.bars.words[:MOST_ROWS]), default=0)
        return max(WIDTH, of_name, min(WIDEST, CHARACTER * longest + NUMBER))

    @property
    def height(self) -> float:
        """Height in pixels."""
        if self.bars is None:
            return HEIGHT
        n_rows = min(len(self.bars.words), MOST_ROWS + (len(self.bars.words) > MOST_ROWS))
        of_rows = UPRIGHT + ROW if self.bars.is_upright else ROW * (n_rows + 2 * (self.bars.ends is not None))
        return HEIGHT + of_rows + (EDGE if of_rows else 0)


def column_graph_svg(
    graph: ColumnGraph,
    title: str,
    link: Callable[[str], str | None] | None = None,
    *,
    alone: bool = True,
    blamed: Mapping[str, str] | None = None,
    bars: Mapping[str, Bars] | None = None,
) -> str:
    """Draw a graph without the edges from the class, which is a parent of all columns; each title gives the information
    of the class about the column.

    Parameters
    ----------
    link : where a click on a column's name leads
    alone : True if the picture is a separate file, with its styles; in a page these are the page's
    blamed : columns to mark, each with the words that say why
    bars : columns whose boxes hold a bar for each value
    """
    boxes = [_box(graph, name, blamed or {}, bars or {}) for name in graph.columns]
    place = {name: number for number, name in enumerate(graph.columns)}
    edges = [(place[edge.source], place[edge.sink]) for edge in graph.edges]
    spots = layered_graph_layout([box.width for box in boxes], edges, [box.height for box in boxes])
    root = None if graph.target is None else Box(graph.target, (bars or {}).get(graph.target), "the class", "class")
    top = 0.0 if root is None else root.height + 2 * MARGIN
    width, height = max(spots.width, (root.width if root else 0.0) + 2 * MARGIN), spots.height + top
    most = 1.0 if graph.unit == "probability" else max((edge.weight for edge in graph.edges), default=0.0) or 1.0
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="structure" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" role="{"img" if link is None else "group"}" aria-label="{escape(replace_invalid_xml_characters(title))}">',
        f"<title>{escape(replace_invalid_xml_characters(title))}</title>",
        f"<desc>{escape(describe_graph(graph))}</desc>",
        *([STYLE] if alone else []),
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9" '
        'markerUnits="userSpaceOnUse" orient="auto"><path class="arrow" d="M0 0 8 4 0 8z"/></marker></defs>',
    ]
    for edge, route in zip(graph.edges, spots.routes, strict=True):
        path = trim_edge_route_to_nodes(route, boxes[place[edge.source]].height, boxes[place[edge.sink]].height)
        parts.append(_edge(graph, edge, svg_edge_path([(x, y + top) for x, y in path]), most))
    for edge in graph.others:
        at = [(spots.x[n], spots.y[n] + top, boxes[n]) for n in (place[edge.source], place[edge.sink])]
        parts.append(_edge(graph, edge, _bent(at[0], at[1]), most, "edge-line other"))
    if root is not None:
        parts.append(box_svg(root, width / 2, MARGIN + root.height / 2, link))
    parts += [box_svg(box, x, y + top, link) for box, x, y in zip(boxes, spots.x, spots.y, strict=True)]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _box(graph: ColumnGraph, name: str, blamed: Mapping[str, str], bars: Mapping[str, Bars]) -> Box:
    tells = f"the class saves {graph.of_class[name]:.3g} of its log loss a row" if name in graph.of_class else ""
    if name in blamed:
        return Box(name, bars.get(name), f"{tells}; {blamed[name]}".removeprefix("; "), "blamed")
    return Box(name, bars.get(name), tells)


def describe_graph(graph: ColumnGraph) -> str:
    """Describe the graph in words, for people who cannot see it."""
    of_class = (
        ""
        if graph.target is None
        else f" Every column has the class {replace_invalid_xml_characters(graph.target)} as a parent, too."
    )
    edges = "; ".join(
        f"{replace_invalid_xml_characters(edge.source)} to {replace_invalid_xml_characters(edge.sink)}"
        for edge in graph.edges[:200]
    )
    more = f"; and {len(graph.edges) - 200} more" if len(graph.edges) > 200 else ""
    sizes = f"{count_with_noun(len(graph.columns), 'column')}, {count_with_noun(len(graph.edges), 'edge')}"
    return f"{sizes}.{of_class} {edges}{more}".strip()


def _edge(graph: ColumnGraph, edge: GraphEdge, path: str, most: float, kind: str = "edge-line") -> str:
    source, sink = replace_invalid_xml_characters(edge.source), replace_invalid_xml_characters(edge.sink)
    thick = THINNEST + (THICKEST - THINNEST) * edge.weight / most if graph.unit else ALIKE
    title = f"{source} → {sink}" + (f": {WEIGHT_WORDS[graph.unit].format(edge.weight)}" if graph.unit else "")
    return (
        f'<path class="{kind}" data-edge="{escape(f"{source}->{sink}")}" data-from="{escape(source)}" data-to="{escape(sink)}" '
        f'd="{path}" stroke-width="{thick:.2f}" marker-end="url(#arrow)"><title>{escape(title)}</title></path>'
    )


def _bent(start: tuple[float, float, Box], end: tuple[float, float, Box]) -> str:
    """Return the path of an edge between the rims of two boxes, bent to the right so that both directions are visible."""
    across, down = end[0] - start[0], end[1] - start[1]
    middle = (start[0] + end[0]) / 2 - down * BEND, (start[1] + end[1]) / 2 + across * BEND
    rims = []
    for x, y, box in (start, end):
        dx, dy = middle[0] - x, middle[1] - y
        share = min(1.0, box.width / 2 / max(abs(dx), 1e-9), box.height / 2 / max(abs(dy), 1e-9))
        rims.append(f"{x + dx * share:.1f} {y + dy * share:.1f}")
    return f"M{rims[0]}Q{middle[0]:.1f} {middle[1]:.1f} {rims[1]}"


def box_svg(box: Box, x: float, y: float, link: Callable[[str], str | None] | None) -> str:
    """Return the SVG of a box centred at (x, y)."""
    left, top = x - box.width / 2, y - box.height / 2
    title = f'<text class="name" x="{x:.1f}" y="{top + HEIGHT / 2 + 4:.1f}" text-anchor="middle">{escape(truncate_xml_text(box.name, LONGEST))}</text>'
    if link is not None and (leads := link(box.name)) is not None:
        title = (
            f'<a href="{escape(leads)}" data-column="{escape(replace_invalid_xml_characters(box.name))}">{title}</a>'
        )
    inside = "" if box.bars is None else _bars(box.name, box.bars, left + EDGE, top + HEIGHT, box.width - 2 * EDGE)
    return (
        f'<g class="node {box.kind}" data-column="{escape(replace_invalid_xml_characters(box.name))}">'
        f"<title>{escape(': '.join(filter(None, (replace_invalid_xml_characters(box.name), box.title))))}</title>"
        f'<rect class="box" x="{left:.1f}" y="{top:.1f}" width="{box.width:.1f}" height="{box.height:.0f}" rx="5"/>'
        f"{title}{inside}</g>"
    )


def _bars(name: str, bars: Bars, x: float, y: float, width: float) -> str:
    foot = y + UPRIGHT
    if bars.is_upright:
        step = width / len(bars.words)
        places = [(x + step * n, y, step, UPRIGHT) for n in range(len(bars.words))]
        parts = [
            _value(name, words, n, place, "upright")
            for n, (words, place) in enumerate(zip(bars.words, places, strict=True))
        ]
        ends = (bars.words[0], bars.words[-1])
        return "".join([*parts, _ends(ends, x, foot + ROW - 5, width)])
    rows = bars.words[:MOST_ROWS]
    parts = [_value(name, words, n, (x, y + ROW * n, width, ROW - 2), "") for n, words in enumerate(rows)]
    y += ROW * len(rows)
    if len(bars.words) > MOST_ROWS:
        parts.append(
            f'<text class="more" x="{x + 4:.1f}" y="{y + 12:.1f}">{len(bars.words) - MOST_ROWS} more values</text>'
        )
    if bars.ends is not None:
        parts.append(
            f'<g class="spread">{_rect("track", (x, y, width, ROW - 2))}{_rect("share", (x, y, 0, ROW - 2))}'
            f'{_rect("before", (x, y, 0, ROW - 2))}<text class="number" x="{x + 4:.1f}" y="{y + 12:.1f}"/></g>'
            f"{_ends(bars.ends, x, y + 2 * ROW - 5, width)}"
        )
    return "".join(parts)


def _value(name: str, words: str, number: int, place: tuple[float, float, float, float], kind: str) -> str:
    """Return the SVG of a value that a click sets as evidence. Its `share` and `before` bars are still empty."""
    x, y, width, height = place
    label = f"{replace_invalid_xml_characters(name)}: {replace_invalid_xml_characters(words)}"
    text = (
        ""
        if kind
        else (
            f'<text x="{x + 4:.1f}" y="{y + 12:.1f}">{escape(truncate_xml_text(words, int((width + 2 * EDGE - NUMBER) / CHARACTER)))}</text>'
            f'<text class="number" x="{x + width - 4:.1f}" y="{y + 12:.1f}" text-anchor="end"/>'
        )
    )
    return (
        f'<g class="value {kind}" role="button" tabindex="-1" aria-pressed="false" aria-label="{escape(label)}" '
        f'data-words="{escape(label)}" data-value="{number}"><title>{escape(label)}</title>'
        f"{_rect('track', place)}{_rect('share', (x, y, width if kind else 0, 0 if kind else height))}"
        f"{_rect('before', (x, y, 0, height))}{text}</g>"
    )


def _rect(kind: str, place: tuple[float, float, float, float]) -> str:
    x, y, width, height = place
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"/>'


def _ends(ends: tuple[str, str], x: float, y: float, width: float) -> str:
    first, last = (escape(truncate_xml_text(end, LONGEST_END)) for end in ends)
    right = f'<text class="more" x="{x + width:.1f}" y="{y:.1f}" text-anchor="end">{last}</text>'
    return f'<text class="more" x="{x:.1f}" y="{y:.1f}">{first}</text>{right}'
