"""Classifiers of other libraries on raw columns, for comparison only, never for serving.

Numeric columns keep their values, with missing values as NaN. Nominal columns become ordinal codes in
alphabetical order (random forest) or categories (XGBoost); missing and unseen values are NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from learners.classifiers.baselines.boosted import XGBoostParameters, xgboost_booster_parameters
from learners.errors import SchemaError
from learners.kernels.arrays import Floats
from learners.models.parameters import Parameters
from learners.passes.learner import infer_schema
from learners.passes.sources.source import Source, arrow_type_family
from learners.schema.encoding.encode import encode, numeric_column_as_floats
from learners.schema.nominal_forms import distinct_values_with_inverse

Predict = Callable[[pa.Table], Floats]


@dataclass(frozen=True)
class ForestParameters(Parameters):
    """Parameters of scikit-learn's random forest.

    Parameters
    ----------
    trees : int
    discretised : bool
        Cut numbers by MDL first, as for the network classifiers; all columns are then ordinal codes.
    """

    trees: int = 100
    discretised: bool = False


@dataclass(frozen=True)
class RawXGBoostParameters(Parameters):
    """Parameters of XGBoost with its own binning of raw numbers."""

    rounds: int = 100
    depth: int = 6
    learning_rate: float = 0.3
    max_bin: int = 256


class DiscretisedColumns:
    """Encodes columns with the codes that the network classifiers use.

    `table`: training rows without the target.
    `y`, (n_rows,) integers: their classes.
    """

    def __init__(self, table: pa.Table, y: Any) -> None:
        target = "class"
        while target in table.column_names:
            target += "_"
        source = Source.of_table(table.append_column(target, pa.array(y, pa.int64())))
        self.schema = infer_schema(source, target, threads=1)
        if not self.schema.n_attributes:
            raise SchemaError("No column is left to learn from: none predicts the class on its own.")

    def numbers_of(self, table: pa.Table) -> Floats:
        """Return the codes, (n_rows, n_attributes)."""
        return np.ascontiguousarray(encode(table, self.schema).x.T)


def fit_peer_random_forest(table: pa.Table, y: Any, parameters: ForestParameters, seed: int, threads: int) -> Predict:
    """Train scikit-learn's random forest."""
    from sklearn.ensemble import RandomForestClassifier

    columns = DiscretisedColumns(table, y) if parameters.discretised else RawColumns(table)
    forest = RandomForestClassifier(parameters.trees, random_state=seed, n_jobs=threads)
    forest.fit(columns.numbers_of(table), y)
    return lambda rows: np.asarray(forest.predict_proba(columns.numbers_of(rows)))


def fit_peer_raw_xgboost(table: pa.Table, y: Any, parameters: RawXGBoostParameters, seed: int, threads: int) -> Predict:
    """Train XGBoost on raw numbers, as a user of the library would.

    The learner `xgboost` bins numbers by our schema instead, so that it is served like other models; this one
    measures the cost of that.
    """
    import xgboost

    raw = RawColumns(table)
    n_classes = int(np.max(y)) + 1
    kinds = ["c" if name in raw.values else "q" for name in raw.names]
    own = XGBoostParameters(**asdict(parameters), seed=seed)
    settings = xgboost_booster_parameters(own, n_classes) | {"nthread": threads}
    matrix = xgboost.QuantileDMatrix(
        raw.numbers_of(table),
        y,
        feature_types=kinds,
        enable_categorical=True,
        max_bin=parameters.max_bin,
        nthread=threads,
    )
    booster = xgboost.train(settings, matrix, num_boost_round=parameters.rounds)

    def predict(rows: pa.Table) -> Floats:
        of_class = np.asarray(booster.inplace_predict(raw.numbers_of(rows)), np.float64)
        return np.stack([1 - of_class, of_class], axis=1) if n_classes == 2 else of_class

    return predict


@dataclass(frozen=True)
class Peer:
    """A classifier that exists for evaluation only.

    `fit(table, y, parameters, seed, threads)` gets the attributes and (n_rows,) class codes 0, 1, …, all of which occur,
    and returns a function from rows to probabilities.
    """

    title: str
    parameters: type[Parameters]
    fit: Callable[[pa.Table, Any, Any, int, int], Predict]


PEERS: dict[str, Peer] = {
    "random-forest": Peer("scikit-learn's random forest", ForestParameters, fit_peer_random_forest),
    "xgboost-raw": Peer("XGBoost on raw numbers", RawXGBoostParameters, fit_peer_raw_xgboost),
}


class RawColumns:
    """Converts columns to numbers, with the nominal values of the training rows.

    `table`: training rows without the target; columns without a value are left out.
    """

    def __init__(self, table: pa.Table) -> None:
        self.names: list[str] = []
        self.values: dict[str, pa.Array] = {}
        for name in table.column_names:
            column = table[name].combine_chunks()
            if column.null_count == len(column):
                continue
            self.names.append(name)
            if arrow_type_family(column.type) in ("text", "bool"):
                values, index, is_null = distinct_values_with_inverse(column, name)
                occurring = values.take(pa.array(np.unique(index[~is_null])))
                self.values[name] = occurring.take(pc.sort_indices(occurring))

    def numbers_of(self, table: pa.Table) -> Floats:
        """Return the numbers, (n_rows, n_columns) float64; NaN for missing values and unknown nominal values."""
        return np.stack([self._column(table[name].combine_chunks(), name) for name in self.names], axis=1)

    def _column(self, column: pa.Array, name: str) -> Floats:
        if name not in self.values:
            return numeric_column_as_floats(column, name)
        values, index, is_null = distinct_values_with_inverse(column, name)
        codes = pc.index_in(values, value_set=self.values[name]).cast(pa.float64())
        x = np.asarray(codes.to_numpy(zero_copy_only=False), np.float64)[index] if len(values) else np.zeros(len(index))
        x[is_null] = np.nan
        return x
