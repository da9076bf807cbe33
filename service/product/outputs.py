"""Output files of commands: local, or in an object store named by the same kind of address as inputs."""

import re
import secrets
import tempfile
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Self, TypeVar

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from learners.errors import SourceError, one_line_error_text, redact_uri_secrets
from learners.passes.sources.file_opening import DATABASES, uri_filesystem
from learners.passes.sources.source_files import store_error_reason
from service.requests.problems import InvalidRequest
from storage.files.atomic_files import draft_file_path, write_file_atomically

Output = Path | str
# Whose files appear when they are whole; elsewhere a file is written under another name first.
OBJECT_STORES = ("s3", "gcs", "abfs")
_PIECE = 8 << 20
CSV = ".csv"
SUFFIXES = {"", ".parquet", ".pq", CSV}
Item = TypeVar("Item")
Found = TypeVar("Found")


@dataclass(frozen=True)
class Stored:
    """A file of an object store: its address as given, and its path there."""

    address: str
    filesystem: pafs.FileSystem
    path: str

    def exists(self) -> bool:
        """Return whether the file exists; `SourceError` if the store does not answer or has no such bucket."""
        try:
            bucket = self.path.split("/")[0]
            if self.filesystem.type_name in OBJECT_STORES and not _is_there(self.filesystem, bucket):
                raise SourceError(
                    self.address, f"cannot be written: the bucket {bucket!r} does not exist. Create it first."
                )
            return _is_there(self.filesystem, self.path)
        except (OSError, pa.ArrowException) as error:
            raise self._refused(error) from error

    def put(self, draft: Path) -> None:
        """Upload a complete file."""
        is_atomic = self.filesystem.type_name in OBJECT_STORES
        aside = self.path if is_atomic else f"{self.path}.{secrets.token_hex(4)}.partial"
        try:
            # In one call: an interruption between two pieces would publish the first ones.
            here = pafs.LocalFileSystem()
            pafs.copy_files(str(draft), aside, here, self.filesystem, chunk_size=_PIECE, use_threads=False)
            if not is_atomic:
                self.filesystem.move(aside, self.path)
        except (OSError, pa.ArrowException) as error:
            if not is_atomic:
                with suppress(OSError, pa.ArrowException):
                    self.filesystem.delete_file(aside)
            raise self._refused(error) from error

    def _refused(self, error: Exception) -> SourceError:
        return SourceError(
            self.address, store_error_reason(error) or f"cannot be written ({one_line_error_text(error)})."
        )


def _is_there(filesystem: pafs.FileSystem, path: str) -> bool:
    return bool(filesystem.get_file_info(path).type != pafs.FileType.NotFound)


def output_destination(output: Output) -> Path | Stored:
    """Return a local path or the file of a store; InvalidRequest if it cannot be written, SourceError if the address is
    invalid.
    """
    text = str(output)
    shown = redact_uri_secrets(text)
    if "://" not in text:
        if address := re.match(r"[a-z][a-z0-9+.-]+:", Path(text).parts[0] if text else ""):
            raise InvalidRequest(
                f"{text} begins with {address[0]!r} and is not a local path. Use a path, or, for a single file, pass the address as text.",
                path=text,
            )
        return Path(output)
    if text.partition("://")[0].lower() in DATABASES:
        raise InvalidRequest(f"{shown} is a database, but rows can only be written to files. Name a file.", path=shown)
    filesystem, path = uri_filesystem(text)
    if isinstance(filesystem, pafs.LocalFileSystem):
        return Path(path)
    if "http" in filesystem.type_name:
        raise InvalidRequest(
            f"{shown} is on a web server, which is read-only. Use a local path, or a store such as s3://.",
            path=shown,
        )
    return Stored(text, filesystem, path)


def output_file_name(output: Output) -> PurePosixPath:
    """Return the name of the output file, without the options of an address."""
    place = output_destination(output)
    return PurePosixPath(PurePosixPath(place.path if isinstance(place, Stored) else place).name)


def check_output_free(output: Output, *, replace: bool) -> None:
    """Refuse an address that cannot be written (SourceError, InvalidRequest), and an existing file unless `replace`."""
    if output_destination(output).exists() and not replace:
        shown = redact_uri_secrets(str(output))
        raise InvalidRequest(f"{shown} already exists. Choose another name, or replace it with --force.", path=shown)


