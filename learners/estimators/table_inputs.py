"""Convert tables in any supported form to record batches."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads

from learners.errors import InvalidArgument, SchemaError, SourceError, one_line_error_text
from learners.passes.sources.csv.types import declared_text_types
from learners.passes.sources.row_streams import source_from_row_stream
from learners.passes.sources.source import Source
from learners.schema import Overrides, Schema
from learners.schema.checks import check_column_lengths

SLICE_ROWS = 65_536
ENTRIES = {"y": "classes", "sample_weight": "weights"}  # what each argument gives for a row
SLICE_CELLS = 1 << 24  # of a sparse matrix, made dense at a time: 128 MiB
ACCEPTED = (
    "paths, a pyarrow Table, Dataset or RecordBatchReader, a pandas or polars frame, a DuckDB relation, anything with "
    "__arrow_c_stream__, a list of dicts, a dict of columns, or a two-dimensional array"
)


@dataclass(frozen=True)
class Rows:
    """Rows in memory, or from a stream that can be read once."""

    arrow_schema: pa.Schema
    batches: Iterable[pa.RecordBatch]
    is_named: bool = True  # whether the caller has named the columns; those of an array are known by their position
    n_rows: int | None = None  # None of a stream, whose length shows at its end

    def source(self) -> Source:
        """Return the rows as a source that can be read several times."""
        return source_from_row_stream(self.arrow_schema, self.batches, uuid4().hex)

    def renamed(self, names: Iterable[str]) -> Rows:
        """Rename the columns."""
        fields = [field.with_name(name) for field, name in zip(self.arrow_schema, names, strict=True)]
        schema = pa.schema(fields)
        batches = (pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in self.batches)
        return Rows(schema, batches, self.is_named, self.n_rows)

    def with_column(self, name: str, values: pa.Array | pa.ChunkedArray, argument: str = "y") -> Rows:
        """Append a column of values, given by the argument of this name.

        Raises InvalidParameter if the number of values differs from the number of rows.
        """
        if self.n_rows is not None and self.n_rows != len(values):
            raise InvalidArgument(
                argument, values, has=f"{len(values):,} {ENTRIES[argument]}, but X has {self.n_rows:,} rows"
            )
        schema = self.arrow_schema.append(pa.field(name, values.type))
        return Rows(schema, _extended(self.batches, schema, values, argument), self.is_named, self.n_rows)


def _extended(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, values: pa.Array | pa.ChunkedArray, argument: str
) -> Iterator[pa.RecordBatch]:
    n_done = 0
    for batch in batches:
        own = values.slice(n_done, batch.num_rows)
        n_done += batch.num_rows
        if len(own) < batch.num_rows:
            break
        own = own.combine_chunks() if isinstance(own, pa.ChunkedArray) else own
        yield pa.RecordBatch.from_arrays([*batch.columns, own], schema=schema)
    if n_done != len(values):
        n_rows = "more" if n_done > len(values) else f"{n_done:,}"
        raise InvalidArgument(argument, values, has=f"{len(values):,} {ENTRIES[argument]}, but X has {n_rows} rows")


def are_paths(X: Any) -> bool:
    """Return whether X is a path or a nonempty sequence of paths."""
    is_list = isinstance(X, list | tuple) and bool(X) and all(isinstance(entry, str | os.PathLike) for entry in X)
    return isinstance(X, str | os.PathLike) or is_list


def is_source_or_paths(X: Any) -> bool:
    """Return whether X is a source or paths, as `open_source_or_paths` accepts."""
    return isinstance(X, Source) or are_paths(X)


def open_source_or_paths(X: Any, schema: Schema | None, columns: Overrides | None = None, y: Any = None) -> Source:
    """Open paths as a source, or return X if it is one. Raises InvalidParameter if class labels accompany paths."""
    if y is not None and not isinstance(y, str):
        raise InvalidArgument("y", y, because="with paths, give the name of the class column")
    return X if isinstance(X, Source) else Source.open(X, types=declared_text_types(schema, columns))


def is_record(X: Any) -> bool:
    """Return whether X is one row, a mapping from column to value; a mapping from column to several values is a table."""
    if not isinstance(X, Mapping) or hasattr(X, "tocsr"):  # scipy has sparse matrices that are dicts
        return False
    return all(isinstance(value, str | bytes) or not hasattr(value, "__len__") for value in X.values())


def are_records(X: Any) -> bool:
    """Return whether X is a sequence of rows, each a mapping."""
    return isinstance(X, list | tuple) and all(isinstance(entry, Mapping) for entry in X)


def is_pandas_frame(X: Any) -> bool:
    """Return whether X is a pandas DataFrame, without importing pandas."""
    return _library_of(X) == "pandas" and hasattr(X, "columns")


def _library_of(X: Any) -> str:
    return type(X).__module__.partition(".")[0]


def source_from_arrow_dataset(dataset: pads.Dataset) -> Source | None:
    """Return a source over the files of a dataset if these contain exactly its rows and columns, else None."""
    try:
        if not isinstance(dataset, pads.FileSystemDataset) or not dataset.files:
            return None
        if not isinstance(dataset.format, pads.ParquetFileFormat):
            return None
        source = Source.open(list(dataset.files), dataset.filesystem)
        # A schema may leave columns out, partitions may have other types, and a filter leaves rows out.
        is_whole = source.arrow_schema.equals(dataset.schema) and source.n_rows == _n_chosen(dataset)
        return source if is_whole else None
    except (pa.ArrowException, OSError) as error:
        raise SourceError("The dataset", f"cannot be read ({one_line_error_text(error)})") from error


def _n_chosen(dataset: pads.FileSystemDataset) -> int | None:
    """Return the number of rows in the row groups of a dataset; None if a filter may exclude rows."""
    try:
        return sum(group.num_rows for fragment in dataset.get_fragments() for group in fragment.row_groups)
    except ValueError:  # pyarrow does not give the fragments of a filtered dataset
        return None


def rows_as_record_batches(X: Any, estimator: Any) -> Rows:
    """Convert rows in any form except paths to record batches.

    `X`: table, stream or array.
    `estimator`: the estimator named in scikit-learn's errors on arrays.
    Raises InvalidParameter if it is not a table; SchemaError if the values of a column have no common type;
    SourceError if a stream fails.
    """
    if is_record(X):
        X = [X]
    if isinstance(X, pa.RecordBatch):
        return _plain(Rows(X.schema, [X], n_rows=X.num_rows))
    if isinstance(X, pa.Table):
        return _of_table(X)
    if isinstance(X, pads.Dataset | pads.Scanner):
        scanner = X.scanner() if isinstance(X, pads.Dataset) else X
        return _of_reader(_opened(X, scanner.to_reader), "The dataset")
    if isinstance(X, pa.RecordBatchReader):
        return _of_reader(X)
    if is_pandas_frame(X):
        return _of_table(_table_of_pandas(X), all(isinstance(name, str) for name in X.columns))
    if _library_of(X) == "polars" and hasattr(X, "collect_batches"):
        return _of_lazy_frame(X)
    if _library_of(X) in ("pandas", "polars") and not hasattr(X, "columns"):
        raise InvalidArgument(
            "X",
            X,
            because="it is one row or column of a frame: pass a frame of one row, such as frame.iloc[[0]] or frame[:1], or a dict",
        )
    if hasattr(X, "__arrow_c_stream__"):
        return _of_reader(_opened(X, lambda: pa.RecordBatchReader.from_stream(X)))
    if hasattr(X, "__arrow_c_array__"):
        return rows_as_record_batches(_opened(X, lambda: pa.record_batch(X)), estimator)
    if are_records(X):
        names = list(dict.fromkeys(name for record in X for name in record))
        if not names:  # a table of no columns would have no rows
            batch = pa.RecordBatch.from_struct_array(pa.array([{}] * len(X), pa.struct([])))
            return Rows(batch.schema, [batch], n_rows=len(X))
        return _of_table(_table_of_columns({name: [record.get(name) for record in X] for name in names}))
    if isinstance(X, Mapping) and not hasattr(X, "tocsr"):
        return _of_table(_table_of_columns(X))
    return _of_array(X, estimator)


def _opened(X: Any, opener: Any) -> Any:
    try:
        return opener()
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise InvalidArgument("X", X, f"{ACCEPTED} ({one_line_error_text(error)})") from error


def _of_table(table: pa.Table, is_named: bool = True) -> Rows:
    return _plain(Rows(table.schema, table.to_batches(SLICE_ROWS), is_named, table.num_rows))


def _of_reader(reader: pa.RecordBatchReader, what: str = "The stream") -> Rows:
    return _plain(Rows(reader.schema, _read(reader, what)))


def _read(reader: pa.RecordBatchReader, what: str) -> Iterator[pa.RecordBatch]:
    try:
        for batch in reader:
            for first in range(0, batch.num_rows, SLICE_ROWS):
                yield batch.slice(first, SLICE_ROWS)
    except (pa.ArrowException, OSError) as error:
        raise SourceError(what, f"cannot be read ({one_line_error_text(error)})") from error


def _of_lazy_frame(frame: Any) -> Rows:
    """Convert a polars LazyFrame, computed piece by piece."""
    schema = _opened(frame, lambda: pa.RecordBatchReader.from_stream(frame.head(0).collect()).schema)

    def batches() -> Iterator[pa.RecordBatch]:
        for piece in frame.collect_batches(maintain_order=True):
            yield from _read(pa.RecordBatchReader.from_stream(piece), "The frame")

    return _plain(Rows(schema, batches()))


def _plain(rows: Rows) -> Rows:
    """Replace types that streams allow but Parquet files do not: string views and extension types.

    Raises SourceError if two columns have one name.
    """
    if twice := [name for name, n in Counter(rows.arrow_schema.names).items() if n > 1]:
        raise SourceError("The table", f"has two columns named {twice[0]!r}. Rename one.")
    fields = [field.with_type(_plain_type(field.type)) for field in rows.arrow_schema]
    schema = pa.schema(fields)
    if schema.types == rows.arrow_schema.types:
        return rows
    changed = [i for i, field in enumerate(fields) if field.type != rows.arrow_schema.types[i]]

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in rows.batches:
            columns = batch.columns
            for i in changed:
                storage = columns[i].storage if isinstance(columns[i].type, pa.BaseExtensionType) else columns[i]
                columns[i] = storage.cast(schema.types[i])
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return Rows(schema, batches(), rows.is_named, rows.n_rows)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.OpaqueType) and kind.type_name == "numeric":  # PostgreSQL's, which ADBC gives as text
        return pa.float64()
    if isinstance(kind, pa.BaseExtensionType):
        return _plain_type(kind.storage_type)
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_dictionary(kind) and pa.types.is_string_view(kind.value_type):
        return pa.dictionary(kind.index_type, pa.large_string())
    return kind


def _table_of_pandas(frame: Any) -> pa.Table:
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, ValueError, TypeError):
        pass
    if not frame.columns.is_unique:
        name = frame.columns[frame.columns.duplicated()][0]
        raise SourceError("The frame", f"has two columns named {str(name)!r}. Rename one.")
    return _table_of_columns({str(name): _dense(frame[name]) for name in frame.columns})


def _dense(series: Any) -> Any:
    return series.sparse.to_dense() if str(series.dtype).startswith("Sparse") else series


def _table_of_columns(columns: Mapping[Any, Any]) -> pa.Table:
    several = {
        name: hasattr(values, "__len__") and not isinstance(values, str | bytes | Mapping)
        for name, values in columns.items()
    }
    one = next((str(name) for name, has_several in several.items() if not has_several), None)
    if one is not None:
        other = next((str(name) for name, has_several in several.items() if has_several), None)
        if other is None:  # a row, which is no record because a value is a mapping
            nested = next((str(name) for name, value in columns.items() if isinstance(value, Mapping)), one)
            raise SchemaError(f"Column {nested!r} holds a mapping. Pass a plain value.", nested)
        raise SchemaError(
            f"Column {other!r} has several values, but column {one!r} has one. For a single row, pass one value for {other!r}; "
            f"for a table, pass a list or array for {one!r}.",
            other,
        )
    table = {str(name): values_to_arrow_column(str(name), values) for name, values in columns.items()}
    check_column_lengths({name: len(values) for name, values in table.items()})
    return pa.table(table)


def values_to_arrow_column(name: str, values: Any) -> pa.Array | pa.ChunkedArray:
    """Convert values to a column. Raises SchemaError if they have no common type."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    # pandas' marks of what is missing stand in lists and arrays of objects; NaN in an array of numbers stays NaN.
    has_marks = not isinstance(values, np.ndarray) or values.dtype == object
    try:
        try:
            return pa.array(values, from_pandas=has_marks)
        except OverflowError:  # from 2^63 on
            return pa.array(values, pa.uint64(), from_pandas=has_marks)
    except UnicodeEncodeError as error:
        raise SchemaError(
            f"Column {name!r} holds an unpaired surrogate ({error.object[error.start : error.end]!r}), which is not valid text. Remove it, "
            "for example with text.encode(errors='ignore').decode().",
            name,
        ) from error
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise SchemaError(
            f"The values of column {name!r} have no common Arrow type ({one_line_error_text(error)}). Convert them to one type, or drop the column.",
            name,
        ) from error


