"""/v1/alerts, /v1/alert-rules, /v1/webhooks, and the labels that come later."""

from datetime import datetime
from typing import Annotated, cast

from fastapi import APIRouter, Query
from pydantic import Field, model_validator

from service import product
from service.http.api.bodies.shapes import Ours
from service.http.api.monitoring import SPAN, Answer
from service.product.monitoring.predictions import Label
from service.requests.first_findings import Body
from storage.monitoring.alert_records import RuleRecord

router = APIRouter(tags=["monitoring"])
MOST_LABELS = 100_000


class LabelEntry(Body, extra="forbid"):
    """The class that one prediction turned out to be of."""

    id: str | None = Field(default=None, min_length=1, max_length=256, description="As the prediction answered it.")
    key: str | None = Field(default=None, min_length=1, max_length=280, description="Or your own key.")
    label: bool | int | str = Field(examples=[">50K"])
    at: datetime | None = Field(default=None, description="When it was known; now unless given.")

    @model_validator(mode="after")
    def _has_one(self) -> "LabelEntry":
        if (self.id is None) == (self.key is None):
            raise ValueError("give either id or key")
        return self

    def read(self) -> Label:
        """As the product takes it."""
        kind = "id" if self.id is not None else "key"
        return Label(kind, str(self.id if self.id is not None else self.key), self.label, self.at)


class LabelsRequest(Body, extra="forbid"):
    """Labels of predictions."""

    labels: list[LabelEntry] = Field(max_length=MOST_LABELS)


class RuleRequest(Body, extra="forbid"):
    """When a model alerts; what is left out stays as it is."""

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
        description="Point champion back if so many labelled rows say that the version before it predicts them better; needs mode rows.",
    )


class WebhookRequest(Body, extra="forbid"):
    """Where alerts are sent."""

    url: str = Field(max_length=2000, examples=["https://hooks.example.com/fewpass"])
    models: list[str] = Field(default=[], max_length=1000, description="All unless some are named.")
    secret: str | None = Field(default=None, max_length=200, description="whsec_ and base64; made unless given.")


@router.post("/v1/models/{reference}/labels", summary="Send labels of earlier predictions")
def labels(reference: str, request: LabelsRequest, workspace: Ours) -> dict[str, int]:
    """By the id of `?id=true` or the key of `X-Prediction-Key`; sending one again changes nothing, the last one counts."""
    return product.add_labels(workspace, reference, [entry.read() for entry in request.labels])


@router.get("/v1/models/{reference}/monitoring/performance", summary="Show what labels say of the model")
def performance(
    reference: str,
    workspace: Ours,
    window: Annotated[str, Query(pattern=SPAN)] = "7d",
    step: Annotated[str, Query(pattern=SPAN, description="Of `over_time`.")] = "24h",
) -> Answer:
    """Accuracy, log loss and calibration of labelled predictions, counted when the prediction was made; coverage and delay."""
    return product.performance(workspace, reference, window=window, step=step)


@router.get("/v1/models/{name}/alert-rule", summary="Show when a model alerts")
def show_rule(name: str, workspace: Ours) -> Answer:
    """As decided, or else the defaults."""
    return dict(product.alert_rule(workspace, name))


@router.put("/v1/models/{name}/alert-rule", summary="Say when a model alerts")
def set_rule(name: str, request: RuleRequest, workspace: Ours) -> Answer:
    """Window, reference, limits, and whether webhooks stay silent."""
    rule = cast("RuleRecord", request.model_dump(exclude_none=True))
    return dict(product.set_alert_rule(workspace, name, rule))


@router.get("/v1/alerts", summary="List alerts")
def alerts(workspace: Ours, model: str | None = None, is_open: bool | None = None) -> list[Answer]:
    """The newest first."""
    return [dict(one) for one in product.list_alerts(workspace, model, is_open=is_open)]


@router.post("/v1/alerts/{alert}/acknowledge", summary="Note that an alert was seen")
def acknowledge(alert: str, workspace: Ours) -> Answer:
    """It stays open until it is over."""
    return dict(product.acknowledge_alert(workspace, alert))


@router.post("/v1/alerts/{alert}/mute", summary="Send no more about an alert")
def mute(alert: str, workspace: Ours) -> Answer:
    """Webhooks hear neither that it is resolved nor that the same alarm of the model fires again."""
    return dict(product.mute_alert(workspace, alert))


@router.post("/v1/alerts/{alert}/unmute", summary="Send about an alert again")
def unmute(alert: str, workspace: Ours) -> Answer:
    """Webhooks hear of it as of any other."""
    return dict(product.mute_alert(workspace, alert, is_muted=False))


@router.post("/v1/alerts/{alert}/resolve", summary="Close an alert")
def resolve(alert: str, workspace: Ours) -> Answer:
    """If its alarm goes on, it must last anew before it fires again; webhooks hear of it after the next look."""
    return dict(product.resolve_alert(workspace, alert))


@router.get("/v1/webhooks", summary="List webhooks")
def webhooks(workspace: Ours) -> list[Answer]:
    """Without their secrets."""
    return product.list_webhooks(workspace)


@router.post("/v1/webhooks", status_code=201, summary="Send alerts to a URL")
def create(request: WebhookRequest, workspace: Ours) -> Answer:
    """The answer holds the secret, which is never told again."""
    return product.create_webhook(workspace, request.url, request.models, request.secret)


@router.delete("/v1/webhooks/{webhook}", status_code=204, summary="Send nothing there any more")
def delete(webhook: str, workspace: Ours) -> None:
    """What was sent stays in the log."""
    product.delete_webhook(workspace, webhook)


@router.post("/v1/webhooks/{webhook}/test", summary="Send a test event")
def send_test(webhook: str, workspace: Ours) -> Answer:
    """What came of it, after five attempts at most."""
    return dict(product.test_webhook(workspace, webhook))


@router.get("/v1/webhooks/{webhook}/deliveries", summary="Show what was sent")
def deliveries(webhook: str, workspace: Ours) -> list[Answer]:
    """The newest first."""
    return [dict(one) for one in product.list_deliveries(workspace, webhook)]
