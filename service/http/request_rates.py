"""How many requests a second one key may make in this process."""

import time

from service.requests.problems import TooManyRequests

BURST_S = 1.0  # what a key has left unused of this time it may use at once
MAX_KEYS = 10_000


class RequestRates:
    """Counts the requests of each key, as the generic cell rate algorithm does: one moment a key is all it keeps.

    `per_s` requests a second of one key are taken; as many may come at once, and one at least.

    References
    ----------
    ITU-T I.371 (2004), section 5.3: https://www.itu.int/rec/T-REC-I.371
    """

    def __init__(self, per_s: float) -> None:
        self.per_s, self.gap_s = per_s, 1 / per_s
        self._due: dict[str, float] = {}  # when the requests so far would have come, had they kept the gap

    def take(self, key: str) -> None:
        """Count a request; one that comes too early is not counted (TooManyRequests)."""
        now = time.monotonic()
        due = max(self._due.get(key, now), now) + self.gap_s
        early_s = due - now - max(BURST_S, self.gap_s)
        if early_s > 1e-9:
            raise TooManyRequests(
                f"Key {key!r} may make {self.per_s:g} requests a second (FEWPASS_REQUESTS_PER_S). Try again in {early_s:.2g} s.",
                key=key,
                retry_after_s=round(early_s, 3),
            )
        if len(self._due) >= MAX_KEYS:  # many keys came and went: those that wait for nothing are forgotten
            self._due = {name: moment for name, moment in self._due.items() if moment > now}
        self._due[key] = due
