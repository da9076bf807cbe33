"""HDP against m-estimates over eight structures: with the paper's back-off and prior, and with ours."""

from __future__ import annotations

from benchmarks.papers.page import Measured, Page, table
from benchmarks.papers.s1.wins import QUICK_SETS, SETTINGS, STRUCTURES, compared, record

PAPER = {
    "NB": ("41–4–23", "40–0–28"),
    "TAN": ("45–4–19", "52–1–15"),
    "kDB-1": ("45–4–19", "50–1–17"),
    "kDB-2": ("54–2–12", "54–0–14"),
    "kDB-3": ("52–4–12", "53–2–13"),
    "kDB-4": ("56–4–8", "56–0–12"),
    "kDB-5": ("60–4–4", "60–2–6"),
    "SkDB": ("45–4–19", "54–0–14"),
}
WAYS = {
    "the paper's back-off and prior": ("prior=[0,0]", "estimator=m,back_off=cell"),
    "the paper's back-off, the program's prior": ("prior=[2,1]", "estimator=m,back_off=cell"),
    "our back-off, the program's prior": ("prior=[2,1]", "estimator=m"),
}


def measure(is_quick: bool) -> Measured:
    """Wins–draws–losses of each structure."""
    sets = QUICK_SETS if is_quick else None
    endings = sorted({ending for pair in WAYS.values() for ending in pair})
    learners = {(name, ending): f"{start}{ending}" for name, start in STRUCTURES.items() for ending in endings}
    comparison, kept = compared(list(learners.values()), sets, 1 if is_quick else 5, None if is_quick else 10_000)
    lines = []
    for way, (hdp, m) in WAYS.items():
        lines += [f"## {way[0].upper()}{way[1:]}", "", f"`{hdp}` against `{m}`.", ""]
        rows = []
        for name, (zero_one, rmse) in PAPER.items():
            pair = learners[name, hdp], learners[name, m]
            rows.append(
                [name, zero_one, record(comparison, "zero_one_loss", *pair), rmse, record(comparison, "rmse", *pair)]
            )
        lines += table(["structure", "paper, 0–1 loss", "ours", "paper, RMSE", "ours"], rows)
    return Measured(
        lines,
        f"{len(comparison.data_sets)} sets of the classification folder, two folds; the paper has 68. {kept}",
        "0" if is_quick else "0 to 4",
        "wins–draws–losses of HDP over the sets, and the median ratio of HDP to m (below 1: HDP is better).",
        SETTINGS,
    )


PAGE = Page("S1", "s1-table-2", "Table 2: HDP against m-estimates", measure)
