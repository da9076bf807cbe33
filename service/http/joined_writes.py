"""A transport that gives the kernel the head of an answer together with its body."""

from __future__ import annotations

import asyncio
from typing import Any


class JoinedWrites(asyncio.Transport):
    """Writes two by two: the first waits for a second until the loop comes round, and both take one system call.

    A write to a socket costs as much as a look-up, and uvicorn makes one for the head of an answer and one for the body.

    Parameters
    ----------
    transport : asyncio.Transport
        What writes.
    loop : asyncio.AbstractEventLoop
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport, self._loop = transport, loop
        self._waiting: bytes = b""
        self._is_scheduled = False

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """Write with what waits, or wait."""
        if self._waiting:
            first, self._waiting = self._waiting, b""
            self._transport.writelines((first, data))
            return
        self._waiting = bytes(data)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._end_of_turn)

    def _end_of_turn(self) -> None:
        self._is_scheduled = False
        self.flush()

    def flush(self) -> None:
        """Write what waits."""
        if self._waiting:
            first, self._waiting = self._waiting, b""
            self._transport.write(first)

    def close(self) -> None:
        """Close once all is written."""
        self.flush()
        self._transport.close()

    def abort(self) -> None:
        """Close at once; what waits is lost."""
        self._waiting = b""
        self._transport.abort()

    def is_closing(self) -> bool:
        """Whether it is closed, or about to be."""
        return self._transport.is_closing()

    def get_write_buffer_size(self) -> int:
        """How many bytes the client has not taken."""
        return self._transport.get_write_buffer_size() + len(self._waiting)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """As of the transport within."""
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        """Let the client wait."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read on."""
        self._transport.resume_reading()
