"""The layout of a workspace: the names in it, where everything is kept, and who may read it."""

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
SECRETS = ("control.sqlite*", "monitoring/secret", "monitoring/.records/*.json")

_LEFT = "then run fewpass doctor --repair, which removes it. It belongs to no version any more."


def checked_resource_name(kind: str, name: str) -> str:
    """The name itself, if it is safe as a folder and in a URL.

    Raises InvalidName unless it is 1 to 64 of ``a-z 0-9 . _ -`` and starts with a letter or a digit.
    """
    if not is_valid_name(name):
        raise InvalidName(kind, name, "1 to 64 of a-z, 0-9, '.', '_' and '-', beginning with a letter or a digit")
    return name


def is_valid_name(name: object) -> bool:
    """Whether something of that name can exist at all. What is looked up comes from a URL: any text."""
    # fullmatch and not match with "$": that would let a trailing newline through.
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def is_valid_version_number(number: int) -> bool:
    """Whether a version of that number can exist at all: columns of databases hold no greater ones."""
    return 1 <= number < 1 << 31


def require_valid_name(kind: str, name: str) -> str:
    """The name itself; NotFound if nothing can have it."""
    if not is_valid_name(name):
        raise NotFound(kind, name)
    return name


def checked_alias(alias: str) -> str:
    """The alias itself, if it cannot be mistaken for a version number or for a word of the API."""
    checked_resource_name("alias", alias)
    if alias.isdigit() or alias in RESERVED_ALIASES:
        raise InvalidName("alias", alias, "a word: digits are version numbers, and 'latest' and 'versions' are taken")
    return alias


@dataclass(frozen=True)
class Layout:
    """Where everything of one workspace is kept, below its root."""

    root: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "root", Path(self.root).absolute())

    @property
    def models(self) -> Path:
        """One folder per model: ``<version>-<sha8>.duckdb``, its ``.arrow`` and ``.sha256``."""
        return self.root / "models"

    @property
    def datasets(self) -> Path:
        """One folder per dataset."""
        return self.root / "datasets"

    @property
    def scratch(self) -> Path:
        """One folder per running job."""
        return self.root / "scratch"

    @property
    def queries(self) -> Path:
        """One Parquet file per query on a database, with the rows that it gave last."""
        return self.root / "queries"

    @property
    def control_path(self) -> Path:
        """The file of the default control database."""
        return self.root / "control.sqlite"

    @property
    def control_url(self) -> str:
        """The URL of the default control database, for `storage.control.control.open_control`."""
        return f"sqlite:///{self.control_path}"

    def model_directory(self, name: str) -> Path:
        """The folder of the model's files."""
        return self.models / checked_resource_name("model", name)

    def dataset_directory(self, dataset: str) -> Path:
        """The folder of what is known of a dataset."""
        return self.datasets / checked_resource_name("dataset", dataset)

    def scratch_directory(self, job_id: str) -> Path:
        """The folder of what a job may lose."""
        return self.scratch / checked_resource_name("job", job_id)

    def job_output(self, job_id: str) -> Path:
        """The Parquet file of rows that a job wrote, kept as long as the job is known."""
        return self.root / "outputs" / f"{checked_resource_name('job', job_id)}.parquet"

    def create(self) -> Layout:
        """Make the folders that are missing and sweep away what killed writers have left; returns itself."""
        create_folder(self.root, 0o700)
        for name in PRIVATE_FOLDERS:
            create_folder(self.root / name, private_file_mode(self.root, 0o770))
        for folder in (self.models, self.datasets, self.scratch, self.queries):
            delete_abandoned_drafts(folder)
        return self


class Temporary(ExitStack):
    """A private folder, its `path`, inside `directory`, until it is closed; that of a process that was killed is swept away.

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
    """Knows a file again: a database that was removed can be written on, and all of it is lost."""

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
        """Raise Unwritable if the file is not the one of the beginning."""
        if self._look() != self._identity:
            reason = (
                "it was removed or replaced while it was open, and what is written now would be lost. Stop all servers of "
                "this workspace, put it back or restore a backup there, and start again."
            )
            raise Unwritable(self.path, reason)

    def close(self) -> None:
        """Nothing is held."""


def private_file_mode(folder: Path, mode: int) -> int:
    """A mode without rights of others, and of the group only where it may write in `folder`: so a workspace is shared."""
    return mode & (0o770 if folder.stat().st_mode & stat.S_IWGRP else 0o700)


def create_private_file(path: Path) -> None:
    """Make an empty file for this user, unless there is one; a disk that refuses is left to whoever writes the file."""
    with suppress(OSError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, private_file_mode(path.parent, 0o660)))


def world_readable_paths(root: Path) -> Iterator[Path]:
    """The workspace if others may enter it, and the secrets in it that they could then read."""
    places = [root, *(path for pattern in SECRETS for path in sorted(root.glob(pattern)))]
    for path in places:
        with suppress(FileNotFoundError):  # SQLite removes its log
            if path.stat().st_mode & stat.S_IRWXO:
                yield path


def delete_model_files(duckdb_path: Path | str) -> None:
    """Remove the files of a version, after its row is gone; those that are missing already are no matter.

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
