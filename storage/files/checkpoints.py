"""What a pass has counted so far, in one file that is replaced whole."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pyarrow as pa

from storage.files.workspace_layout import publish

Note = dict[str, list[int]]
_NOTE = b"fewpass"
_DIGEST_BYTES = 32


class CheckpointFile:
    """A table and a note, as an Arrow stream with its SHA-256 before it; the first save makes the file and its folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> tuple[pa.Table, Note] | None:
        """What was saved last; None if there is nothing, or not a byte of it can be believed."""
        try:
            content = memoryview(self.path.read_bytes())
        except FileNotFoundError:
            return None
        digest, body = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        if hashlib.sha256(body).digest() != bytes(digest):
            return None
        table = pa.ipc.open_stream(pa.py_buffer(body)).read_all()
        return table, json.loads(table.schema.metadata[_NOTE])

    def save(self, table: pa.Table, note: Note) -> None:
        """Replace what was saved; a reader finds the old content or the new one. Unwritable if the disk refuses."""
        noted = table.replace_schema_metadata({**(table.schema.metadata or {}), _NOTE: json.dumps(note)})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, noted.schema) as writer:
            writer.write_table(noted)
        body = sink.getvalue()
        with publish(self.path, replace=True) as draft, draft.open("wb") as file:
            file.write(hashlib.sha256(body).digest())
            file.write(body)
