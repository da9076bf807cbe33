"""ADF by equation 14 beside the product's, which solves equation 13."""

from __future__ import annotations

from benchmarks.papers.page import Measured, Page
from benchmarks.papers.s2.published import EQUATION_14, compared


def measure(is_quick: bool) -> Measured:
    """One pass and five."""
    return compared(
        ("nltcs",) if is_quick else ("nltcs", "plants"),
        2 if is_quick else 5,
        4_000 if is_quick else 15_000,
        EQUATION_14,
        "adf",
    )


PAGE = Page("S2", "s2-equation-14", "Equations 13 and 14: ADF, one pass and several", measure)
