"""The control plane over a real server: data sets, jobs, models, health, OpenAPI."""

import json

import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from service.terminal_output import EXIT_FAILED
from tests.processes import in_threads, wait_for, whole_lines
from tests.service.asking import finished, job_at_end, run_job
from tests.support.cli import fewpass
from tests.support.http import PATH, RECORD, problem

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
FOLLOWED = {"kind": "train", "target": "class", "learner": "nb", "model": "followed"}


@pytest.fixture(scope="module")
def dataset(site):
    assert register(site, "weather", site.train).headers["location"] == "/v1/datasets/weather"
    return "weather"


def names_of_datasets(site):
    """Among them those of other tests on the same server."""
    return {item["name"] for item in site.client.get("/v1/datasets?limit=1000").json()["items"]}


def register(site, name, uri, status=201, **fields):
    """What registering says; of a data set with a class, if the fields do not say otherwise."""
    answer = site.client.post("/v1/datasets", json={"name": name, "uris": [str(uri)], "target": "class"} | fields)
    return answer if answer.status_code == status == 201 else problem(answer, status)


def test_a_data_set_is_registered_shown_and_listed(site, dataset):
    shown = site.client.get(f"/v1/datasets/{dataset}").json()
    assert shown["target"] == "class" and shown["files"][0]["n_rows"] == 3000
    schema = site.client.get(f"/v1/datasets/{dataset}/schema").json()
    assert [attribute["name"] for attribute in schema["attributes"]] == ["outlook", "humidity", "windy"]
    assert schema["left_out"][0]["name"] == "station" and schema["classes"] == ["no", "yes"]
    assert "weather" in names_of_datasets(site)
    register(site, "weather", site.train)
    assert "is already registered" in register(site, "weather", site.test, 409)["detail"]


def test_jobs_and_schedules_whose_files_are_not_there_are_refused_at_once(site, tmp_path):
    (tmp_path / "data").mkdir()
    moved = tmp_path / "data" / "train.parquet"
    moved.write_bytes(site.train.read_bytes())
    register(site, "moving", f"{tmp_path}/data/*")
    moved.unlink()
    train = {"kind": "train", "learner": "nb", "model": "m", "target": "class"}
    jobs = [
        (train | {"uris": ["/no/such.parquet"]}, "/no/such.parquet: no such file"),
        (train | {"uris": [str(site.train)], "test_uris": [f"{tmp_path}/*.pq"]}, "*.pq matches no file"),
        (train | {"dataset": "moving"}, "matches no file"),
        ({"kind": "evaluate", "model": "weather", "uris": ["file:///no/such"]}, "no such file"),
    ]
    schedule = {"name": "nightly", "cron": "@daily", "job": train | {"uris": [str(site.train)]}}
    assert site.client.post("/v1/schedules", json=schedule).status_code == 201
    for body, words in jobs:
        detail = problem(site.client.post("/v1/jobs", json=body), 422)["detail"]
        assert words in detail
        made = site.client.post("/v1/schedules", json=schedule | {"name": "other", "job": body})
        changed = site.client.patch("/v1/schedules/nightly", json={"job": body})
        assert [problem(answer, 422)["detail"] for answer in (made, changed)] == [detail] * 2
    assert site.client.get("/v1/schedules/nightly").json()["job"]["uris"] == [str(site.train)]
    assert site.client.get("/v1/schedules/other").status_code == 404
    assert site.client.delete("/v1/schedules/nightly").status_code == 204
    assert site.client.delete("/v1/datasets/moving").status_code == 204


