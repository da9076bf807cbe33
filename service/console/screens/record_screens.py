"""Screens of what was done: receipts of forgotten rows, and the audit log."""

import json

from starlette.requests import Request

from learners.errors import ExtraMissing
from service import product
from service.console.page_requests import page_limit_and_cursor, role_from_request
from service.console.pages import Call, render_as_page
from service.requests.json_values import JSONObject
from service.serving.application_state import workspace_from_request
from storage.control.api_keys_and_sessions import Role
from storage.errors import InvalidReceipt


@render_as_page("receipts.html")
def receipts_screen(request: Request) -> JSONObject:
    """List the receipts of forgotten rows, newest first."""
    limit, cursor = page_limit_and_cursor(request)
    listed = product.list_receipts(workspace_from_request(request), limit, cursor)
    return {"receipts": listed.items, "next_cursor": listed.next_cursor, "calls": [Call("GET", "/v1/receipts")]}


@render_as_page("receipt.html")
def receipt_screen(request: Request) -> JSONObject:
    """Show one receipt, and whether its signature is valid."""
    workspace, receipt_id = workspace_from_request(request), request.path_params["receipt_id"]
    data, problem = product.read_receipt(workspace, receipt_id), ""
    try:
        product.verify_receipt(data, product.receipts_public_key(workspace))
    except (InvalidReceipt, ExtraMissing) as error:
        problem = str(error)
    return {"receipt": json.loads(data), "problem": problem, "calls": [Call("GET", f"/v1/receipts/{receipt_id}")]}


@render_as_page("audit.html")
def audit_screen(request: Request) -> JSONObject:
    """Show the audit log, newest first, and whether a line was changed or removed; only administrators see lines."""
    workspace, role = workspace_from_request(request), role_from_request(request)
    if role is None or not role.covers(Role.ADMIN):
        return {"lines": None, "next_cursor": None, "faults": [], "actor": ""}
    limit, cursor = page_limit_and_cursor(request)
    actor = request.query_params.get("actor", "")
    listed = product.list_audit_lines(workspace, limit, cursor, actor or None)
    return {
        "lines": listed.items,
        "next_cursor": listed.next_cursor,
        "faults": [] if cursor else product.audit_log_faults(workspace),
        "actor": actor,
        "calls": [Call("GET", "/v1/audit")],
    }
