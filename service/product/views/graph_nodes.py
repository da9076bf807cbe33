"""The boxes of a graph in SVG: a name, and below it a bar for each value, which a page fills with probabilities."""

from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

from learners.models.graph_layout import HEIGHT, short_text, text_of

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
    """What the bars of a box stand for: the words of each value.

    `is_ordered` says that the values are intervals of numbers, from the least; `ends` are, of a column of numbers without
    intervals, the least and the greatest that training saw.
    """

    words: Sequence[str]
    is_ordered: bool = False
    ends: tuple[str, str] | None = None

    @property
    def is_upright(self) -> bool:
        """Whether the bars stand side by side."""
        return self.is_ordered and len(self.words) > MOST_ROWS


class Box(NamedTuple):
    """A node of a picture: its title stands under the pointer, and its kind is its class, "class", "blamed" or nothing."""

    name: str
    bars: Bars | None
    title: str
    kind: str = ""

    @property
    def width(self) -> float:
        """In pixels."""
        of_name = CHARACTER * len(short_text(self.name, LONGEST)) + 16
        if self.bars is None:
            return max(40.0, of_name)
        longest = 0 if self.bars.is_upright else max(map(len, self.bars.words[:MOST_ROWS]), default=0)
        return max(WIDTH, of_name, min(WIDEST, CHARACTER * longest + NUMBER))

    @property
    def height(self) -> float:
        """In pixels."""
        if self.bars is None:
            return HEIGHT
        n_rows = min(len(self.bars.words), MOST_ROWS + (len(self.bars.words) > MOST_ROWS))
        of_rows = UPRIGHT + ROW if self.bars.is_upright else ROW * (n_rows + 2 * (self.bars.ends is not None))
        return HEIGHT + of_rows + (EDGE if of_rows else 0)


def box_svg(box: Box, x: float, y: float, link: Callable[[str], str | None] | None) -> str:
    """A box around a centre."""
    left, top = x - box.width / 2, y - box.height / 2
    title = f'<text class="name" x="{x:.1f}" y="{top + HEIGHT / 2 + 4:.1f}" text-anchor="middle">{escape(short_text(box.name, LONGEST))}</text>'
    if link is not None and (leads := link(box.name)) is not None:
        title = f'<a href="{escape(leads)}" data-column="{escape(text_of(box.name))}">{title}</a>'
    inside = "" if box.bars is None else _bars(box.name, box.bars, left + EDGE, top + HEIGHT, box.width - 2 * EDGE)
    return (
        f'<g class="node {box.kind}" data-column="{escape(text_of(box.name))}">'
        f"<title>{escape(': '.join(filter(None, (text_of(box.name), box.title))))}</title>"
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
    """A value that a click supposes. Its `share` and `before` have no size yet."""
    x, y, width, height = place
    label = f"{text_of(name)}: {text_of(words)}"
    text = (
        ""
        if kind
        else (
            f'<text x="{x + 4:.1f}" y="{y + 12:.1f}">{escape(short_text(words, int((width + 2 * EDGE - NUMBER) / CHARACTER)))}</text>'
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
    first, last = (escape(short_text(end, LONGEST_END)) for end in ends)
    right = f'<text class="more" x="{x + width:.1f}" y="{y:.1f}" text-anchor="end">{last}</text>'
    return f'<text class="more" x="{x:.1f}" y="{y:.1f}">{first}</text>{right}'
