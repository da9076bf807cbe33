"""Files as they are opened: each by its format, with the columns of its folders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pyarrow.fs as pafs

from learners.passes.sources.columns.partitions import partition_values
from learners.passes.sources.content import identified, with_values
from learners.passes.sources.csv.types import Types, common_type
from learners.passes.sources.file_sets import SourceFile
from learners.passes.sources.formats import TEXT, format_of
from learners.passes.sources.parquet import read_footer

if TYPE_CHECKING:
    from learners.passes.sources.tabular import Kind, TabularContent


def opened_files(filesystem: pafs.FileSystem, paths: Sequence[str], types: Types) -> list[SourceFile]:
    """The files, with the columns of their folders.

    `types`: types of columns of CSV and JSON lines, and how they are written. Raises SourceError.
    """
    files = _agreeing([_opened(filesystem, path, types) for path in paths])
    added = partition_values(paths, [file.arrow_schema.names for file in files], types)
    return [identified(with_values(file, values)) for file, values in zip(files, added, strict=True)]


def _opened(filesystem: pafs.FileSystem, path: str, types: Types) -> SourceFile:
    kind = format_of(path)
    if kind in (None, "Parquet"):
        return read_footer(filesystem, path)
    from learners.passes.sources.tabular import inspected  # pyarrow.dataset imports pandas, where it is installed

    return inspected(filesystem, path, cast("Kind", kind), types)


def _agreeing(files: Sequence[SourceFile]) -> list[SourceFile]:
    """The files; where text files differ in the family of a column's type, it is text in all of them."""
    found: dict[str, list[pa.DataType]] = {}
    for file in files:
        for field in file.arrow_schema if file.kind in TEXT else ():
            found.setdefault(field.name, []).append(field.type)
    common = {name: common_type(types) for name, types in found.items()}
    changed = {name: kind for name, kind in common.items() if kind is not None}
    return [
        replace(file, content=cast("TabularContent", file.content).with_types(changed)) if file.kind == "CSV" else file
        for file in files
    ]
