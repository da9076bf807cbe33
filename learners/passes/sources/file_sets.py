"""Finding files, what tells one from another, and what is said of their rows."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as slot
from fnmatch import fnmatch
from pathlib import PurePosixPath
from typing import NamedTuple, Protocol

import pyarrow as pa
import pyarrow.fs as pafs

from learners.errors import SourceError, one_line
from learners.kernels.arrays import Integers, Mask
from learners.passes.sources.formats import FORMATS, format_of
from learners.passes.sources.lake.finding import refuse_part_of_table, refuse_tables_below

Path = str | os.PathLike[str]
# What stores say to credentials that are none, have expired, or may not read; S3 tells a HEAD request of the second no more.
REFUSALS = (
    "ACCESS_DENIED",
    "INVALID_ACCESS_KEY",
    "SIGNATURE_DOES_NOT_MATCH",
    "InvalidAccessKeyId",
    "ExpiredToken",
    "HTTP status 400) during HeadObject",
    "HTTP status 403",
    "PERMISSION_DENIED",
    "UNAUTHENTICATED",
)
BUSY = ("SLOW_DOWN", "SlowDown", "HTTP status 503", "SERVICE_UNAVAILABLE", "THROTTLING")


class Bounds(NamedTuple):
    """The least and the greatest value of a column, which are null where all are, and the number of nulls."""

    least: pa.Scalar
    greatest: pa.Scalar
    n_null: int


class Content(Protocol):
    """The columns of one file, and how their rows are read."""

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns."""

    @property
    def types_sha256(self) -> str:
        """What beside the bytes of the file decides on the values: types that were found or told. Empty if nothing does."""

    def bounds(self, column: str) -> Bounds | None:
        """Between which values a column lies, if that is known before the rows are read."""

    def batches(
        self, filesystem: pafs.FileSystem, file: SourceFile, row_group: int, columns: Sequence[str] | None
    ) -> Iterator[pa.RecordBatch]:
        """Rows of a row group, of at most 65,536 at a time; the columns may come in another order."""


