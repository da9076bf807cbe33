"""The audit log of a workspace: record changes of files outside the control database; read, verify and shorten the log."""

from datetime import UTC, datetime, timedelta

from service.workspace import Workspace
from storage.control import audit
from storage.control.audit import AuditLine
from storage.control.paging import DEFAULT_LIMIT, Page


def record_audit_act(workspace: Workspace, action: str, subject: str, **detail: object) -> None:
    """Record a completed act whose object is not a row of the control database."""
    with workspace.control.writing() as connection:
        audit.record_act(connection, action, subject, **detail)


def list_audit_lines(
    workspace: Workspace, limit: int = DEFAULT_LIMIT, cursor: str | None = None, actor: str | None = None
) -> Page[AuditLine]:
    """Return a page of the audit log, newest first, optionally of one actor. Raises InvalidCursor."""
    with workspace.control.reading() as connection:
        return audit.audit_lines(connection, limit, cursor, actor)


def audit_log_faults(workspace: Workspace) -> list[str]:
    """Return one sentence for each line that was changed or removed; empty if the chain is intact."""
    with workspace.control.reading() as connection:
        return audit.audit_faults(connection)


def delete_old_audit_lines(workspace: Workspace) -> int:
    """Delete lines older than `FEWPASS_AUDIT_DAYS` and return how many."""
    before = datetime.now(UTC) - timedelta(days=workspace.settings.audit_days)
    with workspace.control.writing() as connection:
        return audit.delete_audit_lines_before(connection, before)
