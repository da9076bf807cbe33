"""Circuits and queries as a user meets them: training, REST, command line, jobs."""

import json
import time
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from starlette.testclient import TestClient

from learners import Source, drive
from learners.models.query import Conditional, Map, Marginal
from learners.registry import recipes
from service import product
from service.cli.ask import query_command
from service.http.app import create_app
from service.http.warm_up import TABLE
from service.product.inference import queries
from service.requests.problems import TooSlow
from service.requests.requests import TrainRequest
from service.settings import Settings
from service.workspace import Workspace
from tests.service.asking import finished, run_job
from tests.support import cli
from tests.support.cli import fewpass
from tests.support.http import ask, problem
from tests.support.passes import days, write

COLUMNS = {"user": "drop", "time": "drop"}
JSON = {"content-type": "application/json"}
OF_QUERY = '{"queries": [{"kind": "sample", "n": 1, "evidence": {"humidity": %s}}]}'
GIVEN_CIRCUIT = "vars 2 2\n0 cat 0 {} {}\n1 cat 1 0.5 0.5\n2 prod 0 1\n"
OF_WINDY = dict.fromkeys(("outlook", "humidity", "station"), "drop")
OFFLINE = {"job_workers": 0, "warm_up": False}


def test_it_is_measured_by_its_log_likelihood(circuit):
    assert circuit.metrics["log_likelihood"] < 0 and circuit.metrics["n_impossible"] == 0
    assert circuit.metrics["evaluated_on"] == "hold-out"


@pytest.mark.parametrize("model", ["sky", "weather"])
def test_queries_of_all_kinds(site, circuit, model):
    """A circuit, and naive Bayes compiled to one."""
    play = {"class": "yes"}
    marginal, conditional, best, drawn = ask(
        site.client,
        model,
        {"kind": "marginal", "evidence": play},
        {"kind": "conditional", "variables": ["outlook"], "evidence": play},
        {"kind": "map", "evidence": play, "time_limit_s": 60.0},
        {"kind": "sample", "n": 20, "evidence": play, "seed": 3},
    )
    table = pq.read_table(site.train)
    share = np.mean(np.array(table["class"]) == "yes")
    assert abs(marginal["probability"] - share) < 0.05
    sunny = conditional["distributions"]["outlook"]
    assert max(sunny, key=sunny.get) == "sunny" and abs(sum(sunny.values()) - 1) < 1e-9
    assert best["assignment"]["outlook"] == "sunny" and best["is_optimal"]
    assert len(drawn["rows"]) == 20 and {row["class"] for row in drawn["rows"]} == {"yes"}
    again = ask(site.client, model, {"kind": "sample", "n": 20, "evidence": play, "seed": 3})
    assert again[0] == drawn


@pytest.mark.parametrize(
    ("query", "code", "word"),
    [
        ({"kind": "conditional", "variables": ["outlok"]}, 422, "similar: outlook"),
        ({"kind": "marginal", "evidence": {"outlook": "hail"}}, 422, "'hail'"),
        ({"kind": "map", "evidence": {"windy": "perhaps"}}, 422, "'perhaps'"),
        ({"kind": "guess"}, 422, "guess"),
        ({"kind": "sample", "n": 2_000_000}, 422, "must be at most 1,000,000"),
        ({"kind": "sample", "n": 900_000}, 413, "the limit is 2000 per request (FEWPASS_MAX_ROWS)"),
        ({"kind": "map", "solver": "beam", "seed": -1}, 422, "seed=-1"),
        ({"kind": "map", "k": 10**400}, 422, "must be 1 to 1,000"),
        (
            {"kind": "moments"},
            422,
            "The model has no moments, because all its columns are discrete or cut into intervals: ask for distributions, or train a circuit",
        ),
        ({"kind": "marginal", "of": "class"}, 422, "there are evidence, likely"),
    ],
)
def test_what_cannot_be_asked_is_refused_at_once_by_jobs_too(site, circuit, query, code, word):
    """Of every kind; tests/circuits/queries has all refusals."""
    # The circuit of a network, which its job makes, finds the rest.
    is_of_columns = word.startswith(("similar", "'"))
    for model in ("sky", "weather") if is_of_columns else ("sky",):
        refusal = ask(site.client, model, query, code=code)
        assert word in json.dumps(refusal) and refusal["status"] == code
        if code == 422:  # a job may have more answers than a request
            job = {"kind": "query", "model": model, "queries": [{"kind": "marginal"}, query]}
            answer = site.client.post("/v1/jobs", json=job)
            assert answer.status_code == 422 and word in answer.json()["detail"], answer.text


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_what_json_does_not_have_is_no_evidence(site, number):
    body = f'{{"queries": [{{"kind": "marginal", "evidence": {{"humidity": {number}}}}}]}}'
    refusal = problem(site.client.post("/v1/models/weather/query", content=body, headers=JSON), 422)
    assert "evidence.humidity" in refusal["detail"] and "must be a finite number" in refusal["detail"]


