"""Data files: their formats, identities, contents and row conditions."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as slot
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs

from learners.errors import SourceError, one_line_error_text
from learners.kernels.arrays import Integers, Mask, read_only_array
from learners.passes.sources.file_formats import PARQUET
from learners.passes.sources.guarded_files import is_local_filesystem

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
BATCH_ROWS = 65_536
NO_ROWS = read_only_array(np.empty(0, np.int64))
IN_MEMORY = "table"  # the kind of a file that is none
_READ_BYTES = 4 << 20


class Bounds(NamedTuple):
    """Minimum and maximum of a column, null if all values are, and the number of nulls."""

    least: pa.Scalar
    greatest: pa.Scalar
    n_null: int


class Hint(NamedTuple):
    """What a user wants to know of a column that was found to be text.

    `columns`: options with which it is read better, by column; `is_unsure`: other options fit as well.
    """

    text: str
    columns: Mapping[str, Mapping[str, object]] = {}
    is_unsure: bool = False


class Content(Protocol):
    """Columns of one file, and access to its rows."""

    @property
    def arrow_schema(self) -> pa.Schema:
        """Columns of the file."""

    @property
    def types_sha256(self) -> str:
        """Hash of the inferred or declared types that affect the values besides the file's bytes; empty if none do."""

    def bounds(self, column: str) -> Bounds | None:
        """Return the bounds of a column, if known without reading the rows."""

    def batches(
        self, filesystem: pafs.FileSystem, file: SourceFile, row_group: int, columns: Sequence[str] | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a row group, at most 65,536 at a time; the columns may be in another order."""


@dataclass(frozen=True)
class SourceFile:
    """A file, its identity, and access to its content.

    `part`: conditions on its rows, if only some are meant. `content_sha256`: of a sample of its bytes, or of all
    if these were read; empty if `footer_sha256` covers all of them. `columns`: those in use, if files of the
    table differ; this file may lack some, which are then missing cells.
    """

    path: str
    size: int
    mtime_ns: int | None
    n_rows: int
    row_groups: tuple[int, ...]
    footer_sha256: str
    content: Content = slot(compare=False, repr=False)
    kind: str = slot(compare=False, repr=False)  # the format, as `FORMATS` names it
    part: tuple[str, ...] = ()
    content_sha256: str = ""
    columns: tuple[str, ...] = ()
    # What a user wants to know of columns that were found to be text.
    hints: Mapping[str, Hint] = slot(default_factory=dict, compare=False, repr=False)
    # `footer_sha256` before the digest of types, folders and deleted rows went into it; empty where none did.
    stored_sha256: str = slot(default="", compare=False, repr=False)
    # What it was when it was opened, see `file_stamp`; None where nobody looks. No part of its identity.
    stamp: tuple[int | str, ...] | None = slot(default=None, compare=False, repr=False)

    @property
    def digests(self) -> tuple[str, ...]:
        """SHA-256 digests that identify the file: of its stored bytes if these are known, and of the form in which it is read."""
        return (self.stored_sha256, self.footer_sha256) if self.stored_sha256 else (self.footer_sha256,)

    @property
    def arrow_schema(self) -> pa.Schema:
        """Columns of the file."""
        return self.content.arrow_schema


@dataclass(frozen=True)
class Fragment:
    """Unit of work: one row group, or a slice of a table in memory."""

    file: int
    row_group: int
    n_rows: int


class Condition(Protocol):
    """Condition that rows must meet to be read."""

    @property
    def text(self) -> str:
        """Text of the condition; equal texts mean equal rows."""

    @property
    def columns(self) -> Sequence[str]:
        """Columns that the condition reads."""

    def mask(self, rows: pa.RecordBatch, file: SourceFile, fragment: Fragment, offset: int) -> Mask:
        """Return the rows that meet the condition, (n_rows,) bool; `rows` are consecutive rows of the fragment,
        starting at `offset`.
        """

    def implies(self, text: str) -> Condition | None:
        """Return the condition with that text, if this one implies it; by default it implies only itself."""
        return self if text == self.text else None

    def left_out(self) -> Mapping[int, int] | None:
        """Return how many rows of each row group do not meet the condition, without groups where all do; None if unknown.

        A condition that knows is one of a single file.
        """
        return None


class RowWeight(Condition, Protocol):
    """Weight of each row; as a condition it excludes rows of weight zero."""

    @property
    def column(self) -> str:
        """Column with the weights."""

    def counts(self, rows: pa.RecordBatch) -> Integers:
        """Return how often each row counts, (n_rows,) int64."""


def store_error_reason(error: Exception) -> str | None:
    """Describe an error caused by the object store instead of the file; None otherwise."""
    text = one_line_error_text(error)
    if any(word in text for word in REFUSALS):
        return f"was refused by its store ({text}). Renew the credentials if they have expired, or grant them access."
    if any(word in text for word in BUSY):  # pyarrow has asked again for seconds by then
        return f"is in a store that answers too slowly ({text}). Try again later, or send fewer requests at a time."
    if "NETWORK_CONNECTION" in text:
        return f"is in a store that cannot be reached ({text}). Check the network, and the endpoint (AWS_ENDPOINT_URL)."
    return None


def file_identity(file: SourceFile) -> str:
    """Return the SHA-256 of path, size, modification time, footer and content; for part of the rows, followed by the
    conditions as JSON.
    """
    content: list[object] = [file.path, file.size, file.mtime_ns, file.footer_sha256]
    content += [file.content_sha256] if file.content_sha256 else []
    content += [file.columns] if file.columns else []
    digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    return f"{digest}|{json.dumps(file.part)}" if file.part else digest


def split_file_identity(identity: str) -> tuple[str, tuple[str, ...] | None]:
    """Split an identity into that of the whole file and the conditions of the part; None for an unknown form.

    These were written before conditions were JSON, and were ambiguous, so their rows are counted again.
    """
    whole, is_part, text = identity.partition("|")
    if not is_part:
        return whole, ()
    try:
        return whole, tuple(map(str, json.loads(text)))
    except ValueError:
        return whole, None


def arrow_type_family(arrow_type: pa.DataType) -> str:
    """Return the family of a type; types of one family may differ between files (int32 and double, string and
    dictionary of string).
    """
    if pa.types.is_dictionary(arrow_type):
        family = arrow_type_family(arrow_type.value_type)
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


def file_with_digest(file: SourceFile) -> SourceFile:
    """Add a digest of everything that the file's values depend on."""
    if not file.content.types_sha256:
        return file
    digest = hashlib.sha256(f"{file.footer_sha256} {file.content.types_sha256}".encode()).hexdigest()
    return replace(file, footer_sha256=digest, stored_sha256=file.stored_sha256 or file.footer_sha256)


def source_file_sha256(filesystem: pafs.FileSystem, file: SourceFile, read: Callable[[int], object]) -> str:
    """Return the SHA-256 of all bytes of a file; `read` is called with the number of bytes just read, and may raise.

    Raises SourceError if the file cannot be read, or has changed since it was opened.
    """
    digest = hashlib.sha256()
    try:
        require_unchanged_file(filesystem, file)
        with filesystem.open_input_stream(file.path, compression=None) as stream:
            while block := stream.read(_READ_BYTES):
                digest.update(block)
                read(len(block))
        require_unchanged_file(filesystem, file)
    except SourceError:
        raise
    except (OSError, ValueError, pa.ArrowException) as error:
        raise SourceError(
            file.path, store_error_reason(error) or f"cannot be read ({one_line_error_text(error)})."
        ) from error
    return digest.hexdigest()


def fragment_rows(
    filesystem: pafs.FileSystem, file: SourceFile, fragment: Fragment, columns: Sequence[str] | None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one fragment of a file; the columns may be in another order.

    Raises SourceError if the file is missing, has changed since it was opened, or is damaged.
    """
    if file.kind == IN_MEMORY:
        yield from file.content.batches(filesystem, file, fragment.row_group, columns)
        return
    n_rows, piece = 0, f"row group {fragment.row_group}" if file.kind == PARQUET else "it"
    try:
        require_unchanged_file(filesystem, file)
        for batch in file.content.batches(filesystem, file, fragment.row_group, columns):
            n_rows += batch.num_rows
            yield batch
        require_unchanged_file(filesystem, file)
    except SourceError:
        raise
    except (OSError, ValueError, pa.ArrowException) as error:
        try:
            require_unchanged_file(filesystem, file)  # it was replaced while it was read, which says more
        except SourceError:
            raise
        except OSError:
            pass  # the store tells nothing of the file either: the first error stands
        where = f"{piece} cannot be read ({one_line_error_text(error)})"
        raise SourceError(
            file.path, store_error_reason(error) or f"{where}. Restore the file from its source."
        ) from error
    if n_rows != fragment.n_rows:
        raise SourceError(
            file.path, f"{piece} has {n_rows} rows instead of {fragment.n_rows}. Restore the file from its source."
        )


def require_unchanged_file(filesystem: pafs.FileSystem, file: SourceFile) -> None:
    """Refuse a file that has changed since it was opened. Raises SourceError."""
    now = filesystem.get_file_info(file.path)
    if now.type != pafs.FileType.File:
        raise SourceError(file.path, "was removed while it was being read. Restore it, or register the data again.")
    is_other = now.size != file.size or (file.mtime_ns is not None and now.mtime_ns != file.mtime_ns)
    if is_other or (file.stamp is not None and file_stamp(filesystem, file.path) != file.stamp):
        raise SourceError(file.path, "has changed since it was opened. Run the command again.")


def file_stamp(filesystem: pafs.FileSystem, path: str) -> tuple[int | str, ...] | None:
    """Return the inode and ctime of a local file, or a store's ETag, which reveal changes that leave size and
    modification time equal.

    Stamps are compared only within one training, so that restoring a file or a `chmod` between trainings does not
    cause recounting. None if the store provides no ETag.
    """
    try:
        if is_local_filesystem(filesystem):
            own = os.stat(path)  # noqa: PTH116
            return own.st_ino, own.st_ctime_ns
        if isinstance(filesystem, pafs.PyFileSystem):
            about = filesystem.handler.fs.info(path)
            tag = about.get("ETag") or about.get("etag")
        else:
            with filesystem.open_input_file(path) as stream:
                tag = stream.metadata().get(b"ETag")
    except (OSError, ValueError, AttributeError, pa.ArrowException):  # of a file that is gone, others tell
        return None
    return None if not tag else (tag.decode() if isinstance(tag, bytes) else str(tag),)


def stamped_file(filesystem: pafs.FileSystem, path: str, read: Callable[[], SourceFile]) -> SourceFile:
    """Return the file described by `read`, checking that it did not change meanwhile. Raises SourceError."""
    stamp = file_stamp(filesystem, path)
    file = replace(read(), stamp=stamp)
    if file_stamp(filesystem, path) != stamp:
        raise SourceError(path, "changed while it was being opened. Run the command again.")
    return file


@dataclass(frozen=True)
class InMemory:
    """A table in memory, divided into slices."""

    table: pa.Table
    types_sha256: ClassVar[str] = ""

    @property
    def arrow_schema(self) -> pa.Schema:
        """Columns of the table."""
        return self.table.schema

    def bounds(self, column: str) -> Bounds | None:
        """Return None: bounds are unknown before the rows are read."""
        del column
        return None

    def batches(
        self, filesystem: pafs.FileSystem, file: SourceFile, row_group: int, columns: Sequence[str] | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a slice."""
        del filesystem
        rows = self.table.slice(sum(file.row_groups[:row_group]), file.row_groups[row_group])
        rows = rows if columns is None else rows.select(list(columns))
        if rows.column_names:
            yield from rows.combine_chunks().to_batches()
