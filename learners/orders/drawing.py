"""Pictures of posteriors over structures as SVG: a heat map of edges, and the graph with widths by probability."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from html import escape
from typing import Literal
from unicodedata import category

import numpy as np

from learners.kernels.arrays import Floats
from learners.models.query import Edges
from learners.models.query import Graph as BestGraph
from learners.orders.queries.queries import Asked
from learners.orders.scores.edge_constraints import Edge

Picture = Literal["edges", "graph"]

# Less probable edges are not drawn in the graph.
LEAST_DRAWN = 0.05
# Pixels.
CELL, MARGIN, CHARACTER, RADIUS, LEGEND = 22, 16, 6.6, 7.0, 12
THINNEST, WIDEST = 0.6, 5.0
# Characters of a name, and of a title, which are wider.
LONGEST, LONGEST_TITLE, OF_TITLE = 40, 120, 8.0
# Around a node, where an arrow ends.
GAP = 11.0
BEND = 0.12
IN_BEST, OTHER = "#1d4ed8", "#7b8794"


def posterior_svg(
    asked: Asked, picture: Picture, title: str, present: tuple[str, ...] = (), absent: tuple[str, ...] = ()
) -> str:
    """The edges of a posterior as an SVG image.

    Parameters
    ----------
    asked : Asked
    picture : 'edges' or 'graph'
        A heat map, or the graph.
    title : str
    present, absent : tuple of str
        Known edges, each as "parent->child".

    Raises
    ------
    UnknownColumn, InvalidParameter, ImpossibleEdges
    """
    place = {name: node for node, name in enumerate(asked.names)}
    probabilities = np.zeros((len(place), len(place)))
    for edge in asked.answer(Edges(present, absent))["edges"]:
        probabilities[place[edge["from"]], place[edge["to"]]] = edge["probability"] or 0.0
    known = [*present, *(f"no {edge}" for edge in absent)]
    told = f"{title} given {', '.join(known)}" if known else title
    if picture == "edges":
        return heat_map_svg(asked.names, probabilities, f"probability of edges: {told}")
    best = asked.answer(BestGraph(present, absent))["edges"]
    pairs = {(place[edge["from"]], place[edge["to"]]) for edge in best}
    return graph_svg(asked.names, probabilities, pairs, f"edges by probability: {told}")


def heat_map_svg(names: Sequence[str], probabilities: Floats, title: str) -> str:
    """A cell for each pair of columns, the darker the more probable the edge: parents are rows, children columns.

    Parameters
    ----------
    names : sequence of str, d of them
    probabilities : (d, d) float64
        [i, j] of the edge from i to j.
    title : str
    """
    drawn, d = [_drawn(name) for name in names], len(names)
    room = MARGIN + max(map(len, drawn)) * CHARACTER + 6
    left, top = room + 18, room + 44
    width, height = left + CELL * d + MARGIN, top + CELL * d + LEGEND + 40
    parts = _opening(width, height, title)
    for i, parent in enumerate(drawn):
        at = CELL * i + CELL / 2 + 4
        parts.append(f'<text x="{left - 6:.0f}" y="{top + at:.0f}" text-anchor="end">{escape(parent)}</text>')
        place = f"{left + at:.0f} {top - 6:.0f}"
        parts.append(f'<text transform="translate({place}) rotate(-90)">{escape(parent)}</text>')
        for j, child in enumerate(drawn):
            x, y = left + CELL * j, top + CELL * i
            box = f'<rect x="{x:.0f}" y="{y:.0f}" width="{CELL}" height="{CELL}"'
            if i == j:
                parts.append(f'{box} fill="#e4e7eb"/>')
                continue
            p = float(probabilities[i, j])
            parts.append(
                f'{box} fill="{_shade(p)}" stroke="#fff"><title>{escape(parent)} → {escape(child)}: {p:.4f}</title></rect>'
            )
            ink = "#fff" if p > 0.55 else "#323f4b"
            if p >= 0.005:
                text = "1" if p > 0.995 else f"{p:.2f}"[1:]
                parts.append(
                    f'<text x="{x + CELL / 2:.0f}" y="{y + CELL / 2 + 3:.0f}" font-size="9" fill="{ink}" '
                    f'text-anchor="middle">{text}</text>'
                )
    parts.append(f'<text x="{left:.0f}" y="36" fill="#52606d">child</text>')
    parts.append(
        f'<text transform="translate(14 {top:.0f}) rotate(-90)" fill="#52606d" text-anchor="end">parent</text>'
    )
    parts += _legend(left, height - LEGEND - 22)
    return "\n".join([*parts, "</svg>"]) + "\n"


def graph_svg(names: Sequence[str], probabilities: Floats, best: Collection[Edge], title: str) -> str:
    """The columns on a circle with an arrow for each probable edge, as wide as it is probable.

    Those of the most probable graph are blue; the others grey.

    Parameters
    ----------
    names : sequence of str, d of them
    probabilities : (d, d) float64
    best : collection of (parent, child)
        The edges of the most probable graph.
    title : str
    """
    drawn, d = [_drawn(name) for name in names], len(names)
    radius = max(110.0, 9.0 * d)
    room = max(map(len, drawn)) * CHARACTER + MARGIN + 14
    size = 2 * (radius + room)
    parts = _opening(size, size + 30, title)
    parts.append("<defs>")
    for name, ink in (("best", IN_BEST), ("other", OTHER)):
        parts.append(
            f'<marker id="{name}" markerUnits="userSpaceOnUse" markerWidth="10" markerHeight="10" refX="8" refY="4" '
            f'orient="auto"><path d="M0 0L9 4L0 8z" fill="{ink}"/></marker>'
        )
    parts.append("</defs>")
    angle = [2 * math.pi * i / d - math.pi / 2 for i in range(d)]
    middle = (size / 2, size / 2 + 30)
    at = [(middle[0] + radius * math.cos(a), middle[1] + radius * math.sin(a)) for a in angle]
    pairs = [(float(probabilities[i, j]), i, j) for i in range(d) for j in range(d) if i != j]
    # The most probable ones last, so that they lie on top.
    for p, i, j in sorted(pair for pair in pairs if pair[0] >= LEAST_DRAWN or pair[1:] in best):
        name, ink = ("best", IN_BEST) if (i, j) in best else ("other", OTHER)
        parts.append(
            f'<path d="{_curve(at[i], at[j])}" fill="none" stroke="{ink}" stroke-opacity="{0.25 + 0.65 * p:.2f}" '
            f'stroke-width="{THINNEST + (WIDEST - THINNEST) * p:.2f}" marker-end="url(#{name})">'
            f"<title>{escape(drawn[i])} → {escape(drawn[j])}: {p:.4f}</title></path>"
        )
    for (x, y), a, text in zip(at, angle, drawn, strict=True):
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS}" fill="#f5f7fa" stroke="#52606d"/>')
        degrees, is_left = math.degrees(a), math.cos(a) < -1e-9
        outside = f"{x + 14 * math.cos(a):.1f} {y + 14 * math.sin(a):.1f}"
        turn, anchor = (degrees + 180, "end") if is_left else (degrees, "start")
        parts.append(
            f'<text transform="translate({outside}) rotate({turn:.1f})" dy="4" text-anchor="{anchor}">{escape(text)}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _opening(width: float, height: float, title: str) -> list[str]:
    told = _drawn(title, LONGEST_TITLE)
    width = max(width, len(told) * OF_TITLE + 2 * MARGIN)
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" font-family="Helvetica, Arial, sans-serif" font-size="11">',
        f"<title>{escape(told)}</title>",
        f'<text x="{MARGIN}" y="18" font-size="13" font-weight="bold">{escape(told)}</text>',
    ]


def _legend(left: float, top: float) -> list[str]:
    steps = 10
    boxes = [
        f'<rect x="{left + LEGEND * i:.0f}" y="{top:.0f}" width="{LEGEND}" height="{LEGEND}" fill="{_shade(i / steps)}"/>'
        for i in range(steps + 1)
    ]
    ends = (("0", left), ("1", left + LEGEND * steps))
    words = [f'<text x="{x:.0f}" y="{top + LEGEND + 12:.0f}" fill="#52606d">{text}</text>' for text, x in ends]
    return boxes + words


def _shade(p: float) -> str:
    """From white to dark blue."""
    share = min(1.0, max(0.0, p))
    red, green, blue = (round(255 + (dark - 255) * share) for dark in (16, 42, 110))
    return f"#{red:02x}{green:02x}{blue:02x}"


def _curve(start: tuple[float, float], end: tuple[float, float]) -> str:
    """From beside one node to beside another, bent to the left, so that two arrows between the same nodes lie apart."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    control = ((start[0] + end[0]) / 2 + BEND * dy, (start[1] + end[1]) / 2 - BEND * dx)
    first, last = _towards(start, control), _towards(end, control)
    return f"M{first[0]:.1f} {first[1]:.1f}Q{control[0]:.1f} {control[1]:.1f} {last[0]:.1f} {last[1]:.1f}"


def _towards(node: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    length = math.hypot(other[0] - node[0], other[1] - node[1])
    share = GAP / length
    return node[0] + share * (other[0] - node[0]), node[1] + share * (other[1] - node[1])


def _drawn(text: str, longest: int = LONGEST) -> str:
    """A name or title on one line, no longer than a picture bears, without the characters that XML does not have."""
    shown = text if len(text) <= longest else text[: longest - 1] + "…"
    return "".join("\ufffd" if category(c) in ("Cc", "Cs") or c in "\ufffe\uffff" else c for c in shown)
