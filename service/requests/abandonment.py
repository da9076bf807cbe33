"""Abandoned requests: threads check whether the client still waits for the answer, and stop if not."""

from contextvars import ContextVar

from learners.errors import Cancelled


class Asked:
    """A request being answered; `is_abandoned` once it was answered otherwise, its client has left, or the server
    stops.
    """

    __slots__ = ("is_abandoned",)

    def __init__(self) -> None:
        self.is_abandoned = False


# Threads that a request starts have it, too: their context is a copy.
ASKED: ContextVar[Asked | None] = ContextVar("asked", default=None)


def check_still_asked() -> None:
    """Raise Cancelled if the client no longer waits for the answer; does nothing outside of requests."""
    request = ASKED.get()
    if request is not None and request.is_abandoned:
        raise Cancelled("The client no longer waits for this answer.")
