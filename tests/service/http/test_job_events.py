"""Following a job: events that a client may take up again, its log, and its priority."""

import json

from service.terminal import EXIT_FAILED
from tests.processes import wait_for
from tests.service.cli.test_cli import fewpass


def events_of(site, job_id, last=None):
    headers = {} if last is None else {"last-event-id": last}
    found, event = [], {}
    with site.client.stream("GET", f"/v1/jobs/{job_id}/events", headers=headers) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        for line in stream.iter_lines():
            name, separator, value = line.partition(": ")
            if separator and name:
                event[name] = value
            elif not line and event:
                found.append((event["event"], event["id"], json.loads(event["data"])))
                event = {}
    return found


def submit(site, **changes):
    body = {"kind": "train", "uris": [str(site.train)], "target": "class", "learner": "nb", "model": "followed"}
    answer = site.client.post("/v1/jobs?priority=low", json=body | changes)
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


def whole_lines(log):
    """Of a log that the worker may be writing at."""
    return [json.loads(line) for line in log.rpartition("\n")[0].splitlines()]


def answer_ends(answer):
    """Whether the last step has said that it is finished."""
    return ("step finished", "publish") in [(line["event"], line.get("step")) for line in whole_lines(answer.text)]


def test_a_job_s_log_tells_its_steps_and_the_traceback_of_its_failure(site):
    job_id = submit(site)
    events_of(site, job_id)
    log = wait_for(lambda: answer if answer_ends(answer := site.client.get(f"/v1/jobs/{job_id}/log")) else None)
    lines = whole_lines(log.text)
    assert log.headers["content-type"] == "application/x-ndjson"
    assert {line["job"] for line in lines} == {job_id}
    said = [(line["event"], line["step"]) for line in lines if "step" in line]
    assert said[0] == ("step started", "learn") and ("pass started", "learn") in said
    assert site.client.get("/v1/jobs/job-0/log").status_code == 404
    job_id = submit(site, target="clas")
    assert events_of(site, job_id)[-1][2]["state"] == "failed"
    log = fewpass("jobs", "log", job_id, workspace=site.workspace).stdout
    assert "step failed" in log and "'clas' is not in the table" in log
    body = {"kind": "train", "uris": [str(site.train)], "target": "class", "learner": "nb", "model": "followed"}
    options = ("--priority", "high", "--key", "monday", "--json")
    first, again = (
        json.loads(fewpass("jobs", "submit", json.dumps(body), *options, workspace=site.workspace).stdout)
        for _ in range(2)
    )
    assert first["id"] == again["id"] and first["priority"] == "high"
    fewpass("jobs", "submit", '{"kind": "train"}', workspace=site.workspace, code=2)
    watched = fewpass("jobs", "watch", job_id, workspace=site.workspace, code=EXIT_FAILED)
    assert "'clas'" in " ".join(watched.stdout.split())
    assert site.client.post("/v1/jobs?priority=urgent", json={}).status_code == 422
