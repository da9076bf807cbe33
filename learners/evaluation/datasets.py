"""The data sets that learners are compared on: Parquet files with a class column; and which of their rows train and which test."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from learners.errors import EmptyData, SchemaError, SourceError, UnknownColumn
from learners.kernels.arrays import Integers
from learners.passes.sources.source import arrow_type_family
from learners.passes.sources.source_files import file_format_by_extension
from learners.schema.nominal_forms import plain_nominal_values
from learners.schema.schema import Value


@dataclass(frozen=True)
class DataSet:
    """One Parquet file."""

    name: str  # the file's name without its ending
    path: str
    target: str  # the class column
    content: str  # the first 16 hex digits of the SHA-256 of its bytes
    n_rows: int


@dataclass(frozen=True, eq=False)
class Loaded:
    """A data set in memory."""

    attributes: pa.Table  # every column but the target
    classes: list[Value]  # the distinct classes, sorted
    target: pa.Array  # the class column as strings, integers or booleans
    y: Integers  # (n_rows,) int64: index into `classes`

    def train_table(self, name: str, rows: Integers) -> pa.Table:
        """The rows (n,) as a table with the target under its name."""
        return self.attributes.take(rows).append_column(name, self.target.take(pa.array(rows)))


def find_data_sets(paths: Sequence[str | Path], target: str | None = None) -> list[DataSet]:
    """The Parquet files of folders and the files given.

    `paths`: folders (their *.parquet) and files.
    `target`: the class column of all of them; by default `class`, or else the last column.
    Raises SourceError if a path does not exist, is no Parquet, or two files have the same name; UnknownColumn if a file
    lacks the target.
    """
    files: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            in_folder = sorted(path.glob("*.parquet"))
            if not in_folder:
                raise SourceError(str(path), "is a folder without Parquet files (*.parquet).")
            files += in_folder
        elif path.is_file():
            files.append(path)
        else:
            raise SourceError(str(path), "no such file or folder.")
    data_sets = [_describe(file, target) for file in dict.fromkeys(files)]
    names = [data.name for data in data_sets]
    for data in data_sets:
        if names.count(data.name) > 1:
            raise SourceError(data.path, f"is the second data set named {data.name!r}. Rename one of the files.")
    return data_sets


def _describe(path: Path, target: str | None) -> DataSet:
    kind = file_format_by_extension(path.name)
    if kind not in (None, "Parquet"):
        raise SourceError(
            str(path), f"is {kind} by its name, and a comparison reads Parquet. Convert it first, such as with DuckDB."
        )
    try:
        parquet = pq.ParquetFile(path)
        names, n_rows = parquet.schema_arrow.names, parquet.metadata.num_rows
        parquet.close()
    except (OSError, pa.ArrowException) as error:
        raise SourceError(str(path), f"cannot be read as Parquet ({' '.join(str(error).split())[:200]}).") from error
    target = target if target is not None else "class" if "class" in names else names[-1]
    if target not in names:
        raise UnknownColumn(target, names)
    return DataSet(path.stem, str(path), target, hashlib.sha256(path.read_bytes()).hexdigest()[:16], n_rows)


@lru_cache(maxsize=2)
def load_data_set(data: DataSet) -> Loaded:
    """Read a data set; the last two stay in memory, as trials of one set follow each other.

    Raises SchemaError if the target has missing values or a type that cannot be classes.
    """
    arrow_schema = pq.read_schema(data.path)
    text = [
        field.name for field in arrow_schema if arrow_type_family(field.type) == "text" and field.name != data.target
    ]
    table = pq.read_table(data.path, read_dictionary=text).combine_chunks()
    column = table[data.target]
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.null_count:
        raise SchemaError(
            f"{data.name}: the target {data.target!r} is null in {column.null_count} rows. Remove them.", data.target
        )
    target = plain_nominal_values(column, data.target)
    classes = sorted(pc.unique(target).to_pylist())
    y = pc.index_in(target, value_set=pa.array(classes, target.type)).to_numpy(zero_copy_only=False).astype(np.int64)
    return Loaded(table.drop_columns([data.target]), classes, target, y)


def stratified_folds(y: Integers, n_folds: int, seed: int) -> list[tuple[Integers, Integers]]:
    """Shuffled folds with about the same class shares, as scikit-learn's StratifiedKFold makes them.

    A class with fewer rows than folds is in some of them only.

    `y`, (n_rows,) int64: classes.
    `seed`: the same seed gives the same folds.
    Returns list of (train, test): row numbers (n,) int64, ascending.
    Raises EmptyData if there are fewer rows than folds.
    """
    from sklearn.model_selection import KFold, StratifiedKFold

    y = np.asarray(y)
    if y.size < n_folds:
        raise EmptyData(f"{y.size} rows cannot be split into {n_folds} folds.")
    # Where no class has a row for each fold there is nothing to stratify, and scikit-learn refuses.
    is_stratified = np.unique(y, return_counts=True)[1].max() >= n_folds
    splitter = (StratifiedKFold if is_stratified else KFold)(n_folds, shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The least populated class", category=UserWarning)
        return [(train.astype(np.int64), test.astype(np.int64)) for train, test in splitter.split(y, y)]


def nested_row_sample(rows: Integers, limit: int | None, seed: int) -> Integers:
    """At most `limit` of the rows, ascending; for the same seed fewer rows are a subset of more, as a learning curve needs."""
    if limit is None or limit >= rows.size:
        return rows
    return np.sort(np.random.default_rng(seed).permutation(rows)[:limit])
