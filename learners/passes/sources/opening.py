"""Files as one table: each opened by its format, with the columns of its folders, and of one shape where their columns differ."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs

from learners.errors import SourceError
from learners.passes.sources.content import identified, with_values
from learners.passes.sources.csv.types import Types, common_type, dialect_of, reading_of, type_of
from learners.passes.sources.file_sets import SourceFile, type_family
from learners.passes.sources.formats import TEXT, format_of
from learners.passes.sources.parquet import read_footer
from learners.schema.reading import Reading

if TYPE_CHECKING:
    from learners.passes.sources.tabular import Kind, TabularContent

# Folders as Hive and Spark write them: `day=2026-01-01/part-0.parquet`.
FOLDER = re.compile(r"([\w%][^=]*)=(.*)", re.DOTALL)
NULL = "__HIVE_DEFAULT_PARTITION__"


def opened_files(filesystem: pafs.FileSystem, paths: Sequence[str], types: Types) -> list[SourceFile]:
    """The files, with the columns of their folders.

    `types`: types of columns of CSV and JSON lines, and how they are written. Raises SourceError.
    """
    files = _agreeing([_opened(filesystem, path, types) for path in paths])
    added = _of_folders(files, types)
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


def _of_folders(files: Sequence[SourceFile], types: Types) -> list[dict[str, pa.Scalar[Any]]]:
    """The values that the folders of each file add to its own columns, with a common type for each name.

    Raises SourceError if the folders of some files have a name that those of others have not.
    """
    own = [set(file.arrow_schema.names) for file in files]
    texts = [
        {name: value for name, value in folder_values(file.path).items() if name not in columns}
        for file, columns in zip(files, own, strict=True)
    ]
    names = list(dict.fromkeys(name for text in texts for name in text))
    for name in names:
        lacking = next((i for i, text in enumerate(texts) if name not in text and name not in own[i]), None)
        if lacking is not None:
            raise SourceError(
                files[lacking].path,
                f"has no column {name!r}, and lies in no folder {name}=…, as other files of the data set do.",
            )
    kinds = {}
    for name in names:
        kind, reading = reading_of(types, name)
        kinds[name] = kind or type_of(list(dict.fromkeys(text[name] for text in texts if name in text)), reading)
    return [{name: _scalar(value, kinds[name]) for name, value in text.items()} for text in texts]


def _scalar(value: str | None, kind: pa.DataType) -> pa.Scalar[Any]:
    if value is None:
        return pa.scalar(None, kind)
    return pa.scalar(value if pa.types.is_string(kind) else value.strip()).cast(kind)


def one_shape(files: Sequence[SourceFile], types: Types) -> tuple[list[SourceFile], list[str]]:
    """The files with the columns that count; one that lacks some has missing cells there.

    `types`: which columns are dropped, and by what rule others count where files differ: those of any file, of all, of
    the first.
    Returns the files, of which one that has other columns by itself is known as another, and the names of the columns.
    Raises SourceError if files differ, and nothing is said of that.
    """
    of_files = [file.arrow_schema.names for file in files]
    found = list(dict.fromkeys(name for names in of_files for name in names))
    sets = [set(names) for names in of_files]
    if all(names == sets[0] for names in sets):
        return list(files), found
    rule = dialect_of(types).columns_of
    if rule in ("first", "intersection"):
        found = [name for name in of_files[0] if rule == "first" or all(name in names for names in sets)]
    if not found:
        raise SourceError(files[0].path, "has no column in common with the other files.")
    if not rule:
        _check_agree(files, sets, types, found)
    nulls = {name: pa.scalar(None, _type_of(name, files)) for name in found}
    shaped = []
    for file, names in zip(files, sets, strict=True):
        added = {name: null for name, null in nulls.items() if name not in names}
        shaped.append(replace(with_values(file, added), columns=() if names == set(found) else tuple(found)))
    return shaped, found


def _check_agree(files: Sequence[SourceFile], sets: Sequence[set[str]], types: Types, found: Sequence[str]) -> None:
    dropped = {name for name, known in types.items() if isinstance(known, Reading) and known.is_dropped}
    for name in found:
        lacking = [file.path for file, names in zip(files, sets, strict=True) if name not in names]
        if lacking and name not in dropped:
            holding = [file.path for file, names in zip(files, sets, strict=True) if name in names]
            more = f" (nor have {len(lacking) - 1} other files)" if len(lacking) > 1 else ""
            option = json.dumps({"*": {"columns_of": "union"}})
            raise SourceError(
                lacking[0],
                f"has no column {name!r}{more}, which {holding[0]} has. Say in columns which count: {option} takes those of any "
                f'file, with missing cells where one has none, "intersection" those of all, "first" those of the first; or drop '
                f"this one: {json.dumps({name: 'drop'}, ensure_ascii=False)}.",
            )


def _type_of(name: str, files: Sequence[SourceFile]) -> pa.DataType:
    """The type of a column in the first file that has values of it; that of nulls, if nobody can learn from it."""
    for file in files:
        if name in file.arrow_schema.names:
            kind = file.arrow_schema.field(name).type
            kind = kind.value_type if pa.types.is_dictionary(kind) else kind
            if not type_family(kind).startswith(("null", "unsupported")):
                return kind
    return pa.null()
