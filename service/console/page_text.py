"""Formats of numbers, times and long texts on pages."""

from datetime import UTC, datetime

UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))


def format_age(since: datetime | None) -> str:
    """Format the time elapsed since a moment in its largest unit."""
    if since is None:
        return "–"
    seconds = max(0.0, (datetime.now(UTC) - since).total_seconds())
    for size, unit in UNITS:
        if seconds >= size:
            n = int(seconds // size)
            return f"{n} {unit}{'' if n == 1 else 's'}"
    return "now"


def format_utc_time(at: datetime | None) -> str:
    """Format a moment to the second, in UTC."""
    return "–" if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def format_number(number: object, places: int = 4) -> str:
    """Format a number: integers with separators, others rounded."""
    if number is None:
        return "–"
    if isinstance(number, bool) or not isinstance(number, int | float):
        return str(number)
    if isinstance(number, float) and abs(number) < 10**places:
        return f"{number:.{places}g}"
    return f"{number:,.0f}"


def shorten_text(text: object, length: int = 60) -> str:
    """Shorten a text to at most `length` characters; pages show the full text in a title."""
    words = str(text)
    return words if len(words) <= length else words[: length - 1] + "…"
