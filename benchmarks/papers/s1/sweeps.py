"""TAN and SkDB sampled under every tying and number of sweeps: what figures 4 and 5 are drawn from."""

from __future__ import annotations

from benchmarks.papers.s1.wins import STRUCTURES, compared
from learners.evaluation.comparison import Comparison

CLASSIFIERS = ("TAN", "SkDB")
TYINGS = {"level": "level", "same parent": "parent", "single": "single"}
# Sets of at most 700 rows, so that 50,000 sweeps take seconds.
SETS = ("zoo", "iris", "wine", "hepatitis", "glass", "haberman", "heart_cleveland", "balance_scale")
DIFFERS = (
    "sets of at most 700 rows, so that 50,000 sweeps of 16 variants take minutes",
    "structures of the textbooks; the prior of the concentrations is that of the authors' program, (2, 1)",
)


def sampled(classifier: str, tying: str, sweeps: int) -> str:
    """The learner as one word."""
    return f"{STRUCTURES[classifier]}estimator=hdp,tying={TYINGS[tying]},iterations={sweeps}"


def all_sampled(is_quick: bool) -> tuple[Comparison, str, list[int]]:
    """Every variant on every set, the number of stored trials that were reused, and the numbers of sweeps."""
    sweeps = [500, 5_000, 50_000]
    learners = [sampled(classifier, tying, n) for classifier in CLASSIFIERS for tying in TYINGS for n in sweeps]
    comparison, kept = compared(learners, SETS[:3] if is_quick else SETS, 1 if is_quick else 5)
    return comparison, kept, sweeps


def described(comparison: Comparison, kept: str, is_quick: bool) -> tuple[str, str]:
    """Data and seeds of a page."""
    return f"{', '.join(comparison.data_sets)}; two folds. The paper has 68 sets. {kept}", "0" if is_quick else "0 to 4"
