"""Pictures of circuits: well-formed, complete, and of regions where there are too many nodes."""

import re
from collections import Counter
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learners.circuits.kernels import CATEGORICAL, PRODUCT, SUM
from learners.circuits.structures.region_drawing import PictureTooLarge, circuit_regions, to_dot, to_svg
from learners.schema import Attribute, Schema
from tests.circuits.map_circuits import random_circuit
from tests.naive.map import flat_circuit
from tests.support.small_circuit import CIRCUIT, SCHEMA

SVG = "{http://www.w3.org/2000/svg}"


def is_downward(picture):
    """Of each edge."""
    places = [re.findall(r"[-\d.]+", edge.get("d")) for edge in picture.findall(f"{SVG}path")]
    return [float(numbers[1]) < float(numbers[-1]) for numbers in places]


@given(seed=st.integers(0, 2**32 - 1))
def test_every_node_and_edge_is_drawn_apart(seed):
    circuit = random_circuit(np.random.default_rng(seed), 3)
    picture = ElementTree.fromstring(to_svg(circuit))
    circles, boxes = picture.findall(f"{SVG}circle"), picture.findall(f"{SVG}rect")
    assert (len(circles), len(boxes)) == ((circuit.kind <= PRODUCT).sum(), (circuit.kind > PRODUCT).sum())
    assert is_downward(picture) == [True] * circuit.n_edges, "parents lie above their children"
    spans = sorted((float(c.get("cy")), float(c.get("cx")) - 14, float(c.get("cx")) + 14) for c in circles)
    for (y, _, right), (other_y, left, _) in zip(spans, spans[1:], strict=False):
        assert y != other_y or right <= left
    width = float(picture.get("width"))
    assert all(left >= 0 and right <= width for _, left, right in spans)
    assert to_dot(circuit).count("->") == circuit.n_edges


def test_names_and_values_are_the_columns():
    svg, dot = to_svg(CIRCUIT, SCHEMA), to_dot(CIRCUIT, SCHEMA)
    for words in ("colour", "green: 0.3", "weight", "N(5, 1²)", "(1, 2.5]: 0.2", "0.4"):
        assert words in svg
        assert words in dot
    assert "X2" in to_svg(CIRCUIT)
    by_regions = to_svg(CIRCUIT, SCHEMA, max_nodes=12)
    assert ">colour</text>" in by_regions and ">weight</text>" in by_regions


@given(seed=st.integers(0, 2**32 - 1))
def test_large_circuits_are_drawn_by_regions(seed):
    circuit = random_circuit(np.random.default_rng(seed), 4)
    regions = circuit_regions(circuit)
    n, n_edges = len(regions), sum(len(region.children) for region in regions)
    if circuit.n_nodes == n:
        return  # then nodes are drawn
    picture, dot = ElementTree.fromstring(to_svg(circuit, max_nodes=n)), to_dot(circuit, max_nodes=n)
    assert len(picture.findall(f"{SVG}rect")) == n and not picture.findall(f"{SVG}circle")
    assert is_downward(picture) == [True] * n_edges
    assert dot.count("->") == n_edges
    n_sums = sum(int(n.replace(",", "")) for n in re.findall(r"([\d,]+) \+", dot))
    assert n_sums == (circuit.kind == SUM).sum()


def test_what_has_too_many_regions_is_refused():
    message = r"A picture of 13 nodes, or of \d regions, would be unreadable: the limit is 3\."
    for draw in (to_svg, to_dot):
        with pytest.raises(PictureTooLarge, match=message):
            draw(CIRCUIT, max_nodes=3)


def test_names_and_values_may_hold_any_character():
    """Those that XML does not have are drawn as unknown ones; long ones are cut off."""
    names = ("a\nb\x07", '<&>"]]>', "\ud800\uffff", "long " * 100)
    schema = Schema((Attribute("\x01 column", "nominal", names),), None, ("",))
    circuit = flat_circuit([(CATEGORICAL, 0, [np.log(0.25)] * 4)], [4])
    picture = ElementTree.fromstring(to_svg(circuit, schema).encode())
    told = [text.text for text in picture.iter(f"{SVG}text")]
    assert told[:4] == ["\ufffd column", "a\ufffdb\ufffd: 0.25", '<&>"]]>: 0.25', "\ufffd\ufffd: 0.25"]
    assert told[4].endswith("…: 0.25") and float(picture.get("width")) < 600
    assert to_dot(circuit, schema).encode()
    schema = Schema((Attribute('<a & "b">', "nominal", ("</svg>", '\\"', "x", "y")),), None, ("",))
    ElementTree.fromstring(to_svg(circuit, schema))
    assert '"<a & \\"b\\">' in to_dot(circuit, schema) and '\\\\\\": 0.25' in to_dot(circuit, schema)


@given(st.integers(0, 2**32 - 1), st.integers(1, 7))
def test_regions_are_the_nodes_over_the_same_columns(seed, n_variables):
    """Against a walk over the nodes one by one."""
    circuit = random_circuit(np.random.default_rng(seed), n_variables)
    own, below = Counter(), {}
    for node in range(circuit.n_nodes):
        scope = tuple(circuit.scope(node))
        kind = int(circuit.kind[node])
        own[scope, "sum" if kind == SUM else "product" if kind == PRODUCT else "leaf"] += 1
        for child in circuit.children[circuit.child_starts[node] : circuit.child_starts[node + 1]].tolist():
            if tuple(circuit.scope(child)) != scope:
                below.setdefault(scope, set()).add(tuple(circuit.scope(child)))
    found = circuit_regions(circuit)
    assert found[-1].variables == tuple(circuit.scope(circuit.root))
    assert {region.variables for region in found} == {scope for scope, _ in own}
    for region in found:
        counted = tuple(own[region.variables, kind] for kind in ("sum", "product", "leaf"))
        assert (region.n_sums, region.n_products, region.n_leaves) == counted
        assert {found[child].variables for child in region.children} == below.get(region.variables, set())
