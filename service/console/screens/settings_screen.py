"""Settings screen: schedules, keys, webhooks, and the server's configuration."""

from datetime import UTC, datetime
from typing import get_args

from starlette.requests import Request

from learners.registry import recipes
from service import product
from service.console.page_requests import MOST, role_from_request
from service.console.pages import Call, dataset_column_choices, render_as_page
from service.jobs.cron import Cron
from service.requests.event_kinds import EventKind
from service.requests.json_values import JSONObject
from service.requests.problems import InvalidRequest
from service.serving.application_state import workspace_from_request
from storage.control.api_keys_and_sessions import Role

N_RUNS = 5
N_NEXT = 3
NIGHTLY = "0 3 * * *"


@render_as_page("settings.html")
def settings_screen(request: Request) -> JSONObject:
    """Show the settings that the visitor's role may see; keys are for administrators."""
    workspace, role = workspace_from_request(request), role_from_request(request)
    is_admin = role is not None and role.covers(Role.ADMIN)
    schedules = product.list_schedules(workspace, MOST).items
    cron, timezone = request.query_params.get("cron", NIGHTLY), request.query_params.get("timezone", "UTC")
    expected, problem = [], None
    try:
        expected = next_schedule_times(cron, timezone)
    except InvalidRequest as error:
        problem = str(error)
    return dataset_column_choices(workspace, request.query_params.get("job.train.dataset", "")) | {
        "schedules": [
            {
                "schedule": each,
                "runs": product.list_schedule_runs(workspace, each.name, N_RUNS).items,
                "next_runs": [] if each.is_paused else next_schedule_times(each.cron, each.timezone),
            }
            for each in schedules
        ],
        "cron": cron,
        "timezone": timezone,
        "next_runs": expected,
        "cron_problem": problem,
        "datasets": [each.name for each in product.list_datasets(workspace, MOST).items],
        "models": [each.name for each in product.list_models(workspace, MOST).items],
        "learners": {name: recipe.title for name, recipe in recipes.LEARNERS.items()},
        "webhooks": [
            {"webhook": each, "deliveries": product.list_webhook_deliveries(workspace, str(each["id"]))[:N_RUNS]}
            for each in product.list_webhooks(workspace)
        ]
        if is_admin
        else None,
        "keys": product.list_keys(workspace, MOST).items if is_admin else None,
        "event_kinds": get_args(EventKind),
        "roles": [str(each) for each in Role],
        "needs_keys": workspace.settings.needs_keys,
        "data_roots": workspace.settings.data_roots,
        "calls": [
            Call("GET", "/v1/schedules"),
            *([Call("GET", "/v1/keys"), Call("GET", "/v1/webhooks")] if is_admin else []),
        ],
    }


def next_schedule_times(cron: str, timezone: str) -> list[datetime]:
    """Return the next due times of a schedule, in UTC; InvalidRequest if its expression is invalid."""
    times, moments = Cron(cron, timezone), [datetime.now(UTC)]
    while len(moments) <= N_NEXT:
        moments.append(times.after(moments[-1]))
    return moments[1:]
