"""/v1/models/{reference}/monitoring: served rows compared with a reference; /v1/alerts, /v1/alert-rules, /v1/webhooks,
and labels that arrive later.
"""

from datetime import datetime
from typing import Annotated, Literal, cast

import pyarrow as pa
from fastapi import APIRouter, Query, Response
from pydantic import Field, model_validator

from service import product
from service.http.api.resources import BodyRoute, Ours, Shape, media_type_responses
from service.http.api.scoring.predict import ARROW
from service.product.monitoring.predictions import Label
from service.requests.column_paths import COLUMN
from service.requests.event_kinds import EventKind
from service.requests.first_findings import Body
from service.requests.roles import needs_role
from storage.control.api_keys_and_sessions import Role
from storage.monitoring.alert_records import RuleRecord
from storage.monitoring.monitoring_files import MonitorChoice

router = APIRouter(route_class=BodyRoute, prefix="/v1", tags=["monitoring"])
SPAN = r"^[1-9][0-9]{0,3}[hdw]$"
Span = Annotated[str, Query(pattern=SPAN, examples=["24h"])]
Against = Annotated[
    str, Query(description="training, window:7d, same-hour:4w or version:3", max_length=64, examples=["training"])
]
Until = Annotated[datetime | None, Query(description="End of the window; by default now.")]
Answer = dict[str, object]


class MonitorRequest(Body, extra="forbid"):
    """A change of how the served rows of one model are stored."""

    mode: Literal["off", "counts", "rows"] = "counts"
    denied: list[str] = Field(default=[], max_length=10_000, description="Columns whose values are not counted.")


class MonitorShape(Shape):
    """Monitoring choice of one model: how its served rows are stored."""

    mode: str
    denied: list[str]


@router.get("/models/{reference}/monitoring", name="monitoring", summary="Show drift and estimated accuracy")
def monitor_model_endpoint(
    reference: str, workspace: Ours, window: Span = "24h", until: Until = None, against: Against = "training"
) -> Answer:
    """Report the last hours of served rows: row counts, alarms, causes (most likely first), columns and estimates."""
    return product.monitoring_window_report(workspace, reference, window=window, until=until, against=against)


@router.get("/models/{reference}/monitoring/windows", name="windows", summary="Show a timeline of served rows")
def list_monitoring_windows_endpoint(
    reference: str,
    workspace: Ours,
    since: Span = "24h",
    step: Span = "1h",
    until: Until = None,
    against: Against = "training",
) -> Answer:
    """Report rows, rates, surprise, estimates and causes for each step; steps are tested only if there are at most 72."""
    return product.monitoring_windows(workspace, reference, since=since, step=step, until=until, against=against)


@router.get(
    "/models/{reference}/monitoring/families",
    name="families",
    summary="Show how much each column has changed, given its parents",
)
def show_family_drift_endpoint(
    reference: str, workspace: Ours, window: Span = "24h", until: Until = None, against: Against = "training"
) -> Answer:
    """Report the drift of each family (a column with its parents) in nats, for a picture of the model's graph."""
    return product.monitoring_family_drift(workspace, reference, window=window, until=until, against=against)


@router.get(
    f"/models/{{reference}}/monitoring/columns/{COLUMN}", name="column", summary="Show the values of one column"
)
def show_monitored_column_endpoint(
    reference: str,
    column: str,
    workspace: Ours,
    window: Span = "24h",
    until: Until = None,
    against: Against = "training",
) -> Answer:
    """Show the counts of each value in the window and in the reference; cells of fewer than five rows are null."""
    return product.monitoring_column_counts(workspace, reference, column, window=window, until=until, against=against)


@router.get(
    "/models/{reference}/monitoring/predictions", name="predictions", summary="Show predicted classes by confidence"
)
def list_monitored_predictions_endpoint(
    reference: str, workspace: Ours, window: Span = "24h", until: Until = None
) -> Answer:
    """Show how often each class was predicted at each confidence; counts of fewer than five rows are null."""
    return product.prediction_confidence_counts(workspace, reference, window=window, until=until)


