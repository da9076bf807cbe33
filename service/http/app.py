"""The web application: create_app(settings) assembles it; its lifespan opens and closes all resources."""

import asyncio
import contextlib
import gc
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import anyio
import anyio.to_thread
import structlog
from fastapi import FastAPI
from pydantic.warnings import UnsupportedFieldAttributeWarning
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from learners.kernels.jit import notify_on_kernel_compilation
from service import product
from service.console import routes as console
from service.http import browser_sessions, error_handlers, openapi
from service.http.api import (
    administration,
    audit,
    datasets,
    health,
    jobs,
    model_exports,
    models,
    monitoring,
    receipts,
    schedules,
)
from service.http.api.bodies import InFlight
from service.http.api.resources import Openings
from service.http.api.scoring import explain, invocations, open_inference, predict, query, score_impute
from service.http.api.scoring.predict import Predict
from service.http.middleware import BodyLimit, Deadlines, Spans, Telemetry
from service.http.paths import EVENTS, RouteRoles
from service.http.security import Guard
from service.http.warm_up import warm_up_kernels
from service.jobs.worker_leases import CrewWatch
from service.product.monitoring_loop import Looker
from service.requests import problems
from service.requests.json_values import JSONObject
from service.serving.monitoring_counts import Observer
from service.serving.predictor import Predictor
from service.settings import Settings
from service.startup import restore_gc_after_startup
from service.version import VERSION
from service.workspace import Workspace
from storage.control.control import control_generation
from storage.errors import StorageError
from storage.monitoring.monitoring_files import MonitoringFiles

ANSWER_S = 10.0
OPENING = 8  # data sets that are opened at once for requests: a store that hangs holds these threads, and no others
Answer = TypeVar("Answer")
# FastAPI builds schemas of annotations that have an alias or a default, and ignores this itself, but not for bodies, which are built later.
warnings.filterwarnings("ignore", category=UnsupportedFieldAttributeWarning)


