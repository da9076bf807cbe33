"""BMM by equation 15 beside the product's, which also matches the sum of second moments."""

from __future__ import annotations

from functools import partial

from benchmarks.papers.page import Page
from benchmarks.papers.s2.published import EQUATION_15, compared

PAGE = Page("S2", "s2-equation-15", "Equation 15: BMM, one pass and several", partial(compared, EQUATION_15, "bmm"))
