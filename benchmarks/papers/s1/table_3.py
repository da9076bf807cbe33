"""TAN and SkDB, with m-estimates and with HDP, against a random forest on the same discretised columns."""

from __future__ import annotations

from benchmarks.papers.page import Measured, Page, table
from benchmarks.papers.s1.wins import QUICK_SETS, SETTINGS, STRUCTURES, compared, record

PAPER = {
    ("TAN", "m"): ("26–3–39", "25–0–43"),
    ("SkDB", "m"): ("27–3–38", "29–1–38"),
    ("TAN", "HDP"): ("42–3–23", "42–0–26"),
    ("SkDB", "HDP"): ("35–3–30", "44–0–24"),
}
ESTIMATES = {
    "HDP": {"the paper's prior": "prior=[0,0]", "the program's prior": "prior=[2,1]"},
    "m": {"the paper's back-off": "estimator=m,back_off=cell", "our back-off": "estimator=m"},
}
FOREST = "random-forest:discretised=true"


def measure(is_quick: bool) -> Measured:
    """Wins–draws–losses against the forest."""
    learners = {
        (structure, estimate, how): f"{STRUCTURES[structure]}{ending}"
        for structure, estimate in PAPER
        for how, ending in ESTIMATES[estimate].items()
    }
    sets = QUICK_SETS if is_quick else None
    comparison, kept = compared([FOREST, *learners.values()], sets, 1 if is_quick else 5, None if is_quick else 10_000)
    rows = []
    for (structure, estimate, how), learner in learners.items():
        zero_one, rmse = PAPER[structure, estimate]
        own = [record(comparison, score, learner, FOREST) for score in ("zero_one_loss", "rmse")]
        rows.append([f"{structure}-{estimate}, {how}", zero_one, own[0], rmse, own[1]])
    return Measured(
        table(["against the forest", "paper, 0–1 loss", "ours", "paper, RMSE", "ours"], rows),
        f"{len(comparison.data_sets)} sets of the classification folder, two folds; the paper has 68. All learners see the same MDL codes. {kept}",
        "0" if is_quick else "0 to 4",
        "wins–draws–losses over the sets, and the median ratio to the forest (below 1: better than it).",
        (*SETTINGS, "scikit-learn's forest of 100 trees, which tries √n columns per node, not Weka's with log₂ n + 1"),
    )


PAGE = Page("S1", "s1-table-3", "Table 3: TAN and SkDB against a random forest", measure)
