"""Times of day and durations in words: ISO 8601, from the counts of a unit that columns hold."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

CLOCK_TYPE = re.compile(r"(time|duration)(?:32|64)?\[(\w+)\]")
TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
DICTIONARY = "dictionary<values="
ISO_DURATION = re.compile(
    r"(?P<sign>-)?P(?:(?P<d>\d+)D)?(?:T(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?(?:(?P<s>\d+(?:\.\d+)?)S)?)?", re.ASCII
)
CLOCK_DURATION = re.compile(
    r"(?P<sign>-)?(?:(?P<d>\d+) days?,? )?(?P<h>\d+):(?P<m>\d\d):(?P<s>\d\d(?:\.\d+)?)", re.ASCII
)


def clock_of(arrow_type: str) -> tuple[str, int] | None:
    """Of times of day and durations: "time" or "duration", and how many of their numbers make a second."""
    found = CLOCK_TYPE.match(arrow_type.removeprefix(DICTIONARY))
    return (found[1], TICKS[found[2]]) if found else None


def words_of_clock(what: str, ticks: int, number: float) -> str | None:
    """A time of day as "12:30:00", or a duration as "PT5M"; None where these words would be another number."""
    if what == "duration":
        told = _duration(number / ticks)
        return told if seconds_of(told) * ticks == number else None
    micros = number * 1_000_000 / ticks
    if not 0 <= micros < 86_400_000_000 or micros != int(micros):
        return None
    return (datetime.min + timedelta(microseconds=int(micros))).time().isoformat()


def _duration(seconds: float) -> str:
    """ISO 8601: days, hours, minutes and seconds."""
    whole = int(abs(seconds))
    rest = f"{abs(seconds) - whole:.9f}".rstrip("0").removeprefix("0").rstrip(".")
    if rest.startswith("1"):
        whole, rest = whole + 1, ""
    days, whole = divmod(whole, 86_400)
    hours, whole = divmod(whole, 3600)
    minutes, own = divmod(whole, 60)
    clock = f"{hours}H" * (hours > 0) + f"{minutes}M" * (minutes > 0)
    clock += f"{own}{rest}S" if own or rest or not (clock or days) else ""
    return "-" * (seconds < 0) + "P" + f"{days}D" * (days > 0) + (f"T{clock}" if clock else "")


def seconds_of(text: str) -> float:
    """Seconds of a duration: "P1DT2H3M4.5S", "1 day 2:03:04.5" or "2:03:04.5".

    Raises
    ------
    ValueError
    """
    found = ISO_DURATION.fullmatch(text.strip()) or CLOCK_DURATION.fullmatch(text.strip())
    if found is None or not any(found.group("d", "h", "m", "s")):
        raise ValueError(text)
    days, hours, minutes, seconds = (float(part or 0) for part in found.group("d", "h", "m", "s"))
    total = days * 86_400 + hours * 3600 + minutes * 60 + seconds
    return -total if found["sign"] else total
