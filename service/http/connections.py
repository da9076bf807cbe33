"""What a connection may take beside its requests: so long for a head, and so many bytes; so long to take an answer."""

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from errno import EADDRINUSE
from socket import AF_INET, AF_INET6, SO_REUSEADDR, SOL_SOCKET, socket
from types import FrameType
from typing import Any

import uvicorn
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from service.requests.problems import InvalidRequest

MAX_HEAD_BYTES = 256 << 10
LAST_S = 0.5  # in which a request that is on its way to a server that stops arrives
LAST_WORDS_S = 1.0  # from the end of the time for open requests until the process ends, with all its threads
LEAST_TAKEN = 64 << 10  # bytes of an answer that are taken in `patience_s`, as long as there are so many
TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class ServerConfig(Config):
    """What uvicorn is told, and how many seconds a client may leave a connection waiting."""

    patience_s = 60.0
    is_stopping = False

    def bind_socket(self) -> socket:
        """The socket to listen on; InvalidRequest if the address cannot be had, which Uvicorn would only log."""
        listening = socket(AF_INET6 if ":" in self.host else AF_INET)
        listening.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
        try:
            listening.bind((self.host, self.port))
        except OSError as error:
            listening.close()
            if error.errno != EADDRINUSE:
                raise InvalidRequest(f"The server cannot listen on {self.host}, port {self.port}: {error}.") from error
            raise InvalidRequest(
                f"Port {self.port} is in use by another program. Choose another one with --port (0 takes a free one), or end "
                "that program."
            ) from error
        listening.set_inheritable(True)
        return listening


class Server(uvicorn.Server):
    """Uvicorn's, which when it stops would reset the connections that wait at its door, or have not said anything yet."""

    config: ServerConfig
    stopping_since: float | None = None  # of time.monotonic; of the process, whose keepers of workers ask, too

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop; the process ends in time whatever its threads do."""
        if Server.stopping_since is None:
            Server.stopping_since = time.monotonic()
            last = threading.Timer((self.config.timeout_graceful_shutdown or 0) + LAST_WORDS_S, os._exit, (0,))
            last.daemon = True
            last.start()
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        """Let in who is there, close the door, and answer everybody's last request."""
        self.config.is_stopping = True
        self._tell_streams()
        loop = asyncio.get_running_loop()
        # Nothing is awaited between this and the end of listening, which the original begins with.
        let_in = [
            loop.create_task(loop.connect_accepted_socket(self._connection, client))
            for listening in sockets or ()
            for client in accept_waiting_connections(listening)
        ]
        await super().shutdown(sockets)
        await asyncio.gather(*let_in, return_exceptions=True)

    def _tell_streams(self) -> None:
        """Let answers that never end by themselves see that they must: the lifespan's own end comes after them."""
        app = self.config.loaded_app
        while not hasattr(app, "state") and hasattr(app, "app"):
            app = app.app  # within what uvicorn has wrapped it in
        if hasattr(app, "state"):
            app.state.not_ready = "The server is stopping."

    def _connection(self) -> "Connection":
        return Connection(self.config, server_state=self.server_state, app_state=self.lifespan.state)


def accept_waiting_connections(listening: socket) -> Iterator[socket]:
    """The connections that the kernel has made and nobody has taken."""
    listening.setblocking(False)
    while True:
        try:
            client, _ = listening.accept()
        except OSError:
            return
        client.setblocking(False)
        yield client


class HeadTooLarge(Exception):
    """A head that is complete and larger than `MAX_HEAD_BYTES`."""


def request_head_size(url: bytes, headers: list[tuple[bytes, bytes]]) -> int:
    """Bytes of a head: what is asked for, and each header with its colon, space and end of line."""
    return len(url) + sum(len(name) + len(value) + 4 for name, value in headers)


