"""Running times of all solvers, and how many problems exact search finishes."""

from __future__ import annotations

from benchmarks.papers.page import Page
from benchmarks.papers.s3.solving import times_page

PAGE = Page("S3", "s3-figures-2-4", "Figures 2 and 4: finished problems and running times", times_page)
