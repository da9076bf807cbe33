"""Circuits and queries as a user meets them: training, REST, command line, jobs."""

import json
import time

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
from tests.passes.test_statistic_reuse import write
from tests.service.asking import job_at_end
from tests.service.cli.test_cli import fewpass
from tests.service.http.test_predict import problem
from tests.service.product.test_refresh import finished

COLUMNS = {"user": "drop", "time": "drop"}


def ask(client, model, *queries, code=200):
    response = client.post(f"/v1/models/{model}/query", json={"queries": list(queries)})
    assert response.status_code == code, response.text
    return response.json() if code != 200 else response.json()["answers"]


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
        ({"kind": "marginal", "evidence": {"outlok": "rain"}}, 422, "similar: outlook"),
        ({"kind": "conditional", "variables": ["outlok"]}, 422, "similar: outlook"),
        ({"kind": "marginal", "evidence": {"outlook": "hail"}}, 422, "'hail'"),
        ({"kind": "map", "evidence": {"class": "maybe"}}, 422, "'maybe'"),
        ({"kind": "map", "evidence": {"windy": "perhaps"}}, 422, "'perhaps'"),
        ({"kind": "guess"}, 422, "guess"),
        ({"kind": "sample", "n": 0}, 422, "use 1 or more samples"),
        ({"kind": "sample", "n": 2_000_000}, 422, "at most 1,000,000 samples"),
        ({"kind": "sample", "n": 900_000}, 413, "at most 2000 are answered in one request (FEWPASS_MAX_ROWS)"),
        ({"kind": "map", "solver": "magic"}, 422, "solver"),
        (
            {"kind": "conditional", "variables": ["class"], "evidence": {"class": "yes"}},
            422,
            "both asked for and given",
        ),
        ({"kind": "map", "solver": "beam", "seed": -1}, 422, "seed=-1"),
        ({"kind": "map", "solver": "kbt", "k": 10**9}, 422, "use 1 to 1,000"),
        ({"kind": "map", "k": 10**400}, 422, "use 1 to 1,000"),
        ({"kind": "map", "variables": ["class", "class"]}, 422, "Column 'class' is asked for twice"),
        ({"kind": "moments"}, 422, "No column of the model has moments"),
        ({"kind": "marginal", "of": "class"}, 422, "there are evidence, likely"),
    ],
)
def test_what_cannot_be_asked_is_refused_at_once_by_jobs_too(site, circuit, query, code, word):
    # The circuit of a network, which its job makes, finds the rest.
    is_of_columns = word.startswith(("similar", "'"))
    for model in ("sky", "weather") if is_of_columns else ("sky",):
        problem = ask(site.client, model, query, code=code)
        assert word in json.dumps(problem) and problem["status"] == code
        if code == 422:  # a job may have more answers than a request
            job = {"kind": "query", "model": model, "queries": [{"kind": "marginal"}, query]}
            answer = site.client.post("/v1/jobs", json=job)
            assert answer.status_code == 422 and word in answer.json()["detail"], answer.text


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_what_json_does_not_have_is_no_evidence(site, number):
    body = f'{{"queries": [{{"kind": "marginal", "evidence": {{"humidity": {number}}}}}]}}'
    kind = {"content-type": "application/json"}
    told = problem(site.client.post("/v1/models/weather/query", content=body, headers=kind), 422)
    assert "evidence.humidity" in told["detail"] and "must be a finite number" in told["detail"]


@pytest.mark.parametrize(
    ("path", "body", "code", "field"),
    [
        ("query", '{"queries": [{"kind": "sample", "n": 1, "evidence": {"humidity": %s}}]}', 400, "body.queries.0.evidence.humidity"),
        ("predict", '{"records": [{"windy": true}, {"humidity": %s}]}', 422, "body.records.1.humidity"),
        ("predict", '{"columns": {"humidity": [%s]}}', 422, "body.columns.humidity.0"),
    ],
)  # fmt: skip
def test_a_number_of_thousands_of_digits_is_named(site, path, body, code, field):
    kind = {"content-type": "application/json"}
    response = site.client.post(f"/v1/models/weather/{path}", content=body % ("-" + "9" * 5000), headers=kind)
    assert f"{field}: is a whole number of more than 4,300 digits" in problem(response, code)["detail"]
    in_doubles = site.client.post(f"/v1/models/weather/{path}", content=body % ("9" * 400), headers=kind)
    assert in_doubles.status_code == 200, in_doubles.text


