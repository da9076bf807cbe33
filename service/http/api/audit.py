"""/v1/audit: the log of changes, for the role admin."""

from datetime import datetime

from fastapi import APIRouter

from service import product
from service.http.api.resources import Limit, Ours, PageShape, Shape
from service.requests.json_values import JSONObject
from service.requests.roles import needs_role
from storage.control.api_keys_and_sessions import Role

router = APIRouter(prefix="/v1")


class AuditLineShape(Shape):
    """One line of the audit log. `sha256` covers all other fields; `previous_sha256` links it to the previous line."""

    id: int
    at: datetime
    actor: str
    role: str
    origin: str
    request_id: str
    action: str
    subject: str
    detail: JSONObject
    previous_sha256: str
    sha256: str


@needs_role(Role.ADMIN)
@router.get("/audit", name="list_all", tags=["audit"], summary="List the audit log")
def list_audit_lines_endpoint(
    workspace: Ours, limit: Limit = 100, cursor: str | None = None, actor: str | None = None
) -> PageShape[AuditLineShape]:
    """List the audit log, newest first; with `actor`, only the changes by one key, job or user."""
    return PageShape[AuditLineShape].model_validate(product.list_audit_lines(workspace, limit, cursor, actor))
