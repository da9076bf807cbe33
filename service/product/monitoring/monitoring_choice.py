"""Monitoring choice: whether served rows of a model are counted and stored."""

from service.product.audit import record_audit_act
from service.product.versions.registry import find_version, load_served_model
from service.requests.problems import InvalidRequest
from service.workspace import Workspace
from storage.monitoring.monitoring_files import MonitorChoice, MonitoringFiles

MODES = ("off", "counts", "rows")


def set_monitoring_choice(workspace: Workspace, name: str, choice: MonitorChoice) -> MonitorChoice:
    """Set how a model's served rows are stored; processes follow at their next write.

    Raises InvalidRequest if the mode or a column is not known; NotFound.
    """
    version = load_served_model(workspace, name)
    mode = choice.get("mode", "counts")
    if mode not in MODES:
        raise InvalidRequest(f"The mode {mode!r} is not one of {', '.join(MODES)}.", field="mode")
    columns = [attribute.name for attribute in version.schema.attributes]
    for column in choice.get("denied", []):
        if column not in columns:
            raise InvalidRequest(f"Model {name!r} has no column {column!r} to deny.", field="denied")
    MonitoringFiles(workspace.layout.root, version.name).decide(choice)
    record_audit_act(workspace, "monitoring set", version.name, mode=mode)
    return monitoring_choice(workspace, version.name)


def monitoring_choice(workspace: Workspace, name: str) -> MonitorChoice:
    """Return the monitoring choice of a model (NotFound)."""
    model = find_version(workspace, name).name
    decided = MonitoringFiles(workspace.layout.root, model).choice()
    return {"mode": decided.get("mode", workspace.settings.monitoring), "denied": list(decided.get("denied", []))}


def monitoring_mode(workspace: Workspace, name: str) -> str:
    """Return the monitoring mode of a model: off, counts or rows."""
    return str(monitoring_choice(workspace, name).get("mode"))
