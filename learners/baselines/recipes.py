"""XGBoost as a sequence of passes."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal

from learners.baselines.boosted import BoostedModel
from learners.errors import InvalidParameter
from learners.passes.learner import RowWork, Work
from learners.schema import Kept, Schema
from learners.schema.binned import binned_schema
from learners.schema.summaries import ColumnSummaries


@dataclass(frozen=True)
class XGBoostParameters:
    """Parameters of gradient boosted trees; the defaults are XGBoost's.

    Parameters
    ----------
    rounds : int
        Trees per class (one for two classes).
    depth : int
        Of a tree, at most.
    learning_rate : float
    max_bin : int
        Intervals of a numeric column.
    external_memory : bool or "auto"
        Keep the binned rows in temporary files instead of memory; "auto" does so above 2^28 values.
    seed : int
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
        ranges = {"rounds": (1, 100_000), "depth": (1, 30), "max_bin": (2, 65_000), "max_values": (2, 65_000)}
        for name, (low, high) in ranges.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise InvalidParameter(name, value, f"a whole number from {low:,} to {high:,}")
        if not (math.isfinite(self.learning_rate) and 0 < self.learning_rate <= 1):
            raise InvalidParameter("learning_rate", self.learning_rate, "above 0, at most 1")
        if self.external_memory not in (True, False, "auto"):
            raise InvalidParameter("external_memory", self.external_memory, "true, false or auto")
        if not 0 <= self.seed < 2**31:
            raise InvalidParameter("seed", self.seed, "from 0 to 2^31 - 1")


def xgboost(
    target: str,
    parameters: XGBoostParameters,
    given: Schema | Kept | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Generator[Any, Any, BoostedModel]:
    """XGBoost: the rows are read a few times, then kept binned, in memory or in temporary files.

    The same rows, parameters and number of threads give the same model; with other numbers of threads it may differ in
    the last digits. It cannot be merged with, or subtracted from, another model.

    References
    ----------
    Chen and Guestrin (2016), XGBoost: a scalable tree boosting system.
    """
    # Imported here: a process that only serves networks should not load XGBoost.
    from learners.baselines.training import build_matrix

    schema = given
    if not isinstance(schema, Schema):  # bins follow the data: there are no cut points to keep
        summaries = yield ColumnSummaries(target, overrides or {}, max_values=parameters.max_values)
        schema = binned_schema(summaries, parameters.max_bin)
    with (yield RowWork("binning rows", schema, partial(build_matrix, parameters=parameters))) as matrix:
        booster = yield Work("boosting trees", partial(matrix.boost, parameters=parameters))
        facts = {
            "learner": "xgboost",
            "parameters": asdict(parameters),
            "n_rows": matrix.n_rows,
            "class_counts": matrix.class_counts.tolist(),
            "external_memory": matrix.is_external,
        }
    return BoostedModel.of(schema, booster, facts)
