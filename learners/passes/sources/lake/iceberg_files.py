"""File access for pyiceberg, limited to the table's file system and folder."""

from __future__ import annotations

from typing import Any

import pyarrow.fs as pafs
from pyiceberg.avro import file as avro_file
from pyiceberg.avro.decoder import StreamingBinaryDecoder
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import StaticTable

from learners.errors import SourceError
from learners.passes.sources.file_access import FileAccess

# The decoder in C reads as many bytes as a manifest says, beyond the end of its memory; this one raises EOFError.
avro_file.new_decoder = StreamingBinaryDecoder


class TableFile(InputFile):
    """A file of the table.

    `path`: on the file system.
    `access`: what may be read, asked before it is opened.
    """

    def __init__(self, filesystem: pafs.FileSystem, path: str, access: FileAccess) -> None:
        super().__init__(path)
        access.require_regular(filesystem, [path])
        self.filesystem = filesystem

    def __len__(self) -> int:
        return int(self.filesystem.get_file_info(self.location).size or 0)

    def exists(self) -> bool:
        """Return whether the file exists."""
        return bool(self.filesystem.get_file_info(self.location).type == pafs.FileType.File)

    def open(self, seekable: bool = True) -> Any:
        """Open the file for reading."""
        del seekable
        return self.filesystem.open_input_file(self.location)


class TableFiles(FileIO):
    """Files below the folder of a table.

    The metadata names all files by absolute location; they are resolved below the folder, even if the table was
    copied. So no metadata can reference another location.

    `place`: the table as requested, for messages.
    `folder`: on the file system.
    `location`: the table's own address, once it is known.
    """

    def __init__(self, filesystem: pafs.FileSystem, place: str, folder: str, location: str, access: FileAccess) -> None:
        super().__init__()
        self.filesystem, self.place, self.access = filesystem, place, access
        self.folder, self.location = folder.rstrip("/"), location.rstrip("/")

    def path(self, location: str) -> str:
        """Return the path of a file on the file system. Raises SourceError if it is outside the table's folder."""
        rest = location.removeprefix(self.location + "/")
        if rest == location or ".." in rest.split("/") or "\0" in rest:
            raise SourceError(self.place, f"has a file outside its folder ({location}). Copy the table.")
        return f"{self.folder}/{rest}"

    def new_input(self, location: str) -> InputFile:
        """Open a file of the table for input."""
        return TableFile(self.filesystem, self.path(location), self.access)

    def new_output(self, location: str) -> OutputFile:
        """Refuse to write: tables are read-only. Raises SourceError."""
        raise SourceError(self.place, f"is only read: {location} is not written.")

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Refuse to delete: tables are read-only. Raises SourceError."""
        raise SourceError(self.place, f"is only read: {location} is not removed.")


def open_iceberg_table(
    filesystem: pafs.FileSystem, place: str, path: str, access: FileAccess
) -> tuple[StaticTable, TableFiles]:
    """Open the table of a metadata file, with its files."""
    metadata = FromInputFile.table_metadata(TableFile(filesystem, path, access))
    files = TableFiles(filesystem, place, path.rpartition("/")[0].rpartition("/")[0], metadata.location, access)
    table = StaticTable(
        identifier=("table", path), metadata=metadata, metadata_location=path, io=files, catalog=NoopCatalog("none")
    )
    return table, files
