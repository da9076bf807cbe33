"""The audit log of a workspace: acts that change files beside the control database, and reading, checking and shortening the log."""

from datetime import UTC, datetime, timedelta

from service.workspace import Workspace
from storage.control import audit
from storage.control.audit import AuditLine
from storage.control.paging import DEFAULT_LIMIT, Page


def record_audit_act(workspace: Workspace, action: str, subject: str, **detail: object) -> None:
    """Record an act whose object is no row of the control database, after it was done."""
    with workspace.control.writing() as connection:
        audit.record_act(connection, action, subject, **detail)


def list_audit_lines(
    workspace: Workspace, limit: int = DEFAULT_LIMIT, cursor: str | None = None, actor: str | None = None
) -> Page[AuditLine]:
    """A page of the audit log, newest first; of one actor if named. Raises InvalidCursor."""
    with workspace.control.reading() as connection:
        return audit.audit_lines(connection, limit, cursor, actor)


def audit_log_faults(workspace: Workspace) -> list[str]:
    """One sentence for each line that was changed or removed; empty if the chain is whole."""
    with workspace.control.reading() as connection:
        return audit.audit_faults(connection)


def delete_old_audit_lines(workspace: Workspace) -> int:
    """Delete lines older than `FEWPASS_AUDIT_DAYS`; returns how many."""
    before = datetime.now(UTC) - timedelta(days=workspace.settings.audit_days)
    with workspace.control.writing() as connection:
        return audit.delete_audit_lines_before(connection, before)
