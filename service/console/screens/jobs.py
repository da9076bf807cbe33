"""Jobs: a list that does not scroll away, and one job with its passes and its log."""

import json
from typing import cast, get_args

from starlette.requests import Request

from service import product
from service.console.pages import page, whole_number, workspace_of
from service.console.rendering import Call
from service.jobs.queue import State
from service.requests.json_values import JSONObject

PER_PAGE = 50
MOST = 500
N_LINES = 200
STATES = get_args(State)


@page("jobs.html")
def jobs(request: Request) -> JSONObject:
    """Newest first, of one state if asked."""
    workspace, asked = workspace_of(request), request.query_params
    state = cast("State", asked["state"]) if asked.get("state") in STATES else None
    limit = whole_number(asked.get("limit"), PER_PAGE, MOST)
    listed = product.job_queue(workspace).list(state=state, limit=limit, cursor=asked.get("cursor"))
    return {
        "jobs": listed.items,
        "next_cursor": listed.next_cursor,
        "state": state,
        "states": STATES,
        "calls": [Call("GET", "/v1/jobs" + (f"?state={state}" if state else ""))],
    }


@page("job.html")
def job(request: Request) -> JSONObject:
    """One job: what was asked, how far it is, what came of it, and the end of its log."""
    workspace, job_id = workspace_of(request), request.path_params["job_id"]
    found = product.job_queue(workspace).get(job_id)
    lines = product.job_log(workspace, job_id).splitlines()
    return {
        "job": found,
        "log": [log_line(line) for line in lines[-N_LINES:]],
        "n_lines": len(lines),
        "calls": [
            Call("GET", f"/v1/jobs/{job_id}"),
            Call("GET", f"/v1/jobs/{job_id}/log"),
            Call("GET", f"/v1/jobs/{job_id}/events"),
        ],
    }


def log_line(line: str) -> JSONObject:
    """A line of a log: when, how severe, and what."""
    try:
        told = json.loads(line)
    except ValueError:
        return {"at": "", "level": "", "event": line, "rest": {}}
    if not isinstance(told, dict):
        return {"at": "", "level": "", "event": line, "rest": {}}
    known = ("timestamp", "level", "event")
    rest = {name: value for name, value in told.items() if name not in known}
    return {
        "at": told.get("timestamp", ""),
        "level": told.get("level", ""),
        "event": told.get("event", ""),
        "rest": rest,
    }
