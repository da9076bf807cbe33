"""The layout of a workspace: valid names, paths and file permissions."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from storage.errors import InvalidName, NotFound, Unwritable
from storage.files.atomic_files import (
    create_folder,
    delete_abandoned_drafts,
    disk_errors_as_unwritable,
    draft_file_path,
)

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
RESERVED_ALIASES = frozenset({"latest", "versions"})
# The folders right below the workspace that hold rows, models, or what requests have said.
PRIVATE_FOLDERS = ("models", "datasets", "scratch", "outputs", "monitoring", "logs", "workers", "queries")
SECRETS = ("control.sqlite*", "monitoring/secret", "monitoring/.records/*.json", "receipts/*.secret")

_LEFT = "then run fewpass doctor --repair, which removes it. It no longer belongs to a version."


def checked_resource_name(kind: str, name: str) -> str:
    """Return the name if it is safe as a folder and in a URL, else raise InvalidName.

    Raises InvalidName unless it is 1 to 64 of ``a-z 0-9 . _ -`` and starts with a letter or a digit.
    """
    if not is_valid_name(name):
        raise InvalidName(kind, name, "1 to 64 of a-z, 0-9, '.', '_' and '-', beginning with a letter or a digit")
    return name


def is_valid_name(name: object) -> bool:
    """Return whether an item can have that name; looked-up names come from URLs and may be any text."""
    # fullmatch and not match with "$": that would let a trailing newline through.
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def is_valid_version_number(number: int) -> bool:
    """Return whether a version can have that number, which database columns limit."""
    return 1 <= number < 1 << 31


def require_valid_name(kind: str, name: str) -> str:
    """Return the name; NotFound if no item can have it."""
    if not is_valid_name(name):
        raise NotFound(kind, name)
    return name


def checked_alias(alias: str) -> str:
    """Return the alias if it cannot be mistaken for a version number or a word of the API, else raise InvalidName."""
    checked_resource_name("alias", alias)
    if alias.isdigit() or alias in RESERVED_ALIASES:
        raise InvalidName("alias", alias, "a word: digits are version numbers, and 'latest' and 'versions' are taken")
    return alias


@dataclass(frozen=True)
class Layout:
    """Paths of one workspace, below its root."""

    root: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "root", Path(self.root).absolute())

    @property
    def models(self) -> Path:
        """One folder per model: ``<version>-<sha8>.duckdb``, its ``.arrow`` and ``.sha256``."""
        return self.root / "models"

    @property
    def datasets(self) -> Path:
        """Folder with one subfolder per data set."""
        return self.root / "datasets"

    @property
    def scratch(self) -> Path:
        """Folder with one subfolder per running job."""
        return self.root / "scratch"

    @property
    def queries(self) -> Path:
        """Folder with one Parquet file per database query, holding its latest rows."""
        return self.root / "queries"

    @property
    def control_path(self) -> Path:
        """Path of the default control database."""
        return self.root / "control.sqlite"

    @property
    def control_url(self) -> str:
        """URL of the default control database, for `storage.control.control.open_control`."""
        return f"sqlite:///{self.control_path}"

    def model_directory(self, name: str) -> Path:
        """Folder of a model's files."""
        return self.models / checked_resource_name("model", name)

    def dataset_directory(self, dataset: str) -> Path:
        """Folder of a data set's statistics and notes."""
        return self.datasets / checked_resource_name("dataset", dataset)

    def scratch_directory(self, job_id: str) -> Path:
        """Folder of a job's temporary files."""
        return self.scratch / checked_resource_name("job", job_id)

    def job_output(self, job_id: str) -> Path:
        """Parquet file of rows written by a job, kept as long as the job is known."""
        return self.root / "outputs" / f"{checked_resource_name('job', job_id)}.parquet"

    def create(self) -> Layout:
        """Create missing folders, remove the drafts of killed writers, and return self."""
        create_folder(self.root, 0o700)
        for name in PRIVATE_FOLDERS:
            create_folder(self.root / name, private_file_mode(self.root, 0o770))
        for folder in (self.models, self.datasets, self.scratch, self.queries):
            delete_abandoned_drafts(folder)
        return self


class Temporary(ExitStack):
    """A private folder (`path`) inside `directory` until it is closed; that of a killed process is removed later.

    A missing directory is created.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.path = self.enter_context(draft_file_path(directory, "temporary"))
        try:
            create_folder(self.path)
        except BaseException:
            self.close()
            raise


class Witness:
    """Detects the replacement of a file: writes to a database that was removed succeed, and are lost."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._identity = self._look()

    def _look(self) -> tuple[int, int] | None:
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def check(self) -> None:
        """Raise Unwritable if the file was removed or replaced since the start."""
        if self._look() != self._identity:
            reason = (
                "it was removed or replaced while it was open, so new writes would be lost. Stop all servers of this workspace, restore "
                "the file or a backup, and start again."
            )
            raise Unwritable(self.path, reason)

    def close(self) -> None:
        """Do nothing; no resource is held."""


def private_file_mode(folder: Path, mode: int) -> int:
    """Remove the rights of others from a mode, and those of the group unless it may write in `folder`, which shares a
    workspace.
    """
    return mode & (0o770 if folder.stat().st_mode & stat.S_IWGRP else 0o700)


def create_private_file(path: Path) -> None:
    """Create an empty file for this user unless it exists; disk errors are left to the later write."""
    with suppress(OSError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, private_file_mode(path.parent, 0o660)))


def world_readable_paths(root: Path) -> Iterator[Path]:
    """Yield the workspace if others may enter it, and the secrets in it that they could read."""
    places = [root, *(path for pattern in SECRETS for path in sorted(root.glob(pattern)))]
    for path in places:
        with suppress(FileNotFoundError):  # SQLite removes its log
            if path.stat().st_mode & stat.S_IRWXO:
                yield path


def delete_model_files(duckdb_path: Path | str) -> None:
    """Delete the files of a version after its row is deleted; missing files are ignored.

    Raises Unwritable, naming the first file that the disk refuses to remove; the others are removed.
    """
    refused: list[Unwritable] = []
    for suffix in (".sha256", ".arrow", ".duckdb"):
        path = Path(duckdb_path).with_suffix(suffix)
        try:
            with disk_errors_as_unwritable(path, _LEFT):
                path.unlink(missing_ok=True)
        except Unwritable as error:
            refused.append(error)
    if refused:
        raise refused[0]
