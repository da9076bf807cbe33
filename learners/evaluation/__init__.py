"""How good learners are: cross-validation, comparison, metrics.

>>> from learners.evaluation import compare, cross_validate
>>> outcomes = cross_validate(["data/"], ["nb", "kdb:k=3", "random-forest"], log="outcomes.jsonl")
>>> compare(outcomes).versus("rmse", "kdb:k=3", "nb").record
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from learners.evaluation.comparison import compare as compare
    from learners.evaluation.comparison import learning_curves as learning_curves
    from learners.evaluation.crossvalidation import cross_validate as cross_validate
    from learners.evaluation.metrics import evaluate as evaluate
    from learners.evaluation.report import write_report as write_report

# Imported when first used: the service needs the metrics only, not every learner.
_HOME = {
    "compare": "learners.evaluation.comparison",
    "cross_validate": "learners.evaluation.crossvalidation",
    "evaluate": "learners.evaluation.metrics",
    "learning_curves": "learners.evaluation.comparison",
    "write_report": "learners.evaluation.report",
}

__all__ = list(_HOME)


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'learners.evaluation' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(_HOME[name]), name)
