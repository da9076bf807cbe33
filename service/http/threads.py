"""Threads for what may hang: a store that does not answer holds a few of them, and nobody else waits for those."""

import asyncio
import contextlib
import math
import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

import anyio.to_thread

from learners.errors import Cancelled

Answer = TypeVar("Answer")


class Threads:
    """At most so many threads at the same time, apart from those of all other requests.

    A request that is given up leaves its thread behind, and the thread its place only when it has ended: else requests
    to a silent store would make more and more threads.
    """

    def __init__(self, n_most: int) -> None:
        self._places = asyncio.Semaphore(n_most)
        self._unlimited = anyio.CapacityLimiter(math.inf)  # the places are the limit

    async def run(self, function: Callable[..., Answer], *arguments: object) -> Answer:
        """What the function returns, when there is a place for it."""
        await self._places.acquire()
        loop, begun = asyncio.get_running_loop(), threading.Lock()  # or given up: whichever comes first

        def work() -> Answer:
            if not begun.acquire(blocking=False):
                raise Cancelled("The client has gone away.")
            try:
                return function(*arguments)
            finally:
                with contextlib.suppress(RuntimeError):  # the server has stopped meanwhile
                    loop.call_soon_threadsafe(self._places.release)

        try:
            return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._unlimited)
        except BaseException:
            if begun.acquire(blocking=False):
                self._places.release()
            raise


class Openings:
    """Threads on which data sets are opened, at most `n_most` of each kind: object stores, which hang, have their own."""

    def __init__(self, n_most: int) -> None:
        self.here, self.elsewhere = Threads(n_most), Threads(n_most)

    def of(self, uris: Iterable[str]) -> Threads:
        """Where to open these; what is named and not told is taken for one of this machine's."""
        is_elsewhere = any("://" in uri and not uri.lower().startswith("file://") for uri in uris)
        return self.elsewhere if is_elsewhere else self.here
