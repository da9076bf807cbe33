"""The collapsed Gibbs sampler that the paper compares with in figure 4."""

from __future__ import annotations

from benchmarks.papers.page import Page

REASON = (
    "Figure 4 draws curves over hours for each set, with a collapsed sampler that evaluates the whole network for every row; the code of such a sampler left this "
    "repository (commit 79d639f, `benchmarks/bayesian_circuits_paper.py`), and curves of hours do not fit into a run of minutes."
)
PAGE = Page("S4", "s4-figure-4", "Figure 4: log-likelihood over time, with the collapsed sampler", None, REASON)