class Application(FastAPI):
    """FastAPI application in which predictions bypass the FastAPI layers, which cost more than an answer does.

    Measured (benchmarks/serving.py): as an ordinary route behind the same middleware a prediction costs 1.10 times a
    bare Starlette echo, like this 0.7 times plus the model's look-up.
    """

    predict: Predict
    deadlines: Deadlines
    guard: Guard
    entrance: ASGIApp

    def __init__(self, settings: Settings, **fields: Any) -> None:
        super().__init__(**fields)
        in_flight = InFlight(settings.max_in_flight_bytes)
        self.predict = Predict(settings, in_flight)
        of_densities = score_impute.Densities(self.predict, settings)
        plain: dict[str, Any] = {
            predict.PATH: self.predict,  # what the hot path leaves over: other methods, and paths below a mount
            explain.PATH: explain.explain_endpoint,
            score_impute.SCORE_PATH: of_densities.score,
            score_impute.IMPUTE_PATH: of_densities.impute,
            **dict.fromkeys(open_inference.PATHS, open_inference.inference_endpoint),
            invocations.PATH: invocations.Invocations(self.predict, settings).answer,
        }
        self.router.routes += [
            Route(path, endpoint, methods=["POST"], include_in_schema=False) for path, endpoint in plain.items()
        ]
        control_plane = BodyLimit(super().__call__, settings, in_flight)

        def way(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
            """Send predictions directly to their endpoint, other requests through the routing and layers of the control
            plane.
            """
            return (self.predict if scope.get("fewpass.is_hot") else control_plane)(scope, receive, send)

        self.deadlines = Deadlines(way, settings.request_timeout_s)
        self.guard = Guard(self.deadlines, settings)
        self.spans = Spans() if settings.traces else None
        self.entrance = Telemetry(self.guard, settings.slow_request_s, self.spans)

    def openapi(self) -> JSONObject:
        """The OpenAPI document, predictions included."""
        return openapi.openapi_document(self, self.guard)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Give the request its id, then send it to the prediction endpoint or the control plane."""
        if scope["type"] == "http" and scope["method"] == "HEAD" and not EVENTS.has("GET", scope["path"]):
            scope = {**scope, "method": "GET"}  # of whose answer the server sends the head alone
        await self.entrance(scope, receive, send)


def create_app(settings: Settings | None = None) -> FastAPI:
    """Create the application of one serving process; its lifespan opens all resources. Settings come from the
    environment by default.
    """
    settings = settings or Settings()
    app = Application(
        settings,
        title="fewpass",
        version=VERSION,
        summary="Probabilistic models from tables larger than memory, in a few passes.",
        lifespan=_lifespan,
        docs_url=None,  # our own pages, which need no network
        redoc_url=None,
        responses=openapi.PROBLEM_RESPONSES,
    )
    app.state.settings = settings
    app.state.workspace = Workspace(settings)
    app.state.opening = Openings(OPENING)
    app.state.not_ready = "The server is starting. Try again in a few seconds."
    app.state.degraded = app.state.stranded = None
    resources = [health, open_inference, invocations, query]
    if not settings.predict_only:
        resources += [datasets, jobs, administration, audit, receipts, models, model_exports, monitoring, schedules]
    for resource in resources:
        app.include_router(resource.router)
    app.router.routes += [*browser_sessions.session_routes(), *console.documentation_routes()]
    if not settings.predict_only:
        app.router.routes += console.console_routes()
    error_handlers.add_error_handlers(app)
    app.guard.roles = RouteRoles(
        [*app.router.routes, *(route for resource in resources for route in resource.router.routes)]
    )
    return app


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    assert isinstance(app, Application)
    workspace: Workspace = app.state.workspace
    predictor = await anyio.to_thread.run_sync(_open, workspace)
    app.state.predictor = app.predict.predictor = predictor
    looker = None if predictor.observer is None else Looker(workspace).start()
    app.guard.load(predictor.control)
    tasks = [asyncio.create_task(work) for work in (_become_ready(app), _follow(app), app.deadlines.sweep())]
    try:
        yield
    finally:
        app.state.not_ready = "The server is stopping."
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if predictor.observer is not None and looker is not None:
            await anyio.to_thread.run_sync(looker.close)
            await anyio.to_thread.run_sync(predictor.observer.close)
        if app.spans is not None:
            await anyio.to_thread.run_sync(app.spans.close)
        gc.unfreeze()  # or else what is frozen outlives the interpreter, and libraries complain
        workspace.close()


def _open(workspace: Workspace) -> Predictor:
    predictor = Predictor(workspace.control, workspace.settings.mapped_models, start_monitoring_observer(workspace))
    if not workspace.settings.predict_only:
        product.job_queue(workspace)  # opened now, so that a broken database fails the start and not a request
    return predictor


def start_monitoring_observer(workspace: Workspace) -> Observer | None:
    """Start the observer that counts served rows; None if monitoring is off or the workspace is read-only."""
    if workspace.settings.monitoring == "off":
        return None
    root = workspace.layout.root
    try:
        observer = Observer(workspace.settings, lambda name: MonitoringFiles(root, name).choice())
    except (OSError, StorageError) as error:
        structlog.get_logger("serve").warning("served rows are not counted", reason=str(error))
        return None
    observer.start()
    return observer


async def _become_ready(app: FastAPI) -> None:
    gc.freeze()  # else the collection below looks at all modules: .2 s
    if app.state.settings.warm_up:
        seconds = await anyio.to_thread.run_sync(_warm_up, app)
        structlog.get_logger("serve").info("kernels are warm", seconds=round(seconds, 2))
    # What was made until now stays: looking at it again and again would cost as much as a few look-ups.
    gc.collect()
    gc.freeze()
    restore_gc_after_startup()
    app.state.not_ready = None


def _warm_up(app: FastAPI) -> float:
    def tell() -> None:
        app.state.not_ready = "The server is compiling kernels, which happens once on a machine."
        structlog.get_logger("serve").info("compiling kernels, which happens once on a machine")

    with notify_on_kernel_compilation(tell):
        return warm_up_kernels()


async def _follow(app: Application) -> None:
    """Follow moved aliases, new versions and changed keys as long as the server runs."""
    log = structlog.get_logger("serve")
    settings: Settings = app.state.settings
    predictor: Predictor = app.state.predictor
    one_at_a_time = anyio.CapacityLimiter(1)  # of its own: a database that hangs shall take no thread of requests

    async def ask(question: Callable[..., Answer], *about: object) -> Answer:
        with anyio.fail_after(ANSWER_S):
            return await anyio.to_thread.run_sync(question, *about, abandon_on_cancel=True, limiter=one_at_a_time)

    crew = CrewWatch(app.state.workspace)
    while True:
        await asyncio.sleep(settings.generation_poll_s)
        try:
            await ask(app.state.workspace.check_there)
            if await ask(control_generation, predictor.control) != app.guard.generation:
                await ask(app.guard.load, predictor.control)
            if await ask(predictor.refresh):
                log.info("registry has changed", generation=predictor.generation)
            if crew.is_due():
                app.state.stranded = await ask(crew.look)
            await ask(app.guard.load_login)  # last: an issuer that is away holds up nothing else
        except Exception as error:  # the models that are mapped go on being served
            is_silent = isinstance(error, TimeoutError)
            reason = f"The control database did not answer for {ANSWER_S:g} s." if is_silent else str(error)
            if app.state.degraded is None:  # once: it may last for hours
                is_expected = is_silent or problems.is_expected_error(error)
                log.warning("the registry cannot be read", reason=reason, exc_info=not is_expected)
            app.state.degraded = reason
            await asyncio.sleep(1)
        else:
            if app.state.degraded is not None:
                log.info("the registry can be read again")
            app.state.degraded = None
