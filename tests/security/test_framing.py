"""What a client sends around its bodies, and ahead of the answers, has bounds: no key is asked for it."""

import asyncio

import pytest
from uvicorn.server import ServerState

from service.http.connections import MAX_HEAD_BYTES, MAX_HEADERS, MOST_AHEAD, Connection, ServerConfig
from tests.service.asking import run_apart

GET = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
CHUNKED = b"POST /console/session HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\n"


class Transport(asyncio.Transport):
    """The server's end of a connection, which keeps what is written."""

    def __init__(self):
        super().__init__()
        self.written, self.is_closed = b"", False

    def write(self, data):
        self.written += data

    def close(self):
        self.is_closed = True

    def is_closing(self):
        return self.is_closed

    def get_write_buffer_size(self):
        return 0

    def pause_reading(self):
        pass

    def resume_reading(self):
        pass


async def answered(scope, receive, send):
    """An application that reads the whole body, and says what it was sent in headers."""
    while (await receive()).get("more_body"):
        pass
    names = b" ".join(name for name, _ in scope["headers"])
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-names", names[:1000])]})
    await send({"type": "http.response.body", "body": b""})


def talked(*pieces):
    """What is written, whether the connection is closed, and how many headers and requests it keeps, after the pieces have come and all that can be answered is."""

    async def talk():
        config = ServerConfig(answered, log_config=None, lifespan="off")
        config.load()
        transport = Transport()
        connection = Connection(config, server_state=ServerState(), app_state={})
        connection.connection_made(transport)
        for piece in pieces:
            if not transport.is_closed:
                connection.data_received(piece)
        kept = len(connection.headers), len(connection.pipeline)
        if transport.is_closed:
            connection.connection_lost(None)
        while connection.tasks:
            await asyncio.wait(set(connection.tasks), timeout=60)
        is_closed = transport.is_closed
        connection.connection_lost(None)
        return transport.written, is_closed, *kept

    return run_apart(talk())


@pytest.mark.parametrize("is_at_once", [True, False])
def test_trailers_are_dropped_and_say_nothing_of_their_request(is_at_once):
    trailer = b"0\r\n" + b"authorization: Bearer x\r\n" * 100 + b"\r\n"
    sent = [CHUNKED + b"2\r\n{}\r\n" + trailer] if is_at_once else [CHUNKED, b"2\r\n{}\r\n", trailer]
    written, is_closed, n_headers, _ = talked(*sent, GET)
    assert n_headers == 1 and b"authorization" not in written
    assert written.count(ANSWER) == 2 and not is_closed


@pytest.mark.parametrize("line", [b"a:\r\n", b"a: " + b"b" * 50_000 + b"\r\n", b"a: "])
def test_trailers_without_end_close_the_connection(line):
    piece = line * (60_000 // len(line))
    _, is_closed, n_headers, _ = talked(CHUNKED, b"2\r\n{}\r\n0\r\n", *[piece] * (MAX_HEAD_BYTES // len(piece) + 1))
    assert is_closed and n_headers == 2


def test_bodies_of_many_small_chunks_have_no_such_bound():
    chunks = b"1\r\n \r\n" * 1_000
    written, is_closed, *_ = talked(CHUNKED, *[chunks] * (MAX_HEAD_BYTES // len(chunks) + 2), b"0\r\n\r\n", GET)
    assert written.count(ANSWER) == 2 and not is_closed


@pytest.mark.parametrize("n", [MAX_HEADERS, MAX_HEADERS + 1, 50_000])
def test_a_head_has_a_bounded_number_of_headers(n):
    written, is_closed, n_headers, _ = talked(b"GET / HTTP/1.1\r\n" + b"a:\r\n" * n + b"\r\n")
    assert n_headers == min(n, MAX_HEADERS)
    first = written.partition(b"\r\n")[0] + b"\r\n"
    assert first == (ANSWER if n <= MAX_HEADERS else b"HTTP/1.1 431 Request Header Fields Too Large\r\n")
    assert is_closed == (n > MAX_HEADERS)


@pytest.mark.parametrize("n", [MOST_AHEAD + 1, MOST_AHEAD + 2, 5_000])
def test_a_client_sends_a_bounded_number_of_requests_ahead(n):
    written, is_closed, _, n_waiting = talked(GET * n)
    assert n_waiting <= MOST_AHEAD
    assert is_closed == (n > MOST_AHEAD + 1)
    if not is_closed:
        assert written.count(ANSWER) == n
