"""No request waits for ever: one sweeper cancels those that are late, at next to no cost for those that are not."""

import asyncio
import contextlib
import time
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from service.http.api.bodies.bodies import send_problem
from service.http.paths import STREAMING
from service.requests.problems import TooSlow


class Deadlines:
    """ASGI middleware: a request that has not begun to answer in time gets a 503 and is cancelled.

    A timer for each request would cost as much as a look-up in a model, so one task looks at all of them.
    """

    def __init__(self, app: ASGIApp, timeout_s: float) -> None:
        self.app = app
        self.timeout_s = timeout_s
        self._running: dict[asyncio.Task[Any], Scope] = {}
        self._late: set[asyncio.Task[Any]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, unless it is late."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        task = asyncio.current_task()
        assert task is not None
        self._running[task] = scope
        try:
            await self.app(scope, receive, send)
        except asyncio.CancelledError:
            if task not in self._late:
                raise
            self._late.discard(task)
            task.uncancel()
            with contextlib.suppress(RuntimeError):  # its answer had begun just then
                await send_problem(self.too_slow(), scope, send)
        finally:
            del self._running[task]

    def too_slow(self) -> TooSlow:
        """The answer to a late request."""
        return TooSlow(
            f"The request exceeded {self.timeout_s:g} s and was cancelled; work already started may complete. "
            "Retry, send fewer rows, or submit a job.",
            timeout_s=self.timeout_s,
        )

    async def sweep(self) -> None:
        """Cancel what is late, until cancelled itself."""
        while True:
            await asyncio.sleep(min(1.0, self.timeout_s / 4))
            now = time.perf_counter()  # the clock of Telemetry, which has noted the start
            for task, scope in list(self._running.items()):
                is_late = now - scope["fewpass.started"] > self.timeout_s and task not in self._late
                if is_late and not STREAMING.take(scope):
                    self._late.add(task)
                    task.cancel()