@pytest.mark.parametrize(
    ("path", "body", "code", "field"),
    [
        ("query", OF_QUERY, 400, "body.queries.0.evidence.humidity"),
        ("predict", '{"records": [{"windy": true}, {"humidity": %s}]}', 422, "body.records.1.humidity"),
        ("predict", '{"columns": {"humidity": [%s]}}', 422, "body.columns.humidity.0"),
    ],
)
def test_a_number_of_thousands_of_digits_is_named(site, path, body, code, field):
    response = site.client.post(f"/v1/models/weather/{path}", content=body % ("-" + "9" * 5000), headers=JSON)
    assert f"{field} is a whole number with more than 4,300 digits" in problem(response, code)["detail"]
    in_doubles = site.client.post(f"/v1/models/weather/{path}", content=body % ("9" * 400), headers=JSON)
    assert in_doubles.status_code == 200, in_doubles.text
    with pytest.raises(typer.BadParameter, match="'humidity' has too many digits"):
        query_command("weather", "marginal", given=["humidity=" + "9" * 5000], workspace=site.workspace)


def test_the_answers_of_a_request_are_no_more_than_a_server_can_carry(site, circuit):
    """However few the queries are: each may ask for a table of thousands of cells."""
    joint = {"kind": "conditional", "joint": True}
    (told,) = ask(site.client, "sky", joint)
    n = 100_000 // len(told["distribution"]) + 1
    refused = ask(site.client, "sky", *[joint] * n, code=413)
    assert "the limit for one request is 100,000" in refused["detail"]


def test_a_circuit_from_a_file_is_trained_and_served(site, tmp_path):
    path = tmp_path / "given.txt"
    body = {"kind": "train", "uris": [str(site.train)], "learner": "spn", "model": "given", "holdout": 0}
    body |= {"columns": OF_WINDY}
    body["parameters"] = {"structure": "file", "circuit": f"file://{path}", "learning": "none"}
    refused = problem(site.client.post("/v1/jobs", json=body), 422)
    assert f"file://{path}: no such file" in refused["detail"]
    path.write_text(GIVEN_CIRCUIT.format(0.25, 0.75))
    job = run_job(site.client, body)
    assert job["state"] == "succeeded", job["error"]
    (answer,) = ask(site.client, "given", {"kind": "marginal", "evidence": {"windy": True}})
    assert answer["probability"] == pytest.approx(0.75)


def test_a_stream_starts_anew_when_the_circuit_of_its_file_has_changed(weather_files, tmp_path):
    path = tmp_path / "given.txt"
    parameters = {"structure": "file", "circuit": str(path), "learning": "adf"}
    options = {"learner": "spn", "model": "given", "holdout": 0, "update": True, "columns": OF_WINDY}
    request = TrainRequest(uris=[str(weather_files[0])], parameters=parameters, **options)
    stages = []
    with Workspace(Settings(workspace=tmp_path / "workspace")) as workspace:
        for comment, share in (("", 0.25), ("# the same\n", 0.25), ("", 0.75)):
            path.write_text(comment + GIVEN_CIRCUIT.format(share, 1 - share))
            passes = product.train_and_report_passes(workspace, request)[1]
            stages.append([each["stage"] for each in passes if "row" in each["stage"] or "scratch" in each["stage"]])
    assert stages[:2] == [[], ["learning row by row"]]
    assert stages[2][0] == "starting from scratch, because the circuit of its file has changed"


