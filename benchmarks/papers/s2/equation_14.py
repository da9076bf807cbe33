"""ADF by equation 14 beside the product's, which solves equation 13."""

from __future__ import annotations

from functools import partial

from benchmarks.papers.page import Page
from benchmarks.papers.s2.published import EQUATION_14, compared

PAGE = Page(
    "S2", "s2-equation-14", "Equations 13 and 14: ADF, one pass and several", partial(compared, EQUATION_14, "adf")
)
