"""The files of an Iceberg table, for pyiceberg: over the file system of the table, and nowhere else."""

from __future__ import annotations

from typing import Any

import pyarrow.fs as pafs
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import StaticTable

from learners.errors import SourceError
from learners.passes.sources.file_access import FileAccess


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
        """Whether it is there."""
        return bool(self.filesystem.get_file_info(self.location).type == pafs.FileType.File)

    def open(self, seekable: bool = True) -> Any:
        """Its bytes."""
        del seekable
        return self.filesystem.open_input_file(self.location)


class TableFiles(FileIO):
    """Files below the folder of a table.

    The metadata names all files by whole addresses; they are found below the folder, also if it was copied elsewhere. So no
    metadata can lead to another place.

    `place`: the table as it was asked for, for messages.
    `folder`: on the file system.
    `location`: the table's own address, once it is known.
    """

    def __init__(self, filesystem: pafs.FileSystem, place: str, folder: str, location: str, access: FileAccess) -> None:
        super().__init__()
        self.filesystem, self.place, self.access = filesystem, place, access
        self.folder, self.location = folder.rstrip("/"), location.rstrip("/")

    def path(self, location: str) -> str:
        """Where a file is on the file system. Raises SourceError if it is not below the table's folder."""
        rest = location.removeprefix(self.location + "/")
        if rest == location or ".." in rest.split("/"):
            raise SourceError(self.place, f"has a file outside its folder ({location}). Copy the table.")
        return f"{self.folder}/{rest}"

    def new_input(self, location: str) -> InputFile:
        """A file to read."""
        return TableFile(self.filesystem, self.path(location), self.access)

    def new_output(self, location: str) -> OutputFile:
        """Nothing: tables are only read."""
        raise SourceError(self.place, f"is only read: {location} is not written.")

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Nothing: tables are only read."""
        raise SourceError(self.place, f"is only read: {location} is not removed.")


def open_iceberg_table(
    filesystem: pafs.FileSystem, place: str, path: str, access: FileAccess
) -> tuple[StaticTable, TableFiles]:
    """The table of a metadata file, and its files."""
    metadata = FromInputFile.table_metadata(TableFile(filesystem, path, access))
    files = TableFiles(filesystem, place, path.rpartition("/")[0].rpartition("/")[0], metadata.location, access)
    table = StaticTable(
        identifier=("table", path), metadata=metadata, metadata_location=path, io=files, catalog=NoopCatalog("none")
    )
    return table, files
