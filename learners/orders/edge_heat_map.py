"""SVG heat map of a posterior's edge probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from learners.kernels.arrays import Floats
from learners.models.graph_layout import truncate_xml_text
from learners.models.query import Edges
from learners.orders.queries.queries import GraphQueries

# Pixels.
CELL, MARGIN, CHARACTER, LEGEND = 22, 16, 6.6, 12
# Characters of a name, and of a title, which are wider.
LONGEST, LONGEST_TITLE, OF_TITLE = 40, 120, 8.0


def draw_edge_heat_map(
    engine: GraphQueries, title: str, present: tuple[str, ...] = (), absent: tuple[str, ...] = ()
) -> str:
    """Draw the edge probabilities of a posterior as a heat map. Raises UnknownColumn, InvalidParameter,
    ImpossibleEdges.

    present, absent: known edges, each as "parent->child".
    """
    place = {name: node for node, name in enumerate(engine.names)}
    probabilities = np.zeros((len(place), len(place)))
    for edge in engine.answer(Edges(present, absent))["edges"]:
        probabilities[place[edge["from"]], place[edge["to"]]] = edge["probability"] or 0.0
    return heat_map_svg(engine.names, probabilities, f"probability of edges: {title}")


def heat_map_svg(names: Sequence[str], probabilities: Floats, title: str) -> str:
    """Draw a cell for each pair of columns, darker for more probable edges (d, d): parents are rows, children columns."""
    drawn, d = [truncate_xml_text(name, LONGEST) for name in names], len(names)
    room = MARGIN + max(map(len, drawn)) * CHARACTER + 6
    left, top = room + 18, room + 44
    width, height = left + CELL * d + MARGIN, top + CELL * d + LEGEND + 40
    short = truncate_xml_text(title, LONGEST_TITLE)
    width = max(width, len(short) * OF_TITLE + 2 * MARGIN)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" font-family="Helvetica, Arial, sans-serif" font-size="11">',
        f"<title>{escape(short)}</title>",
        f'<text x="{MARGIN}" y="18" font-size="13" font-weight="bold">{escape(short)}</text>',
    ]
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
    """Return a colour from white to dark blue."""
    share = min(1.0, max(0.0, p))
    red, green, blue = (round(255 + (dark - 255) * share) for dark in (16, 42, 110))
    return f"#{red:02x}{green:02x}{blue:02x}"