@pytest.mark.parametrize("evidence", [{"humidity": 60}, {"outlook": None}, {"windy": True, "class": "yes"}])
def test_what_can_be_asked_of_a_classifier_is_not_refused(site, evidence):
    asked = {"kind": "query", "model": "weather", "queries": [{"kind": "marginal", "evidence": evidence}]}
    assert finished(site.client, asked)["answers"][0]["probability"] > 0


def test_the_command_line_asks(site, circuit):
    said = partial(cli.said, "query", "sky", workspace=site.workspace)
    of_class = ["conditional", "--of", "outlook", "--given", "class=yes"]
    assert abs(sum(json.loads(said(*of_class, "--json"))["distributions"]["outlook"].values()) - 1) < 1e-9
    assert "sunny" in said(*of_class)
    assert "overcast" in said("sample", "--set", "n=50")
    assert "outlook" in said("marginal", "--given", "outlok=1", code=1)
    twice = ("--given", "windy=true", "--given", "windy=false")
    assert "'windy' is given twice" in said("marginal", *twice, code=2)


def test_tables_of_queries_can_be_read_at_any_width(tmp_path):
    """Columns that do not fit beside each other stand below each other; no word is broken."""

    def said(*arguments):
        return fewpass(*arguments, workspace=tmp_path / "workspace").stdout

    rng = np.random.default_rng(3)
    names = [f"a_rather_long_name_{i}" for i in range(8)]
    columns = {name: rng.choice(["Österreich", "São Tomé"], 300) for name in names}
    pq.write_table(pa.table(columns), tmp_path / "land.parquet")
    said(
        "train",
        tmp_path / "land.parquet",
        "-l",
        "spn",
        "-n",
        "land",
        "--set",
        "structure=chow-liu",
        "--set",
        "passes=1",
    )
    one = said("query", "land", "sample")
    assert all(sum(name in line for line in one.splitlines()) == 1 for name in names)
    assert max(map(len, one.splitlines())) <= 80 and "Österreich" in one
    many = said("query", "land", "sample", "--set", "n=30")
    assert "row 30" in many and many.count(names[7]) == 30
    assert said("query", "land", "sample", "--set", "n=30", "--of", names[0]).count(names[0]) == 1
    joint = said("query", "land", "conditional", "--of", names[0], "--set", "joint=true")
    assert f"{names[0]}=Österreich" in joint and "log probability of the evidence" not in joint
    lineage = said("models", "lineage", "land")
    assert "learner: spn" in lineage and "{" not in lineage and "read 300 rows" in lineage
    schema = said("schema", tmp_path / "land.parquet")
    assert "string" in schema and "dictionary" not in schema


def test_numbers_may_stay_numbers(site):
    """Trained by a job, classified, and asked for means."""
    asked = {"uris": [str(site.train)], "target": "class", "learner": "spn", "model": "breeze", "kind": "train"}
    finished(site.client, asked | {"parameters": {"structure": "hclt", "leaves": "gaussian", "passes": 5}})
    answer = site.client.post("/v1/models/breeze/predict", json={"records": site.table.to_pylist()}).json()
    assert np.mean(np.array(answer["predictions"]) == np.array(site.table["class"])) > 0.8
    of_class = [{"kind": "moments", "variables": ["humidity"], "evidence": {"class": c}} for c in ("yes", "no")]
    dry, wet = ask(site.client, "breeze", *of_class)
    assert dry["moments"]["humidity"]["mean"] == pytest.approx(55, abs=2)
    assert wet["moments"]["humidity"]["mean"] == pytest.approx(75, abs=2)
    told = fewpass("query", "breeze", "moments", "--given", "class=yes", workspace=site.workspace).stdout
    assert "humidity" in told and "variance" in told
    (best,) = ask(site.client, "breeze", {"kind": "map"})
    assert "humidity" not in best["assignment"] and "class" in best["assignment"]
    asked = {"kind": "map", "variables": ["humidity"]}
    assert "'humidity' are numbers" in ask(site.client, "breeze", asked, code=422)["detail"]


