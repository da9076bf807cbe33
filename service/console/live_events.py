"""One event stream of changes of jobs, registry and monitoring; the server polls once for all browsers."""

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Callable

import anyio.to_thread
import structlog
from starlette.requests import Request
from starlette.responses import StreamingResponse

from service import product
from service.requests import problems
from service.serving.application_state import workspace_from_request
from service.workspace import Workspace
from storage.control.control import control_generation
from storage.errors import StorageError
from storage.monitoring.alert_records import alert_records_fingerprint

# How soon a change is seen, and how soon a stream notices that the server stops.
POLL_S = 0.5
# Whatever files say of when they were written, the database is asked after so long.
LONGEST_S = 10.0
# Proxies and browsers drop a stream on which nothing comes; this is less than what they wait.
HEARTBEAT_S = 20.0
RETRY_MS = 2_000
RECENT = 20
Marks = dict[str, str]


class Live:
    """Watches for changes while there are listeners; an idle server polls nothing. `is_over` returns True when the
    server stops.
    """

    def __init__(self, workspace: Workspace, is_over: Callable[[], bool]) -> None:
        self.workspace = workspace
        self.is_over = is_over
        self.marks: Marks = {}
        self._listeners: set[asyncio.Event] = set()
        self._task: asyncio.Task[None] | None = None

    async def listen(self, known: Marks) -> AsyncIterator[Marks | None]:
        """Yield the marks that differ from `known` as soon as they change; None when a heartbeat is due."""
        changed = asyncio.Event()
        self._listeners.add(changed)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch())
        try:
            while not self.is_over():
                if fresh := {name: mark for name, mark in self.marks.items() if known.get(name) != mark}:
                    known = known | fresh
                    yield fresh
                    continue
                changed.clear()
                try:
                    async with asyncio.timeout(HEARTBEAT_S):
                        await changed.wait()
                except TimeoutError:
                    yield None
        finally:
            self._listeners.discard(changed)

    async def _watch(self) -> None:
        """Poll for all listeners: first whether anything was written, then what changed."""
        seen: object = None
        looked_at = -LONGEST_S
        while self._listeners and not self.is_over():
            now, written = time.monotonic(), workspace_change_mark(self.workspace)
            if written is None or written != seen or now - looked_at >= LONGEST_S:
                seen, looked_at = written, now
                marks = await self._look()
                if marks != self.marks:
                    self.marks = marks
                    self._wake()
            await asyncio.sleep(POLL_S)
        self._wake()

    async def _look(self) -> Marks:
        try:
            return await anyio.to_thread.run_sync(live_event_marks, self.workspace, abandon_on_cancel=True)
        except Exception as error:  # the database may be away for a while; the pages say so themselves
            structlog.get_logger("console").warning(
                "changes cannot be looked for", reason=str(error), exc_info=not problems.is_expected_error(error)
            )
            return self.marks

    def _wake(self) -> None:
        for listener in self._listeners:
            listener.set()


def workspace_change_mark(workspace: Workspace) -> object:
    """Return a value that changes when the control database or the monitoring records are written; None if only a
    query can determine it.
    """
    try:
        control = workspace.control.written_mark()
    except StorageError:  # it was removed: the look itself says so
        return None
    return None if control is None else (control, alert_records_fingerprint(workspace.layout.root))


def live_event_marks(workspace: Workspace) -> Marks:
    """Return a mark for each part shown on pages; it changes when that part changes."""
    queue = product.job_queue(workspace)
    recent = [(job.id, job.state, job.progress) for job in queue.list(limit=RECENT).items]
    return {
        "jobs": hashlib.sha256(repr(recent).encode()).hexdigest()[:16],
        "registry": str(control_generation(workspace.control)),
        "monitoring": hashlib.sha256(repr(alert_records_fingerprint(workspace.layout.root)).encode()).hexdigest()[:16],
    }


async def live_event_stream(request: Request) -> StreamingResponse:
    """Stream server-sent events `jobs`, `registry` and `monitoring`, each with its mark. The event id holds all marks,
    so nothing is sent twice.
    """
    state = request.app.state
    if not hasattr(state, "live"):
        state.live = Live(workspace_from_request(request), lambda: state.not_ready is not None)
    live: Live = state.live
    known = _read_id(request.headers.get("last-event-id", ""))

    async def stream() -> AsyncIterator[bytes]:
        yield f"retry: {RETRY_MS}\n\n".encode()
        marks = dict(known)
        async for fresh in live.listen(known):
            if fresh is None:
                yield b": still here\n\n"
                continue
            marks |= fresh
            event_id = ",".join(f"{name}={mark}" for name, mark in sorted(marks.items()))
            for name, mark in fresh.items():
                yield f"id: {event_id}\nevent: {name}\ndata: {mark}\n\n".encode()

    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(stream(), headers=headers, media_type="text/event-stream")


def _read_id(text: str) -> Marks:
    parts = [part.partition("=") for part in text.split(",")[:10]]
    return {name: mark for name, _, mark in parts if name and mark}
