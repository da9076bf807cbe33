"""Networks as files of other programs write them."""

import itertools

from hypothesis import strategies as st

from learners.orders.formats.network_tables import Network

ASIA = """
network "asia" { property author "somebody"; }
// two causes
variable smoke { type discrete [ 2 ] { yes, no }; }
variable "lung cancer" { type discrete [ 3 ] { none, "some (or more)", much }; property x = 1; }
variable tub { type discrete[2] { yes, no }; }
probability ( smoke ) { table 0.5, 0.5; }
/* given
   both */
probability ( "lung cancer" | smoke, tub ) {
  default 0.2 0.3 0.5;
  (yes, yes) 0.1, 0.2, 0.7;
  (no, yes) 1, 0, 0e-3;
}
"""


ODD = ("(-inf, 0.5]", "(0.5, inf]", 'say "x"', "say 'x'", "table", "7", "a b", "a_b", "a-b", "//", "/*", "a\nb", "(missing)")  # fmt: skip
WORDS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8) | st.sampled_from(ODD)


@st.composite
def some_networks(draw):
    """With names and values of all kinds, one of them with parents."""
    first, *others = draw(st.lists(WORDS, min_size=2, max_size=4, unique=True))
    values = draw(st.lists(WORDS, min_size=2, max_size=3, unique=True))
    n_rows = len(values) ** len(others)
    numbers = draw(st.lists(st.floats(0, 1), min_size=len(values) * n_rows, max_size=len(values) * n_rows))
    rows = zip(*[iter(numbers)] * len(values), strict=True)
    even = (1 / len(values),) * len(values)
    return Network(
        {name: tuple(values) for name in (first, *others)},
        {first: tuple(others)} | dict.fromkeys(others, ()),
        {first: dict(zip(itertools.product(values, repeat=len(others)), rows, strict=True))}
        | {name: {(): even} for name in others},
    )


def table_cells(network, name):
    """p(value | parents) of a table, by the names and values of all of them in whatever order they come."""
    names = (*network.parents[name], name)
    cells = itertools.product(*(network.values[each] for each in names))
    return {
        frozenset(zip(names, cell, strict=True)): p for cell, p in zip(cells, network.probabilities(name), strict=True)
    }
