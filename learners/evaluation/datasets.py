"""Data sets for comparing learners: files with a class column, and their division into training and test rows."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from learners.errors import EmptyData, InvalidParameter, SchemaError, SourceError, UnknownColumn, columns_setting
from learners.kernels.arrays import Integers
from learners.passes.row_rules import apply_null_class_rule, row_weight_rule
from learners.passes.sources.csv.types import declared_text_types
from learners.passes.sources.file_formats import FORMAT_NAMES, PARQUET, file_format_by_extension
from learners.passes.sources.source import Source
from learners.schema.nominal_forms import plain_nominal_values
from learners.schema.overrides import ALL, ColumnOverride
from learners.schema.schema import Value


@dataclass(frozen=True)
class DataSet:
    """One table: a file, or all files that match a glob or URI."""

    name: str  # the file's name without its ending, or the glob
    path: str
    target: str  # the class column
    content: str  # the first 16 hex digits of the SHA-256 of its bytes, and of what is said of its columns
    n_rows: int
    columns: str = ""  # what is said of its columns, as JSON; empty if nothing is

    @property
    def overrides(self) -> dict[str, Any]:
        """Column overrides of the data set."""
        return json.loads(self.columns) if self.columns else {}

    @property
    def overrides_of_loaded(self) -> dict[str, Any]:
        """Column overrides without those that drop a column, which `load_data_set` leaves out."""
        return {
            name: entry
            for name, entry in self.overrides.items()
            if name == ALL or not ColumnOverride.of(name, entry).drop
        }


@dataclass(frozen=True, eq=False)
class Loaded:
    """A data set in memory."""

    attributes: pa.Table  # every column but the target
    classes: list[Value]  # the distinct classes, sorted
    target: pa.Array  # the class column as strings, integers or booleans
    y: Integers  # (n_rows,) int64: index into `classes`

    def train_table(self, name: str, rows: Integers) -> pa.Table:
        """Return the rows (n,) as a table with the target column under this name."""
        return self.attributes.take(rows).append_column(name, self.target.take(pa.array(rows)))


def find_data_sets(
    paths: Sequence[str | Path], target: str | None = None, columns: Mapping[str, Any] | None = None
) -> list[DataSet]:
    """Find data sets in folders, files, globs and URIs.

    `paths`: folders, each file of which is a data set (the Parquet files, or else all of known formats); files of any format
    that `Source.open` reads; globs and URIs, each of which is one table.
    `target`: the class column of all of them; by default `class`, or else the last column.
    `columns`: settings of columns, as in training. Raises SourceError if a path does not exist or cannot be read, or
    two files have the same name; UnknownColumn if a file lacks the target; InvalidParameter.
    """
    content = json.dumps(columns, sort_keys=True) if columns else ""
    if row_weight_rule(columns) is not None:
        raise InvalidParameter("columns", "weight", because="compare counts each row once: leave the weight out")
    files: list[str] = []
    for path in paths:
        if "://" in str(path) or not Path(path).is_dir():
            files.append(str(path))
            continue
        known = [each for each in sorted(Path(path).iterdir()) if file_format_by_extension(each.name) is not None]
        in_folder = [each for each in known if file_format_by_extension(each.name) == PARQUET] or known
        if not in_folder:
            raise SourceError(str(path), f"is a folder without files of a known format ({FORMAT_NAMES}).")
        files += map(str, in_folder)
    data_sets = [_describe(file, target, content) for file in dict.fromkeys(files)]
    names = [data.name for data in data_sets]
    for data in data_sets:
        if names.count(data.name) > 1:
            raise SourceError(data.path, f"is the second data set named {data.name!r}. Rename one of the files.")
    return data_sets


def _describe(path: str, target: str | None, columns: str) -> DataSet:
    source = _source(path, json.loads(columns) if columns else {})
    names = source.arrow_schema.names
    target = target if target is not None else "class" if "class" in names else names[-1]
    if target not in names:
        raise UnknownColumn(target, names)
    is_file = "://" not in path and Path(path).is_file()
    # Of one file its bytes alone, so that what an earlier run has measured is found again.
    if is_file:
        content = hashlib.sha256(Path(path).read_bytes() + columns.encode())
    else:
        content = hashlib.sha256("".join(map(source.content_sha256, range(len(source.files)))).encode())
        content.update(columns.encode())
    return DataSet(Path(path).stem if is_file else path, path, target, content.hexdigest()[:16], source.n_rows, columns)


def _source(path: str, columns: Mapping[str, Any]) -> Source:
    return Source.open(path, types=declared_text_types(None, columns))


@lru_cache(maxsize=2)
def load_data_set(data: DataSet) -> Loaded:
    """Read a data set. The two most recently read are cached, as trials of one data set follow each other.

    Raises SchemaError if the target has missing values or a type that cannot be classes; SourceError.
    """
    columns = data.overrides
    source = apply_null_class_rule(_source(data.path, columns), data.target, columns)
    dropped = columns.keys() - data.overrides_of_loaded.keys()
    names = [name for name in source.arrow_schema.names if name not in dropped]
    tables = [pa.Table.from_batches([batch]) for batch in source.batches(names)]
    empty = pa.schema([source.arrow_schema.field(name) for name in names]).empty_table()
    # Numbers may have another type in each file.
    table = pa.concat_tables(tables, promote_options="permissive") if tables else empty
    table = table.unify_dictionaries().combine_chunks()
    column = table[data.target]
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.null_count:
        raise SchemaError(
            f"{data.name}: the target {data.target!r} is null in {column.null_count} rows. Remove them, or leave them out: "
            f"{columns_setting({data.target: {'null_class': 'drop'}})}.",
            data.target,
        )
    target = plain_nominal_values(column, data.target)
    classes = sorted(pc.unique(target).to_pylist())
    y = pc.index_in(target, value_set=pa.array(classes, target.type)).to_numpy(zero_copy_only=False).astype(np.int64)
    return Loaded(table.drop_columns([data.target]), classes, target, y)


def stratified_folds(y: Integers, n_folds: int, seed: int) -> list[tuple[Integers, Integers]]:
    """Split rows into shuffled folds with similar class shares, as scikit-learn's StratifiedKFold does.

    A class with fewer rows than folds occurs in only some of them.

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
    """Draw at most `limit` of the rows, ascending; with the same seed, smaller samples are subsets of larger ones, as
    learning curves need.
    """
    if limit is None or limit >= rows.size:
        return rows
    return np.sort(np.random.default_rng(seed).permutation(rows)[:limit])
