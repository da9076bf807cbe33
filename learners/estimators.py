"""The learners as scikit-learn classifiers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from learners import recipes
from learners.errors import InvalidParameter, LearnerError, SchemaError, SourceError
from learners.model import Model
from learners.passes.engine import OnProgress
from learners.passes.files import one_line
from learners.passes.learner import Part, drive
from learners.passes.ledger import MemoryStore
from learners.passes.source import Source
from learners.schema import Chunk, Schema
from learners.schema.encode import encode

Floats = np.ndarray[Any, np.dtype[np.float64]]
COMMON = ("target", "schema", "columns", "threads")


class _Classifier(ClassifierMixin, BaseEstimator):
    """What all learners share as scikit-learn classifiers.

    Attributes
    ----------
    model_ : Model
    classes_ : (n_classes,) array
        The classes as the data held them.
    feature_names_in_ : (n_columns,) array of str
    n_features_in_ : int
    """

    _learner: str
    target: str | None
    schema: Schema | None
    columns: Mapping[str, Any] | None
    threads: int | None

    def fit(self, X: Any, y: Any = None, on_progress: OnProgress | None = None) -> Self:
        """Learn from a table.

        Parameters
        ----------
        X : str, path, sequence of str, pyarrow Table, RecordBatch or Dataset, pandas DataFrame, (n, d) array, or Source
            Paths may be files, folders, globs and URIs; they are read in passes, never as a whole.
        y : str or (n,) array-like, optional
            The class column's name, or the classes themselves (not with paths); by default `target`.
        on_progress : callable, optional
            Called with a `Progress`; raising in it stops.

        Raises
        ------
        InvalidParameter, SourceError, SchemaError, UnknownColumn, EmptyData
        """
        source, target = _source_of(X, y, self.target)
        return self._fitted([Part(source, MemoryStore())], target, on_progress)

    def _fitted(self, parts: Sequence[Part], target: str, on_progress: OnProgress | None) -> Self:
        parameters = {name: value for name, value in self.get_params(deep=False).items() if name not in COMMON}
        made = recipes.learner(self._learner, parameters, target, self.schema, self.columns)
        self.model_: Model = drive(made, parts, threads=self.threads, on_progress=on_progress)
        self.parts_ = tuple(parts)
        self.target_ = target
        self.classes_ = np.array(self.model_.schema.class_values())
        names = [name for name in parts[0].source.arrow_schema.names if name != target]
        self.feature_names_in_ = np.array(names, dtype=object)
        self.n_features_in_ = len(names)
        return self

    def merged(self, other: Self, on_progress: OnProgress | None = None) -> Self:
        """The estimator that learning from the rows of both would have given, bit for bit.

        What both have counted is added; only what neither has (the families of a new structure, or everything if the
        schema was not given and differs) is counted again, from the data that the two were fitted to.

        Parameters
        ----------
        other : fitted estimator of the same class and parameters

        Raises
        ------
        LearnerError
            If the two differ in class, parameters or target.
        """
        check_is_fitted(self, "model_")
        check_is_fitted(other, "model_")
        ours, theirs = self.get_params(deep=False), other.get_params(deep=False)
        if type(self) is not type(other) or self.target_ != other.target_ or ours != theirs:
            raise LearnerError("Only estimators of the same class, parameters and target can be merged.")
        return type(self)(**ours)._fitted([*self.parts_, *other.parts_], self.target_, on_progress)

    def predict_proba(self, X: Any) -> Floats:
        """(n_rows, n_classes) float64: P(class | attributes), in the order of `classes_`.

        Missing columns and unseen values are allowed: they are left out of the product.
        """
        parts = [self.model_.predict_proba(chunk) for chunk in self._chunks(X)]
        return np.concatenate(parts) if parts else np.empty((0, self.model_.schema.n_classes))

    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[Floats, Floats]:
        """Central credible intervals of the class probabilities, for estimators hdp and hdp-map.

        Returns
        -------
        low, high : (n_rows, n_classes) float64
            P(class | attributes) lies between them with posterior probability `level`.

        Raises
        ------
        InvalidParameter
            If the estimator is another one, or the level is not between 0 and 1.
        """
        check_is_fitted(self, "model_")
        intervals_of = getattr(self.model_, "credible_intervals", None)
        if intervals_of is None:
            raise InvalidParameter("interval", level, "models of this kind have no posterior")
        low, high = zip(*[intervals_of(chunk, level) for chunk in self._chunks(X)], strict=True)
        return np.concatenate(low), np.concatenate(high)

    def _chunks(self, X: Any) -> Iterator[Chunk]:
        """The rows, encoded; files batch by batch."""
        check_is_fitted(self, "model_")
        schema = self.model_.schema
        if _are_paths(X) or isinstance(X, Source):
            source = X if isinstance(X, Source) else Source.open(X)
            known = [name for name in schema.columns if name in source.arrow_schema.names and name != schema.target]
            if not known:
                raise SchemaError(f"None of the model's columns ({', '.join(schema.columns[:3])}, …) is in the data.")
            for batch in source.batches(known):
                yield encode(batch, schema)
            return
        if isinstance(X, pads.Dataset):
            for batch in X.to_batches(columns=[name for name in X.schema.names if name != schema.target]):
                yield encode(batch, schema)
            return
        table = _table_of(X)
        yield encode(table.drop_columns([schema.target]) if schema.target in table.column_names else table, schema)

    def predict(self, X: Any) -> np.ndarray[Any, Any]:
        """(n_rows,): the most probable class of each row."""
        most_probable = self.predict_proba(X).argmax(axis=1)
        predicted: np.ndarray[Any, Any] = self.classes_[most_probable]
        return predicted

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.categorical = tags.input_tags.string = True
        return tags


class NB(_Classifier):
    """Naive Bayes: one pass after the schema.

    Parameters
    ----------
    estimator : "m", "hdp" or "hdp-map"
        m-estimates with back-off, posterior means of a hierarchical Dirichlet process by Gibbs sampling, or the
        deterministic estimate of the same model.
    m : float, optional
        Pseudo-count of the m-estimate; by default chosen on a hold-out.
    max_values : int
        Values that a nominal attribute keeps; rarer ones share one code.
    iterations, tying, root, seed
        Of "hdp", as in `learners.classifiers.hdp.HDPParameters`.
    target : str, optional
        The class column.
    schema : Schema, optional
        Skips the schema pass.
    columns : mapping, optional
        What to make of single columns: "nominal", "numeric", "drop", or a mapping with kind, order or cuts.
    threads : int, optional
        By default one per core; the model does not depend on it.
    """

    _learner = "nb"

    def __init__(
        self,
        *,
        estimator: str = "m",
        m: float | None = None,
        max_values: int = 1024,
        iterations: int | str = 50_000,
        tying: str = "level",
        root: str = "unit",
        seed: int = 0,
        target: str | None = None,
        schema: Schema | None = None,
        columns: Mapping[str, Any] | None = None,
        threads: int | None = None,
    ) -> None:
        self.estimator, self.m, self.max_values = estimator, m, max_values
        self.iterations, self.tying, self.root, self.seed = iterations, tying, root, seed
        self.target, self.schema, self.columns, self.threads = target, schema, columns, threads


class TAN(NB):
    """Tree-augmented naive Bayes (Friedman, Geiger, Goldszmidt 1997): two passes after the schema; parameters as of NB."""

    _learner = "tan"


class KDB(NB):
    """k-dependence Bayes (Sahami 1996): two passes after the schema.

    Parameters
    ----------
    k : int
        Attribute parents per attribute, 1 to 5.
    estimator, m, max_values, iterations, tying, root, seed, target, schema, columns, threads
        As of NB.
    """

    _learner = "kdb"

    def __init__(
        self,
        *,
        k: int = 1,
        estimator: str = "m",
        m: float | None = None,
        max_values: int = 1024,
        iterations: int | str = 50_000,
        tying: str = "level",
        root: str = "unit",
        seed: int = 0,
        target: str | None = None,
        schema: Schema | None = None,
        columns: Mapping[str, Any] | None = None,
        threads: int | None = None,
    ) -> None:
        self.k = k
        super().__init__(
            estimator=estimator,
            m=m,
            max_values=max_values,
            iterations=iterations,
            tying=tying,
            root=root,
            seed=seed,
            target=target,
            schema=schema,
            columns=columns,
            threads=threads,
        )


class SKDB(KDB):
    """Selective kDB (Martínez et al. 2016): three passes after the schema.

    Parameters
    ----------
    k : int
        Most attribute parents per attribute, 1 to 5.
    loss : "squared" or "zero-one"
        What the selection of attributes and parents minimises, leaving one out.
    estimator, m, max_values, iterations, tying, root, seed, target, schema, columns, threads
        As of NB.
    """

    _learner = "skdb"

    def __init__(
        self,
        *,
        k: int = 5,
        loss: str = "squared",
        estimator: str = "m",
        m: float | None = None,
        max_values: int = 1024,
        iterations: int | str = 50_000,
        tying: str = "level",
        root: str = "unit",
        seed: int = 0,
        target: str | None = None,
        schema: Schema | None = None,
        columns: Mapping[str, Any] | None = None,
        threads: int | None = None,
    ) -> None:
        self.loss = loss
        super().__init__(
            k=k,
            estimator=estimator,
            m=m,
            max_values=max_values,
            iterations=iterations,
            tying=tying,
            root=root,
            seed=seed,
            target=target,
            schema=schema,
            columns=columns,
            threads=threads,
        )


def _are_paths(X: Any) -> bool:
    is_list = isinstance(X, list | tuple) and bool(X) and all(isinstance(entry, str | os.PathLike) for entry in X)
    return isinstance(X, str | os.PathLike) or is_list


def _source_of(X: Any, y: Any, target: str | None) -> tuple[Source, str]:
    """The rows to learn from, with the name of their class column."""
    named = y if isinstance(y, str) else target
    if isinstance(X, pads.Dataset):
        X = _rows_of_dataset(X)
    if _are_paths(X) or isinstance(X, Source):
        if y is not None and not isinstance(y, str):
            raise InvalidParameter("y", type(y).__name__, "with paths, give the name of the class column")
        if named is None:
            raise InvalidParameter("target", None, "name the class column: target='…', or fit(X, 'column')")
        return X if isinstance(X, Source) else Source.open(X), named
    table = _table_of(X)
    if y is not None and not isinstance(y, str):
        named = str(getattr(y, "name", None) or target or "class")
        if named in table.column_names:
            raise InvalidParameter("target", named, "a column of that name is in X already: name the classes otherwise")
        classes = pa.array(np.asarray(y).tolist())
        if len(classes) != table.num_rows:
            raise InvalidParameter("y", len(classes), f"one class for each of the {table.num_rows} rows of X")
        table = table.append_column(named, classes)
    if named is None:
        raise InvalidParameter("target", None, "name the class column: target='…', fit(X, 'column') or fit(X, y)")
    return Source.of_table(table, identity=uuid4().hex), named


def _rows_of_dataset(dataset: pads.Dataset) -> Source | pa.Table:
    """The files of a dataset, to be read in passes, if they alone are its rows; else a table of what it makes of them."""
    try:
        is_parquet = isinstance(dataset, pads.FileSystemDataset) and isinstance(dataset.format, pads.ParquetFileFormat)
        if is_parquet and dataset.files:
            source = Source.open(list(dataset.files), dataset.filesystem)
            # A schema may leave columns out, and partitions add some.
            if source.arrow_schema.equals(dataset.schema) and source.n_rows == _n_chosen(dataset):
                return source
        return dataset.to_table()
    except (pa.ArrowException, OSError) as error:
        raise SourceError("The dataset", f"cannot be read ({one_line(error)})") from error


def _n_chosen(dataset: pads.FileSystemDataset) -> int | None:
    """How many rows the row groups of a dataset have; None if a filter may leave rows out."""
    try:
        return sum(group.num_rows for fragment in dataset.get_fragments() for group in fragment.row_groups)
    except ValueError:  # pyarrow does not give the fragments of a filtered dataset
        return None


def _table_of(X: Any) -> pa.Table:
    """Rows that are in memory, as a table."""
    if isinstance(X, pa.Table):
        return X
    if isinstance(X, pa.RecordBatch):
        return pa.Table.from_batches([X])
    if hasattr(X, "__dataframe__") or type(X).__module__.startswith("pandas"):
        return pa.Table.from_pandas(X, preserve_index=False)
    if isinstance(X, Mapping):
        return pa.table(X)
    array = np.asarray(X)
    if array.ndim != 2 or array.dtype == object:
        raise InvalidParameter(
            "X", type(X).__name__, "give a Table, DataFrame, path or a two-dimensional array of numbers"
        )
    return pa.table({f"x{i}": array[:, i] for i in range(array.shape[1])})
