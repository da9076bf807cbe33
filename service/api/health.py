"""Liveness, readiness, metrics and what the server is."""

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, Field

from service.problems import NotReady
from service.telemetry import JOBS, metrics_text
from service.version import VERSION
from service.workspace import Workspace

router = APIRouter(tags=["health"])


class Health(BaseModel):
    """The process answers."""

    status: Literal["ok"] = "ok"
    version: str = Field(examples=[VERSION])


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
async def readyz(request: Request) -> Health:
    """Ok once the registry is open and the kernels are warm; 503 before that and while stopping."""
    if (reason := request.app.state.not_ready) is not None:
        raise NotReady(reason)
    return Health(version=VERSION)


def count_jobs(request: Request) -> None:
    """Look how many jobs wait and run, for the gauges; on a thread, since it asks the database."""
    workspace: Workspace = request.app.state.workspace
    if not workspace.settings.predict_only:
        JOBS.labels("queued").set(workspace.queue.count("queued"))
        JOBS.labels("running").set(workspace.queue.count("running"))


@router.get("/metrics", summary="Prometheus metrics", response_class=Response)
def metrics(_: Annotated[None, Depends(count_jobs)]) -> Response:
    """Requests, latencies, predicted rows, mapped models and jobs, in Prometheus' text format."""
    return Response(metrics_text(), media_type="text/plain; version=0.0.4; charset=utf-8")