@contextmanager
def output_draft(output: Output, *, replace: bool) -> Iterator[Path]:
    """Provide a private local path to write to; its content appears at the output in one piece on exit.

    Raises InvalidRequest or SourceError like `check_output_free`; or if the store refuses the file.
    """
    place = output_destination(output)
    if isinstance(place, Path):
        with write_file_atomically(place, replace=replace, mode=None) as draft:
            yield draft
        return
    with draft_file_path(Path(tempfile.gettempdir()), "output") as draft:
        yield draft
        check_output_free(output, replace=replace)
        place.put(draft)


def write_output(output: Output, make: Callable[[], str | bytes], *, replace: bool) -> int:
    """Write the result of `make` to a file that appears only when complete, after `check_output_free`; return its
    bytes.
    """
    check_output_free(output, replace=replace)
    text = make()
    content = text.encode() if isinstance(text, str) else text
    with output_draft(output, replace=replace) as draft:
        draft.write_bytes(content)
    return len(content)


def check_rows_output(output: Output, *, replace: bool) -> None:
    """Refuse a file whose suffix is not that of Parquet or CSV, or that exists and must not be replaced (InvalidRequest)."""
    name, shown = output_file_name(output), redact_uri_secrets(str(output))
    if name.suffix.lower() not in SUFFIXES:
        raise InvalidRequest(
            f"{shown} must be a Parquet or CSV file: name it {name.with_suffix('.parquet')} or {name.with_suffix('.csv')}. To get "
            f"{name.suffix}, convert it afterwards, for example with pandas.read_parquet.",
            path=shown,
        )
    check_output_free(output, replace=replace)


def decode_dictionary_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Decode dictionary columns to their values: a text file may have been read as dictionaries."""
    columns = [each.dictionary_decode() if pa.types.is_dictionary(each.type) else each for each in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


class RowWriter:
    """Writes rows batch by batch to a draft, as CSV or Parquet by the name of the output.

    Values repeat in the `copied` data columns, but rarely in answers.
    """

    def __init__(self, draft: Path, output: Output, copied: Collection[str] = ()) -> None:
        self.draft, self.copied = draft, frozenset(copied)
        self.is_csv = output_file_name(output).suffix.lower() == CSV
        self._writer: pq.ParquetWriter | pacsv.CSVWriter | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of a batch; InvalidRequest if CSV cannot hold a column."""
        if self.is_csv:
            plain = decode_dictionary_columns(batch)
            try:
                if self._writer is None:
                    self._writer = pacsv.CSVWriter(self.draft, plain.schema)
                self._writer.write_batch(plain)
            except pa.ArrowException as error:  # lists, above all
                reason = one_line_error_text(error)
                raise InvalidRequest(f"CSV cannot hold these rows ({reason}). Name the output .parquet.") from error
            return
        if self._writer is None:
            # A dictionary of probabilities took .34 of the .46 s of writing a million rows, and a fifth more bytes.
            repeating = [f.name for f in batch.schema if f.name in self.copied or not pa.types.is_floating(f.type)]
            self._writer = pq.ParquetWriter(self.draft, batch.schema, compression="zstd", use_dictionary=repeating)
        self._writer.write_batch(_nulls_out_of_dictionaries(batch))


def _nulls_out_of_dictionaries(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Encode again what has a null among the values of its dictionary, which Parquet cannot store: a Hive column with a
    null partition has one.
    """
    columns = [
        each.dictionary_decode().dictionary_encode().cast(each.type)
        if pa.types.is_dictionary(each.type) and each.dictionary.null_count
        else each
        for each in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def ordered_thread_map(work: Callable[[Item], Found], items: Iterable[Item], threads: int) -> Iterator[Found]:
    """Map a function over items on threads and yield results in order, at most two items per thread ahead."""
    with ThreadPoolExecutor(threads, thread_name_prefix="rows") as pool:
        waiting: deque[Future[Found]] = deque()
        try:
            for item in items:
                waiting.append(pool.submit(work, item))
                if len(waiting) >= 2 * threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for unfinished in waiting:
                unfinished.cancel()