class Connection(HttpToolsProtocol):
    """Uvicorn's HTTP/1.1, which would wait for ever: for a head, and hold as much of it as comes; for the rest of a body
    that has been answered; and with an answer for a client that does not take it.

    `service.http.middleware` looks after requests from their head to the beginning of their answer.
    """

    config: ServerConfig

    def __init__(self, config: ServerConfig, *given: Any, **named: Any) -> None:
        super().__init__(config, *given, **named)
        self.patience_s = config.patience_s
        self.n_head_bytes: int | None = 0  # None where no head is under way
        self.is_head_too_large = False
        self.n_at_most = 0  # bytes of the head that is being read
        self.late: asyncio.TimerHandle | None = None  # for what the client is to send
        self.watch: asyncio.TimerHandle | None = None  # over what it is to take
        self.n_untaken = 0

    def connection_made(self, transport: Any) -> None:
        """Give the first request its time."""
        super().connection_made(transport)
        self.late = self.loop.call_later(self.patience_s, self.give_up)
        if self.config.is_stopping:
            self.shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody waits any more."""
        self.in_time()
        self.unwatch()
        super().connection_lost(exc)

    # What the client sends

    def data_received(self, data: bytes) -> None:
        """Read on, unless it has been too much."""
        self.n_at_most = (self.n_head_bytes or 0) + len(data)
        super().data_received(data)
        if self.n_head_bytes is None:
            return
        self.n_head_bytes += len(data)
        if self.n_head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.transport.write(TOO_LARGE)
            self.close()
        elif self.late is None:
            self.late = self.loop.call_later(self.patience_s, self.give_up)

    def on_message_begin(self) -> None:
        """A head begins."""
        self.n_head_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The head is there, and if it ended in the piece that made it too large, this is the place to see it."""
        if self.n_at_most > MAX_HEAD_BYTES and request_head_size(self.url, self.headers) > MAX_HEAD_BYTES:
            self.is_head_too_large = True
            raise HeadTooLarge
        self.n_head_bytes = None
        if self.late is not None:
            self.in_time()
        super().on_headers_complete()
        if self.config.is_stopping:
            self.cycle.keep_alive = False

    def send_400_response(self, msg: str) -> None:
        """Answer what the parser refuses, which is also where `HeadTooLarge` ends."""
        if self.is_head_too_large:
            self.transport.write(TOO_LARGE)
            self.close()
        else:
            super().send_400_response(msg)

    def on_message_complete(self) -> None:
        """The body is there, too."""
        if self.late is not None:
            self.in_time()
        super().on_message_complete()

    def in_time(self) -> None:
        """Stop the clock."""
        if self.late is not None:
            self.late.cancel()
            self.late = None

    def give_up(self) -> None:
        """Close without an answer: there is no request to answer, or it has been."""
        self.late = None
        self.close()

    def shutdown(self) -> None:
        """The server stops: close after the answer; at rest after a moment, as a request may be on its way."""
        if self.is_at_rest():
            self.loop.call_later(LAST_S, self.close_at_rest)
        else:
            super().shutdown()

    def is_at_rest(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def close_at_rest(self) -> None:
        """Close, unless a request has come."""
        if self.is_at_rest():
            self.close()

    # What it takes

    def on_response_complete(self) -> None:
        """Whoever was answered before the body was there may finish it: a closed door would hide the answer."""
        super().on_response_complete()
        if self.transport.is_closing():
            self.begin_watch()
        elif self.cycle.response_complete and self.cycle.more_body:
            self.late = self.loop.call_later(self.patience_s, self.give_up)

    def pause_writing(self) -> None:
        """More is waiting than the client takes."""
        super().pause_writing()
        self.begin_watch()

    def resume_writing(self) -> None:
        """It has taken most of it."""
        super().resume_writing()
        if not self.transport.is_closing():
            self.unwatch()

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection at rest, as soon as the client has taken what it asked for."""
        super().timeout_keep_alive_handler()
        self.begin_watch()

    def close(self) -> None:
        """Close as soon as the client has taken what is still to be sent."""
        self.transport.close()
        self.begin_watch()

    def begin_watch(self) -> None:
        """See to it that the client takes what is waiting; a transport that closes would wait for it for ever."""
        if self.watch is None:
            self.n_untaken = self.transport.get_write_buffer_size()
            self.watch = self.loop.call_later(self.patience_s, self.look)

    def unwatch(self) -> None:
        """It has taken it."""
        if self.watch is not None:
            self.watch.cancel()
            self.watch = None

    def look(self) -> None:
        """Whether the client has taken enough since the last look; if not, drop the connection."""
        self.watch = None
        n_left = self.transport.get_write_buffer_size()
        if n_left and self.n_untaken - n_left < LEAST_TAKEN:
            self.transport.abort()
        elif n_left:
            self.begin_watch()
