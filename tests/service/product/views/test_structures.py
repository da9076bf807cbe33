"""Posteriors over structures as a user has them: REST, jobs, command line, SQL, refresh and forgetting."""

import json
import math
from functools import partial
from xml.etree import ElementTree

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from learners.circuits.evaluation.evaluate import log_values
from learners.circuits.structures.text import parse_text
from learners.models.estimation import Average
from learners.models.query import Conditional
from learners.orders.formats.bif import parse_bif
from learners.orders.queries.predictive import GraphAverage
from learners.registry.networks.order_circuits import order_circuit
from service import product
from service.product.versions.fitted_models import load_fitted_model
from service.settings import Settings
from service.workspace import Workspace
from tests.orders.problems import gaussian_table
from tests.service.asking import finished
from tests.support.cli import fewpass, said
from tests.support.http import ask, problem

NAMES = ["flow", "heat", "level", "power"]
GIVEN = {"present": ["flow->heat"], "absent": ["level->power"]}
SVG = "{http://www.w3.org/2000/svg}"


def write(path, seed, n=60):
    x = gaussian_table(4, n, 4, 1.0) + np.random.default_rng(seed).normal(0, 0.3, (n, 4))
    pq.write_table(pa.table(dict(zip(NAMES, x.T, strict=True)) | {"batch": pa.array(np.arange(n) % 10)}), path)


@pytest.fixture(scope="module")
def plant(site, tmp_path_factory):
    """A posterior that a job of the server has learned; the folder of its files."""
    folder = tmp_path_factory.mktemp("plant")
    for day in range(2):
        write(folder / f"{day}.parquet", day)
    job = {"kind": "train", "uris": [str(folder)], "learner": "orders", "model": "plant", "columns": {"batch": "drop"}}
    metrics = finished(site.client, job)["metrics"]
    assert metrics["log_likelihood"] < 0 and metrics["evaluated_on"] == "hold-out"
    return folder


def model_of(site, reference="plant"):
    with Workspace(Settings(workspace=site.workspace)) as workspace:
        return product.load_served_model(workspace, reference).model


QUERIES = [
    {"kind": "edges", **GIVEN},
    {"kind": "edges", "prior": "graph", "n": 50},
    {"kind": "graph", **GIVEN},
    {"kind": "graphs", "n": 20, "seed": 2, **GIVEN},
    {"kind": "paths", **GIVEN},
    {"kind": "effects", "n": 100, "level": 0.8},
    {"kind": "score", "edges": ["flow->heat", "heat->level"]},
]


def test_rest_and_jobs_answer_every_query(site, plant):
    answers = ask(site.client, "plant", *QUERIES)
    assert [answer["kind"] for answer in answers] == [query["kind"] for query in QUERIES]
    coverage = {"is_exact": True, "orders": 1.0, "graphs": 1.0, "limits": {"max_parents": None, "candidates": None}}
    assert all(answer["coverage"] == coverage for answer in answers)
    edges = {(edge["from"], edge["to"]): edge["probability"] for edge in answers[0]["edges"]}
    assert len(edges) == 12 and edges["flow", "heat"] == pytest.approx(1.0) and edges["level", "power"] == 0.0
    assert sum(graph["count"] for graph in answers[3]["graphs"]) == 20
    assert answers[6]["log_odds"] <= 0
    assert finished(site.client, {"kind": "query", "model": "plant", "queries": QUERIES})["answers"] == answers


@pytest.mark.parametrize(
    ("query", "code", "word"),
    [
        ({"kind": "conditional"}, 422, "All columns of the model are numeric: ask for their moments"),
        ({"kind": "edges", "present": ["flow->heat", "heat->flow"]}, 422, "flow->heat->flow is a cycle"),
        ({"kind": "edges", "present": ["flow->heap"]}, 422, "Column 'heap' is not in the table (similar: heat)"),
        ({"kind": "graph", "absent": ["flow"]}, 422, "absent='flow' must be an edge such as 'parent->child'"),
        ({"kind": "score", "edges": ["flow->heat", "heat->flow"]}, 422, "flow->heat->flow is a cycle"),
        ({"kind": "score", "edges": ["flow->heat"], "bif": "x"}, 422, "give either edges or bif"),
        ({"kind": "score", "bif": "network x {\n}\nnot"}, 422, "bif, line 3"),
        ({"kind": "graphs", "n": 0}, 422, "must be 1 to 100,000 draws"),
        ({"kind": "paths", "prior": "graph", "n": 5000}, 413, "the limit is 2000 per request (FEWPASS_MAX_ROWS"),
        ({"kind": "edges", "given": ["flow->heat"]}, 422, "there are present, absent, prior, n, seed"),
    ],
)
def test_what_cannot_be_asked(site, plant, query, code, word):
    told = ask(site.client, "plant", query, code=code)
    assert word in told["detail"]
    if code == 422:
        refused = site.client.post("/v1/jobs", json={"kind": "query", "model": "plant", "queries": [query]})
        assert word in problem(refused, 422)["detail"]