@needs_role(Role.TRAIN)
@router.get(
    "/models/{reference}/monitoring/slices",
    name="slices",
    summary="Download the counts as Arrow",
    response_class=Response,
    responses=media_type_responses(ARROW),
)
def show_accuracy_over_time_endpoint(
    reference: str, workspace: Ours, window: Span = "24h", until: Until = None
) -> Response:
    """Stream the hourly counts of each process as Arrow: start, end, process, block, place, count. They add up exactly,
    so small cells are not hidden and the call needs the role `train`.
    """
    table = product.hourly_monitoring_counts(workspace, reference, window=window, until=until)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return Response(sink.getvalue().to_pybytes(), media_type=ARROW)


@router.get("/models/{name}/monitor", name="show_choice", summary="Show how served rows are stored")
def show_monitoring_choice_endpoint(name: str, workspace: Ours) -> MonitorShape:
    """Show the monitoring choice of a model, or the server's default."""
    return MonitorShape.model_validate(product.monitoring_choice(workspace, name))


@router.put("/models/{name}/monitor", name="choose", summary="Set how served rows are stored")
def set_monitoring_choice_endpoint(name: str, request: MonitorRequest, workspace: Ours) -> MonitorShape:
    """Set how the served rows of a model are stored. Processes follow at their next write, within a minute; existing
    counts stay.
    """
    choice: MonitorChoice = {"mode": request.mode, "denied": request.denied}
    return MonitorShape.model_validate(product.set_monitoring_choice(workspace, name, choice))


MOST_LABELS = 100_000


class LabelEntry(Body, extra="forbid"):
    """The true class of one prediction."""

    id: str | None = Field(default=None, min_length=1, max_length=256, description="Id from the prediction.")
    key: str | None = Field(default=None, min_length=1, max_length=280, description="Or your own key.")
    label: bool | int | str = Field(examples=[">50K"])
    at: datetime | None = Field(default=None, description="Time at which the label became known; by default now.")

    @model_validator(mode="after")
    def _has_one(self) -> "LabelEntry":
        if (self.id is None) == (self.key is None):
            raise ValueError("give either id or key")
        return self

    def read(self) -> Label:
        """Convert the entry to a `Label`."""
        kind = "id" if self.id is not None else "key"
        return Label(kind, str(self.id if self.id is not None else self.key), self.label, self.at)


class LabelsRequest(Body, extra="forbid"):
    """Labels for earlier predictions."""

    labels: list[LabelEntry] = Field(max_length=MOST_LABELS)


class RuleRequest(Body, extra="forbid"):
    """Rules for when a model raises alerts; omitted fields stay unchanged."""

    window: str | None = Field(default=None, pattern=SPAN, examples=["24h"])
    against: str | None = Field(default=None, max_length=64, examples=["same-hour:4w"])
    q: float | None = Field(default=None, gt=0, lt=1)
    nats: float | None = Field(default=None, ge=0, le=100)
    points: float | None = Field(default=None, ge=0, le=100)
    is_muted: bool | None = None
    rollback_labels: int | None = Field(
        default=None,
        ge=30,
        le=10_000_000,
        description="Move champion back if, on this many labelled rows, the version before it predicts better; needs mode rows.",
    )


class WebhookRequest(Body, extra="forbid"):
    """A URL, and the alerts and events to send to it."""

    url: str = Field(max_length=2000, examples=["https://hooks.example.com/fewpass"])
    models: list[str] = Field(default=[], max_length=1000, description="Models to send events of; by default all.")
    secret: str | None = Field(default=None, max_length=200, description="whsec_ and base64; made unless given.")
    events: list[EventKind] = Field(default=[], max_length=20, description="Kinds of events; by default alerts alone.")


@needs_role(Role.PREDICT)
@router.post("/models/{reference}/labels", name="labels", summary="Send labels of earlier predictions")
def add_labels_endpoint(reference: str, request: LabelsRequest, workspace: Ours) -> dict[str, int]:
    """Add labels by the id of `?id=true` or the key of `X-Prediction-Key`. Sending a label again changes nothing; the
    last one counts.
    """
    return product.add_prediction_labels(workspace, reference, [entry.read() for entry in request.labels])


@router.get(
    "/models/{reference}/monitoring/performance",
    name="performance",
    summary="Show the performance of a model on labelled rows",
)
def show_monitored_performance_endpoint(
    reference: str,
    workspace: Ours,
    window: Annotated[str, Query(pattern=SPAN)] = "7d",
    step: Annotated[str, Query(pattern=SPAN, description="Of `over_time`.")] = "24h",
) -> Answer:
    """Report accuracy, log loss and calibration of labelled predictions by the time of prediction; also label coverage
    and delay.
    """
    return product.monitoring_performance(workspace, reference, window=window, step=step)


