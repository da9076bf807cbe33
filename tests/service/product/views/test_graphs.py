"""Graphs for people: layers, the picture, the neighbourhood of a column, and the table behind it."""

import json
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from learners.errors import UnknownColumn
from learners.registry.column_graphs import ColumnGraph, GraphEdge, graph_outline, structure_column_graph
from service.product.views.graph_svg import column_graph_svg
from service.settings import Settings
from service.workspace import Workspace
from tests.service.asking import learned

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "<script>alert('1')</script>\x00\u202e\"&" + "x" * 100


def test_the_picture_has_real_text_and_escapes_names():
    graph = ColumnGraph("class", ("a", HOSTILE), (GraphEdge("a", HOSTILE, 0.25),), {"a": 0.5}, "log loss")
    root = ElementTree.fromstring(column_graph_svg(graph, HOSTILE, link=lambda name: f"/x?{name == 'a'}"))
    texts = [each.text for each in root.iter(f"{SVG}text")]
    assert {"class", "a"} <= set(texts) and all(len(text or "") <= 28 for text in texts)
    titles = [each.text or "" for each in root.iter(f"{SVG}title")]
    assert any("→ <script>" in title and "saves 0.25 of log loss per row" in title for title in titles)
    assert "2 columns, 1 edge." in (root.findtext(f"{SVG}desc") or "") and not list(root.iter(f"{SVG}script"))
    assert [link.get("href") for link in root.iter(f"{SVG}a")] == ["/x?False", "/x?True", "/x?False"]
    assert root.find(f"{SVG}style") is not None
    assert ElementTree.fromstring(column_graph_svg(graph, "x", alone=False)).find(f"{SVG}style") is None


def test_the_neighbourhood_of_a_column():
    edges = tuple(GraphEdge(a, b, 1.0) for a, b in ("ab", "bc", "cd"))
    graph = ColumnGraph("y", tuple("abcd"), edges, {"a": 0.1, "d": 0.9}, "log loss")
    assert graph.around("b").columns == ("a", "b", "c") and len(graph.around("b").edges) == 2
    assert graph.around("a", 2).columns == ("a", "b", "c")
    assert graph.around("y").columns == tuple("abcd")
    with pytest.raises(UnknownColumn, match="'z' is not in the table"):
        graph.around("z")
    assert graph_outline(graph)[1]["parents"] == [{"column": "a", "weight": 1.0}]


def test_trees_keep_their_edges_to_the_class():
    nodes = [{"name": "y", "role": "class"}, {"name": "a", "role": "attribute"}]
    graph = structure_column_graph({"nodes": nodes, "edges": [{"from": "a", "to": "y"}]})
    assert graph.target is None and graph.columns == ("y", "a") and len(graph.edges) == 1


@pytest.fixture(scope="module")
def network(site):
    return site.learn("tree", "tan", m=1.0).name


def test_the_family_of_a_column_over_rest(site, network):
    structure = site.client.get(f"/v1/models/{network}/structure").json()
    child = next(edge["to"] for edge in structure["edges"] if edge["rank"] == 1)
    told = site.client.get(f"/v1/models/{network}/families/{child}").json()
    parent = next(edge["from"] for edge in structure["edges"] if edge["rank"] == 1 and edge["to"] == child)
    assert told["parents"] == ["class", parent]
    n_rows = sum(sum(context["n_rows"]) for context in told["contexts"])
    assert n_rows == site.client.get(f"/v1/models/{network}").json()["n_rows"]
    assert [sum(each["probability"]) for each in told["contexts"]] == pytest.approx([1.0] * len(told["contexts"]))
    of_class = site.client.get(f"/v1/models/{network}/families/class").json()
    assert of_class["values"] == ["no", "yes"] and of_class["parents"] == []
    assert site.client.get(f"/v1/models/{network}/families/nothing").status_code == 422
    assert len(site.client.get(f"/v1/models/{network}/families/{child}?limit=1").json()["contexts"]) == 1


def test_pages_of_the_graph(site, network, circuit):
    def page(path):
        answer = site.client.get(f"/console/models/{path}", headers={"accept": "text/html"})
        assert answer.status_code == 200, answer.text[:300]
        return answer.text

    assert "<text" in page(f"{network}/graph") and "windy" in page(f"{network}/graph")
    assert "columns around windy" in page(f"{network}/graph?around=windy").lower()
    assert "Given class" in page(f"{network}/graph/windy")
    shown = page("sky/graph").partition("The same over REST")[0]
    assert "A circuit of" in shown and "structure.svg" not in shown
    folded = page("sky/regions?open=")
    assert folded.count('class="node') == 1 and "unfold " in folded and "fold " in page("sky/regions")
    assert 'data-value="0"' in page("sky/regions") and 'data-value="0"' not in folded
    assert "the network was compiled to it" in page(f"{network}/regions")
    refused = site.client.get("/console/models/sky/regions?open=99999", headers={"accept": "text/html"})
    assert refused.status_code == 422 and "from 0 to" in refused.text
    assert "<text" in site.client.get(f"/v1/models/{network}/structure.svg").text


def test_a_thousand_columns_show_a_neighbourhood(site, tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 200)
    copies = {f"c{i:03d}": np.where(rng.random(200) < 0.5, y, rng.integers(0, 2, 200)) for i in range(1000)}
    pq.write_table(pa.table(copies | {"y": y}), tmp_path / "wide.parquet")
    with Workspace(Settings(workspace=site.workspace)) as workspace:
        wide = {"target": "y", "parameters": {"m": 1.0}, "columns": {"c000": {"kind": "nominal"}}, "holdout": 0}
        learned(workspace, tmp_path / "wide.parquet", "wide", **wide)

    def answer(page):
        return site.client.get(f"/console/models/wide/{page}", headers={"accept": "application/json"}).json()

    assert answer("graph")["n_columns"] > 900 and answer("graph")["n_shown"] <= 40
    assert len(json.dumps(answer("what-if")["start"])) < 400_000
