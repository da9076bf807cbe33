"""Formats of numbers, times and long texts on pages."""

from datetime import UTC, datetime


def parse_moment(at: datetime | str | None) -> datetime | None:
    """Return a moment, also from its ISO 8601 text; None for other texts. Without a time zone it is in UTC."""
    if isinstance(at, str):
        try:
            at = datetime.fromisoformat(at)
        except ValueError:
            return None
    return at if at is None or at.tzinfo is not None else at.replace(tzinfo=UTC)


def format_utc_time(at: datetime | str | None, has_seconds: bool = False) -> str:
    """Format a moment in UTC, as pages show it where no script runs."""
    moment = parse_moment(at)
    if moment is None:
        return "–"
    return moment.astimezone(UTC).strftime(f"%Y-%m-%d %H:%M{':%S' if has_seconds else ''} UTC")


def iso_time(at: datetime | str | None) -> str:
    """Format a moment as ISO 8601 with its time zone; empty without one."""
    moment = parse_moment(at)
    return "" if moment is None else moment.isoformat()


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
