"""BMM by equation 15 beside the product's, which also matches the sum of second moments."""

from __future__ import annotations

from benchmarks.papers.page import Measured, Page
from benchmarks.papers.s2.published import EQUATION_15, compared


def measure(is_quick: bool) -> Measured:
    """One pass and five."""
    return compared(
        ("nltcs",) if is_quick else ("nltcs", "plants"),
        2 if is_quick else 5,
        4_000 if is_quick else 15_000,
        EQUATION_15,
        "bmm",
    )


PAGE = Page("S2", "s2-equation-15", "Equation 15: BMM, one pass and several", measure)
