"""The graph of a model as SVG: layers, real text that can be searched and read aloud, and edges as wide as what they tell."""

from collections.abc import Callable, Mapping
from html import escape
from unicodedata import category

from service.product.views.graph_layout import layered
from service.product.views.graphs import ColumnGraph

CHARACTER, HEIGHT, MARGIN = 7.2, 26.0, 14.0
LONGEST = 28
THINNEST, WIDEST = 1.0, 6.0
# By classes where a page has styles of its own; written out where the picture stands alone.
STYLE = (
    "<style>text{font:12px Helvetica,Arial,sans-serif;fill:#1b2733}.edge-line{stroke:#7a8896;fill:none}.arrow{fill:#7a8896}"
    ".node rect{fill:#f6f8fa;stroke:#4e5d6c}.class rect{fill:#fff3c4;stroke:#5c4300}"
    "@media(prefers-color-scheme:dark){svg{background:#11171e}text{fill:#e4eaf1}.node rect{fill:#19212b;stroke:#a7b4c2}"
    ".class rect{fill:#4a3b0a;stroke:#ffe7a3}}</style>"
)


def to_svg(
    graph: ColumnGraph,
    title: str,
    link: Callable[[str], str] | None = None,
    *,
    alone: bool = True,
    blamed: Mapping[str, str] | None = None,
) -> str:
    """Draw a graph.

    The edges from the class are left out: it is a parent of every column. What it tells of each stands in the column's title.

    Parameters
    ----------
    graph : ColumnGraph
    title : str
    link : callable, optional
        Where a click on a column leads.
    alone : bool
        Whether the picture is a file of its own, with its styles; in a page these are the page's.
    blamed : mapping, optional
        Columns to mark, each with the words that say why.
    """
    names = [*([graph.target] if graph.target is not None else []), *graph.columns]
    place = {name: number for number, name in enumerate(names)}
    words = [drawn(name) for name in names]
    widths = [max(40.0, CHARACTER * len(text) + 16) for text in words]
    first = 0 if graph.target is None else 1
    edges = [(place[edge.source] - first, place[edge.sink] - first) for edge in graph.edges]
    spots = layered(widths[first:], edges)
    top = HEIGHT + 2 * MARGIN if first else 0.0
    width, height = max(spots.width, (widths[0] if names else 0.0) + 2 * MARGIN), spots.height + top
    most = max((edge.weight for edge in graph.edges), default=0.0) or 1.0
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="structure" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" role="{"img" if link is None else "group"}" aria-label="{escape(text_of(title))}">',
        f"<title>{escape(text_of(title))}</title>",
        f"<desc>{escape(described(graph))}</desc>",
        *([STYLE] if alone else []),
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9" '
        'markerUnits="userSpaceOnUse" orient="auto"><path class="arrow" d="M0 0 8 4 0 8z"/></marker></defs>',
    ]
    for edge, route in zip(graph.edges, spots.routes, strict=True):
        thick = THINNEST + (WIDEST - THINNEST) * edge.weight / most
        told = f"{text_of(edge.source)} → {text_of(edge.sink)}"
        told += f": {edge.weight:.3g} {graph.unit}" if graph.unit else ""
        parts.append(
            f'<path class="edge-line" d="{_path(route, top)}" stroke-width="{thick:.2f}" marker-end="url(#arrow)">'
            f"<title>{escape(told)}</title></path>"
        )
    if first:
        parts.append(_node(names[0], words[0], width / 2, MARGIN + HEIGHT / 2, widths[0], "class", "the class", link))
    for number, name in enumerate(graph.columns):
        tells = f"{graph.of_class[name]:.3g} nats from the class" if name in graph.of_class else "a column"
        at, kind = (spots.x[number], spots.y[number] + top), ""
        if blamed and name in blamed:
            kind, tells = "blamed", f"{tells}; {blamed[name]}"
        parts.append(_node(name, words[number + first], *at, widths[number + first], kind, tells, link))
    return "\n".join([*parts, "</svg>"]) + "\n"


def described(graph: ColumnGraph) -> str:
    """The graph in words, for who cannot see it."""
    of_class = (
        f" Every column has the class {text_of(graph.target)} as a parent, too." if graph.target is not None else ""
    )
    told = "; ".join(f"{text_of(edge.source)} to {text_of(edge.sink)}" for edge in graph.edges[:200])
    more = f"; and {len(graph.edges) - 200} more" if len(graph.edges) > 200 else ""
    return f"{len(graph.columns)} columns, {len(graph.edges)} edges.{of_class} {told}{more}".strip()


def _node(
    name: str, words: str, x: float, y: float, width: float, kind: str, told: str, link: Callable[[str], str] | None
) -> str:
    box = (
        f'<g class="node {kind}"><title>{escape(text_of(name))}: {escape(told)}</title>'
        f'<rect x="{x - width / 2:.1f}" y="{y - HEIGHT / 2:.1f}" width="{width:.1f}" height="{HEIGHT:.0f}" rx="5"/>'
        f'<text x="{x:.1f}" y="{y + 4:.1f}" text-anchor="middle">{escape(words)}</text></g>'
    )
    if link is None:
        return box
    return f'<a href="{escape(link(name))}" data-column="{escape(text_of(name))}">{box}</a>'


def _path(route: list[tuple[float, float]], top: float) -> str:
    """From below the parent to above the child, rounded at the bends."""
    points = [(x, y + top) for x, y in route]
    points[0] = (points[0][0], points[0][1] + HEIGHT / 2)
    points[-1] = (points[-1][0], points[-1][1] - HEIGHT / 2)
    told = [f"M{points[0][0]:.1f} {points[0][1]:.1f}"]
    for (x0, y0), (x1, y1) in zip(points, points[1:], strict=False):
        middle = (y0 + y1) / 2
        told.append(f"C{x0:.1f} {middle:.1f} {x1:.1f} {middle:.1f} {x1:.1f} {y1:.1f}")
    return "".join(told)


def text_of(text: str | None) -> str:
    """A text without the characters that XML does not have."""
    return "".join("\ufffd" if category(c) in ("Cc", "Cs") or c in "\ufffe\uffff" else c for c in str(text))


def drawn(name: str) -> str:
    """A name as long as a box bears."""
    clean = text_of(name)
    return clean if len(clean) <= LONGEST else clean[: LONGEST - 1] + "…"
