"""Overfitting: kDB-5 against kDBs of fewer parents, with m-estimates and with HDP."""

from __future__ import annotations

from benchmarks.papers.page import Measured, Page, table
from benchmarks.papers.s1.wins import QUICK_SETS, SETTINGS, STRUCTURES, compared, record

ESTIMATES = {
    "m, the paper's back-off": "estimator=m,back_off=cell",
    "m, our back-off": "estimator=m",
    "HDP, the paper's prior": "prior=[0,0]",
}


def measure(is_quick: bool) -> Measured:
    """RMSE of kDB-5 against the others, and against SkDB."""
    others = ["NB", *(f"kDB-{k}" for k in range(1, 5)), "SkDB"]
    learners = {
        (name, how): f"{STRUCTURES[name]}{end}" for name in [*others, "kDB-5"] for how, end in ESTIMATES.items()
    }
    sets = QUICK_SETS if is_quick else None
    comparison, kept = compared(list(learners.values()), sets, 1 if is_quick else 5, None if is_quick else 10_000)
    paper = {("SkDB", "HDP, the paper's prior"): "33–5–30"}
    rows = []
    for how in ESTIMATES:
        for name in others:
            own = record(comparison, "rmse", learners["kDB-5", how], learners[name, how])
            rows.append([how, f"kDB-5 against {name}", paper.get((name, how), ""), own])
    text = "The paper draws a figure: with m-estimates kDB-5 loses to every kDB of fewer parents, most to kDB-3; with HDP it wins."
    return Measured(
        [text, "", *table(["estimate", "pair", "paper", "ours, RMSE"], rows)],
        f"{len(comparison.data_sets)} sets of the classification folder, two folds; the paper has 68. {kept}",
        "0" if is_quick else "0 to 4",
        "wins–draws–losses of kDB-5 over the sets, and the median ratio (below 1: kDB-5 is better).",
        SETTINGS,
    )


PAGE = Page("S1", "s1-figure-6", "Figure 6 (b): kDB-5 against fewer parents", measure)
