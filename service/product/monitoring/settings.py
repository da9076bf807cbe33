"""What is kept of the served rows of one model: as somebody decided, or else as the settings have it."""

from service.product.versions.registry import find_version
from service.product.versions.served import served
from service.requests.problems import InvalidRequest
from service.workspace import Workspace
from storage.monitoring.counts import MonitorChoice, MonitoringFiles

MODES = ("off", "counts", "rows")


def set_monitor(workspace: Workspace, name: str, choice: MonitorChoice) -> MonitorChoice:
    """Decide for one model what is kept of served rows; processes follow at their next writing.

    Raises InvalidRequest if the mode or a column is not known; NotFound.
    """
    version = served(workspace, name)
    mode = choice.get("mode", "counts")
    if mode not in MODES:
        raise InvalidRequest(f"The mode {mode!r} is not one of {', '.join(MODES)}.", field="mode")
    columns = [attribute.name for attribute in version.schema.attributes]
    for column in choice.get("denied", []):
        if column not in columns:
            raise InvalidRequest(f"Model {name!r} has no column {column!r} to deny.", field="denied")
    MonitoringFiles(workspace.layout.root, version.name).decide(choice)
    return monitor_of(workspace, version.name)


def monitor_of(workspace: Workspace, name: str) -> MonitorChoice:
    """What is decided for a model (NotFound)."""
    found = find_version(workspace, name).name
    decided = MonitoringFiles(workspace.layout.root, found).choice()
    return {"mode": decided.get("mode", workspace.settings.monitoring), "denied": list(decided.get("denied", []))}


def mode_of(workspace: Workspace, name: str) -> str:
    """off, counts or rows."""
    return str(monitor_of(workspace, name).get("mode"))
