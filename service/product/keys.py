"""API keys: made, listed and revoked."""

from datetime import UTC, datetime, timedelta

from service.workspace import Workspace
from storage.control import keys
from storage.control.keys import ApiKey, Role
from storage.control.paging import Page


def create_key(workspace: Workspace, name: str, role: Role, days: float | None = None) -> tuple[ApiKey, str]:
    """Make an API key that expires after so many days, if given; its token is returned here and never again."""
    expires_at = None if days is None else datetime.now(UTC) + timedelta(days=days)
    return keys.create_key(workspace.control, name, role, expires_at)


def list_keys(workspace: Workspace, limit: int = 100, cursor: str | None = None) -> Page[ApiKey]:
    """All API keys by name, without their tokens."""
    return keys.list_keys(workspace.control, limit, cursor)


def revoke_key(workspace: Workspace, name: str) -> ApiKey:
    """End an API key; servers refuse it within the poll interval."""
    return keys.revoke_key(workspace.control, name)