@router.get("/models/{name}/alert-rule", name="show_rule", summary="Show when a model alerts")
def show_alert_rule_endpoint(name: str, workspace: Ours) -> Answer:
    """Show the alert rule of a model, or the defaults."""
    return dict(product.alert_rule(workspace, name))


@router.put("/models/{name}/alert-rule", name="set_rule", summary="Set when a model alerts")
def set_alert_rule_endpoint(name: str, request: RuleRequest, workspace: Ours) -> Answer:
    """Set the window, the reference and the limits of a model's alerts, and whether its webhooks stay silent."""
    rule = cast("RuleRecord", request.model_dump(exclude_none=True))
    return dict(product.set_alert_rule(workspace, name, rule))


@router.get("/alerts", name="alerts", summary="List alerts")
def list_alerts_endpoint(workspace: Ours, model: str | None = None, is_open: bool | None = None) -> list[Answer]:
    """List the alerts, newest first."""
    return [dict(one) for one in product.list_alerts(workspace, model, is_open=is_open)]


@router.post("/alerts/{alert}/acknowledge", name="acknowledge", summary="Mark an alert as seen")
def acknowledge_alert_endpoint(alert: str, workspace: Ours) -> Answer:
    """Mark an alert as seen. It stays open until its alarm ends."""
    return dict(product.acknowledge_alert(workspace, alert))


@router.post("/alerts/{alert}/mute", name="mute", summary="Mute an alert")
def mute_alert_endpoint(alert: str, workspace: Ours) -> Answer:
    """Mute an alert: webhooks are sent neither its resolution nor a new firing of the same alarm of the model."""
    return dict(product.mute_alert(workspace, alert))


@router.post("/alerts/{alert}/unmute", name="unmute", summary="Unmute an alert")
def unmute_alert_endpoint(alert: str, workspace: Ours) -> Answer:
    """Unmute an alert: webhooks are sent its events again."""
    return dict(product.mute_alert(workspace, alert, is_muted=False))


@router.post("/alerts/{alert}/resolve", name="resolve", summary="Close an alert")
def resolve_alert_endpoint(alert: str, workspace: Ours) -> Answer:
    """Resolve an alert. If its alarm continues, it must persist for the full time again before it fires; webhooks are
    notified after the next check.
    """
    return dict(product.resolve_alert(workspace, alert))


@needs_role(Role.ADMIN)
@router.get("/webhooks", name="webhooks", summary="List webhooks")
def list_webhooks_endpoint(workspace: Ours) -> list[Answer]:
    """List the webhooks, without their secrets."""
    return product.list_webhooks(workspace)


@needs_role(Role.ADMIN)
@router.post("/webhooks", name="create", status_code=201, summary="Send alerts and events to a URL")
def create_webhook_endpoint(request: WebhookRequest, workspace: Ours) -> Answer:
    """The answer holds the secret, which no later answer shows."""
    return product.create_webhook(workspace, request.url, request.models, request.secret, request.events)


@needs_role(Role.ADMIN)
@router.delete("/webhooks/{webhook}", name="delete", status_code=204, summary="Remove a webhook")
def delete_webhook_endpoint(webhook: str, workspace: Ours) -> None:
    """Delete a webhook. Its past deliveries stay in the log."""
    product.delete_webhook(workspace, webhook)


@needs_role(Role.ADMIN)
@router.post("/webhooks/{webhook}/test", name="send_test", summary="Send a test event")
def test_webhook_endpoint(webhook: str, workspace: Ours) -> Answer:
    """Send a test event and show the delivery result, after at most five attempts."""
    return dict(product.test_webhook(workspace, webhook))


@needs_role(Role.ADMIN)
@router.get("/webhooks/{webhook}/deliveries", name="deliveries", summary="Show what was sent")
def list_webhook_deliveries_endpoint(webhook: str, workspace: Ours) -> list[Answer]:
    """List the deliveries of a webhook, newest first."""
    return [dict(one) for one in product.list_webhook_deliveries(workspace, webhook)]