def test_rows_are_scored_averaged_over_graphs(site, plant, circuit, tmp_path):
    """REST, jobs and the command line tell what the model says; a row that lacks a number has no likelihood."""
    table = pq.read_table(plant / "1.parquet").select(NAMES).slice(0, 5)
    (batch,) = table.to_batches()
    model = model_of(site)
    expected = GraphAverage(model.graph_queries, Average(), 5).log_likelihood(model.rows_of(batch)).tolist()
    records = [*table.to_pylist(), {"flow": 1.0}]
    for average, is_exact in (({}, True), ({"present": ["flow->heat"], "n": 50}, False)):
        told = site.client.post("/v1/models/plant/score", json={"records": records, "average": average}).json()
        assert told["average"]["is_exact"] is is_exact
        *logs, last = told["log_likelihoods"]
        assert logs == pytest.approx(expected, rel=1e-9 if is_exact else 0.1) and last is None
        assert sorted(told["surprise_ranks"][:5]) == [1, 2, 3, 4, 5] and told["surprise_ranks"][5] is None
    rows = tmp_path / "rows.parquet"
    pq.write_table(pa.table({name: [*table[name].to_pylist(), None] for name in NAMES}), rows)
    score = ["score", "plant", rows, "--out", tmp_path / "s.parquet", "--average"]
    shown = fewpass(*score, workspace=site.workspace).stdout
    assert "averaged over graphs exactly; 1 row with missing or unseen values" in shown
    written = pq.read_table(tmp_path / "s.parquet").to_pydict()
    assert written["log_likelihood"][:5] == pytest.approx(expected, rel=1e-9) and written["log_likelihood"][5] is None
    assert written["surprise_rank"][5] is None and sorted(written["surprise_rank"][:5]) == [1, 2, 3, 4, 5]
    job = {"kind": "score", "model": "plant", "uris": [str(plant / "1.parquet")]}
    done = finished(site.client, job | {"average": {"prior": "graph", "n": 30}})
    assert done["average"]["n"] == 30 and done["average"]["standard_error"] > 0 and done["n_incomplete"] == 0
    for wrong, word in (
        ({"draws": 5}, "unknown field `draws`"),
        ({"n": "5"}, "Expected `int`, got `str` - at `$.average.n`"),
        ({"n": 10_001}, "must be 2 to 10,000 draws"),
        ({"present": "flow->heat"}, "Expected `array`"),
        ({"present": ["flow->heap"]}, "Column 'heap'"),
        ({"prior": "none"}, "Invalid enum value 'none'"),
        ({"level": 1.5}, "must be a number between 0 and 1"),
        ([], "Expected `object | null`, got `array`"),
    ):
        answer = site.client.post("/v1/models/plant/score", json={"records": [{}], "average": wrong})
        assert word in problem(answer, 422)["detail"]
    body = {"records": [{}], "average": {}}
    assert "has several graphs" in problem(site.client.post("/v1/models/sky/score", json=body), 422)["detail"]


def refusal(site, path):
    return problem(site.client.get(f"/v1/models/{path}"), 422)["detail"]


