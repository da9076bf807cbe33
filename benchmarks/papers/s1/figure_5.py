"""Which concentrations are shared: those of a parent or all against those of a level."""

from __future__ import annotations

from benchmarks.papers.page import Measured, Page, table
from benchmarks.papers.s1.sweeps import CLASSIFIERS, DIFFERS, TYINGS, all_sampled, described, sampled
from benchmarks.papers.s1.wins import record


def measure(is_quick: bool) -> Measured:
    """RMSE of each tying against level, at every number of sweeps."""
    comparison, kept, sweeps = all_sampled(is_quick)
    rows = [
        [
            classifier,
            tying,
            *(
                record(comparison, "rmse", sampled(classifier, tying, n), sampled(classifier, "level", n))
                for n in sweeps
            ),
        ]
        for classifier in CLASSIFIERS
        for tying in TYINGS
        if tying != "level"
    ]
    data, seeds = described(comparison, kept, is_quick)
    lines = [
        "The paper draws a figure and states: TAN, single is very like level; same parent is clearly behind, increasingly with deeper trees.",
        "",
    ]
    return Measured(
        lines + table(["classifier", "tying", *(f"{n:,} sweeps" for n in sweeps)], rows),
        data,
        seeds,
        "wins–draws–losses of the tying against level in RMSE, and the median ratio (above 1: level is better).",
        DIFFERS,
    )


PAGE = Page("S1", "s1-figure-5", "Figure 5: tying of concentrations", measure)
