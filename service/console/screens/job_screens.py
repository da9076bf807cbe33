"""Job screens: the training form, the list of jobs, and one job with its passes and its log."""

import json
from typing import cast, get_args

from starlette.requests import Request

from learners.models.parameters import ParameterField, parameter_fields
from learners.registry import recipes
from service import product
from service.console.page_requests import page_limit_and_cursor
from service.console.pages import Call, dataset_column_choices, render_as_page
from service.jobs.queue import State
from service.requests.json_values import JSONObject
from service.serving.application_state import workspace_from_request

MOST_DATASETS = 500
SHOWN = 5


@render_as_page("train.html")
def train_form_screen(request: Request) -> JSONObject:
    """Show the learners, and the parameters of the chosen one with their descriptions."""
    workspace = workspace_from_request(request)
    learner = request.query_params.get("learner", recipes.DEFAULT)
    chosen = learner if learner in recipes.LEARNERS else recipes.DEFAULT
    parameters = [parameter_form_field(each) for each in parameter_fields(recipes.LEARNERS[chosen].parameters)]
    name = request.query_params.get("dataset", "")
    return dataset_column_choices(workspace, name) | {
        "datasets": [dataset.name for dataset in product.list_datasets(workspace, MOST_DATASETS).items],
        "dataset": name,
        "target": request.query_params.get("target", ""),
        "model": request.query_params.get("model", name),
        "learners": {name: recipe.title for name, recipe in recipes.LEARNERS.items()},
        "learner": chosen,
        "without_target": [name for name, recipe in recipes.LEARNERS.items() if not recipe.needs_target],
        "takes_no_target": [name for name, recipe in recipes.LEARNERS.items() if not recipe.takes_target],
        "parameters": parameters[:SHOWN],
        "more_parameters": parameters[SHOWN:],
    }


def parameter_form_field(parameter: ParameterField) -> JSONObject:
    """Return a parameter as a form field: choices, default and description."""
    return {
        "name": parameter.name,
        "default": "" if parameter.default in (None, "", (), {}) else format_form_value(parameter.default),
        "choices": [{"value": json.dumps(choice), "word": format_form_value(choice)} for choice in parameter.choices],
        "is_number": parameter.number is not None,
        "is_whole": parameter.number is int,
        "shape": parameter.shape,
        "sentence": parameter.sentence,
        "words": parameter.words,
    }


def format_form_value(value: object) -> str:
    """Format a parameter value for the form."""
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


N_LINES = 200
STATES = get_args(State)
# Fields of a line that the page of the job shows elsewhere.
OTHER_FIELDS = ("timestamp", "level", "event", "job", "exception", "trace_id", "span_id")


@render_as_page("jobs.html")
def jobs_screen(request: Request) -> JSONObject:
    """List the jobs, newest first, optionally of one state."""
    workspace, parameters = workspace_from_request(request), request.query_params
    state = cast("State", parameters["state"]) if parameters.get("state") in STATES else None
    limit, cursor = page_limit_and_cursor(request)
    listed = product.job_queue(workspace).list(state=state, limit=limit, cursor=cursor)
    return {
        "jobs": listed.items,
        "next_cursor": listed.next_cursor,
        "state": state,
        "states": STATES,
        "calls": [Call("GET", "/v1/jobs" + (f"?state={state}" if state else ""))],
    }


@render_as_page("job.html")
def job_screen(request: Request) -> JSONObject:
    """Show one job: request, progress, result, and the end of its log."""
    workspace, job_id = workspace_from_request(request), request.path_params["job_id"]
    job = product.job_queue(workspace).get(job_id)
    lines = product.read_job_log(workspace, job_id).splitlines()
    log = [parse_job_log_line(line) for line in lines[-N_LINES:]]
    return {
        "job": job,
        "log": log,
        "traceback": next((line["traceback"] for line in reversed(log) if line["traceback"]), None),
        "n_lines": len(lines),
        "calls": [Call("GET", f"/v1/jobs/{job_id}{part}") for part in ("", "/log", "/events")],
    }


def parse_job_log_line(line: str) -> JSONObject:
    """Parse a log line into time, level, sentence and traceback."""
    try:
        record = json.loads(line)
    except ValueError:
        record = line
    if not isinstance(record, dict):
        return {"at": "", "level": "", "words": line, "traceback": None}
    rest = {name: value for name, value in record.items() if name not in OTHER_FIELDS}
    return {
        "at": str(record.get("timestamp", "")),
        "level": record.get("level", ""),
        "words": job_log_sentence(str(record.get("event", "")), rest),
        "traceback": record.get("exception"),
    }


def job_log_sentence(event: str, rest: JSONObject) -> str:
    """Describe a log event in a sentence: "Pass 2 of 3 started: growing trees"."""
    rest = dict(rest)
    step, number, n = rest.pop("step", None), rest.pop("number", None), rest.pop("of", None)
    if event == "pass started" and number is not None:
        words = f"Pass {number}{f' of {n}' if n else ''} started: {rest.pop('stage', '')}"
    else:
        words = f"{event[:1].upper()}{event[1:]}{f': {step}' if step else ''}"
    if (seconds := rest.pop("seconds", None)) is not None:
        words += f", after {seconds} s"
    if (error := rest.pop("error", None)) is not None:
        words += f". {error}"
    more = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in rest.items())
    return f"{words} ({more})" if more else words