def test_other_models_know_no_structures_and_this_one_no_classes(site, plant, circuit):
    for model, kind in (("sky", "circuit"), ("weather", "lookup")):
        refused = ask(site.client, model, {"kind": "edges"}, code=422)["detail"]
        assert "does not answer 'edges'; it answers marginal, conditional" in refused
        for path in ("edges.svg", "graph.svg"):
            told = refusal(site, f"{model}/{path}")
            assert f"{kind!r} has no posterior over structures. Train with learner orders" in told
    for path, words in {
        "sky/graph.bif": "is not a Bayesian network, so it cannot be exported as one",
        "sky/model.sql?table=t": "cannot be exported as SQL",
        "sky/circuit?of=graphs": "has no posterior over structures",
        "weather/model.sql?table=t&dialect=oracle": "dialect",
        "plant/circuit": "has leaves of several columns",
        "plant/graph.xdsl": "is continuous, which only BIF and equations can hold",
        "plant/edges.svg?present=flow->flow": "flow",
    }.items():
        assert words in refusal(site, path), path
    assert site.client.get("/v1/models/weather/graph.bif").text.startswith("network ")
    text = site.client.get("/v1/models/weather/model.sql", params={"table": "raw.days", "dialect": "spark"}).text
    assert "CREATE VIEW `weather` AS" in text and "FROM `raw`.`days` AS t" in text
    told = problem(site.client.post("/v1/models/plant/predict", json={"records": [{"flow": 1.0}]}), 422)
    assert "or send queries" in told["detail"]


def test_graphs_are_a_circuit_to_save_and_load(site, plant, circuit, tmp_path):
    def exported(form):
        return site.client.get("/v1/models/plant/circuit", params={"of": "graphs", "format": form})

    text, given = exported("text").text, model_of(site).probabilities[0, 1]
    read = parse_text(text.splitlines(), "graphs.txt")
    own = order_circuit(model_of(site))
    with_edge = [code for code, value in enumerate(own.schema.attributes[1].values) if "flow" in value.split(", ")]
    assert sum(math.exp(log_values(read, [[-1], [code], [-1], [-1]])[0]) for code in with_edge) == pytest.approx(given)
    fewpass("models", "circuit", "plant", "--of", "graphs", "--out", tmp_path / "g.txt", workspace=site.workspace)
    assert (tmp_path / "g.txt").read_text() == text
    assert "<svg" in exported("svg").text
    (tmp_path / "g.fewpass").write_bytes(exported("model").content)
    (answer,) = load_fitted_model(tmp_path / "g.fewpass").model.answer([Conditional((NAMES[1],))])
    shares = answer["distributions"][NAMES[1]].items()
    assert sum(p for value, p in shares if "flow" in value.split(", ")) == pytest.approx(given)


def titles(text):
    return [title.text for title in ElementTree.fromstring(text).iter(f"{SVG}title")]


def test_pictures_tell_every_probability(site, plant):
    probabilities = model_of(site).probabilities
    told = titles(site.client.get("/v1/models/plant/edges.svg").text)
    for i, parent in enumerate(NAMES):
        for j, child in enumerate(NAMES):
            assert (f"{parent} → {child}: {probabilities[i, j]:.4f}" in told) == (i != j)
    graph = site.client.get("/v1/models/plant/graph.svg").text
    assert graph == site.client.get("/v1/models/plant/structure.svg").text
    assert sum("→" in title for title in titles(graph)) == np.sum(probabilities >= 0.01)
    given = site.client.get("/v1/models/plant/edges.svg", params=GIVEN)
    assert given.headers["content-type"].startswith("image/svg+xml")
    assert {"flow → heat: 1.0000", "level → power: 0.0000"} <= set(titles(given.text))
    assert "plant@1 given flow-&gt;heat, no level-&gt;power" in given.text


def test_the_best_graph_is_exported_and_scored(site, plant):
    text = site.client.get("/v1/models/plant/graph.bif").text
    assert " = " in site.client.get("/v1/models/plant/graph.sem").text
    best = ask(site.client, "plant", {"kind": "graph"})[0]
    assert set(parse_bif(text).edges) == {f"{edge['from']}->{edge['to']}" for edge in best["edges"]}
    assert ask(site.client, "plant", {"kind": "score", "bif": text})[0]["log_odds"] == pytest.approx(0.0)
    with Workspace(Settings(workspace=site.workspace)) as workspace:
        path = product.find_version(workspace, "plant").duckdb_path
    with duckdb.connect(str(path), read_only=True) as database:  # the file of the model, read by SQL
        edge = "SELECT probability FROM edges WHERE parent = 'heat' AND child = 'level'"
        assert database.execute(edge).fetchone() == (model_of(site).probabilities[1, 2],)
        query = "SELECT log_posterior FROM graphs ORDER BY rank LIMIT 1"
        assert database.execute(query).fetchone()[0] == pytest.approx(best["log_posterior"])