def test_networks_answer_until_a_job_has_learned_the_trees(site):
    train = {"kind": "train", "uris": [str(site.train)], "target": "class", "model": "by-trees", "update": True}
    train |= {"parameters": {"members": 2}, "networks_first": True}
    refused = problem(site.client.post("/v1/jobs", json=train | {"learner": "kdb"}), 422)
    assert "learner 'kdb' learns none here: leave it out" in str(refused)
    done = finished(site.client, {"kind": "refresh", "train": train})
    assert (done["networks_version"], done["version"]) == (1, 2)
    schedule = {"name": "by-night", "cron": "@daily", "job": train}
    assert site.client.post("/v1/schedules", json=schedule).json()["job"]["networks_first"] is True
    job = site.client.post("/v1/schedules/by-night/run").json()["id"]
    done = job_at_end(site.client, job)["result"]
    assert (done["networks_version"], done["version"]) == (3, 4)
    efforts = [site.client.get(f"/v1/models/by-trees@{n}").json()["parameters"].get("effort") for n in (1, 2, 3, 4)]
    assert efforts == ["low", None, "low", None]
    assert site.client.delete("/v1/schedules/by-night").status_code == 204


def test_bad_data_sets_are_refused_and_leave_nothing(site, tmp_path):
    (tmp_path / "text.parquet").write_text("this is no Parquet")
    before = names_of_datasets(site)
    bad = [
        ("gone", "/no/such/file.parquet", {}, "/no/such/file.parquet"),
        ("text", tmp_path / "text.parquet", {}, "text.parquet"),
        ("target", site.train, {"target": "clas"}, "'clas'"),
        ("Bad Name", site.train, {}, "name"),
        ("none", "", {"uris": []}, "uris"),
        ("extra", site.train, {"format": "csv"}, "format"),
    ]
    for name, uri, fields, words in bad:
        assert words in register(site, name, uri, 422, **fields)["detail"]
    assert names_of_datasets(site) == before
    assert site.client.get("/v1/datasets/gone").status_code == 404
    problem(site.client.post("/v1/datasets", content=b"{", headers={"content-type": "application/json"}), 400)
    problem(site.client.post("/v1/datasets", content=b"x" * 300_000), 413)


def test_the_whole_path_from_data_set_to_job_to_model_to_prediction(site, dataset):
    body = {"kind": "train", "dataset": dataset, "learner": "nb", "model": "fresh", "aliases": ["champion"]}
    once = {"idempotency-key": "once"}
    response = site.client.post("/v1/jobs", json=body, headers=once)
    assert response.status_code == 202, response.text
    job_id = response.json()["id"]
    assert response.headers["location"] == f"/v1/jobs/{job_id}"
    assert site.client.post("/v1/jobs", json=body, headers=once).json()["id"] == job_id
    problem(site.client.post("/v1/jobs", json=body | {"seed": 1}, headers=once), 409)
    job = job_at_end(site.client, job_id)
    assert job["state"] == "succeeded", job
    assert job["result"]["version"] == 1 and job["progress"]["step"] == "publish"
    answer = site.client.post("/v1/models/fresh@champion/predict", json={"records": [RECORD]})
    assert answer.json()["predictions"] == ["yes"], answer.text
    version = site.client.get("/v1/models/fresh").json()
    assert version["job_id"] == job_id and version["dataset"] == dataset
    assert 0 < version["metrics"]["zero_one_loss"] < 0.3 and version["metrics"]["evaluated_on"] == "hold-out"
    assert site.client.get("/v1/models/fresh/metrics").json() == version["metrics"]
    structure = site.client.get("/v1/models/fresh/structure").json()
    assert structure["nodes"] and structure["edges"]
    assert len(site.client.get("/v1/models/fresh/download").content) > 1000
    result = run_job(site.client, {"kind": "evaluate", "model": "fresh@1", "uris": [str(site.test)]})["result"]
    assert result["n_test_rows"] == 500 and result["zero_one_loss"] < 0.3


def test_a_job_trains_on_a_version_of_a_lake_table(site, tmp_path):
    rows = pq.read_table(site.train)
    for part in (rows.slice(0, 1000), rows.slice(1000)):
        write_deltalake(str(tmp_path / "table"), part, mode="append")
    body = {"kind": "train", "uris": [str(tmp_path / "table")], "target": "class", "learner": "nb", "model": "lake"}
    assert run_job(site.client, body | {"at": "0", "holdout": 0})["state"] == "succeeded"
    lineage = site.client.get("/v1/models/lake/lineage").json()
    assert lineage["n_rows"] == 1000 and lineage["provenance"]["snapshot"]["version"] == "0"
    assert "has no version 7: its newest is 1" in run_job(site.client, body | {"at": "7"})["error"]["detail"]
    job = run_job(site.client, {"kind": "evaluate", "model": "lake", "uris": [f"delta://{tmp_path}/table@1"]})
    assert job["result"]["n_test_rows"] == 3000


