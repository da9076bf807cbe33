"""How often each solver finds the best value, 7/2/1."""

from __future__ import annotations

from benchmarks.papers.page import Measured, Page
from benchmarks.papers.s3.solving import wins_page


def measure(is_quick: bool) -> Measured:
    """Shares of problems."""
    return wins_page((7, 2, 1), is_quick)


PAGE = Page("S3", "s3-wins-721", "Wins at 7/2/1", measure)
