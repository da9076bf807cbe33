"""Quality of the posterior at 32 columns: E-SHD, MLL, AUROC, MSE of effects."""

from __future__ import annotations

from benchmarks.papers.page import Measured, Page
from benchmarks.papers.s5.problems import figure_2

TEXT = "The paper draws a figure (2, bottom row) without numbers: TRUST-g is best in E-SHD by a clear margin."


def measure(is_quick: bool) -> Measured:
    """The four metrics."""
    return figure_2(32, 2 if is_quick else 30, 100_000 if is_quick else 400_000, TEXT)


PAGE = Page("S5", "s5-figure-2-d32", "Figure 2 at d = 32: E-SHD, MLL, AUROC, MSE of effects", measure)
