"""/v1/models/{reference}/monitoring: what was served, compared."""

from datetime import datetime
from typing import Annotated, Literal

import pyarrow as pa
from fastapi import APIRouter, Depends, Query, Response
from pydantic import Field

from service import product
from service.http.api.bodies.shapes import Shape, answers, workspace_of
from service.http.api.scoring.predict import ARROW
from service.requests.first_findings import Body
from service.workspace import Workspace
from storage.monitoring.counts import MonitorChoice

router = APIRouter(prefix="/v1/models", tags=["monitoring"])
Ours = Annotated[Workspace, Depends(workspace_of)]
SPAN = r"^[1-9][0-9]{0,3}[hdw]$"
Span = Annotated[str, Query(pattern=SPAN, examples=["24h"])]
Against = Annotated[
    str, Query(description="training, window:7d, same-hour:4w or version:3", max_length=64, examples=["training"])
]
Until = Annotated[datetime | None, Query(description="The end of the window; now unless given.")]
Answer = dict[str, object]


class MonitorRequest(Body, extra="forbid"):
    """What is kept of the served rows of one model."""

    mode: Literal["off", "counts", "rows"] = "counts"
    denied: list[str] = Field(default=[], max_length=10_000, description="Columns whose values are not counted.")


class MonitorShape(Shape):
    """What is kept of the served rows of one model."""

    mode: str
    denied: list[str]


@router.get("/{reference}/monitoring", summary="Is the model still right?")
def monitoring(
    reference: str, workspace: Ours, window: Span = "24h", until: Until = None, against: Against = "training"
) -> Answer:
    """Rows, alarms, causes (the likeliest first), columns and estimates of the last hours."""
    return product.monitor(workspace, reference, window=window, until=until, against=against)


@router.get("/{reference}/monitoring/windows", summary="Show a timeline of what was served")
def windows(
    reference: str,
    workspace: Ours,
    since: Span = "24h",
    step: Span = "1h",
    until: Until = None,
    against: Against = "training",
) -> Answer:
    """For each step rows, rates, surprise, estimates and causes; steps are tested where there are at most 72."""
    return product.monitoring_windows(workspace, reference, since=since, step=step, until=until, against=against)


@router.get("/{reference}/monitoring/families", summary="Show how much each column has changed, given its parents")
def families(
    reference: str, workspace: Ours, window: Span = "24h", until: Until = None, against: Against = "training"
) -> Answer:
    """In nats, with its parents: for a picture of the model's graph."""
    return product.monitoring_families(workspace, reference, window=window, until=until, against=against)


@router.get("/{reference}/monitoring/columns/{column:path}", summary="Show the values of one column")
def column(
    reference: str,
    column: str,
    workspace: Ours,
    window: Span = "24h",
    until: Until = None,
    against: Against = "training",
) -> Answer:
    """Counts of each value in the window and in the reference; cells of fewer than five rows are null."""
    return product.monitoring_column(workspace, reference, column, window=window, until=until, against=against)


@router.get("/{reference}/monitoring/predictions", summary="Show predicted classes by confidence")
def predictions(reference: str, workspace: Ours, window: Span = "24h", until: Until = None) -> Answer:
    """How often each class was predicted with how much confidence; counts of fewer than five rows are null."""
    return product.monitoring_predictions(workspace, reference, window=window, until=until)


@router.get(
    "/{reference}/monitoring/slices",
    summary="Download the counts as Arrow",
    response_class=Response,
    responses=answers(ARROW),
)
def slices(reference: str, workspace: Ours, window: Span = "24h", until: Until = None) -> Response:
    """An Arrow stream of start, end, process, block, place and count of each hour and process. They add up exactly: small
    cells are not hidden, so the call needs the role `train`.
    """
    table = product.monitoring_slices(workspace, reference, window=window, until=until)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return Response(sink.getvalue().to_pybytes(), media_type=ARROW)


@router.get("/{name}/monitor", summary="Show what is kept of served rows")
def show_choice(name: str, workspace: Ours) -> MonitorShape:
    """As decided for the model, or else as the server has it."""
    return MonitorShape.model_validate(product.monitor_of(workspace, name))


@router.put("/{name}/monitor", summary="Decide what is kept of served rows")
def choose(name: str, request: MonitorRequest, workspace: Ours) -> MonitorShape:
    """Processes follow at their next writing, within a minute; what was counted stays."""
    choice: MonitorChoice = {"mode": request.mode, "denied": request.denied}
    return MonitorShape.model_validate(product.set_monitor(workspace, name, choice))
