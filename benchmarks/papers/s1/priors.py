"""The prior of the concentrations, as defaults and as the paper has it, on the structures that users get."""

from __future__ import annotations

import numpy as np

from benchmarks.papers.page import Measured, Page, table
from benchmarks.papers.s1.wins import QUICK_SETS, compared

PRIORS = {
    "(2, 0.6)": "prior=[2,0.6]",
    "(2, 0.03)": "prior=[2,0.03]",
    "(4, 1)": "prior=[4,1]",
    "(0.5, 0.1)": "prior=[0.5,0.1]",
    "(0, 0), the paper's": "prior=[0,0]",
}
LEARNERS = {"kDB-5": "kdb:k=5,", "SkDB5": "skdb:k=5,"}


def measure(is_quick: bool) -> Measured:
    """Log loss and RMSE of other priors ÷ those of the default."""
    words = {
        (name, end): f"{start}{end}" for name, start in LEARNERS.items() for end in ("prior=[2,1]", *PRIORS.values())
    }
    comparison, kept = compared(
        list(words.values()), QUICK_SETS if is_quick else None, 1 if is_quick else 5, None if is_quick else 60_000
    )
    rows = []
    for name in LEARNERS:
        for prior, end in PRIORS.items():
            pair = words[name, end], words[name, "prior=[2,1]"]
            cells: list[str] = []
            for score in ("log_loss", "rmse"):
                ratios = comparison.column(score, pair[0]) / comparison.column(score, pair[1])
                worst = int(np.nanargmax(ratios))
                cells += [
                    comparison.versus(score, *pair).record,
                    f"{np.nanmedian(ratios):.3f}",
                    f"{ratios[worst]:.3f} ({comparison.data_sets[worst]})",
                ]
            rows.append([name, prior, *cells])
    heads = [
        "structure",
        "prior ÷ (2, 1)",
        "log loss: wins–draws–losses",
        "median",
        "worst",
        "RMSE: wins–draws–losses",
        "median",
        "worst",
    ]
    return Measured(
        table(heads, rows),
        f"{len(comparison.data_sets)} sets of the classification folder, two folds. {kept}",
        "0" if is_quick else "0 to 4",
        "ratios to the default prior over the sets; below 1 the other prior is better.",
        (
            "not a table of the paper: it compares the paper's prior with that of the authors' program, on our default structures",
        ),
    )


PAGE = Page("S1", "s1-priors", "The prior of the concentrations", measure)
