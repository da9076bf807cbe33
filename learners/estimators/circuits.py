"""The base of the estimators of circuits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.utils import ClassifierTags, check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from learners.circuits.model import CircuitModel
from learners.circuits.queries.column_values import fill_cells, missing_cells, nameable, rows_of_batch, with_cells
from learners.errors import InvalidParameter
from learners.estimators.arguments import (
    COMMON,
    check_common_arguments,
    set_estimator_constructor,
    train_estimator_model,
    with_argument_checks,
    with_keyword_hints,
)
from learners.estimators.columns import model_arrow_schema
from learners.estimators.explaining import QUERY_HINTS, Explaining, warn_of_answer
from learners.estimators.labels import append_class_column
from learners.estimators.released_names import released_estimator as __getattr__  # noqa: F401
from learners.estimators.table_inputs import (
    Rows,
    is_pandas_frame,
    is_source_or_paths,
    open_source_or_paths,
    rows_as_record_batches,
    values_to_arrow_column,
)
from learners.kernels.arrays import Floats
from learners.models.evidence import RawValue
from learners.models.parameters import Parameters
from learners.models.query import How, Query, check_query_type
from learners.passes.engine import OnProgress
from learners.passes.row_rules import apply_null_class_rule, apply_row_weight_rule, row_weight_warnings
from learners.passes.sources.source import Source
from learners.registry import recipes
from learners.registry.networks.network_answers import answer_network_queries
from learners.schema import Chunk, Overrides, Schema
from learners.schema.encoding.encode import encode
from learners.schema.schema_inference import schema_loss_warnings

# `sample` is a method.
RENAMED = {"sample": "sample_rows"}


def _with_class(network: CircuitEstimator) -> bool:
    if network.target is None and "classes_" not in vars(network):
        raise AttributeError("The model has no class: pass target='…', or y to fit, to get predictions.")
    return True


class CircuitEstimator(Explaining, DensityMixin, BaseEstimator):
    """Base class of the learners of circuits as scikit-learn estimators; a class is possible, and not needed."""

    _learner: ClassVar[str]
    _parameters: ClassVar[type[Parameters]]
    model_: CircuitModel
    target: str | None
    schema: Schema | None
    columns: Overrides | None
    threads: int | None
    verbose: bool

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "_parameters" in vars(cls):
            set_estimator_constructor(cls, cls._parameters, RENAMED, without=("holdout_by",))

    def fit(self, X: Any, y: Any = None, on_progress: OnProgress | None = None) -> Self:
        """Learn a network from a table.

        Parameters
        ----------
        X : table
            As of the classifiers: paths, a `Source`, frames, tables, arrays, streams.
        y : str or (n,) array-like, optional
            The class column's name, or the classes themselves (not with paths); by default `target`. Without either there is no
            class.
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
        source, target, is_named = self._source_of(X, y)
        source = apply_row_weight_rule(apply_null_class_rule(source, target, self.columns), self.columns)
        own = {theirs: ours for ours, theirs in RENAMED.items()}
        own_parameters = self.get_params(deep=False).items()
        parameters = {own.get(name, name): value for name, value in own_parameters if name not in COMMON}
        learner = recipes.learner(self._learner, parameters, target, self.schema, self.columns)
        model = train_estimator_model(self, learner, source, on_progress)
        assert isinstance(model, CircuitModel)
        self._take(model, source.arrow_schema, is_named=is_named)
        self._is_frame = is_pandas_frame(X)
        if self.schema is None:
            for loss in [*schema_loss_warnings(model.schema), *row_weight_warnings(model.schema, self.columns)]:
                self._columns.warn_once(loss)
        for words in model.warnings():
            self._columns.warn_once(words)
        return self

    @classmethod
    def of_model(
        cls, model: CircuitModel, parameters: Mapping[str, Any], names: Sequence[str], *, is_named: bool = True
    ) -> Self:
        """Create a fitted estimator from a model that was learned elsewhere; `sample` returns Arrow tables."""
        own = cls._get_param_names()
        by_own_name = {RENAMED.get(name, name): value for name, value in parameters.items()}
        estimator = cls(**{name: value for name, value in by_own_name.items() if name in own})
        estimator.target, estimator._is_frame = model.schema.target, False
        estimator._take(model, model_arrow_schema(model.schema, names), is_named=is_named)
        return estimator

    def _take(self, model: CircuitModel, arrow_schema: pa.Schema, *, is_named: bool) -> None:
        """Set the fitted attributes from a model."""
        self.arrow_schema_ = pa.schema([field.remove_metadata() for field in arrow_schema])
        names = [name for name in arrow_schema.names if name != model.schema.target]
        self._know(model, names, is_named=is_named)

    def score_samples(self, X: Any) -> Floats:
        """Compute the log-likelihood of each row, (n_rows,) float64, in nats, over the columns of X, including the
        class; missing columns are marginalized.

        Raises SchemaError.
        """
        model = self._model()
        parts = [model.log_likelihood(encode(batch, model.schema)) for batch in self._batches(X, with_class=True)]
        return np.concatenate([*parts, np.empty(0)])

    def score(self, X: Any, y: None = None) -> float:
        """Return the mean log-likelihood per row, in nats."""
        return float(self.score_samples(X).mean())

    predict_proba = available_if(_with_class)(Explaining.predict_proba)
    predict = available_if(_with_class)(Explaining.predict)
    predict_interval = available_if(_with_class)(Explaining.predict_interval)

    @with_keyword_hints(QUERY_HINTS)
    def query(self, query: Query) -> dict[str, Any]:
        """Answer a `Marginal`, `Conditional`, `Moments`, `Sample`, `Map`, `Impute` or `Surprise` query; see
        `circuits.queries.queries.answer_all`.

        Answers of a `CircuitPosterior` include standard errors and intervals.

        Raises UnknownColumn, InvalidEvidence, ImpossibleEvidence or SchemaError.
        """
        check_query_type(query)
        return warn_of_answer(answer_network_queries(self._model(), [query], self._model)[0])

    @with_argument_checks
    def impute(self, X: Any, how: How = "mode", seed: int = 0) -> Any:
        """Fill the missing cells of a table.

        Parameters
        ----------
        how : "mode", "mean" or "draw"
            Each cell by itself, its most probable value, or the mean of a number; or a row's missing cells together by one draw given the
            others.
        seed : int
            Seed of the draws.

        Returns
        -------
        pyarrow.Table, or what X is: a pandas frame or an array
            Columns that the model does not know are as they were.

        Raises
        ------
        InvalidParameter, SchemaError
        """
        model, batches, n_rows, schema = self._model(), [], 0, None
        for batch in self._batches(X, with_class=True, every=True):
            batches.append(_without_gaps(model, batch, how, seed, n_rows))
            schema, n_rows = batch.schema, n_rows + batch.num_rows
        table = pa.Table.from_batches(batches, schema=schema or self.arrow_schema_)
        return self._as_given(table, is_pandas_frame(X), isinstance(X, np.ndarray))

    @with_argument_checks
    def sample(self, n_samples: int = 1, random_state: Any = None, given: Mapping[str, RawValue] | None = None) -> Any:
        """Draw rows from the network.

        Parameters
        ----------
        random_state : int, RandomState or None
        given : mapping of column to value, optional
            What all rows have.

        Returns
        -------
        pyarrow.Table, or what the estimator was fitted to: a pandas frame or an array
            The columns and types that it was fitted to, without the columns that it left out.

        Raises
        ------
        InvalidParameter, SchemaError
        """
        if n_samples < 1:
            raise InvalidParameter("n_samples", n_samples, "one or more")
        model, given = self._model(), given or {}
        try:
            seed = int(check_random_state(random_state).randint(0, 2**31 - 1))
        except ValueError as error:
            raise InvalidParameter(
                "random_state", random_state, "a whole number from 0, a RandomState, or None"
            ) from error
        names = [name for name in self.arrow_schema_.names if name in model.columns.number]
        model.columns.rows([given])  # refuses unknown columns and values
        fields = [self.arrow_schema_.field(name) for name in names]
        arrays = [
            values_to_arrow_column(field.name, [given.get(field.name)] * n_samples).cast(field.type) for field in fields
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
        table = pa.Table.from_batches([_without_gaps(model, batch, "draw", seed)])
        return self._as_given(table, self._is_frame, not self._columns.is_named)

    def _model(self) -> CircuitModel:
        check_is_fitted(self, "model_")
        return self.model_

    def _chunks(self, X: Any) -> Iterator[Chunk]:
        return (encode(batch, self._model().schema) for batch in self._columns.watch(self._batches(X)))

    def _batches(self, X: Any, with_class: bool = False, every: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield the rows with the model's columns, or with all columns if `every`; unnamed columns take the names from
        training.
        """
        known, schema = self._columns, self._model().schema
        if is_source_or_paths(X):
            source = open_source_or_paths(X, schema)
            rows = Rows(source.arrow_schema, source.batches(source.arrow_schema.names))
        else:
            rows = rows_as_record_batches(X, self)
        names = rows.arrow_schema.names
        features = [name for name in names if name != schema.target or not rows.is_named]
        by_position = known.names_by_position(len(features), rows.is_named)
        if by_position is not None:
            rows = rows.renamed([*by_position, *names[len(by_position) :]])
        elif known.attributes:
            known.check_names(features)
        columns = set(schema.columns if with_class else known.attributes)
        for batch in rows.batches:
            yield batch if every else batch.select([name for name in batch.schema.names if name in columns])

    def _source_of(self, X: Any, y: Any) -> tuple[Source, str | None, bool]:
        """Return the training rows, the class column if there is one, and whether the caller named the columns."""
        check_common_arguments(self)
        target = y if isinstance(y, str) else self.target
        if is_source_or_paths(X):
            return open_source_or_paths(X, self.schema, self.columns, y), target, True
        rows = rows_as_record_batches(X, self)
        if y is not None and not isinstance(y, str):
            rows, target = append_class_column(rows, y, self.target)
        return rows.source(), target, rows.is_named

    def _as_given(self, table: pa.Table, is_frame: bool, is_array: bool) -> Any:
        if is_frame:
            return table.to_pandas()
        if is_array:
            columns = [table.column(name).to_numpy() for name in table.column_names if name in self._columns.names]
            return np.stack(columns, axis=1)
        return table

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags = ClassifierTags()
        return tags


def _without_gaps(
    model: CircuitModel, batch: pa.RecordBatch, how: How, seed: int, first_row: int = 0
) -> pa.RecordBatch:
    """Return a batch with its missing cells filled, for the model's columns that the batch has."""
    columns, places = model.columns, {name: place for place, name in enumerate(batch.schema.names)}
    x, is_missing = rows_of_batch(columns, batch), missing_cells(columns, batch)
    known = set(model.circuit.scope(model.circuit.root))
    for v, name in enumerate(columns.names):
        if name not in places or v not in known:
            is_missing[v] = False
        # Where missing is a value of its own, as in compiled networks, the cell is to be filled all the same.
        x[v, is_missing[v]] = -1 if columns.n_values[v] else np.nan
    values = fill_cells(model, x, is_missing, how, nameable=nameable(columns), seed=seed, first_row=first_row)[0]
    arrays = list(batch.columns)
    for v, name in enumerate(columns.names):
        if is_missing[v].any():
            place = places[name]
            column = with_cells(columns, v, arrays[place], values[v])
            arrays[place] = column.cast(batch.schema.field(place).type)
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)