def test_jobs_that_cannot_succeed_are_refused_at_once(site, dataset):
    def refused(body, status=422):
        return problem(site.client.post("/v1/jobs", json=body), status)["detail"]

    train = {"kind": "train", "dataset": dataset, "learner": "nb", "model": "m"}
    refused(train | {"dataset": "nothing"}, 404)
    assert "learner" in refused(train | {"learner": "magic"})
    assert "kk" in refused(train | {"parameters": {"kk": 2}})
    refused(train | {"kind": "dance"})
    graphs = train | {"learner": "orders", "model": "graphs", "holdout": 0}
    assert "has no class, because every column is a node: leave the target out" in refused(graphs | {"target": "class"})
    assert run_job(site.client, graphs)["state"] == "succeeded", "the data set's target is a column like others"
    for named in ({"target": "clas"}, {"columns": {"clas": {"drop": True}}}, {"timestamp": "clas", "window": "30d"}):
        for body in (train | named, {"kind": "refresh", "train": train | named}):
            assert "'clas' is not in the table (similar: class)" in refused(body)
    refused(train | {"uris": [str(site.train)]})
    refused(train | {"holdout": 1})
    refused({"kind": "evaluate", "model": "no", "dataset": dataset}, 404)
    for method, path in (("GET", ""), ("POST", "/cancel"), ("GET", "/events")):
        problem(site.client.request(method, f"/v1/jobs/job-0{path}"), 404)


def test_a_column_that_has_come_with_a_later_file_is_taken(site, tmp_path):
    (tmp_path / "data").mkdir()
    rows = pq.read_table(site.train)
    pq.write_table(rows.drop_columns(["windy"]), tmp_path / "data" / "rows.parquet")
    register(site, "wider", tmp_path / "data")
    pq.write_table(rows, tmp_path / "data" / "rows.parquet")
    train = {"kind": "train", "dataset": "wider", "learner": "nb", "model": "wider", "target": "windy"}
    assert run_job(site.client, train)["state"] == "succeeded"


def test_a_failing_job_keeps_its_problem_and_is_retried(site, tmp_path):
    copy = tmp_path / "copy.parquet"
    copy.write_bytes(site.train.read_bytes())
    register(site, "vanishing", copy)
    copy.write_text("this is no Parquet any more")  # a file that is gone is refused at once
    job = run_job(site.client, {"kind": "train", "dataset": "vanishing", "learner": "nb", "model": "vanishing"})
    assert job["state"] == "failed" and job["error"]["status"] == 422 and str(copy) in job["error"]["detail"]
    problem(site.client.get("/v1/models/vanishing"), 404)
    copy.write_bytes(site.train.read_bytes())
    again = site.client.post(f"/v1/jobs/{job['id']}/retry")
    assert again.status_code == 202 and again.json()["retry_of"] == job["id"]
    assert job_at_end(site.client, again.json()["id"])["state"] == "succeeded"
    problem(site.client.post(f"/v1/jobs/{again.json()['id']}/cancel"), 409)


def test_moving_an_alias_fails_and_mixes_no_request(site, dataset):
    for _ in range(2):
        site.learn("moving", "nb")
    alias = "/v1/models/moving/aliases/champion"
    assert site.client.put(alias, json={"version": 1}).json() == {"aliases": {"champion": 1}}
    answers = []

    def ask():
        answer = site.client.post("/v1/models/moving@champion/predict", json={"records": [RECORD]})
        answers.append((answer.status_code, answer.json().get("version")))

    with in_threads(ask, 4):
        for version in (2, 1, 2, 1, 2):
            n_answers = len(answers)
            wait_for(lambda n_answers=n_answers: len(answers) > n_answers + 8)
            site.client.put(alias, json={"version": version})
            answer = site.client.post("/v1/models/moving@champion/predict", json={"records": [RECORD]})
            assert answer.json()["version"] == version  # who moved it sees it at once
    assert {status for status, _ in answers} == {200} and {version for _, version in answers} == {1, 2}
    problem(site.client.put(alias, json={"version": 9}), 404)
    problem(site.client.put("/v1/models/moving/aliases/7", json={"version": 1}), 422)
    problem(site.client.delete("/v1/models/moving/versions/2"), 409)
    assert site.client.delete(alias).status_code == 204
    assert site.client.delete("/v1/models/moving/versions/2").status_code == 204
    assert [item["version"] for item in site.client.get("/v1/models/moving/versions").json()["items"]] == [1]
    problem(site.client.post("/v1/models/moving@2/predict", json={"records": [RECORD]}), 404)


