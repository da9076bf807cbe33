"""Pages of jobs: what a job asks, reports and results in depends on its kind, and any name may be absent."""

from datetime import UTC, datetime
from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from service.console.pages import environment
from service.console.screens.trainings import log_line
from service.jobs.queue import Job, State
from service.requests.json_values import JSONObject

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PROGRESS: JSONObject = {
    "step": "learn",
    "stage": "count",
    "pass_number": 1,
    "n_passes": 2,
    "rows_total": 10,
    "rows_done": 4,
    "rows_per_s": 3.5,
    "eta_s": None,
}
REQUEST: JSONObject = {"model": "rain", "dataset": "weather", "train": {"model": "rain"}}
RESULT: JSONObject = {"model": "rain", "version": 2, "is_dry_run": True}


def parts_of(whole):
    return st.sets(st.sampled_from(sorted(whole))).map(lambda names: {name: whole[name] for name in names})


@given(
    state=st.sampled_from(get_args(State)),
    request=parts_of(REQUEST),
    progress=st.none() | parts_of(PROGRESS),
    result=st.none() | parts_of(RESULT),
)
def test_a_job_of_any_kind_has_its_page_and_its_row(state, request, progress, result):
    job = Job("job-1", "any", state, request, progress, result, None, 1, NOW, None, None, None)
    shared = {"path": "/", "role": None, "may": {"train": True, "read": True, "admin": True}, "has_session": False}
    page = environment().get_template("job.html").render(shared, job=job, calls=(), log=[], n_lines=0, traceback=None)
    assert ("rain, version 2" in page) == (result is not None and {"model", "version"} <= set(result))
    rows = (
        environment().from_string("{% from 'macros.html' import jobs_table %}{{ jobs_table(jobs) }}").render(jobs=[job])
    )
    about = "rain" if "model" in request or "train" in request else "weather" if "dataset" in request else ""
    assert f"<td>{about}</td>" in rows


def test_a_line_of_a_log_is_a_sentence_and_its_traceback_stands_apart():
    line = '{"event": "pass started", "number": 2, "of": 3, "stage": "growing trees", "step": "learn", "job": "job-1"}'
    assert log_line(line)["words"] == "Pass 2 of 3 started: growing trees"
    line = '{"event": "step failed", "step": "learn", "error": "No rows.", "exception": "Traceback", "level": "error"}'
    told = log_line(line)
    assert (told["words"], told["traceback"]) == ("Step failed: learn. No rows.", "Traceback")
    assert log_line("killed")["words"] == "killed"
