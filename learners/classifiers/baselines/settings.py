"""The parameters of XGBoost, as we name them and as XGBoost does."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from learners.errors import InvalidParameter
from learners.models.parameters import Parameters

# Since version 3.1 XGBoost starts from the shares of the classes. Where some of more than two are rare, its second
# derivatives vanish there and boosting diverges (a log loss of 10 on 51 classes: docs/how-to/evaluation.md); so all start equal.
EQUAL_START = 0.5


@dataclass(frozen=True)
class XGBoostParameters(Parameters):
    """Parameters of gradient boosted trees; the defaults are XGBoost's.

    Parameters
    ----------
    rounds : int
        Trees per class (one for two classes).
    depth : int
        Most levels of a tree.
    learning_rate : float
        How much of its correction each tree adds, above 0 to 1; less needs more rounds.
    max_bin : int
        Most intervals of a numeric column.
    external_memory : bool or "auto"
        Keep the binned rows in temporary files instead of memory; "auto" does so above 2^28 values.
    seed : int
        Start of the random numbers; the same seed gives the same model.
    max_values : int
        Values that a nominal attribute keeps; rarer ones share one code.

    Raises
    ------
    InvalidParameter
    """

    rounds: int = 100
    depth: int = 6
    learning_rate: float = 0.3
    max_bin: int = 256
    external_memory: bool | Literal["auto"] = "auto"
    seed: int = 0
    max_values: int = 1024

    def __post_init__(self) -> None:
        self.check_whole_numbers(rounds=(1, 100_000), depth=(1, 30), max_bin=(2, 65_000), max_values=(2, 65_000))
        if not (math.isfinite(self.learning_rate) and 0 < self.learning_rate <= 1):
            raise InvalidParameter("learning_rate", self.learning_rate, "above 0, at most 1")
        if self.external_memory not in (True, False, "auto"):
            raise InvalidParameter("external_memory", self.external_memory, "true, false or auto")
        if not 0 <= self.seed < 2**31:
            raise InvalidParameter("seed", self.seed, "from 0 to 2^31 - 1")


def booster_settings(parameters: XGBoostParameters, n_classes: int) -> dict[str, str | float]:
    """XGBoost's own names and values."""
    settings: dict[str, str | float] = {
        "tree_method": "hist",
        "max_depth": parameters.depth,
        "learning_rate": parameters.learning_rate,
        "max_bin": parameters.max_bin,
        "seed": parameters.seed,
    }
    if n_classes == 2:
        return settings | {"objective": "binary:logistic"}
    return settings | {"objective": "multi:softprob", "num_class": n_classes, "base_score": EQUAL_START}