def test_lists_come_in_pages(site, dataset):
    for _ in range(2):
        assert site.client.post("/v1/jobs", json={"kind": "schema", "dataset": dataset}).status_code == 202
    page = site.client.get("/v1/jobs?limit=1").json()
    assert len(page["items"]) == 1 and page["next_cursor"]
    assert "weather" in {item["name"] for item in site.client.get("/v1/models").json()["items"]}
    for path in ("jobs?cursor=nonsense", "models?cursor=nonsense", "models?limit=0"):
        problem(site.client.get(f"/v1/{path}"), 422)


def log_lines(site, request_id):
    """What the server's log says of a request."""
    lines = [json.loads(line) for line in whole_lines(site.server.log)]
    return [line for line in lines if line.get("request_id") == request_id]


def test_health_metrics_and_unknown_paths(site):
    for path in ("/healthz", "/readyz", "/"):
        assert site.client.get(path).status_code == 200
    metrics = site.client.get("/metrics")
    assert metrics.headers["content-type"].startswith("text/plain") and "fewpass_jobs{" in metrics.text
    told = dict(line.rsplit(" ", 1) for line in metrics.text.splitlines() if not line.startswith("#"))
    assert 0 <= float(told['fewpass_model_age_seconds{model="weather"}']) < 3600 and told["fewpass_control_up"] == "1.0"
    assert {"fewpass_running_passes", "fewpass_pass_rows_per_second"} <= told.keys()
    assert problem(site.client.get("/v2/nothing"), 404)["instance"] == "/v2/nothing"
    problem(site.client.delete("/v1/jobs"), 405)


def test_the_openapi_document_has_every_route_with_problems_and_examples(site):
    document = site.client.get("/openapi.json").json()
    predict = document["paths"]["/v1/models/{name}/predict"]["post"]
    assert set(predict["requestBody"]["content"]) == {"application/json", "application/vnd.apache.arrow.stream"}
    assert predict["requestBody"]["content"]["application/json"]["examples"]["records"]
    references = set()

    def walk(node):
        if isinstance(node, dict):
            if "$ref" in node:
                references.add(node["$ref"].rpartition("/")[2])
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(document)
    assert references <= set(document["components"]["schemas"])
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert {"403", "500", "503"} <= set(operation["responses"]), (method, path)
            for status, response in operation["responses"].items():
                assert status != "default", (method, path)
                if int(status) >= 400:
                    assert list(response["content"]) == ["application/problem+json"], (method, path)
    assert site.client.get("/docs").status_code == 200


