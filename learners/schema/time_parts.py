"""Recurring parts of a time: the time of day, the hour, the weekday, the hour of the week, the month."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from learners.kernels.arrays import Floats, read_only_array
from learners.schema.times_and_durations import DAY

TimePart = Literal["time of day", "hour", "weekday", "hour of the week", "month"]
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December",
)  # fmt: skip
YEAR = 31_556_952  # mean length in the Gregorian calendar, so months begin up to two days off


@dataclass(frozen=True)
class Cycle:
    """A recurring time, divided into intervals of equal length.

    `period`, `step`: in seconds. `start`: start of a cycle, in seconds since 1970. `labels`: one for each interval.
    """

    period: int
    step: int
    start: int
    labels: tuple[str, ...]

    @property
    def cuts(self) -> tuple[float, ...]:
        """Cut points of the phase; an interval includes its upper end, which is a second before the next one begins."""
        return tuple(float(self.step * j - 1) for j in range(1, len(self.labels)))

    def phase(self, seconds: float) -> float:
        """Convert seconds since 1970 to seconds since the cycle began; NaN for a number that is not finite."""
        moved = seconds - self.start
        return moved - math.floor(moved / self.period) * self.period if math.isfinite(moved) else math.nan

    def phases(self, seconds: Floats) -> Floats:
        """Convert each number (n,) float64 as `phase` does."""
        with np.errstate(invalid="ignore"):
            moved = seconds - self.start
            return read_only_array(moved - np.floor(moved / self.period) * self.period)


def _clock(hour: int, minute: int = 0) -> str:
    return f"{hour:02}:{minute:02}"


CYCLES: dict[TimePart, Cycle] = {
    "time of day": Cycle(DAY, 600, 0, tuple(_clock(hour, minute) for hour in range(24) for minute in range(0, 60, 10))),
    "hour": Cycle(DAY, 3_600, 0, tuple(map(_clock, range(24)))),
    "weekday": Cycle(7 * DAY, DAY, 4 * DAY, WEEKDAYS),  # the first Monday since 1970 is the 5th of January
    "hour of the week": Cycle(
        7 * DAY, 3_600, 4 * DAY, tuple(f"{day} {_clock(hour)}" for day in WEEKDAYS for hour in range(24))
    ),
    "month": Cycle(YEAR, YEAR // 12, 0, MONTHS),
}
