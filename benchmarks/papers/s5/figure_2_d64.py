"""Quality of the posterior at 64 columns: E-SHD, MLL, AUROC, MSE of effects."""

from __future__ import annotations

from benchmarks.papers.page import Measured, Page
from benchmarks.papers.s5.problems import figure_2

TEXT = "The paper has no d = 64: the table shows our lattice there."


def measure(is_quick: bool) -> Measured:
    """The four metrics."""
    return figure_2(64, 1 if is_quick else 10, 30_000 if is_quick else 400_000, TEXT)


PAGE = Page("S5", "s5-figure-2-d64", "Figure 2 at d = 64: E-SHD, MLL, AUROC, MSE of effects", measure)
