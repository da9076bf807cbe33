"""JSON Lines: blocks of whole lines, and columns with both text and numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.json as pajson

from learners.errors import SourceError
from learners.passes.sources.source_files import arrow_type_family

BLOCK_BYTES = 4 << 20
# What Arrow says where a column holds values of two types.
CHANGED = re.compile(r"Column\(/([^/)]*)\) changed from (\w+) to (\w+)")


def whole_lines(stream: pa.NativeFile) -> Iterator[bytes]:
    """Yield blocks that end at a line end."""
    rest = b""
    while block := stream.read(BLOCK_BYTES):
        lines, line_break, begun = block.rpartition(b"\n")
        if not line_break:
            rest += block
            continue
        if (rest + lines).strip():
            yield rest + lines + b"\n"
        rest = begun
    if rest.strip():
        yield rest


def json_lines_table(block: bytes, text: set[str], options: pajson.ParseOptions | None = None) -> pa.Table:
    """Parse some lines; columns that mix numbers with text or booleans are read as text and added to `text`."""
    while True:
        try:
            return pajson.read_json(pa.BufferReader(block), _one_block(block), options)
        except pa.ArrowInvalid as error:
            changed = CHANGED.search(str(error))
            if changed is None or changed[1] in text or not {changed[2], changed[3]} <= {"string", "number", "boolean"}:
                raise
            text.add(changed[1])
            block = _with_texts(block, text)


def _with_texts(block: bytes, names: Collection[str]) -> bytes:
    """Quote the numbers and booleans of the given columns."""
    lines = []
    for line in block.splitlines():
        if line.strip():
            row = json.loads(line)
            quoted = {name: json.dumps(value) for name, value in row.items() if name in names and _is_plain(value)}
            lines.append(json.dumps(row | quoted))
    return "\n".join(lines).encode() + b"\n"


def _is_plain(value: object) -> bool:
    return isinstance(value, int | float)


def _one_block(block: bytes) -> pajson.ReadOptions:
    return pajson.ReadOptions(block_size=max(len(block), 1), use_threads=False)


def common_block_fields(schemas: Sequence[pa.Schema], path: str) -> pa.Schema:
    """Return the columns of all blocks; a column that is text in some blocks and another plain type in others is text."""
    fields: dict[str, pa.Field[Any]] = {}
    for schema in schemas:
        for field in schema:
            known = fields.setdefault(field.name, field)
            families = {arrow_type_family(known.type), arrow_type_family(field.type)}
            if "text" in families and families <= {"text", "time", "number", "bool"}:
                fields[field.name] = field.with_type(pa.string())
                continue
            try:
                fields[field.name] = pa.unify_schemas(
                    [pa.schema([known]), pa.schema([field])], promote_options="permissive"
                ).field(0)
            except pa.ArrowException:
                raise SourceError(
                    path,
                    f"column {field.name!r} is {known.type} in some lines and {field.type} in others. Make them agree.",
                ) from None
    return pa.schema(list(fields.values()))
