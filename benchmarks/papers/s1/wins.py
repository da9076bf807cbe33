"""Wins, draws and losses of classifiers over data sets, as the paper counts them."""

from __future__ import annotations

from benchmarks.papers.page import DATA, WORK, threads
from learners.evaluation.comparison import Comparison, compare
from learners.evaluation.crossvalidation import TrialProgress, cross_validate

LOG = WORK / "trials.jsonl"
FOLDER = DATA / "classification"
# Sets of the paper with few rows and columns, so that every classifier takes seconds; without contact lenses, which has 24 rows.
QUICK_SETS = (
    "zoo", "iris", "hepatitis", "wine", "auto_imports", "glass", "heart_cleveland", "haberman", "primary_tumor", "bupa",
    "horse_colic", "house_votes_84", "balance_scale", "crx", "breast_w", "vehicle", "anneal", "tic_tac_toe", "vowel", "german",
    "cmc", "yeast", "car", "segment", "hypothyroid", "abalone_3class", "page_blocks", "nursery",
)  # fmt: skip
TEXTBOOK = "width_cost=0,prune=false"
STRUCTURES = {
    "NB": "nb:",
    "TAN": f"tan:{TEXTBOOK},",
    **{f"kDB-{k}": f"kdb:k={k},{TEXTBOOK}," for k in range(1, 6)},
    "SkDB": f"skdb:k=5,{TEXTBOOK},",
}
SETTINGS = (
    "structures of the textbooks (`width_cost=0`, `prune=false`): our defaults rank parents differently and drop uninformative ones",
    "the deterministic estimate `hdp-map`, not 50,000 sweeps, unless noted",
)


def compared(
    learners: list[str], sets: tuple[str, ...] | None, repetitions: int, most_rows: int | None = None
) -> tuple[Comparison, str]:
    """Two-fold cross-validation, and the number of trials that were reused: those of the same code are stored in build/papers."""
    WORK.mkdir(parents=True, exist_ok=True)
    paths = sorted(FOLDER.glob("*.parquet")) if sets is None else [FOLDER / f"{name}.parquet" for name in sets]
    n_kept = 0

    def count(progress: TrialProgress) -> None:
        nonlocal n_kept
        n_kept = progress.n_found

    outcomes = cross_validate(
        paths, learners, log=LOG, repetitions=repetitions, threads=threads(), most_rows=most_rows, on_progress=count
    )
    comparison = compare(outcomes)
    if comparison.failures:
        failure = comparison.failures[0]
        raise RuntimeError(f"{failure.data}, {failure.learner}: {failure.error}")
    return comparison, f"{n_kept} of the {len(outcomes)} trials were kept from other pages of the same code."


def record(comparison: Comparison, score: str, a: str, b: str) -> str:
    """Wins–draws–losses, and the median ratio."""
    versus = comparison.versus(score, a, b)
    return f"{versus.record} ({versus.median_ratio:.3f})"
