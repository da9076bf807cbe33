"""XGBoost as a sequence of passes."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial

from learners.classifiers.baselines.boosted import BoostedModel, XGBoostParameters
from learners.passes.column_summaries import ColumnSummaries, quantile_binned_schema
from learners.passes.learner import Passes, RowWork, Work
from learners.schema import Kept, Overrides, Schema


def xgboost(
    target: str, parameters: XGBoostParameters, given: Schema | Kept | None = None, overrides: Overrides | None = None
) -> Passes[BoostedModel]:
    """Train XGBoost; the rows are read a few times, then kept binned, in memory or in temporary files.

    The same rows, parameters and number of threads give the same model; other numbers of threads may change the
    last digits. The model cannot be merged with, or subtracted from, another.

    References
    ----------
    Chen and Guestrin (2016), XGBoost: a scalable tree boosting system.
    """
    # Imported here: a process that only serves networks should not load XGBoost.
    from learners.classifiers.baselines.xgboost_training import build_xgboost_matrix

    schema = given
    if not isinstance(schema, Schema):  # bins follow the data: there are no cut points to keep
        summaries = yield ColumnSummaries(target, overrides or {}, max_values=parameters.max_values)
        schema = quantile_binned_schema(summaries, parameters.max_bin)
    with (yield RowWork("binning rows", schema, partial(build_xgboost_matrix, parameters=parameters))) as matrix:
        booster = yield Work("boosting trees", partial(matrix.boost, parameters=parameters), "rounds")
        facts = {
            "learner": "xgboost",
            "parameters": asdict(parameters),
            "n_rows": matrix.n_rows,
            "class_counts": matrix.class_counts.tolist(),
            "external_memory": matrix.is_external,
            "nominal_splits": "one value" if matrix.splits_one_value else "sets of values",
        }
    return BoostedModel.of(schema, booster, facts)
