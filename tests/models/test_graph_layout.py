"""Where the nodes of a graph stand: in layers, apart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learners.models.graph_layout import GAP, graph_node_layers, layered_graph_layout


@st.composite
def graphs(draw):
    n = draw(st.integers(1, 12))
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=20)) if pairs else []
    order = draw(st.permutations(range(n)))
    return n, [(order[i], order[j]) for i, j in edges]


@given(graphs())
def test_parents_stand_above_and_nothing_touches(drawn):
    n, edges = drawn
    widths, heights = [30.0 + 10 * node for node in range(n)], [26.0 + 30 * (node % 3) for node in range(n)]
    spots = layered_graph_layout(widths, edges, heights)
    layer = graph_node_layers(n, edges)
    for (parent, child), route in zip(edges, spots.routes, strict=True):
        assert layer[parent] < layer[child] and spots.y[parent] < spots.y[child]
        assert route[0] == (spots.x[parent], spots.y[parent]) and route[-1] == (spots.x[child], spots.y[child])
        assert len(route) == 2 * (layer[child] - layer[parent]) + 1
    for a in range(n):
        assert spots.x[a] - widths[a] / 2 > 0 and spots.x[a] + widths[a] / 2 < spots.width
        assert spots.y[a] - heights[a] / 2 > 0 and spots.y[a] + heights[a] / 2 < spots.height
        for b in range(a):
            is_beside = abs(spots.y[a] - spots.y[b]) < (heights[a] + heights[b]) / 2
            assert not is_beside or abs(spots.x[a] - spots.x[b]) >= (widths[a] + widths[b]) / 2 + GAP - 1e-6


def test_nodes_without_edges_fill_rows():
    spots = layered_graph_layout([200.0] * 40, [])
    assert spots.width < 1200 and len(set(spots.y)) == 10


def test_a_cycle_is_refused():
    with pytest.raises(ValueError, match="nodes are in a cycle"):
        layered_graph_layout([1.0, 1.0], [(0, 1), (1, 0)])
