"""How many sweeps the sampler needs: fewer of them against 50,000."""

from __future__ import annotations

from benchmarks.papers.page import Measured, Page, table
from benchmarks.papers.s1.sweeps import CLASSIFIERS, DIFFERS, TYINGS, all_sampled, described, sampled
from benchmarks.papers.s1.wins import record

# The one point that the text of the paper states.
PAPER = {("TAN", "single", 5_000): "13 wins, 42 losses"}


def measure(is_quick: bool) -> Measured:
    """RMSE of fewer sweeps against the most."""
    comparison, kept, sweeps = all_sampled(is_quick)
    rows = []
    for classifier in CLASSIFIERS:
        for tying in TYINGS:
            for n in sweeps[:-1]:
                pair = sampled(classifier, tying, n), sampled(classifier, tying, sweeps[-1])
                rows.append(
                    [
                        classifier,
                        tying,
                        f"{n:,}",
                        PAPER.get((classifier, tying, n), ""),
                        record(comparison, "rmse", *pair),
                    ]
                )
    data, seeds = described(comparison, kept, is_quick)
    return Measured(
        table(["classifier", "tying", "sweeps", "paper", "ours: RMSE against 50,000 sweeps"], rows),
        data,
        seeds,
        "wins–draws–losses over the sets, and the median ratio (above 1: fewer sweeps are worse).",
        (*DIFFERS, "the paper draws a figure and states one of its points"),
    )


PAGE = Page("S1", "s1-figure-4", "Figure 4: the number of sweeps", measure)
