"""One stream of what has changed: jobs and the registry, asked once a second for all browsers together."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from functools import partial

import anyio.to_thread
import structlog
from starlette.requests import Request
from starlette.responses import StreamingResponse

from service import problems, product
from service.console.pages import workspace_of
from service.workspace import Workspace
from storage.generation import generation

POLL_S = 1.0
# Proxies and browsers drop a stream on which nothing comes; this is less than what they wait.
HEARTBEAT_S = 20.0
# How soon a stream notices that the server stops.
WAKE_S = 0.5
RETRY_MS = 2_000
RECENT = 20
Marks = dict[str, str]


class Live:
    """Looks for changes as long as somebody listens.

    Parameters
    ----------
    workspace : Workspace
    """

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.marks: Marks = {}
        self.n_listeners = 0
        self._changed = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None

    async def listen(self, known: Marks) -> AsyncIterator[Marks | None]:
        """What is otherwise than the listener knows, as soon as it is; None each time that a moment passes without any."""
        self.n_listeners += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch())
        try:
            while True:
                fresh: Marks = {}
                try:
                    async with asyncio.timeout(WAKE_S), self._changed:
                        await self._changed.wait_for(partial(self._fresh, known))
                        fresh = self._fresh(known)
                except TimeoutError:
                    yield None
                    continue
                known = known | fresh
                yield fresh
        finally:
            self.n_listeners -= 1

    def _fresh(self, known: Marks) -> Marks:
        return {name: mark for name, mark in self.marks.items() if known.get(name) != mark}

    async def _watch(self) -> None:
        while self.n_listeners:
            try:
                marks = await anyio.to_thread.run_sync(look, self.workspace, abandon_on_cancel=True)
            except Exception as error:  # the database may be away for a while; the pages say so themselves
                structlog.get_logger("console").warning(
                    "changes cannot be looked for", reason=str(error), exc_info=not problems.is_expected(error)
                )
                marks = self.marks
            if marks != self.marks:
                async with self._changed:
                    self.marks = marks
                    self._changed.notify_all()
            await asyncio.sleep(POLL_S)


def look(workspace: Workspace) -> Marks:
    """A mark of each thing that pages show; it changes when the thing does."""
    queue = product.job_queue(workspace)
    recent = [(job.id, job.state, job.progress) for job in queue.list(limit=RECENT).items]
    return {
        "jobs": hashlib.sha256(repr(recent).encode()).hexdigest()[:16],
        "registry": str(generation(workspace.control)),
    }


async def events(request: Request) -> StreamingResponse:
    """Server-sent events `jobs` and `registry`, each with its mark; an id holds all marks, so that nothing is told twice."""
    state = request.app.state
    if not hasattr(state, "live"):
        state.live = Live(workspace_of(request))
    live: Live = state.live
    known = _read_id(request.headers.get("last-event-id", ""))

    async def stream() -> AsyncIterator[bytes]:
        yield f"retry: {RETRY_MS}\n\n".encode()
        marks, n_quiet = dict(known), 0
        async for fresh in live.listen(known):
            if state.not_ready is not None:
                return
            if fresh is None:
                n_quiet += 1
                if n_quiet * WAKE_S >= HEARTBEAT_S:
                    n_quiet = 0
                    yield b": still here\n\n"
                continue
            marks |= fresh
            told = _write_id(marks)
            for name, mark in fresh.items():
                yield f"id: {told}\nevent: {name}\ndata: {mark}\n\n".encode()

    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(stream(), headers=headers, media_type="text/event-stream")


def _write_id(marks: Marks) -> str:
    return ",".join(f"{name}={mark}" for name, mark in sorted(marks.items()))


def _read_id(text: str) -> Marks:
    parts = [part.partition("=") for part in text.split(",")[:10]]
    return {name: mark for name, _, mark in parts if name and mark}
