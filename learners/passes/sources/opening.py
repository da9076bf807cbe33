"""Files as they are opened: each by its format, with the columns of its folders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pyarrow.fs as pafs

from learners.passes.sources.columns.partitions import partition_values
from learners.passes.sources.content import Content, Partitioned, identified
from learners.passes.sources.csv.types import Types, common_type
from learners.passes.sources.file_sets import SourceFile
from learners.passes.sources.formats import TEXT, format_of
from learners.passes.sources.parquet import read_footer

if TYPE_CHECKING:
    from learners.passes.sources.tabular import Kind, TabularContent


def opened_files(
    filesystem: pafs.FileSystem, paths: Sequence[str], types: Types
) -> tuple[list[SourceFile], list[Content]]:
    """What identifies each file, and what it holds.

    `types`: types of columns of CSV and JSON lines, and how they are written. Raises SourceError.
    """
    found: list[tuple[SourceFile, Content]] = []
    for path in paths:
        kind = format_of(path)
        if kind in (None, "Parquet"):
            found.append(read_footer(filesystem, path))
        else:
            from learners.passes.sources.tabular import (
                inspected,  # pyarrow.dataset imports pandas, where it is installed
            )

            found.append(inspected(filesystem, path, cast("Kind", kind), types))
    files = [file for file, _ in found]
    contents = _agreeing([content for _, content in found])
    added = partition_values(paths, [content.arrow_schema.names for content in contents], types)
    for i, values in enumerate(added):
        if values:
            contents[i] = Partitioned(contents[i], values, files[i].n_rows)
    return [identified(file, content) for file, content in zip(files, contents, strict=True)], contents


def _agreeing(contents: Sequence[Content]) -> list[Content]:
    """Text files whose columns have types of one family: where they differ, a column is text in all of them."""
    text = {i: cast("TabularContent", content) for i, content in enumerate(contents) if content.kind in TEXT}
    found: dict[str, list[pa.DataType]] = {}
    for content in text.values():
        for field in content.arrow_schema:
            found.setdefault(field.name, []).append(field.type)
    common = {name: common_type(types) for name, types in found.items()}
    changed = {name: kind for name, kind in common.items() if kind is not None}
    csv = {i: content.with_types(changed) for i, content in text.items() if content.kind == "CSV"}
    return [csv.get(i, content) for i, content in enumerate(contents)]
