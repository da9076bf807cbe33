"""Columns in the names of folders, as Hive and Spark write them: `day=2026-01-01/part-0.parquet`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from learners.errors import SourceError
from learners.passes.sources.csv.types import reading_of, type_of
from learners.schema.reading import Reading

FOLDER = re.compile(r"([\w%][^=]*)=(.*)", re.DOTALL)
NULL = "__HIVE_DEFAULT_PARTITION__"


def folder_values(path: str) -> dict[str, str | None]:
    """The names and values in the folders right above a file, from the outermost.

    Folders further up, with others between them, belong to whoever has put the table there.
    """
    found: list[tuple[str, str | None]] = []
    for folder in reversed(PurePosixPath(path).parent.parts):
        match = FOLDER.fullmatch(folder)
        if match is None:
            break
        name, value = (_decoded(text) for text in match.groups())
        found.append((name, None if value == NULL else value))
    return dict(reversed(found))


def _decoded(text: str) -> str:
    """Percent signs resolved; a text whose bytes are not UTF-8 stays as it is, so that two of them do not become one."""
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        return text


def partition_values(
    paths: Sequence[str], own: Sequence[Sequence[str]], known: Mapping[str, pa.DataType | Reading] | None = None
) -> list[dict[str, pa.Scalar[Any]]]:
    """The values that the folders of each file add to its columns, with a common type for each name.

    `own`: the columns that each file has itself; they are taken from the file.
    `known`: as of columns of text files.
    Returns list of dict: for each file.
    Raises SourceError if the folders of some files have a name that those of others have not.
    """
    texts = [
        {name: value for name, value in folder_values(path).items() if name not in columns}
        for path, columns in zip(paths, own, strict=True)
    ]
    names = list(dict.fromkeys(name for text in texts for name in text))
    for name in names:
        lacking = next((i for i, text in enumerate(texts) if name not in text and name not in own[i]), None)
        if lacking is not None:
            raise SourceError(
                paths[lacking],
                f"has no column {name!r}, and lies in no folder {name}=…, as other files of the data set do.",
            )
    types = {}
    for name in names:
        kind, reading = reading_of(known or {}, name)
        types[name] = kind or type_of(list(dict.fromkeys(text[name] for text in texts if name in text)), reading)
    return [{name: _scalar(value, types[name]) for name, value in text.items()} for text in texts]


def _scalar(value: str | None, kind: pa.DataType) -> pa.Scalar[Any]:
    if value is None:
        return pa.scalar(None, kind)
    return pa.scalar(value if pa.types.is_string(kind) else value.strip()).cast(kind)
