"""Liveness, readiness, metrics and the index of the server."""

from datetime import UTC, datetime
from http import HTTPStatus
from math import nan
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import BaseModel, Field
from sqlalchemy.exc import DBAPIError

from service import product
from service.jobs.worker_leases import worker_crew_status
from service.requests.problems import NotReady
from service.telemetry import CONTROL_UP, JOBS, MODEL_AGE, PASSES, ROWS_PER_S, metrics_text
from service.version import VERSION
from service.workspace import Workspace
from storage.errors import StorageError
from storage.models import model_versions

router = APIRouter(tags=["health"])
LABELS: set[str] = set()
DAMAGED = "A requested version cannot be used; if another was served before it, that one is still served. fewpass doctor names it."


class Health(BaseModel):
    """Liveness of the process."""

    status: Literal["ok"] = "ok"
    version: str = Field(examples=[VERSION])


class Readiness(BaseModel):
    """Readiness of the server for requests, and the reason if it is degraded."""

    status: Literal["ok", "degraded"] = "ok"
    version: str = Field(examples=[VERSION])
    reason: str | None = Field(default=None, exclude_if=lambda reason: reason is None)


class Index(BaseModel):
    """Name and version of the server, and its entry paths."""

    name: Literal["fewpass"] = "fewpass"
    version: str
    console: str = "/console"
    documentation: str = "/docs"
    openapi: str = "/openapi.json"
    metrics: str = "/metrics"


@router.get("/", name="index", summary="What this server is", response_model=Index)
async def service_index_endpoint(request: Request) -> Index | RedirectResponse:
    """Show the name, the version and the entry paths; a browser is redirected to the console."""
    if "text/html" in request.headers.get("accept", ""):
        is_small = request.app.state.settings.predict_only
        return RedirectResponse("/docs" if is_small else "/console", HTTPStatus.SEE_OTHER)
    return Index(version=VERSION)


@router.get("/healthz", name="healthz", summary="Is the process alive?")
async def healthz_endpoint() -> Health:
    """Answer "ok" as long as the process can answer at all."""
    return Health(version=VERSION)


@router.get("/readyz", name="readyz", summary="Is the server ready for requests?")
async def readyz_endpoint(request: Request) -> Readiness:
    """Answer "ok" once the registry is open and the kernels are warm; 503 before that and while the server stops.

    Degraded, and still 200, while the control database does not answer, a requested version cannot be used, or jobs
    wait and no worker is alive: predictions continue, and sending them elsewhere would not help, since all servers
    share that database and those files.
    """
    if (reason := request.app.state.not_ready) is not None:
        raise NotReady(reason)
    state = request.app.state
    degraded = state.degraded or (DAMAGED if state.predictor.damaged else None) or state.stranded
    return Readiness(status="ok" if degraded is None else "degraded", version=VERSION, reason=degraded)


def update_health_gauges(request: Request) -> None:
    """Set the gauges that come from the control database; runs on a thread, since it queries the database."""
    workspace: Workspace = request.app.state.workspace
    CONTROL_UP.set(request.app.state.degraded is None)
    try:
        _look_at_models(workspace)
        if not workspace.settings.predict_only:
            _look_at_jobs(workspace)
    except (StorageError, DBAPIError):  # the other metrics are wanted all the more
        CONTROL_UP.set(0)


def _look_at_models(workspace: Workspace) -> None:
    now = datetime.now(UTC)
    ages = {
        name: (now - since).total_seconds()
        for name, since in model_versions.default_version_created_at(workspace.control).items()
    }
    for name, age in ages.items():
        MODEL_AGE.labels(name).set(max(0.0, age))
    for name in LABELS - ages.keys():  # several processes cannot take a label back
        MODEL_AGE.labels(name).set(nan)
    LABELS.update(ages)


def _look_at_jobs(workspace: Workspace) -> None:
    queue = product.job_queue(workspace)
    JOBS.labels("queued").set(queue.count("queued"))
    JOBS.labels("running").set(queue.count("running"))
    crew = worker_crew_status(workspace)
    JOBS.labels("stranded").set(len(crew.stranded) + len(crew.silent))
    running = [job.progress or {} for job in queue.list(state="running", limit=100).items]
    PASSES.set(sum("pass_number" in progress for progress in running))
    ROWS_PER_S.set(sum(progress.get("rows_per_s") or 0 for progress in running))


@router.get("/metrics", name="metrics", summary="Prometheus metrics", response_class=Response)
def prometheus_metrics_endpoint(_: Annotated[None, Depends(update_health_gauges)]) -> Response:
    """Return metrics in Prometheus' text format: requests, latencies, predicted rows, models and their age, jobs and
    their passes.
    """
    return Response(metrics_text(), media_type="text/plain; version=0.0.4; charset=utf-8")
