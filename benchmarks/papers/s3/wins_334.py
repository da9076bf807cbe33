"""How often each solver finds the best value, 3/3/4."""

from __future__ import annotations

from benchmarks.papers.page import Measured, Page
from benchmarks.papers.s3.solving import wins_page


def measure(is_quick: bool) -> Measured:
    """Shares of problems."""
    return wins_page((3, 3, 4), is_quick)


PAGE = Page("S3", "s3-wins-334", "Figure 5: wins at 3/3/4", measure)
