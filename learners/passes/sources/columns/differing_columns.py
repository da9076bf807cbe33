"""Files of one table whose columns differ: which of them count."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from learners.errors import SourceError
from learners.passes.sources.content import with_values
from learners.passes.sources.csv.types import Types, dialect_of
from learners.passes.sources.file_sets import SourceFile, type_family
from learners.schema.reading import Reading


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
