"""Schedules, keys, webhooks, and how this server is set up."""

from starlette.requests import Request

from service import product
from service.console.pages import page, workspace_of
from service.console.rendering import Call, role_of
from service.requests.json_values import JSONObject
from storage.control.keys import Role

MOST = 500
N_RUNS = 5


@page("settings.html")
def settings(request: Request) -> JSONObject:
    """What each role may see of them: keys are for administrators."""
    workspace, role = workspace_of(request), role_of(request)
    is_admin = role is not None and role.covers(Role.ADMIN)
    schedules = product.list_schedules(workspace, MOST).items
    return {
        "schedules": [
            {"schedule": each, "runs": product.list_schedule_runs(workspace, each.name, N_RUNS).items}
            for each in schedules
        ],
        "webhooks": [
            {"webhook": each, "deliveries": product.list_deliveries(workspace, str(each["id"]))[:N_RUNS]}
            for each in product.list_webhooks(workspace)
        ]
        if is_admin
        else None,
        "keys": product.list_keys(workspace, MOST).items if is_admin else None,
        "roles": [str(each) for each in Role],
        "needs_keys": workspace.settings.needs_keys,
        "data_roots": workspace.settings.data_roots,
        "calls": [
            Call("GET", "/v1/schedules"),
            *([Call("GET", "/v1/keys"), Call("GET", "/v1/webhooks")] if is_admin else []),
        ],
    }