def test_a_number_of_thousands_of_digits_is_named_on_the_command_line():
    with pytest.raises(typer.BadParameter, match="'humidity' has too many digits"):
        query_command("weather", "marginal", given=["humidity=" + "9" * 5000])


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
    body["columns"] = dict.fromkeys(("outlook", "humidity", "station"), "drop")
    body["parameters"] = {"structure": "file", "circuit": f"file://{path}", "learning": "none"}
    refused = problem(site.client.post("/v1/jobs", json=body), 422)
    assert f"file://{path}: no such file" in refused["detail"]
    path.write_text("vars 2 2\n0 cat 0 0.25 0.75\n1 cat 1 0.5 0.5\n2 prod 0 1\n")
    job = job_at_end(site.client, site.client.post("/v1/jobs", json=body).json()["id"])
    assert job["state"] == "succeeded", job["error"]
    asked = {"kind": "marginal", "evidence": {"windy": True}}
    answered = site.client.post("/v1/models/given/query", json={"queries": [asked]}).json()
    assert answered["answers"][0]["probability"] == pytest.approx(0.75)


def test_a_stream_starts_anew_when_the_circuit_of_its_file_has_changed(weather_files, tmp_path):
    path = tmp_path / "given.txt"
    columns = dict.fromkeys(("outlook", "humidity", "station"), "drop")
    parameters = {"structure": "file", "circuit": str(path), "learning": "adf"}
    asked = {"learner": "spn", "model": "given", "holdout": 0, "update": True, "columns": columns}
    request = TrainRequest(uris=[str(weather_files[0])], parameters=parameters, **asked)
    stages = []
    with Workspace(Settings(workspace=tmp_path / "workspace")) as workspace:
        for comment, share in (("", 0.25), ("# the same\n", 0.25), ("", 0.75)):
            path.write_text(f"{comment}vars 2 2\n0 cat 0 {share} {1 - share}\n1 cat 1 0.5 0.5\n2 prod 0 1\n")
            passes = product.train_and_report_passes(workspace, request)[1]
            stages.append([each["stage"] for each in passes if "row" in each["stage"] or "anew" in each["stage"]])
    assert stages[:2] == [[], ["learning row by row"]]
    assert stages[2][0] == "starting anew, as the circuit of its file has changed"


@pytest.mark.parametrize("evidence", [{"humidity": 60}, {"outlook": None}, {"windy": True, "class": "yes"}])
def test_what_can_be_asked_of_a_classifier_is_not_refused(site, evidence):
    asked = {"kind": "query", "model": "weather", "queries": [{"kind": "marginal", "evidence": evidence}]}
    assert finished(site.client, asked)["answers"][0]["probability"] > 0


def test_the_command_line_asks(site, circuit):
    asked = ["query", "sky", "conditional", "--of", "outlook", "--given", "class=yes"]
    told = json.loads(fewpass(*asked, "--json", workspace=site.workspace).stdout)
    assert abs(sum(told["distributions"]["outlook"].values()) - 1) < 1e-9
    assert "sunny" in fewpass(*asked, workspace=site.workspace).stdout
    assert "overcast" in fewpass("query", "sky", "sample", "--set", "n=50", workspace=site.workspace).stdout
    wrong = fewpass("query", "sky", "marginal", "--given", "outlok=1", workspace=site.workspace, code=1)
    assert "outlook" in wrong.stderr
    twice = ("--given", "windy=true", "--given", "windy=false")
    assert (
        "'windy' is given twice" in fewpass("query", "sky", "marginal", *twice, workspace=site.workspace, code=2).stderr
    )