@dataclass(frozen=True)
class SourceFile:
    """A file, what identifies its content, and how that is read.

    `part` says by which conditions on its rows, if not all are meant. `content_sha256` is of a sample of its bytes, or of all
    of them where somebody has read them; empty where `footer_sha256` is of all of them already. `columns` are those that
    count, where other files of the table have others: of some this one may have missing cells.
    """

    path: str
    size: int
    mtime_ns: int | None
    n_rows: int
    row_groups: tuple[int, ...]
    footer_sha256: str
    content: Content = slot(compare=False, repr=False)
    kind: str = slot(compare=False, repr=False)  # the format, as `formats.FORMATS` names it
    part: tuple[str, ...] = ()
    content_sha256: str = ""
    columns: tuple[str, ...] = ()
    # What a user wants to know of columns that were found to be text.
    hints: Mapping[str, str] = slot(default_factory=dict, compare=False, repr=False)

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns."""
        return self.content.arrow_schema


@dataclass(frozen=True)
class Fragment:
    """A piece of work: one row group, or a slice of a table in memory."""

    file: int
    row_group: int
    n_rows: int


class Condition(Protocol):
    """What rows must fulfil to be read."""

    @property
    def text(self) -> str:
        """The condition in words; equal words mean equal rows."""

    @property
    def columns(self) -> Sequence[str]:
        """Columns that the condition reads."""

    def mask(self, rows: pa.RecordBatch, file: SourceFile, fragment: Fragment, offset: int) -> Mask:
        """(n_rows,) bool; `rows` begin at row `offset` of the fragment, of which none is missing."""

    def implies(self, text: str) -> Condition | None:
        """The condition with that text, if this one implies it; by default it implies none but itself."""
        return self if text == self.text else None


class RowWeight(Condition, Protocol):
    """How often each row counts; as a condition it leaves out rows that count zero times."""

    @property
    def column(self) -> str:
        """Where the weights are."""

    def counts(self, rows: pa.RecordBatch) -> Integers:
        """(n_rows,) int64: how often each row counts."""


def of_store(error: Exception) -> str | None:
    """What to say of an error that is the store's and not the file's; None if it is none."""
    text = one_line(error)
    if any(word in text for word in REFUSALS):
        return f"is refused by its store ({text}). Renew the credentials if they have expired, or have them allow it."
    if any(word in text for word in BUSY):  # pyarrow has asked again for seconds by then
        return f"is in a store that answers too slowly ({text}). Try again later, or ask it for less at the same time."
    if "NETWORK_CONNECTION" in text:
        return f"is in a store that cannot be reached ({text}). Check the network, and the endpoint (AWS_ENDPOINT_URL)."
    return None


def file_identity(file: SourceFile) -> str:
    """SHA-256 of path, size, time of the last change, footer and content; then, of a part of the rows, its conditions in JSON."""
    content: list[object] = [file.path, file.size, file.mtime_ns, file.footer_sha256]
    content += [file.content_sha256] if file.content_sha256 else []
    content += [file.columns] if file.columns else []
    digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    return f"{digest}|{json.dumps(file.part)}" if file.part else digest


def whole_and_part(identity: str) -> tuple[str, tuple[str, ...] | None]:
    """The identity of the whole file, and the conditions of the part; None for those of a form that is not ours.

    So were they written before they were JSON, and could not always be told apart: what they identify is counted again.
    """
    whole, is_part, text = identity.partition("|")
    if not is_part:
        return whole, ()
    try:
        return whole, tuple(map(str, json.loads(text)))
    except ValueError:
        return whole, None


def type_family(arrow_type: pa.DataType) -> str:
    """Types of one family may differ from file to file (int32 and double, string and dictionary of string)."""
    if pa.types.is_dictionary(arrow_type):
        family = type_family(arrow_type.value_type)
        return family if family in ("text", "bool") else f"dictionary of {family}"  # nominal, unlike its plain form
    if pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type) or pa.types.is_string_view(arrow_type):
        return "text"
    if pa.types.is_boolean(arrow_type):
        return "bool"
    if arrow_type in (pa.int8(), pa.uint8()):
        return "small integer"
    if pa.types.is_integer(arrow_type) or pa.types.is_floating(arrow_type) or pa.types.is_decimal(arrow_type):
        return "number"
    if pa.types.is_temporal(arrow_type):
        return "time"
    if pa.types.is_null(arrow_type):
        return "null"
    return f"unsupported ({arrow_type})"


def expanded(filesystem: pafs.FileSystem, path: str) -> tuple[list[str], str | None]:
    """The files that a path, folder or glob names, sorted; and in words which others of a folder are not read.

    In a folder these are its Parquet files; else the files of the one other format that it holds.

    Raises SourceError if there is nothing, or the files of a folder have several formats.
    """
    try:
        info = filesystem.get_file_info(path)
        if info.type == pafs.FileType.NotFound and any(mark in path for mark in "*?["):
            base = str(PurePosixPath(path.split("*")[0].split("?")[0].split("[")[0] + "x").parent)
            n_parts = len(PurePosixPath(path).parts)
            # A folder of tables may hold much else below, which is not looked at where it cannot match.
            is_deep = "**" in path or n_parts > len(PurePosixPath(base).parts) + 1
            below = filesystem.get_file_info(pafs.FileSelector(base, recursive=is_deep, allow_not_found=True))
            is_hidden = (".", "_") if not PurePosixPath(path).name.startswith((".", "_")) else ()
            prefix = "" if base not in (".", "") or path.startswith(".") else "./"
            found = sorted(
                info.path
                for info in below
                if info.type == pafs.FileType.File
                and not info.base_name.startswith(is_hidden)
                and fnmatch(info.path, prefix + path)
                and ("**" in path or len(PurePosixPath(info.path).parts) == n_parts)
            )
            if not found:
                raise SourceError(path, "matches no file.")
            for folder in {str(PurePosixPath(entry).parent) for entry in found}:
                refuse_part_of_table(filesystem, folder)
            return found, None
        if info.type == pafs.FileType.Directory:
            return _in_folder(filesystem, path)
    except (OSError, pa.ArrowException) as error:
        raise SourceError(path, of_store(error) or f"cannot be listed ({one_line(error)}).") from error
    if info.type == pafs.FileType.Unknown:
        raise SourceError(path, "is neither a file nor a folder, but a pipe, a socket or a device.")
    if info.type != pafs.FileType.File:
        raise SourceError(path, "no such file or folder.")
    return [path], None


def _in_folder(filesystem: pafs.FileSystem, path: str) -> tuple[list[str], str | None]:
    found: dict[str, list[str]] = {}
    below = filesystem.get_file_info(pafs.FileSelector(path, recursive=True))
    refuse_tables_below(path, [entry.path for entry in below])
    refuse_part_of_table(filesystem, path, takes_itself=False)
    for entry in below:
        kind = format_of(entry.path)
        if entry.type == pafs.FileType.File and kind is not None and not entry.base_name.startswith((".", "_")):
            found.setdefault(kind, []).append(entry.path)
    if not found:
        raise SourceError(path, f"is a folder without files of a known format ({', '.join(FORMATS)}).")
    if "Parquet" not in found and len(found) > 1:
        raise SourceError(
            path, f"is a folder with {' and '.join(sorted(found))} files. Name those you mean, as in *.csv."
        )
    read = sorted(found.get("Parquet") or next(iter(found.values())))
    others = sorted({path for own in found.values() for path in own} - set(read))
    if not others:
        return read, None
    names = ", ".join(PurePosixPath(each).name for each in others[:3]) + (", …" if len(others) > 3 else "")
    return read, f"{path}: only the Parquet files are read, not {names}. Name all files to read them as one table."


def common_schema(schemas: Sequence[tuple[str, pa.Schema]]) -> pa.Schema:
    """The columns of files that have the same names, and must agree in type families; in the order that most files have."""
    _, first = schemas[0]
    if len(set(first.names)) < len(first.names):
        name = next(name for name in first.names if first.names.count(name) > 1)
        raise SourceError(schemas[0][0], f"has two columns named {name!r}. Rename one.")
    fields: dict[str, pa.Field] = {field.name: field for field in first}
    origin = dict.fromkeys(first.names, schemas[0][0])
    distinct = dict[pa.Schema, str]()  # of a thousand files, most have one schema
    for path, schema in schemas:
        distinct.setdefault(schema, path)
    for schema, path in distinct.items():
        for field in schema:
            known, new = type_family(fields[field.name].type), type_family(field.type)
            if known == "null":
                fields[field.name], origin[field.name] = field, path
            elif new not in ("null", known):
                raise SourceError(
                    path,
                    f"column {field.name!r} is {field.type} here but {fields[field.name].type} in {origin[field.name]}. "
                    "Make the types agree.",
                )
    orders = Counter(tuple(schema.names) for _, schema in schemas)  # of equally frequent ones the first counts
    return pa.schema([fields[name] for name in orders.most_common(1)[0][0]])
