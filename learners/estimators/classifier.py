"""The base of all learners as scikit-learn classifiers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self, cast

import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from learners.classifiers.column_findings import training_column_warnings
from learners.errors import InvalidArgument, InvalidParameter, LearnerError, SchemaError
from learners.estimators.arguments import (
    COMMON,
    check_common_arguments,
    set_estimator_constructor,
    train_estimator_model,
    with_keyword_hints,
)
from learners.estimators.columns import single_row_record
from learners.estimators.explaining import Explaining
from learners.estimators.labels import (
    append_class_column,
    declared_class_labels,
    passes_with_declared_classes,
    sample_weight_counts,
    unused_column_name,
    weighted_accuracy,
)
from learners.estimators.released_names import released_estimator as __getattr__  # noqa: F401
from learners.estimators.table_inputs import (
    are_records,
    is_record,
    is_source_or_paths,
    open_source_or_paths,
    rows_as_record_batches,
    source_from_arrow_dataset,
)
from learners.kernels.arrays import Floats
from learners.models.model import Model
from learners.monitoring.count_layout import monitored_network
from learners.passes.engine import OnProgress
from learners.passes.learner import MemoryStore, Part
from learners.passes.row_rules import (
    Weight,
    apply_null_class_rule,
    apply_row_weight,
    apply_row_weight_rule,
    row_weight_warnings,
)
from learners.passes.sources.source import Source
from learners.registry import recipes
from learners.schema import Chunk, Schema
from learners.schema.encoding.encode import encode
from learners.schema.encoding.json_records import encode_json_records
from learners.schema.schema import Value

FIT_HINTS = {
    "target": "name the class column as fit(X, 'column'), or in the constructor: target='column'",
    **dict.fromkeys(("weight", "weights", "sample_weights"), "use sample_weight"),
    **dict.fromkeys(("label", "labels"), "use y"),
}


class Classifier(Explaining, ClassifierMixin, BaseEstimator):
    """Base class of all learners as scikit-learn classifiers.

    Attributes
    ----------
    model_ : Model
    classes_ : (n_classes,) array
        The classes as the data held them.
    feature_names_in_ : (n_columns,) array of str
        Where the columns had names.
    n_features_in_ : int
    feature_importances_ : (n_columns,) float64
        See `learners.registry.importance.column_importances`.
    """

    _learner: ClassVar[str]
    target: str | None
    schema: Schema | None
    columns: Mapping[str, Any] | None
    threads: int | None
    verbose: bool
    holdout_by: str = "auto"  # of what was pickled before it was there

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "_learner" in vars(cls) and "__init__" not in vars(cls):
            set_estimator_constructor(cls, recipes.learner_recipe(cls._learner).parameters, base=Classifier)

    @with_keyword_hints(FIT_HINTS)
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, on_progress: OnProgress | None = None) -> Self:
        """Learn a model from a table.

        Parameters
        ----------
        X : table
            Paths (files, folders, globs and URIs, read in passes, never as a whole), a `Source`, a pyarrow Table,
            RecordBatch, Dataset, Scanner or RecordBatchReader, a pandas or polars frame, a polars LazyFrame, a DuckDB
            relation, anything else with `__arrow_c_stream__`, a list of dicts, a dict of columns, an (n, d) array or
            a scipy sparse matrix. Streams are kept, in memory up to a quarter of the memory limit, beyond that in a
            temporary file.
        y : str or (n,) array-like, optional
            The class column's name, or the classes themselves (not with paths); by default `target`.
        sample_weight : (n,) array-like of whole numbers, optional
            Number of times each row counts, exactly as if it were repeated. With paths name a column of the files
            instead: `columns={"w": {"weight": True}}`.
        on_progress : callable, optional
            Called with a `Progress`; raising in it stops.

        Warns
        -----
        ColumnWarning
            If a column is not used, or not with all its values.

        Raises
        ------
        InvalidParameter, SourceError, SchemaError, UnknownColumn, EmptyData
        """
        self._declared: list[Value] = []
        source, target, is_named = self._source_of(X, y, sample_weight)
        source = apply_row_weight_rule(apply_null_class_rule(source, target, self.columns), self.columns)
        return self._fitted([Part(source, MemoryStore())], target, on_progress, is_named=is_named)

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        classes: Any = None,
        sample_weight: Any = None,
        on_progress: OnProgress | None = None,
    ) -> Self:
        """Learn from more rows; the model equals, bit for bit, that of all rows so far, in any order.

        Counts are added to those of earlier rows. Earlier rows are kept and read again for counts that were not
        collected before: everything if `schema` is not given and the new rows change it, and the families of a new
        structure. With `schema` given, NB reads only the new rows.

        Parameters
        ----------
        X, y, sample_weight, on_progress
            As of `fit`.
        classes : (n_classes,) array-like, optional
            Classes that may come later.

        Raises
        ------
        InvalidParameter, SourceError, SchemaError, UnknownColumn, EmptyData
        """
        is_first = not hasattr(self, "model_")
        if is_first:
            self._declared = []
        source, target, is_named = self._source_of(X, y, sample_weight, is_more=not is_first)
        source = apply_row_weight_rule(apply_null_class_rule(source, target, self.columns), self.columns)
        if classes is not None:
            self._declared = list(dict.fromkeys([*self._declared, *declared_class_labels(classes)]))
        parts = [Part(source, MemoryStore())]
        if not is_first:
            if target != self.target_:
                raise InvalidParameter("target", target, because=f"earlier rows had their classes in {self.target_!r}")
            parts, is_named = [*self._rows_so_far(), *parts], self._columns.is_named
        return self._fitted(parts, target, on_progress, is_named=is_named)

    def merged(self, other: Self, on_progress: OnProgress | None = None) -> Self:
        """Return the estimator that learning from the rows of both would give, bit for bit.

        Counts of both are added. Only counts that neither has (the families of a new structure, or everything if the
        schema was not given and differs) are collected again, from the data that the two were fitted to.

        Raises LearnerError if the two differ in class, parameters or target.
        """
        check_is_fitted(self, "model_")
        if not isinstance(other, Classifier):
            raise InvalidArgument("other", other, "a fitted estimator of the same class")
        check_is_fitted(other, "model_")
        ours, theirs = self.get_params(deep=False), other.get_params(deep=False)
        if type(self) is not type(other) or self.target_ != other.target_ or ours != theirs:
            raise LearnerError("Only estimators of the same class, parameters and target can be merged.")
        merged = type(self)(**ours)
        merged._declared = list(dict.fromkeys([*self._declared, *other._declared]))
        parts, is_named = [*self._rows_so_far(), *other._rows_so_far()], self._columns.is_named
        return merged._fitted(parts, self.target_, on_progress, is_named=is_named)

    def _rows_so_far(self) -> tuple[Part, ...]:
        if "parts_" not in vars(self):
            raise LearnerError(
                "A loaded model cannot be updated, because it has no counts of its rows. Fit it again on all rows."
            )
        return self.parts_

    def _fitted(self, parts: Sequence[Part], target: str, on_progress: OnProgress | None, *, is_named: bool) -> Self:
        parameters = {name: value for name, value in self.get_params(deep=False).items() if name not in COMMON}
        learner = recipes.learner(self._learner, parameters, target, self.schema, self.columns, self.holdout_by)
        if self._declared:
            learner = replace(learner, passes=passes_with_declared_classes(learner.passes, self._declared))
        model = train_estimator_model(
            self,
            learner,
            parts,
            on_progress,
            [hint for part in parts for hint in (*part.source.hints, *part.source.all_settings(self.columns or {}))],
        )
        self.parts_ = tuple(parts)
        self._take(model, [name for name in parts[0].source.arrow_schema.names if name != target], is_named=is_named)
        if self.schema is None:
            lost = training_column_warnings(model.schema, monitored_network(model), model.facts)
            for message in [*lost, *row_weight_warnings(model.schema, self.columns)]:
                self._columns.warn_once(message)
        return self

    @classmethod
    def of_model(
        cls, model: Model, parameters: Mapping[str, Any], names: Sequence[str], *, is_named: bool = True
    ) -> Self:
        """Create a fitted estimator from a model that was learned elsewhere; it has no training rows for `partial_fit`
        or `merged`.

        Parameters
        ----------
        parameters : mapping
            Parameters of the learner; ignores parameters that this estimator does not have.
        names : sequence of str
            All columns of the table but the target, in order.
        is_named : bool
            True if the caller named them.
        """
        own = cls._get_param_names()
        estimator = cls(**{name: value for name, value in parameters.items() if name in own})
        estimator.target = model.schema.target
        estimator._declared = []
        estimator._take(model, names, is_named=is_named)
        return estimator

    def _take(self, model: Model, names: Sequence[str], *, is_named: bool) -> None:
        """Set the fitted attributes from a model."""
        self._know(model, names, is_named=is_named)
        self.target_ = cast(str, model.schema.target)

    def predict_proba(self, X: Any) -> Floats:
        """Predict class probabilities.

        Parameters
        ----------
        X : table
            As of `fit`; or one row as a dict. Missing columns and values that training never saw are left out of the
            product.

        Returns
        -------
        (n_rows, n_classes) float64
            P(class | attributes), in the order of `classes_`.

        Warns
        -----
        ColumnWarning
            Once, of columns that the model misses or does not know, of columns in which no row has a value that training had,
            and where all rows are later than those of training.

        Raises
        ------
        SchemaError
            If all of the model's columns are absent, or a column has a type that the model cannot read.
        InvalidPrediction
            If the model's answer for a row is not a distribution.
        """
        known = self._known()
        record = single_row_record(X, known)
        if record is not None:
            try:
                probabilities = known.classify(record)[np.newaxis]
                known.check_values([record])
                return probabilities
            except SchemaError:
                if is_record(X):
                    raise
                # The values of a frame may have types that records have not: read it as a table.
        return super().predict_proba(X)

    def predict_log_proba(self, X: Any) -> Floats:
        """Return the logarithms of `predict_proba`, (n_rows, n_classes) float64."""
        with np.errstate(divide="ignore"):
            logs: Floats = np.log(self.predict_proba(X))
        return logs

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the accuracy: the share of rows whose most probable class equals their own.

        `y`: the classes, (n_rows,), or the name of their column; by default the class column of `X`.
        """
        if y is None or isinstance(y, str):
            column = self._known().model.schema.target if y is None else y
            source, target, _ = self._source_of(X, column, None, is_more=True)
            predicted = self.predict(source)
            y = pa.chunked_array([batch[target] for batch in source.batches([target])])
        else:
            predicted = self.predict(X)
        return weighted_accuracy(predicted, y, sample_weight)

    def record_classifier(self) -> Callable[[Mapping[str, Any]], Floats]:
        """Return a function that classifies one row at a time with minimal overhead.

        Returns
        -------
        callable
            `classify(record)` gives the (n_classes,) float64 probabilities of a mapping from column to raw value. Absent
            columns are allowed and unknown ones overlooked. It raises SchemaError naming a column whose value has the
            wrong type.
        """
        return self._known().classify

    def _chunks(self, X: Any) -> Iterator[Chunk]:
        """Yield the rows, encoded; files and streams batch by batch."""
        known = self._known()
        schema = known.model.schema
        if is_source_or_paths(X):
            source = open_source_or_paths(X, schema)
            names = [name for name in source.arrow_schema.names if name != schema.target]
            known.check_names(names)
            attributes = set(known.attributes)
            for batch in known.watch(source.batches([name for name in names if name in attributes])):
                yield encode(batch, schema)
            return
        if are_records(X) or is_record(X):
            records = [X] if is_record(X) else list(X)
            for record in records:
                known.check_record(record)
            chunk = encode_json_records(records, schema)
            known.check_values(records)
            yield chunk
            return
        rows = rows_as_record_batches(X, self)
        names = [name for name in rows.arrow_schema.names if name != schema.target or not rows.is_named]
        by_position = known.names_by_position(len(names), rows.is_named)
        if by_position is None:
            known.check_names(names)
        elif len(names) == len(rows.arrow_schema):
            rows = rows.renamed(by_position)
        for batch in known.watch(rows.batches):
            yield encode(batch, schema, with_class=False)

    def _source_of(self, X: Any, y: Any, sample_weight: Any, is_more: bool = False) -> tuple[Source, str, bool]:
        """Return the training rows, the name of their class column, and whether the caller named the columns."""
        check_common_arguments(self)
        named = y if isinstance(y, str) else self.target
        if isinstance(X, pads.Dataset) and sample_weight is None and (y is None or isinstance(y, str)):
            X = source_from_arrow_dataset(X) or X  # its files, if they alone are its rows
        if is_source_or_paths(X):
            if sample_weight is not None:
                raise InvalidArgument(
                    "sample_weight",
                    sample_weight,
                    because='with paths, name the column: columns={"w": {"weight": True}}',
                )
            if named is None and y is None:
                raise InvalidParameter("target", None, because="name the class column: target='…', or fit(X, 'column')")
            return (
                open_source_or_paths(X, self.model_.schema if is_more else self.schema, self.columns, y),
                cast(str, named),
                True,
            )
        if named is None and y is None:
            raise InvalidParameter(
                "target",
                None,
                because=f"name the class column: target='…', fit(X, 'column') or fit(X, y) ({type(self).__name__} requires y to be "
                "passed, but the target y is None)",
            )
        rows = rows_as_record_batches(X, self)
        if is_more and not (rows.is_named and self._columns.is_named):
            rows = rows.renamed(self._columns.names_by_position(len(rows.arrow_schema), rows.is_named) or ())
        if y is not None and not isinstance(y, str):
            rows, named = append_class_column(rows, y, self.target)
        if sample_weight is None:
            return rows.source(), cast(str, named), rows.is_named
        weight = Weight(unused_column_name("sample_weight", rows.arrow_schema.names))
        rows = rows.with_column(weight.column, sample_weight_counts(sample_weight), "sample_weight")
        return apply_row_weight(rows.source(), weight, is_hidden=True), cast(str, named), rows.is_named