def _of_array(X: Any, estimator: Any) -> Rows:
    from sklearn.utils import check_array

    if isinstance(X, list | tuple):
        array = _opened(X, lambda: np.asarray(X, dtype=object) if _is_mixed(X) else np.asarray(X))
    else:
        array = X
    if not hasattr(array, "dtype") and not hasattr(array, "__array__") and not hasattr(array, "__array_interface__"):
        raise InvalidArgument("X", X, ACCEPTED)
    try:
        array = check_array(
            array, dtype=None, accept_sparse="csr", ensure_all_finite=False, estimator=estimator, input_name="X"
        )
    except ValueError as error:  # in the words of scikit-learn, whose users know them
        raise InvalidArgument("X", X, because=one_line_error_text(error).removesuffix(".")) from error
    names = [f"x{i}" for i in range(array.shape[1])]
    if not isinstance(array, np.ndarray):
        return _of_sparse(array, names)
    table = pa.table({name: values_to_arrow_column(name, _column(array, i)) for i, name in enumerate(names)})
    return _of_table(table, is_named=False)


def _column(array: Any, i: int) -> Any:
    column = array[:, i]
    return column.tolist() if column.dtype.kind in "US" else column


def _is_mixed(X: Any) -> bool:
    """Return whether numpy would convert numbers to text because some cells are text."""
    return (
        bool(X)
        and all(isinstance(row, list | tuple) for row in X)
        and np.asarray(X[0], dtype=object).ndim == 1
        and any(isinstance(value, str) for value in X[0])
    )


def _of_sparse(matrix: Any, names: list[str]) -> Rows:
    """Convert a sparse matrix, made dense slice by slice."""
    n_rows = matrix.shape[0]
    step = max(1, min(SLICE_ROWS, SLICE_CELLS // max(1, len(names))))
    schema = pa.schema([(name, pa.from_numpy_dtype(matrix.dtype)) for name in names])

    def batches() -> Iterator[pa.RecordBatch]:
        for first in range(0, n_rows, step):
            dense = np.asfortranarray(matrix[first : first + step].toarray())
            yield pa.RecordBatch.from_arrays([pa.array(dense[:, i]) for i in range(len(names))], schema=schema)

    return Rows(schema, batches(), is_named=False, n_rows=n_rows)
