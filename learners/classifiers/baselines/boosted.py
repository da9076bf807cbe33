"""Gradient boosted trees: their parameters under our and XGBoost's names, and a model that predicts from codes."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, cast

import numpy as np
import pyarrow as pa

from learners.classifiers.description import describe_schema_as_tables
from learners.classifiers.lookup.look_up_tables import run_in_row_ranges
from learners.errors import InvalidParameter
from learners.kernels.arrays import Arrays, Codes, Float32s, Floats, Integers, Uint8s
from learners.models.model import Header, ModelDefaults
from learners.models.parameters import Parameters
from learners.schema import Chunk, Schema

if TYPE_CHECKING:  # a process that only serves networks should not load XGBoost
    import xgboost

# Since version 3.1 XGBoost starts from the shares of the classes. Where some of more than two are rare, its second
# derivatives vanish there and boosting diverges (a log loss of 10 on 51 classes: docs/how-to/evaluation.md); so all start equal.
EQUAL_START = 0.5

WITHOUT_COLUMNS = (
    "XGBoost answers without columns {columns}, which had values in training: these probabilities can be far off. Other learners answer "
    "from the known columns."
)


class CodeTable:
    """Maps codes to XGBoost's input: NaN for missing, unseen and absent values.

    Numeric attributes become the number of their interval, nominal ones a category.
    """

    def __init__(self, schema: Schema) -> None:
        self.feature_types = ["c" if attribute.kind == "nominal" else "q" for attribute in schema.attributes]
        width = int(schema.domain_sizes.max(initial=0)) + 1
        self._numbers = np.full((schema.n_attributes, width), np.nan, np.float32)
        for i, attribute in enumerate(schema.attributes):
            first = attribute.first_code
            self._numbers[i, first : attribute.n_values] = np.arange(attribute.n_values - first)
        self._row = np.arange(schema.n_attributes)[:, None]

    def features(self, x: Codes) -> Float32s:
        """Convert codes (n_attributes, n_rows) to features (n_rows, n_attributes) float32, C-contiguous."""
        return np.ascontiguousarray(self._numbers[self._row, x].T)


class BoostedModel(ModelDefaults):
    """Gradient boosted trees.

    Create it with `BoostedModel.of`; it is immutable.

    `serialised`, (n_bytes,) uint8: the booster in XGBoost's UBJSON format.
    `gains`, (n_attributes,) float64: total gain of the splits on each attribute.
    `n_splits`, (n_attributes,) int64.
    `facts`: further facts about the training, as JSON values.
    """

    kind: ClassVar[str] = "boosted-trees"
    needs_every_column: ClassVar[bool] = True

    def __init__(
        self,
        schema: Schema,
        booster: xgboost.Booster,
        serialised: Uint8s,
        gains: Floats,
        n_splits: Integers,
        facts: Mapping[str, object],
    ) -> None:
        self.schema, self.gains, self.n_splits, self.facts = schema, gains, n_splits, dict(facts)
        self._booster, self._serialised, self._codes = booster, serialised, CodeTable(schema)
        # One thread a call: waking OpenMP's threads takes longer than one row. Large batches are split below.
        booster.set_param({"nthread": 1})

    @classmethod
    def of(cls, schema: Schema, booster: xgboost.Booster, facts: Mapping[str, object]) -> BoostedModel:
        """Create the model from a trained booster."""
        serialised = np.frombuffer(bytes(booster.save_raw("ubj")), np.uint8)
        gains, n_splits = np.zeros(schema.n_attributes), np.zeros(schema.n_attributes, np.int64)
        for name, gain in booster.get_score(importance_type="total_gain").items():
            gains[int(name[1:])] = gain
        for name, n in booster.get_score(importance_type="weight").items():
            n_splits[int(name[1:])] = int(n)
        return cls(schema, load_xgboost_booster(serialised), serialised, gains, n_splits, facts)

    def predict_proba(self, chunk: Chunk, threads: int | None = None) -> Floats:
        """Predict class probabilities, (n_rows, n_classes) float64; by default with one thread per core for many rows.

        Unseen and absent values follow the branch of missing values.
        """
        out = np.empty((chunk.n_rows, self.schema.n_classes))

        def answer(first: int, last: int) -> None:
            out[first:last] = self._predict(chunk.x[:, first:last])

        if chunk.n_rows:
            run_in_row_ranges(chunk.n_rows, threads, answer)
        return out

    def absent_columns_warning(self, columns: Collection[str]) -> str | None:
        """Warning for rows without these columns: trees send them where they send the missing values of training."""
        return WITHOUT_COLUMNS.format(columns=", ".join(map(repr, columns))) if columns else None

    def _predict(self, x: Codes) -> Floats:
        predicted = self._booster.inplace_predict(self._codes.features(x), validate_features=False)
        if self.schema.n_classes == 2:
            second = predicted.astype(np.float64)
            return np.stack([1 - second, second], axis=1)
        # float32 sums to one in six digits only.
        of_class: Floats = predicted.astype(np.float64)
        return of_class / of_class.sum(axis=1, keepdims=True)

    def log_terms(self, chunk: Chunk) -> tuple[Floats, Floats]:
        """Return the terms that sum to the margin: the bias (n_classes,) and SHAP values (n_attributes, n_rows,
        n_classes).
        """
        import xgboost

        n_attributes, n_rows = chunk.x.shape
        types = self._codes.feature_types
        names = [f"f{i}" for i in range(n_attributes)]
        if not n_rows:
            return np.zeros(self.schema.n_classes), np.zeros((n_attributes, 0, self.schema.n_classes))
        rows = xgboost.DMatrix(
            self._codes.features(chunk.x), feature_names=names, feature_types=types, enable_categorical=True
        )
        values = self._booster.predict(rows, pred_contribs=True, validate_features=False).astype(np.float64)
        if self.schema.n_classes == 2:  # the margin is the log odds of the second class
            values = np.stack([np.zeros_like(values), values], axis=1)
        return values[0, :, -1], np.ascontiguousarray(values[:, :, :-1].transpose(2, 0, 1))

    def to_arrays(self) -> tuple[Header, Arrays]:
        """Return a header and named arrays for `from_arrays`."""
        header: Header = {"kind": self.kind, "schema": self.schema.to_json(), "facts": self.facts}
        return header, {"booster": self._serialised, "gains": self.gains, "n_splits": self.n_splits}

    @classmethod
    def from_arrays(cls, header: Mapping[str, object], arrays: Arrays) -> BoostedModel:
        """Build the model from the output of `to_arrays`; XGBoost copies the trees to its own memory."""
        serialised, stored = arrays["booster"], cast(Header, header)
        schema = Schema.from_json(stored["schema"])
        return cls(
            schema, load_xgboost_booster(serialised), serialised, arrays["gains"], arrays["n_splits"], stored["facts"]
        )

    def structure(self) -> dict[str, object]:
        """Return the class and the attributes, with an edge to the class from each attribute in use, most important
        first.
        """
        target = self.schema.target or "class"
        nodes: list[dict[str, object]] = [{"name": target, "role": "class", "n_values": self.schema.n_classes}]
        nodes += [
            {
                "name": attribute.name,
                "role": "attribute",
                "n_values": attribute.n_values,
                "n_splits": int(self.n_splits[i]),
                "gain": float(self.gains[i]),
            }
            for i, attribute in enumerate(self.schema.attributes)
        ]
        used = [i for i in np.argsort(-np.asarray(self.gains), kind="stable").tolist() if self.n_splits[i]]
        edges = [{"from": self.schema.attributes[i].name, "to": target, "rank": rank} for rank, i in enumerate(used, 1)]
        return {"nodes": nodes, "edges": edges}

    def tables(self) -> dict[str, pa.Table]:
        """Return the tables `attributes` with their importance, `attribute_values`, `left_out`, `classes`, and `trees`
        as JSON.
        """
        tables = describe_schema_as_tables(self.schema, cast("Sequence[int]", self.facts["class_counts"]))
        attributes = tables["attributes"].append_column("n_splits", [np.asarray(self.n_splits)])
        dumps = self._booster.get_dump(dump_format="json")
        per_round = 1 if self.schema.n_classes == 2 else self.schema.n_classes
        return tables | {
            "attributes": attributes.append_column("gain", [np.asarray(self.gains)]),
            "trees": pa.table(
                {
                    "tree": pa.array(range(len(dumps)), pa.int64()),
                    "round": pa.array([i // per_round for i in range(len(dumps))], pa.int64()),
                    "class": pa.array([i % per_round if per_round > 1 else 1 for i in range(len(dumps))], pa.int64()),
                    "json": dumps,
                }
            ),
        }


def load_xgboost_booster(serialised: Uint8s) -> xgboost.Booster:
    """Load a booster from (n_bytes,) uint8."""
    # Imported here: a process that only serves networks should not load XGBoost.
    import xgboost

    booster = xgboost.Booster()
    booster.load_model(bytearray(serialised))
    return booster


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
        Keep the binned rows in temporary files instead of memory; "auto" does so above 2^28 values, or where they would not fit into the memory limit.
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


def xgboost_booster_parameters(
    parameters: XGBoostParameters, n_classes: int, most_one_hot: int | None = None
) -> dict[str, str | float]:
    """Return XGBoost's settings; nominal columns with fewer values than `most_one_hot` split into one value and the
    rest.
    """
    settings: dict[str, str | float] = {
        "tree_method": "hist",
        "max_depth": parameters.depth,
        "learning_rate": parameters.learning_rate,
        "max_bin": parameters.max_bin,
        "seed": parameters.seed,
    }
    settings |= {} if most_one_hot is None else {"max_cat_to_onehot": most_one_hot}
    if n_classes == 2:
        return settings | {"objective": "binary:logistic"}
    return settings | {"objective": "multi:softprob", "num_class": n_classes, "base_score": EQUAL_START}