@pytest.mark.parametrize(("learning", "leaves"), [("adf", "gaussian"), ("bmm", "intervals")])
def test_an_update_goes_on_from_the_posterior(tmp_path, learning, leaves):
    data = days(tmp_path / "data", 3)
    asked = {"uris": [str(data)], "learner": "spn", "model": "sky", "columns": COLUMNS, "update": True}
    request = TrainRequest(**asked, parameters={"structure": "chow-liu", "learning": learning, "leaves": leaves})
    with Workspace(Settings(workspace=tmp_path / "workspace")) as workspace:
        first, _ = product.train_and_report_passes(workspace, request)
        write(data, 3, values=("a", "b", "new"))
        second, passes = product.train_and_report_passes(workspace, request)
        assert [(each["n_files_read"], each["n_files_reused"]) for each in passes] == [(1, 3)]
        assert second.n_rows > first.n_rows
        third, passes = product.train_and_report_passes(workspace, request)
        assert passes[0]["n_rows_read"] == 0 and third.n_rows == second.n_rows
        (data / "00.parquet").unlink()
        fourth, passes = product.train_and_report_passes(workspace, request)
        assert fourth.n_rows < third.n_rows, "what is gone cannot be subtracted, so the rest is learned anew"
        told = product.query_model(workspace, "sky", [Marginal(), Conditional(("x0",))])
        assert told[0]["probability"] == pytest.approx(1.0)


def test_many_queries_that_are_wrong_are_refused_by_the_first(site):
    wrong = [{"kind": "map", "time_limit_s": -1}] * 1_000
    refusal = problem(site.client.post("/v1/models/sky/query", json={"queries": wrong}), 422)
    assert refusal["detail"].count("body.queries") == 1
    job = {"kind": "query", "model": "sky", "queries": wrong}
    assert problem(site.client.post("/v1/jobs", json=job), 422)["detail"].count("queries") == 1
    many = {"queries": [{"kind": "marginal"}] * 10_001}
    with TestClient(create_app(Settings(workspace=site.workspace, **OFFLINE)), base_url="http://localhost") as client:
        refusal = problem(client.post("/v1/models/sky/query", json=many), 422)
        assert "may have at most 10000 entries" in refusal["detail"]
        large = b" " * (4 << 20) + b"[]"
        assert problem(client.post("/v1/models/sky/query", content=large, headers=JSON), 413)["max_bytes"] == 4 << 20


def test_the_answering_of_a_request_ends_in_time():
    """Also where each query by itself is quick: the limit is for all of them together."""
    model = drive(recipes.learner("nb", {}, "class"), Source.of_table(TABLE))
    many = [Map(("word",), {"number": 1.5}, solver="bt")] * 50
    with pytest.raises(TooSlow, match=r"longer than the 7 s allowed per request \(FEWPASS_QUERY_S\)"):
        queries.answer_model_queries(model, many, queries.query_deadline_check(time.monotonic() - 1, 7))
    pauses = []
    assert len(queries.answer_model_queries(model, many, lambda: pauses.append(1))) == len(pauses) == 50
    alike = [Marginal({"number": float(n)}) for n in range(1_500)]
    whole = queries.answer_model_queries(model, alike, lambda: pauses.append(1))
    assert len(pauses) == 50 + 3
    first, rest = (queries.answer_model_queries(model, part) for part in (alike[:700], alike[700:]))
    assert whole == first + rest, "whatever they come with"
