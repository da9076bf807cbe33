"""Running time of sampling and of classification."""

from __future__ import annotations

import time

from benchmarks.papers.page import Measured, Page, table
from benchmarks.papers.s1.wins import FOLDER
from learners import Source, drive, encode, learner

PAPER = {
    "adult": "86 s for 25,000 rows; classification of 25,000 rows under 1 s",
    "abalone_3class": "6 s for 2,000 rows",
}
SETTINGS = {"k": 5, "width_cost": 0, "prune": False}


def measure(is_quick: bool) -> Measured:
    """CPU seconds of training and of classification on one thread."""
    sweeps = {"adult": [500, 2_000] if is_quick else [5_000, 50_000], "abalone_3class": [5_000, 50_000]}
    rows = []
    for name, numbers in sweeps.items():
        source = Source.open(FOLDER / f"{name}.parquet")
        half = source.n_rows // 2
        drive(
            learner("skdb", {**SETTINGS, "estimator": "hdp", "iterations": 10}, "class"), source, threads=1
        )  # loads kernels
        for how in ["hdp-map", *numbers]:
            options = {"estimator": "hdp", "iterations": how} if isinstance(how, int) else {"estimator": how}
            started = time.process_time()
            model = drive(learner("skdb", {**SETTINGS, **options}, "class"), source, threads=1)
            seconds = time.process_time() - started
            chunks = [encode(batch, model.schema) for batch in source.batches()]
            started = time.process_time()
            n_rows = sum(len(model.predict_proba(chunk)) for chunk in chunks)
            predicting = (time.process_time() - started) * half / n_rows
            label = f"{how:,} sweeps" if isinstance(how, int) else f"`{how}`"
            rows.append([name, PAPER[name], label, f"{source.n_rows:,}", f"{seconds:.1f}", f"{predicting:.2f}"])
    heads = [
        "set",
        "paper, 50,000 sweeps",
        "estimate",
        "rows",
        "training, CPU s",
        "classifying half of the rows, CPU s",
    ]
    return Measured(
        table(heads, rows),
        "adult and abalone in three classes, all rows: twice those of the paper's folds.",
        str(0),
        "none: one run each, on a machine with other work.",
        (
            "fewer sweeps of adult in the quick form; time grows linearly with sweeps"
            if is_quick
            else "all rows, not a fold",
        ),
    )


PAGE = Page("S1", "s1-section-6-6", "Section 6.6: running time", measure)
