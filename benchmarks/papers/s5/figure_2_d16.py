"""Quality of the posterior at 16 columns: E-SHD, MLL, AUROC, MSE of effects."""

from __future__ import annotations

from benchmarks.papers.page import Measured, Page
from benchmarks.papers.s5.problems import figure_2

TEXT = "The paper draws a figure (2, top row) without numbers: TRUST-g is best in E-SHD by a clear margin, and at least as good as Gadget in all four."


def measure(is_quick: bool) -> Measured:
    """The four metrics."""
    return figure_2(16, 8 if is_quick else 30, 400_000, TEXT)


PAGE = Page("S5", "s5-figure-2-d16", "Figure 2 at d = 16: E-SHD, MLL, AUROC, MSE of effects", measure)
