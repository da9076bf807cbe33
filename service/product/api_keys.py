"""API keys: create, list, revoke."""

from datetime import UTC, datetime, timedelta

from service.workspace import Workspace, bind_control_to_workspace
from storage.control import api_keys_and_sessions
from storage.control.api_keys_and_sessions import ApiKey, Role

list_keys = bind_control_to_workspace(api_keys_and_sessions.list_api_keys)
revoke_key = bind_control_to_workspace(api_keys_and_sessions.revoke_api_key)


def create_key(workspace: Workspace, name: str, role: Role, days: float | None = None) -> tuple[ApiKey, str]:
    """Create an API key that expires after `days` if given; its token is returned here and never again."""
    expires_at = None if days is None else datetime.now(UTC) + timedelta(days=days)
    return api_keys_and_sessions.create_api_key(workspace.control, name, role, expires_at)
