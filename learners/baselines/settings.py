"""What XGBoost is told, on one machine and on many."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from learners.baselines.recipes import XGBoostParameters

Advance = Callable[[int, int], None]

# Since version 3.1 XGBoost starts from the shares of the classes. Where some of more than two are rare, its second
# derivatives vanish there and boosting diverges (a log loss of 10 on 51 classes: docs/evaluation.md); so all start equal.
EQUAL_START = 0.5


def booster_settings(parameters: XGBoostParameters, n_classes: int) -> dict[str, Any]:
    """XGBoost's own names and values."""
    settings: dict[str, Any] = {
        "tree_method": "hist",
        "max_depth": parameters.depth,
        "learning_rate": parameters.learning_rate,
        "max_bin": parameters.max_bin,
        "seed": parameters.seed,
    }
    if n_classes == 2:
        return settings | {"objective": "binary:logistic"}
    return settings | {"objective": "multi:softprob", "num_class": n_classes, "base_score": EQUAL_START}
