"""What a connection may take before its request begins: so long for its head, and so many bytes."""

import asyncio
from typing import Any

from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES = 256 << 10
TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class ServerConfig(Config):
    """What uvicorn is told, and how many seconds a head may take."""

    head_timeout_s = 60.0


class Connection(HttpToolsProtocol):
    """Uvicorn's HTTP/1.1, which would wait for ever for a head, and hold as much of it as comes.

    `service.deadlines` looks after requests from their head on.

    Parameters
    ----------
    config : ServerConfig
    given, named
        As uvicorn makes its own.
    """

    def __init__(self, config: ServerConfig, *given: Any, **named: Any) -> None:
        super().__init__(config, *given, **named)
        self.head_timeout_s = config.head_timeout_s
        self.n_head_bytes: int | None = 0  # None where no head is under way
        self.late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Give the first request its time."""
        super().connection_made(transport)
        self.late = self.loop.call_later(self.head_timeout_s, self.give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody waits any more."""
        self.in_time()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, unless it has been too much."""
        super().data_received(data)
        if self.n_head_bytes is None:
            return
        self.n_head_bytes += len(data)
        if self.n_head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.transport.write(TOO_LARGE)
            self.transport.close()
        elif self.late is None:
            self.late = self.loop.call_later(self.head_timeout_s, self.give_up)

    def on_message_begin(self) -> None:
        """A head begins."""
        self.n_head_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The head is there."""
        self.n_head_bytes = None
        if self.late is not None:
            self.in_time()
        super().on_headers_complete()

    def in_time(self) -> None:
        """Stop the clock."""
        if self.late is not None:
            self.late.cancel()
            self.late = None

    def give_up(self) -> None:
        """Close without an answer: there is no request to answer."""
        self.late = None
        self.transport.close()
