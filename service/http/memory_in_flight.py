"""How much all requests of a process hold together: each adds what it takes, and gives it back when it is answered."""

import threading
from typing import Self

from learners.passes.memory import give_back
from service.requests.problems import Overloaded

WORTH_GIVING_BACK = 64 << 20
UNCOUNTED = 64 << 10  # the thousands of small requests are not worth a lock


class InFlight:
    """The bytes that requests of this process hold, at most `max_bytes` together: bodies, and what they are decoded to."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes, self.n_bytes = max_bytes, 0
        self._lock = threading.Lock()

    def holding(self) -> "Hold":
        """What one request holds, given back when it ends."""
        return Hold(self)

    def take(self, n_bytes: int) -> None:
        """Add to what is held, or give back where it is negative; Overloaded if that is too much."""
        with self._lock:
            if n_bytes > 0 and self.n_bytes + n_bytes > self.max_bytes:
                raise Overloaded(
                    f"The requests that this server is answering hold {self.n_bytes:,} bytes, and this one would take "
                    f"{n_bytes:,} more than the {self.max_bytes:,} for all (FEWPASS_MAX_IN_FLIGHT_BYTES). Try again in a moment.",
                    max_in_flight_bytes=self.max_bytes,
                )
            self.n_bytes += n_bytes


class Hold:
    """What one request holds."""

    def __init__(self, of: InFlight) -> None:
        self.of, self.n_bytes = of, 0

    def add(self, n_bytes: int) -> None:
        """Hold so many bytes more; Overloaded if that is too much."""
        if n_bytes:
            self.of.take(n_bytes)
            self.n_bytes += n_bytes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self.n_bytes:
            self.of.take(-self.n_bytes)
            if self.n_bytes > WORTH_GIVING_BACK:
                give_back()
