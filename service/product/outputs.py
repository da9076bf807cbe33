"""Files that a command writes where the user says."""

import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Self, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from service.requests.problems import InvalidRequest
from storage.files.workspace_layout import publish

SUFFIXES = {"", ".parquet", ".pq"}
Item = TypeVar("Item")
Found = TypeVar("Found")


def check_free(output: Path, *, replace: bool) -> None:
    """Refuse an address of another file system, and a file that exists and is not to be replaced.

    Raises
    ------
    InvalidRequest
    """
    if address := re.match(r"[a-z][a-z0-9+.-]+:", output.parts[0] if output.parts else ""):
        raise InvalidRequest(
            f"{output} begins with {address[0]!r}, and only local files are written. Name a path of this machine, and copy the file "
            "from there.",
            path=str(output),
        )
    if output.exists() and not replace:
        raise InvalidRequest(
            f"{output} exists already. Choose another name, or replace it with --force.", path=str(output)
        )


def write_output(output: Path, make: Callable[[], str | bytes], *, replace: bool) -> int:
    """Write what `make` gives to a file that appears when it is complete; returns its bytes.

    Raises
    ------
    InvalidRequest
        As of `check_free`, before anything is made.
    """
    check_free(output, replace=replace)
    made = make()
    content = made.encode() if isinstance(made, str) else made
    with publish(output, replace=replace) as draft:
        draft.write_bytes(content)
    return len(content)


def check_parquet(output: Path, *, replace: bool) -> None:
    """Refuse a file that has the suffix of something else, or exists and is not to be replaced.

    Raises
    ------
    InvalidRequest
    """
    if output.suffix.lower() not in SUFFIXES:
        raise InvalidRequest(
            f"{output} would be a Parquet file: name it {output.with_suffix('.parquet')}. To get {output.suffix}, convert "
            "it afterwards, such as with pandas.read_parquet.",
            path=str(output),
        )
    check_free(output, replace=replace)


def plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows whose dictionaries are their values: a file that holds text may have been read as a dictionary."""
    columns = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


class ParquetDraft:
    """A Parquet file that is written batch by batch; the first batch tells its columns.

    Parameters
    ----------
    path : Path
    copied : collection of str
        Columns of data, in which numbers repeat; those that a model answers hardly do.
    """

    def __init__(self, path: Path, copied: Collection[str] = ()) -> None:
        self.path, self.copied = path, frozenset(copied)
        self._writer: pq.ParquetWriter | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        if self._writer is None:
            # A dictionary of probabilities took .34 of the .46 s of writing a million rows, and a fifth more bytes.
            repeating = [f.name for f in batch.schema if f.name in self.copied or not pa.types.is_floating(f.type)]
            self._writer = pq.ParquetWriter(self.path, batch.schema, compression="zstd", use_dictionary=repeating)
        self._writer.write_batch(batch)


def in_order(work: Callable[[Item], Found], items: Iterable[Item], threads: int) -> Iterator[Found]:
    """What a function makes of items, in their order, on threads; at most two items a thread are ahead."""
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
