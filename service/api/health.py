"""Liveness, readiness, metrics and what the server is."""

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, Field
from sqlalchemy.exc import DBAPIError

from service.problems import NotReady
from service.telemetry import CONTROL_UP, JOBS, metrics_text
from service.version import VERSION
from service.workspace import Workspace
from storage.errors import StorageError

router = APIRouter(tags=["health"])


class Health(BaseModel):
    """The process answers."""

    status: Literal["ok"] = "ok"
    version: str = Field(examples=[VERSION])


class Readiness(BaseModel):
    """Whether requests should come here, and what does not work while they may."""

    status: Literal["ok", "degraded"] = "ok"
    version: str = Field(examples=[VERSION])
    reason: str | None = Field(default=None, exclude_if=lambda reason: reason is None)


class Index(BaseModel):
    """Where things are."""

    name: Literal["fewpass"] = "fewpass"
    version: str
    documentation: str = "/docs"
    openapi: str = "/openapi.json"
    metrics: str = "/metrics"


@router.get("/", summary="What this server is")
async def index() -> Index:
    """Name, version and the paths to start from."""
    return Index(version=VERSION)


@router.get("/healthz", summary="Is the process alive?")
async def healthz() -> Health:
    """Always ok while the process can answer at all."""
    return Health(version=VERSION)


@router.get("/readyz", summary="Should requests be sent here?")
async def readyz(request: Request) -> Readiness:
    """Ok once the registry is open and the kernels are warm; 503 before that and while stopping.

    Degraded, and still 200, while the control database does not answer: predictions go on, and to send them elsewhere
    would not help, as all servers share that database.
    """
    if (reason := request.app.state.not_ready) is not None:
        raise NotReady(reason)
    degraded = request.app.state.degraded
    return Readiness(status="ok" if degraded is None else "degraded", version=VERSION, reason=degraded)


def count_jobs(request: Request) -> None:
    """Look how many jobs wait and run, for the gauges; on a thread, since it asks the database."""
    workspace: Workspace = request.app.state.workspace
    CONTROL_UP.set(request.app.state.degraded is None)
    if workspace.settings.predict_only:
        return
    try:
        JOBS.labels("queued").set(workspace.queue.count("queued"))
        JOBS.labels("running").set(workspace.queue.count("running"))
    except (StorageError, DBAPIError):  # the other metrics are wanted all the more
        CONTROL_UP.set(0)


@router.get("/metrics", summary="Prometheus metrics", response_class=Response)
def metrics(_: Annotated[None, Depends(count_jobs)]) -> Response:
    """Requests, latencies, predicted rows, mapped models and jobs, in Prometheus' text format."""
    return Response(metrics_text(), media_type="text/plain; version=0.0.4; charset=utf-8")