def test_a_trace_is_taken_over(site):
    """Into the log and the answer, with a span of our own; what is no trace is not."""

    def answered(traceparent, **headers):
        headers |= {"traceparent": traceparent}
        return site.client.post(PATH, json={}, headers=headers).headers.get("traceresponse")

    given = {"x-request-id": "one-of-a-trace"}
    version, trace, span, flags = answered(f"00-{TRACE}-{SPAN}-01", **given).split("-")
    assert (version, trace, flags) == ("00", TRACE, "01") and span != SPAN and len(span) == 16
    (line,) = wait_for(lambda: log_lines(site, "one-of-a-trace"))
    assert (line["trace_id"], line["span_id"]) == (TRACE, span)
    assert "traceresponse" not in site.client.post(PATH, json={}).headers
    assert answered(f"cc-{TRACE}-{SPAN}-00-later").startswith("00-")
    for wrong in (f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{SPAN}-01-x", f"ff-{TRACE}-{SPAN}-01", "00-", TRACE.upper()):
        assert answered(wrong) is None, wrong


def test_the_path_of_a_prediction_is_answered_without_a_log_line(site):
    for _ in range(5):
        site.client.post(PATH, json={"records": [RECORD]}, headers={"x-request-id": "one-that-is-answered"})
    problem(site.client.post(PATH, json={}, headers={"x-request-id": "one-that-is-refused"}), 422)
    (line,) = wait_for(lambda: log_lines(site, "one-that-is-refused"))  # it is written after the answer
    assert PATH in line.values() and not log_lines(site, "one-that-is-answered")
    assert {json.loads(line)["level"] for line in whole_lines(site.server.log)} <= {"info", "warning", "debug"}


def events_of(site, job_id, last=None):
    """(kind, number, data) of each event."""
    headers = {} if last is None else {"last-event-id": last}
    events, fields = [], {}
    with site.client.stream("GET", f"/v1/jobs/{job_id}/events", headers=headers) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        for line in stream.iter_lines():
            name, separator, value = line.partition(": ")
            if separator and name:
                fields[name] = value
            elif not line and fields:
                events.append((fields["event"], fields["id"], json.loads(fields["data"])))
                fields = {}
    return events


def submit(site, **changes):
    answer = site.client.post("/v1/jobs?priority=low", json=FOLLOWED | {"uris": [str(site.train)]} | changes)
    assert answer.status_code == 202 and answer.json()["priority"] == "low"
    return answer.json()["id"]


def test_a_client_that_comes_back_hears_nothing_twice_and_the_end_for_sure(site):
    events = events_of(site, submit(site))
    kinds = [kind for kind, _, _ in events]
    assert kinds[-1] == "end" and set(kinds[:-1]) <= {"job"} and events[-1][2]["state"] == "succeeded"
    assert len({number for _, number, _ in events}) == len(events)
    for _, number, _ in events:
        (again,) = events_of(site, events[0][2]["id"], last=number)
        assert again == events[-1]


def complete_lines(log):
    """Of a log that the worker may be writing at."""
    return [json.loads(line) for line in log.rpartition("\n")[0].splitlines()]


def answer_ends(answer):
    """Whether the last step has said that it is finished."""
    return ("step finished", "publish") in [(line["event"], line.get("step")) for line in complete_lines(answer.text)]


def test_a_job_s_log_tells_its_steps_and_the_traceback_of_its_failure(site):
    job_id = submit(site)
    events_of(site, job_id)
    log = wait_for(lambda: answer if answer_ends(answer := site.client.get(f"/v1/jobs/{job_id}/log")) else None)
    lines = complete_lines(log.text)
    assert log.headers["content-type"] == "application/x-ndjson"
    assert {line["job"] for line in lines} == {job_id}
    said = [(line["event"], line["step"]) for line in lines if "step" in line]
    assert said[0] == ("step started", "learn") and ("pass started", "learn") in said
    assert site.client.get("/v1/jobs/job-0/log").status_code == 404
    job_id = submit(site, target="clas")
    assert events_of(site, job_id)[-1][2]["state"] == "failed"
    log = fewpass("jobs", "log", job_id, workspace=site.workspace).stdout
    assert "step failed" in log and "'clas' is not in the table" in log
    watched = fewpass("jobs", "watch", job_id, workspace=site.workspace, code=EXIT_FAILED)
    assert "'clas'" in " ".join(watched.stdout.split())
    body = json.dumps(FOLLOWED | {"uris": [str(site.train)]})
    command = ("jobs", "submit", body, "--priority", "high", "--key", "monday", "--json")
    first, again = (json.loads(fewpass(*command, workspace=site.workspace).stdout) for _ in range(2))
    assert first["id"] == again["id"] and first["priority"] == "high"
    fewpass("jobs", "submit", '{"kind": "train"}', workspace=site.workspace, code=2)
    assert site.client.post("/v1/jobs?priority=urgent", json={}).status_code == 422
