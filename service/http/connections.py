"""Limits of a connection: time and bytes for the request head, and time to take the answer."""

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
MAX_HEADERS = 256  # a header of four bytes takes a hundred and fifty once it is read
MOST_AHEAD = 64  # requests of one connection that wait for the answers to earlier ones
LAST_S = 0.5  # in which a request that is on its way to a server that stops arrives
LAST_WORDS_S = 1.0  # from the end of the time for open requests until the process ends, with all its threads
LEAST_TAKEN = 64 << 10  # bytes of an answer that are taken in `patience_s`, as long as there are so many
TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class ServerConfig(Config):
    """Uvicorn configuration, and the seconds that a client may keep a connection waiting."""

    patience_s = 60.0
    is_stopping = False

    def bind_socket(self) -> socket:
        """Bind the socket to listen on; raises InvalidRequest if the address is unavailable, which Uvicorn would only
        log.
        """
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
    """Uvicorn server that, when it stops, does not reset connections that wait to be accepted or have sent nothing yet."""

    config: ServerConfig
    stopping_since: float | None = None  # of time.monotonic; of the process, whose keepers of workers ask, too

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop; the process ends in time even if its threads hang."""
        if Server.stopping_since is None:
            Server.stopping_since = time.monotonic()
            last = threading.Timer((self.config.timeout_graceful_shutdown or 0) + LAST_WORDS_S, os._exit, (0,))
            last.daemon = True
            last.start()
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        """Accept waiting connections, stop listening, and answer every last request."""
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
        """Signal endless responses to stop; the lifespan ends only after them."""
        app = self.config.loaded_app
        while not hasattr(app, "state") and hasattr(app, "app"):
            app = app.app  # within what uvicorn has wrapped it in
        if hasattr(app, "state"):
            app.state.not_ready = "The server is stopping."

    def _connection(self) -> "Connection":
        return Connection(self.config, server_state=self.server_state, app_state=self.lifespan.state)


def accept_waiting_connections(listening: socket) -> Iterator[socket]:
    """Yield the connections that the kernel has established but no process has accepted."""
    listening.setblocking(False)
    while True:
        try:
            client, _ = listening.accept()
        except OSError:
            return
        client.setblocking(False)
        yield client


class HeadTooLarge(Exception):
    """Raised for a complete request head larger than `MAX_HEAD_BYTES`, and for more than `MAX_HEADERS` headers."""


class TooManyAhead(Exception):
    """Raised for more than `MOST_AHEAD` requests that a client sends before it has the answers to earlier ones."""


def request_head_size(url: bytes, headers: list[tuple[bytes, bytes]]) -> int:
    """Return the bytes of a request head: the URL, and each header with its colon, space and end of line."""
    return len(url) + sum(len(name) + len(value) + 4 for name, value in headers)


class Connection(HttpToolsProtocol):
    """Uvicorn's HTTP/1.1 protocol with time and size limits. Uvicorn would wait forever for a head and buffer all of
    it, for the rest of a body that was answered, and for a client that does not take its answer; and it would keep all
    trailers of a chunked body, and all requests that a client sends ahead.

    `service.http.middleware` looks after requests from their head to the beginning of their answer.
    """

    config: ServerConfig

    def __init__(self, config: ServerConfig, *given: Any, **named: Any) -> None:
        super().__init__(config, *given, **named)
        self.patience_s = config.patience_s
        self.n_head_bytes: int | None = 0  # None where no head is under way
        self.refusal = b""  # what a client is sent whose request the parser was made to refuse
        self.n_at_most = 0  # bytes of the head that is being read
        self.n_between = 0  # bytes behind a head that are not of its body, such as trailers
        self.late: asyncio.TimerHandle | None = None  # for what the client is to send
        self.watch: asyncio.TimerHandle | None = None  # over what it is to take
        self.n_untaken = 0

    def connection_made(self, transport: Any) -> None:
        """Start the clock of the first request."""
        super().connection_made(transport)
        self.late = self.loop.call_later(self.patience_s, self.give_up)
        if self.config.is_stopping:
            self.shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all clocks of a lost connection."""
        self.in_time()
        self.unwatch()
        super().connection_lost(exc)

    # What the client sends

    def data_received(self, data: bytes) -> None:
        """Parse more data, unless the head has become too large, or what surrounds a body has."""
        self.n_at_most = (self.n_head_bytes or 0) + len(data)
        self.n_between += len(data)
        super().data_received(data)
        if self.n_head_bytes is None:
            if self.n_between > MAX_HEAD_BYTES:
                self.close()
            return
        self.n_head_bytes += len(data)
        if self.n_head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.transport.write(TOO_LARGE)
            self.close()
        elif self.late is None:
            self.late = self.loop.call_later(self.patience_s, self.give_up)

    def on_message_begin(self) -> None:
        """Start counting the bytes of a new head."""
        self.n_head_bytes = 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; trailers come too late to say anything of a request that is being answered."""
        if self.n_head_bytes is None:
            return
        if len(self.headers) == MAX_HEADERS:
            self.refusal = TOO_LARGE
            raise HeadTooLarge
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Check the size of a complete head, which may end in the piece that made it too large."""
        if self.n_at_most > MAX_HEAD_BYTES and request_head_size(self.url, self.headers) > MAX_HEAD_BYTES:
            self.refusal = TOO_LARGE
            raise HeadTooLarge
        if len(self.pipeline) == MOST_AHEAD:
            raise TooManyAhead
        self.n_head_bytes, self.n_between = None, 0
        if self.late is not None:
            self.in_time()
        super().on_headers_complete()
        if self.config.is_stopping:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """Pass on a part of a body."""
        self.n_between = 0
        super().on_body(body)

    def send_400_response(self, msg: str) -> None:
        """Answer a request that the parser refuses, or whose head is too large (`HeadTooLarge`); only close if others
        wait for their answers.
        """
        if self.pipeline:
            self.close()
        elif self.refusal:
            self.transport.write(self.refusal)
            self.close()
        else:
            super().send_400_response(msg)

    def on_message_complete(self) -> None:
        """Stop the clock: the body is complete."""
        if self.late is not None:
            self.in_time()
        super().on_message_complete()

    def in_time(self) -> None:
        """Stop the clock."""
        if self.late is not None:
            self.late.cancel()
            self.late = None

    def give_up(self) -> None:
        """Close without an answer: there is no request, or it has been answered."""
        self.late = None
        self.close()

    def shutdown(self) -> None:
        """Close after the answer; a connection at rest closes after a moment, since a request may be on its way."""
        if self.is_at_rest():
            self.loop.call_later(LAST_S, self.close_at_rest)
        else:
            super().shutdown()

    def is_at_rest(self) -> bool:
        """Return whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def close_at_rest(self) -> None:
        """Close, unless a request has arrived."""
        if self.is_at_rest():
            self.close()

    # What it takes

    def on_response_complete(self) -> None:
        """Let a client that was answered early finish sending its body: closing at once would hide the answer."""
        super().on_response_complete()
        if self.transport.is_closing():
            self.begin_watch()
        elif self.cycle.response_complete and self.cycle.more_body:
            self.late = self.loop.call_later(self.patience_s, self.give_up)

    def pause_writing(self) -> None:
        """Start the watch, as the client reads too slowly."""
        super().pause_writing()
        self.begin_watch()

    def resume_writing(self) -> None:
        """Stop the watch, as the client has read most of the data."""
        super().resume_writing()
        if not self.transport.is_closing():
            self.unwatch()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection as soon as the client has taken its answer."""
        super().timeout_keep_alive_handler()
        self.begin_watch()

    def close(self) -> None:
        """Close as soon as the client has taken the remaining data."""
        self.transport.close()
        self.begin_watch()

    def begin_watch(self) -> None:
        """Watch that the client takes the waiting data; a closing transport would wait for it forever."""
        if self.watch is None:
            self.n_untaken = self.transport.get_write_buffer_size()
            self.watch = self.loop.call_later(self.patience_s, self.look)

    def unwatch(self) -> None:
        """Stop watching the client."""
        if self.watch is not None:
            self.watch.cancel()
            self.watch = None

    def look(self) -> None:
        """Drop the connection if the client has not taken enough data since the last check."""
        self.watch = None
        n_left = self.transport.get_write_buffer_size()
        if n_left and self.n_untaken - n_left < LEAST_TAKEN:
            self.transport.abort()
        elif n_left:
            self.begin_watch()