def test_tables_of_queries_can_be_read_at_any_width(tmp_path):
    """Columns that do not fit beside each other stand below each other; no word is broken."""
    rng = np.random.default_rng(3)
    names = [f"a_rather_long_name_{i}" for i in range(8)]
    columns = {name: rng.choice(["Österreich", "São Tomé"], 300) for name in names}
    pq.write_table(pa.table(columns), tmp_path / "land.parquet")
    workspace = tmp_path / "workspace"
    simple = ("--set", "structure=chow-liu", "--set", "passes=1")
    fewpass("train", tmp_path / "land.parquet", "-l", "spn", "-n", "land", *simple, workspace=workspace)
    one = fewpass("query", "land", "sample", workspace=workspace).stdout
    assert all(sum(name in line for line in one.splitlines()) == 1 for name in names)
    assert max(map(len, one.splitlines())) <= 80 and "Österreich" in one
    many = fewpass("query", "land", "sample", "--set", "n=30", workspace=workspace).stdout
    assert "row 30" in many and many.count(names[7]) == 30
    few = fewpass("query", "land", "sample", "--set", "n=30", "--of", names[0], workspace=workspace).stdout
    assert few.count(names[0]) == 1
    told = fewpass("query", "land", "conditional", "--of", names[0], "--set", "joint=true", workspace=workspace).stdout
    assert f"{names[0]}=Österreich" in told and "what is given" not in told
    lineage = fewpass("models", "lineage", "land", workspace=workspace).stdout
    assert "learner=spn" in lineage and "{" not in lineage and "read 300 rows" in lineage
    schema = fewpass("schema", tmp_path / "land.parquet", workspace=workspace).stdout
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
    data = tmp_path / "data"
    data.mkdir()
    for day in range(3):
        write(data, day)
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
    wrong = {"queries": [{"kind": "map", "time_limit_s": -1}] * 1_000}
    answer = site.client.post("/v1/models/sky/query", json=wrong)
    assert answer.status_code == 422 and answer.json()["detail"].count("body.queries") == 1
    job = {"kind": "query", "model": "sky", "queries": [{"kind": "map", "time_limit_s": -1}] * 1_000}
    answer = site.client.post("/v1/jobs", json=job)
    assert answer.status_code == 422 and answer.json()["detail"].count("queries") == 1


def test_a_request_has_at_most_ten_thousand_queries_in_four_mebibytes(tmp_path):
    settings = Settings(workspace=tmp_path / "workspace", job_workers=0, warm_up=False)
    with TestClient(create_app(settings), base_url="http://localhost") as client:
        answer = client.post("/v1/models/sky/query", json={"queries": [{"kind": "marginal"}] * 10_001})
        assert answer.status_code == 422 and "more than the 10000 entries" in answer.json()["detail"]
        answer = client.post(
            "/v1/models/sky/query", content=b" " * (4 << 20) + b"[]", headers={"content-type": "application/json"}
        )
        assert answer.status_code == 413 and answer.json()["max_bytes"] == 4 << 20


def test_the_answering_of_a_request_ends_in_time():
    """Also where each query by itself is quick: the limit is for all of them together."""
    model = drive(recipes.learner("nb", {}, "class"), Source.of_table(TABLE))
    many = [Map(("word",), {"number": 1.5}, solver="bt")] * 50
    with pytest.raises(TooSlow, match=r"longer than the 7 s that one request may ask \(FEWPASS_QUERY_S\)"):
        queries.answer_model_queries(model, many, queries.query_deadline_check(time.monotonic() - 1, 7))
    pauses = []
    assert len(queries.answer_model_queries(model, many, lambda: pauses.append(1))) == len(pauses) == 50
    alike = [Marginal({"number": float(n)}) for n in range(1_500)]
    told = queries.answer_model_queries(model, alike, lambda: pauses.append(1))
    assert len(pauses) == 50 + 3
    assert told == queries.answer_model_queries(model, alike[:700]) + queries.answer_model_queries(
        model, alike[700:]
    ), "whatever they come with"
