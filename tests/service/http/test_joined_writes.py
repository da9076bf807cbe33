"""Bytes leave in order and soon, the head of an answer with its body."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from service.http.joined_writes import JoinedWrites
from tests.loops import apart


class Recorded(asyncio.Transport):
    """Keeps what each system call would have."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[bytes] = []
        self.end = ""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.calls.append(bytes(data))

    def writelines(self, list_of_data) -> None:
        self.calls.append(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        return 7

    def close(self) -> None:
        self.end = "closed"

    def abort(self) -> None:
        self.end = "aborted"

    def is_closing(self) -> bool:
        return bool(self.end)


def joined() -> tuple[JoinedWrites, Recorded]:
    kernel = Recorded()
    return JoinedWrites(kernel, asyncio.get_running_loop()), kernel


async def turns(n: int = 2) -> None:
    for _ in range(n):
        await asyncio.sleep(0)


def test_a_head_and_its_body_are_one_call() -> None:
    async def run() -> None:
        transport, kernel = joined()
        transport.write(b"head ")
        assert kernel.calls == [] and transport.get_write_buffer_size() == 12
        transport.write(b"body")
        assert kernel.calls == [b"head body"] and transport.get_write_buffer_size() == 7
        await turns()
        assert kernel.calls == [b"head body"]

    apart(run)


def test_a_head_without_a_body_leaves_at_the_end_of_the_turn() -> None:
    async def run() -> None:
        transport, kernel = joined()
        transport.write(b"head of a stream")
        await turns()
        assert kernel.calls == [b"head of a stream"]

    apart(run)


def test_what_closes_writes_first_and_what_aborts_does_not() -> None:
    async def run() -> None:
        transport, kernel = joined()
        transport.write(b"last")
        transport.close()
        assert kernel.calls == [b"last"] and kernel.end == "closed" and transport.is_closing()
        transport, kernel = joined()
        transport.write(b"never")
        transport.abort()
        await turns()
        assert kernel.calls == [] and kernel.end == "aborted"

    apart(run)


@given(st.lists(st.one_of(st.binary(min_size=1, max_size=4), st.none()), max_size=20))
def test_all_bytes_leave_in_order(steps: list[bytes | None]) -> None:
    """None is a turn of the loop."""

    async def run() -> bytes:
        transport, kernel = joined()
        for step in steps:
            if step is None:
                await turns()
            else:
                transport.write(step)
        await turns()
        return b"".join(kernel.calls)

    assert apart(run) == b"".join(step for step in steps if step is not None)