def test_the_command_line_asks_and_draws(site, plant, tmp_path):
    query = partial(said, "query", "plant", workspace=site.workspace)
    given = ("--present", "flow->heat", "--absent", "level->power")
    assert json.loads(query("edges", *given, "--json")) == ask(site.client, "plant", {"kind": "edges", **GIVEN})[0]
    shown = query("edges", *given)
    assert "flow->heat" in shown and "exact: sum over all orders" in shown
    assert "log_posterior" in query("graph", *given)
    assert "drawn" in query("graphs", "--set", "n=5", "--set", "prior=graph")
    assert "probability" in query("paths")
    assert "80% interval" in query("effects", "--set", "level=0.8")
    assert "log_odds -" in query("score", "--edge", "flow->heat")

    network, drawn = tmp_path / "best.bif", tmp_path / "edges.svg"
    models = partial(fewpass, "models", workspace=site.workspace)
    models("network", "plant", "--out", network)
    assert models("network", "plant").stdout == network.read_text()
    same = json.loads(query("score", "--network", network, "--json"))
    assert same["log_odds"] == pytest.approx(0.0)
    all_given = json.loads(query("graph", "--network", network, "--json"))
    assert all_given["log_score"] == pytest.approx(same["log_score"])
    picture = ["picture", "plant", "--out", drawn]
    models(*picture, *given)
    assert "flow → heat: 1.0000" in titles(drawn.read_text())
    assert "--force" in models(*picture, code=1).stderr
    models(*picture, "--of", "graph", "--force")
    wrong = query("edges", "--present", "flow->heap", code=1)
    assert "Column 'heap' is not in the table (similar: heat)" in wrong
    assert "cannot be read" in query("score", "--network", tmp_path / "no.bif", code=1)


def words(rng):
    return {name: rng.choice(["x", "y"], 90).astype(object) for name in NAMES}


def test_words_have_no_effects(site, tmp_path):
    pq.write_table(pa.table(words(np.random.default_rng(1))), tmp_path / "words.parquet")
    finished(site.client, {"kind": "train", "uris": [str(tmp_path)], "learner": "orders", "model": "words"})
    told = ask(site.client, "words", {"kind": "effects"}, code=422)["detail"]
    assert "Effects are of linear Gaussian models, and this one scores nominal columns (BDeu)" in told
    assert "table 0." in site.client.get("/v1/models/words/graph.bif").text
    answer = site.client.get("/v1/models/words/graph.xdsl")
    assert answer.headers["content-type"].startswith("application/xml") and "<smile " in answer.text
    problem(site.client.get("/v1/models/words/graph.png"), 422)
    assert model_of(site, "words").facts["score"] == "bdeu"


def test_rows_that_a_model_keeps_are_forgotten_too(site, tmp_path):
    """Distinct rows lie in a model of words: the new version has none of those forgotten, and the old one is named."""
    columns = words(np.random.default_rng(1))
    columns["flow"][7] = "secret"
    pq.write_table(pa.table(columns | {"batch": pa.array(np.arange(90))}), tmp_path / "words.parquet")
    train = {"kind": "train", "uris": [str(tmp_path)], "learner": "orders", "columns": {"batch": "drop"}}
    first = finished(site.client, train | {"model": "kept", "holdout": 0, "update": True})
    assert any(
        "to score any graph: everyone who may download the model can read them. Set keep_rows=false to leave them out"
        in told
        for told in first["warnings"]
    )
    before = model_of(site, "kept@1")
    assert before.rows.counts.sum() == 90 and "secret" in before.schema.attributes[0].values
    done = finished(site.client, {"kind": "forget", "model": "kept", "where": "batch = 7"})
    assert [proof["is_equal"] for proof in done["proofs"]] == [True] and done["still_holding"] == ["kept@1"]
    after = model_of(site, "kept@2")
    assert after.rows.counts.sum() == 89 and after.schema.attributes[0].values == ("x", "y")
    assert after.rows.n_distinct == after.facts["n_rows_kept"] == before.rows.n_distinct - 1
