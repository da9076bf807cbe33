"""Wording shared by the messages of every floor."""

from __future__ import annotations

# Plurals of the last word of a noun that are not formed by an s.
PLURALS = {"entry": "entries", "leaf": "leaves", "family": "families", "query": "queries", "delivery": "deliveries"}


def count_with_noun(n: int, noun: str) -> str:
    """Format a count with its noun: "1 row", "2,000 rows", "3 data sets"."""
    first, space, last = noun.rpartition(" ")
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {first}{space}{PLURALS.get(last, last + 's')}"


def points_text(points: float) -> str:
    """Format a change in percentage points with its sign: "+50.0", "-0.04"."""
    return f"{points:+.1f}" if abs(points) >= 0.1 else f"{points:+.2g}"
