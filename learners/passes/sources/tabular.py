"""Files that are read from end to end: text, and formats that `pyarrow.dataset` reads."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as slot
from datetime import time

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.dataset as pads
import pyarrow.fs as pafs
import pyarrow.json as pajson

from learners.errors import SourceError, columns_setting, one_line_error_text
from learners.passes.sources.csv.header import Header, read_csv_header
from learners.passes.sources.csv.lines import refuse_non_utf8_lines
from learners.passes.sources.csv.types import (
    FALSE,
    NULLS,
    TRUE,
    TextType,
    Types,
    declared_csv_dialect,
    declared_type_and_reading,
)
from learners.passes.sources.file_formats import CSV, FORMATS, JSON_LINES, PACKED
from learners.passes.sources.json_lines import common_block_fields, json_lines_table, whole_lines
from learners.passes.sources.parquet import require_file_size
from learners.passes.sources.source_files import (
    BATCH_ROWS,
    Bounds,
    Hint,
    SourceFile,
    arrow_type_family,
    store_error_reason,
)
from learners.schema.reading import LATER_FIELDS, Dialect, Reading

BLOCK_BYTES = 4 << 20
QUOTES = {"*": {"quote": "'"}}
MAGIC = {"gzip": b"\x1f\x8b", "bz2": b"BZh", "zstd": b"\x28\xb5\x2f\xfd", "lz4": b"\x04\x22\x4d\x18"}


@dataclass(frozen=True)
class TabularContent:
    """Columns of a file that is read sequentially."""

    kind: str  # a name in the table of formats
    arrow_schema: pa.Schema  # with the types that were found, or told
    header: Header | None = None  # of CSV
    readings: Mapping[str, Reading] = slot(default_factory=dict)  # how values of some columns of CSV are written
    # Texts that are values of some column, though they stand for missing ones elsewhere.
    words: frozenset[str] = frozenset()
    options: Dialect = slot(default_factory=Dialect)  # what a user says of how files of CSV are written

    @property
    def types_sha256(self) -> str:
        """Hash of the inferred types and readings, which the file does not contain."""
        if not FORMATS[self.kind].is_text:
            return ""
        readings = {
            name: [reading.missing, reading.decimal, reading.thousands, *reading.nulls, *_later(reading)]
            for name, reading in self.readings.items()
        }
        options = replace(self.options, columns_of="").options()
        more = [json.dumps(each, sort_keys=True) for each in (readings, options) if each]
        types = json.dumps([(field.name, str(field.type)) for field in self.arrow_schema])
        return hashlib.sha256(types.encode()).hexdigest() + "".join(more)

    def with_types(self, types: Mapping[str, pa.DataType]) -> TabularContent:
        """Return the columns with changed types."""
        fields = [field.with_type(types.get(field.name, field.type)) for field in self.arrow_schema]
        return replace(self, arrow_schema=pa.schema(fields))

    def bounds(self, column: str) -> Bounds | None:
        """Return None: bounds are unknown before the rows are read."""
        del column
        return None

    def batches(
        self, filesystem: pafs.FileSystem, file: SourceFile, row_group: int, columns: Sequence[str] | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield all rows."""
        del row_group
        names = self.arrow_schema.names if columns is None else list(columns)
        if not FORMATS[self.kind].is_text:
            fragment = arrow_file_format(self.kind).make_fragment(file.path, filesystem)
            yield from fragment.to_batches(columns=names, batch_size=BATCH_ROWS, use_threads=False, batch_readahead=1)
            return
        _, stream = open_hashed_stream(filesystem, file.path)
        with stream:
            for batch in self._read(stream, names) if self.kind == CSV else self._json(stream):
                for first in range(0, batch.num_rows, BATCH_ROWS):
                    yield batch.slice(first, BATCH_ROWS).select(names)

    def _read(self, stream: pa.NativeFile, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        kinds = {name: self.arrow_schema.field(name).type for name in names if name in self.readings}
        for batch in self._csv(stream, names):
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            columns |= {name: _as_written(columns[name], self.readings[name], kind) for name, kind in kinds.items()}
            yield pa.RecordBatch.from_arrays(list(columns.values()), list(columns)) if kinds else batch

    def _csv(self, stream: pa.NativeFile, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        types = {name: self.arrow_schema.field(name).type for name in names}
        types |= {name: pa.string() for name in self.readings if name in types}
        assert self.header is not None
        # As Parquet's text is read: counting and encoding look at each value once a batch.
        types |= {name: pa.dictionary(pa.int32(), kind) for name, kind in types.items() if pa.types.is_string(kind)}
        return iter(
            pacsv.open_csv(
                self.header.plain(stream, ""),
                read_options=self.header.read_options(BLOCK_BYTES),
                parse_options=self.header.parse_options(),
                convert_options=csv_convert_options(types, names, self.words),
            )
        )

    def _json(self, stream: pa.NativeFile) -> Iterator[pa.RecordBatch]:
        explicit = pajson.ParseOptions(explicit_schema=self.arrow_schema, unexpected_field_behavior="ignore")
        for block in whole_lines(stream):
            table = json_lines_table(block, set(), explicit)
            yield from table.combine_chunks().to_batches()


def _later(reading: Reading) -> list[Mapping[str, str]]:
    """Return the options of a reading that earlier releases lacked; file identities without them are unchanged."""
    options = {name: mark for name, mark in reading.options().items() if name in LATER_FIELDS}
    return [options] if options else []


def _as_written(column: pa.DictionaryArray, reading: Reading, kind: pa.DataType) -> pa.Array:
    """Convert a text column to a type."""
    if pa.types.is_string(kind):
        return reading.without_marks(column.dictionary).take(column.indices).dictionary_encode()
    words = pc.utf8_trim_whitespace(reading.plain(column.dictionary))
    if pa.types.is_null(kind):
        return pa.nulls(len(column))
    if pa.types.is_time(kind):  # Arrow has no cast; it reads seconds only from whole times
        words = pc.if_else(pc.equal(pc.utf8_length(words), 5), pc.binary_join_element_wise(words, "00", ":"), words)
        return pa.array([None if word is None else time.fromisoformat(word) for word in words.to_pylist()], kind).take(
            column.indices
        )
    return words.cast(kind).take(column.indices)


def arrow_file_format(kind: str) -> pads.FileFormat:
    """Return the pyarrow format of files that contain their types."""
    name = FORMATS[kind].arrow
    assert name is not None
    make: Callable[[], pads.FileFormat] = getattr(pads, name)
    return make()


def csv_convert_options(
    types: Mapping[str, pa.DataType], names: Sequence[str], words: Collection[str]
) -> pacsv.ConvertOptions:
    """Return pyarrow's CSV options: empty, NA, NULL, NaN and similar texts are missing, except those in `words` and
    quoted ones.
    """
    return pacsv.ConvertOptions(
        column_types=dict(types),
        include_columns=list(names),
        null_values=[null for null in NULLS if null not in words],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        true_values=TRUE,
        false_values=FALSE,
    )


class Hashed(io.RawIOBase):
    """Byte stream that hashes the bytes read."""

    def __init__(self, stream: pa.NativeFile) -> None:
        self.stream, self.digest = stream, hashlib.sha256()
        self.has_quotes = False

    def readable(self) -> bool:
        """Return True: the stream is readable."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Read the next bytes."""
        block: bytes = self.stream.read(None if size < 0 else size)
        self.digest.update(block)
        self.has_quotes = self.has_quotes or b'"' in block
        return block

    def rest(self) -> str:
        """Read the remaining bytes and return the SHA-256 of all."""
        while self.read(BLOCK_BYTES):
            pass
        return self.digest.hexdigest()


def open_hashed_stream(filesystem: pafs.FileSystem, path: str) -> tuple[Hashed, pa.NativeFile]:
    """Open a file as a hashed stream of its bytes, and a stream of the decompressed content."""
    hashed = Hashed(filesystem.open_input_stream(path, compression=None))
    plain = pa.PythonFile(hashed, mode="r")
    codec = compression_by_extension(path)
    return hashed, plain if codec is None else pa.CompressedInputStream(plain, codec)


def inspect_tabular_file(filesystem: pafs.FileSystem, path: str, kind: str, types: Types | None = None) -> SourceFile:
    """Read a file once for its columns with types, number of rows and SHA-256.

    `kind`: a name in the table of formats, other than Parquet.
    `types`: types of columns of text files that are not to be found.
    Raises SourceError if the file is not what its name says, or is damaged.
    """
    look = {CSV: _csv, JSON_LINES: _json}.get(kind)
    try:
        info = filesystem.get_file_info(path)
        size = require_file_size(path, info)
        n_rows, digest, content, hints = look(filesystem, path, types or {}) if look else _typed(filesystem, path, kind)
    except SourceError:
        raise
    except (OSError, ValueError, pa.ArrowException) as error:
        if kind == CSV and "invalid UTF8" in str(error):
            with open_hashed_stream(filesystem, path)[1] as stream:
                refuse_non_utf8_lines(stream, path)
        raise SourceError(
            path,
            store_error_reason(error)
            or _wrong_packing(filesystem, path)
            or f"cannot be read as {kind} ({one_line_error_text(error)}).",
        ) from error
    return SourceFile(path, size, info.mtime_ns, n_rows, (n_rows,), digest, content, kind, hints=hints)


def _wrong_packing(filesystem: pafs.FileSystem, path: str) -> str | None:
    """Describe a file whose compression does not match its extension; None if it matches, or the file cannot be read."""
    codec = compression_by_extension(path)
    if codec is None:
        return None
    try:
        with filesystem.open_input_stream(path, compression=None) as stream:
            begin = stream.read(4)
    except (OSError, pa.ArrowException):
        return None
    if begin.startswith(MAGIC[codec]):
        return None
    other = next((name for name, magic in MAGIC.items() if begin.startswith(magic)), None)
    found = "is not compressed" if other is None else f"is compressed by {other}"
    return f"{found}, although its name says {codec}. Rename the file."


Found = tuple[int, str, TabularContent, dict[str, Hint]]  # rows, SHA-256, content and hints


def _typed(filesystem: pafs.FileSystem, path: str, kind: str) -> Found:
    """Inspect a file that contains its types; all bytes are hashed, because its footer does not cover every value."""
    fragment = arrow_file_format(kind).make_fragment(path, filesystem)
    n_rows, schema = fragment.count_rows(), fragment.physical_schema
    hashed = Hashed(filesystem.open_input_stream(path, compression=None))
    return n_rows, hashed.rest(), TabularContent(kind, schema.remove_metadata()), {}


def _csv(filesystem: pafs.FileSystem, path: str, types: Types) -> Found:
    options = declared_csv_dialect(types)
    with open_hashed_stream(filesystem, path)[1] as stream:
        header = read_csv_header(stream, path, options)
    names = header.names
    hashed, stream = open_hashed_stream(filesystem, path)
    known = {name: declared_type_and_reading(types, name) for name in names}
    finders = {name: TextType(reading) for name, (kind, reading) in known.items() if kind is None}
    words = frozenset(word for _, reading in known.values() for word in reading.words)
    nulls, quoted, is_packed = pa.array(NULLS), set(), compression_by_extension(path) is not None
    n_rows, last = 0, None
    with stream:
        reader = pacsv.open_csv(
            header.plain(stream, path),
            read_options=header.read_options(BLOCK_BYTES),
            parse_options=header.parse_options(),
            convert_options=csv_convert_options(dict.fromkeys(names, pa.string()), names, words),
        )
        for batch in reader:
            n_rows += batch.num_rows
            last = batch.column(len(names) - 1)[-1].as_py() if batch.num_rows else last
            for name, column in zip(names, batch.columns, strict=True):
                may_hold_nulls = bool(words) or is_packed or hashed.has_quotes  # else none is left in the texts
                if may_hold_nulls and pc.any(pc.is_in(column, value_set=nulls)).as_py():
                    quoted.add(name)
                if name in finders:
                    finders[name].see(column, name in quoted)
        digest = hashed.rest()
    if last is not None and ("\n" in last or "\r" in last) and not _ends_in_quote(filesystem, path, header):
        raise SourceError(
            path,
            f"has an unclosed quote in its last row, {n_rows:,}, so all following lines would be one value. Close it, or treat quotes as "
            f"characters: {columns_setting({'*': {'quote': ''}})}.",
        )
    fields = [(name, finders[name].type if kind is None else kind) for name, (kind, _) in known.items()]
    hints = {name: hint for name, finder in finders.items() if (hint := finder.hint(name)) is not None}
    if all(len(name) > 1 and name[0] == name[-1] == "'" for name in names):
        hints[names[0]] = Hint(
            f"the column names are in single quotes, and values may be too. To read them without quotes: {columns_setting(QUOTES)}.",
            QUOTES,
        )
    for name, hint in hints.items():
        if (expected := known[name][1].expected) in ("number", "time"):
            raise SourceError(path, f"the model needs {expected}s in column {name!r}. {hint.text}")
    readings = {}
    for name, kind in fields:
        reading = known[name][1]
        if name in quoted:
            reading = replace(reading, nulls=_nulls_of(kind, reading, words))
        if reading != Reading():
            readings[name] = reading
    return n_rows, digest, TabularContent(CSV, pa.schema(fields), header, readings, words, options), hints


def _ends_in_quote(filesystem: pafs.FileSystem, path: str, header: Header) -> bool:
    """Return whether the last value of a CSV file ends with a quote."""
    end = b""
    with open_hashed_stream(filesystem, path)[1] as stream:
        plain = header.plain(stream, path)
        while block := plain.read(BLOCK_BYTES):
            end = (end + block)[-64:]
    return end.rstrip(b"\r\n").endswith((header.dialect.quote or '"').encode())


def _nulls_of(kind: pa.DataType, reading: Reading, words: frozenset[str]) -> tuple[str, ...]:
    """Return the texts that mean missing in columns of this type; quoted ones are text, unless a model says otherwise."""
    if not pa.types.is_string(kind) or reading.expected == "text":
        return tuple(null for null in NULLS if null not in reading.words)
    return ("", *words)


def _json(filesystem: pafs.FileSystem, path: str, types: Types) -> Found:
    hashed, stream = open_hashed_stream(filesystem, path)
    schemas: list[pa.Schema] = []
    n_rows, text = 0, set[str]()
    with stream:
        for block in whole_lines(stream):
            if not schemas and block.lstrip()[:1] == b"[":
                stem, _, ending = path.rpartition(".")
                lines = f"{stem}.jsonl" if ending != "jsonl" else f"{stem}.lines.jsonl"  # never the file that jq reads
                raise SourceError(
                    path, f"is a single JSON list. Write one object per line: jq -c '.[]' {path} > {lines}"
                )
            table = json_lines_table(block, text)
            n_rows += table.num_rows
            schemas.append(table.schema)
        digest = hashed.rest()
    if not schemas:
        raise SourceError(path, "contains no JSON object.")
    fields = [
        (field.name, declared_type_and_reading(types, field.name)[0] or field.type)
        for field in common_block_fields(schemas, path)
    ]
    mixed = text | {name for name, kind in fields if pa.types.is_string(kind) and _has_others(schemas, name)}
    hints = {
        name: Hint(f"{name!r} contains numbers or booleans in some lines and text in others: all are read as text.")
        for name in sorted(mixed)
    }
    return n_rows, digest, TabularContent(JSON_LINES, pa.schema(fields)), hints


def _has_others(schemas: Sequence[pa.Schema], name: str) -> bool:
    """Return whether a text column is numeric or boolean in some blocks."""
    kinds = [schema.field(name).type for schema in schemas if name in schema.names]
    return any(arrow_type_family(kind) in ("number", "bool") for kind in kinds)


def compression_by_extension(path: str) -> str | None:
    """Return the compression of a file by its extension, or None."""
    return next((codec for packed, codec in PACKED.items() if path.lower().endswith(packed)), None)
