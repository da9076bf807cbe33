"""How a version comes into the registry: with its files and its aliases, or leaving nothing behind."""

from __future__ import annotations

import fcntl
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import sqlalchemy as sa

from storage.control import tables
from storage.control.control import Control
from storage.errors import LeaseLost, OutcomeUnknown, StorageError
from storage.files.workspace_layout import Layout, make_folder, refusals_of_the_disk
from storage.models.model_file import remove_model
from storage.models.models import ModelVersion, add_version, row_of, row_of_job, version_of_row

_VERSIONS = tables.versions
_LOCK = ".publishing.lock"
_OURS = re.compile(r"\d+-[0-9a-f]{8}\.(duckdb|arrow|sha256)")


@contextmanager
def publishing(folder: Path) -> Iterator[None]:
    """While a version's files may be there without its row; the kernel ends this with the process, however it dies.

    A missing folder of the model is created (Unwritable).
    """
    make_folder(folder)
    with refusals_of_the_disk(folder):
        lock = (folder / _LOCK).open("a")
    with lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield


def register(
    control: Control,
    version: ModelVersion,
    *,
    aliases: Iterable[str] = (),
    reason: str = "",
    check: Callable[[], object] = lambda: None,
) -> ModelVersion:
    """Add a version whose files are published, and point aliases at it: all of it, or no row, no alias and no file.

    `check` is called as late as can be; what it raises stops the registration. Returns the version as registered; another
    one if an earlier start of the same job got as far as that.
    """
    try:
        check()
        found = add_version(control, version, aliases=aliases, reason=reason)
    except (OutcomeUnknown, LeaseLost):
        raise  # the files stay: the row may be in, or the worker that has taken over the job may publish these very files
    except BaseException as error:
        try:
            registered = _registered(control, version)
        except StorageError:
            raise error from None  # nobody can say whether it is in: the files stay, and doctor looks at them
        if registered is not None and registered.sha256 == version.sha256:
            return registered  # it is in, and only the answer was lost
        with suppress(OSError):  # of a disk that refuses everything: doctor finds what stays
            remove_model(version.duckdb_path)
        raise
    if found.duckdb_path != version.duckdb_path:
        remove_model(version.duckdb_path)
    return found


def version_of_job(control: Control, name: str, job_id: str) -> ModelVersion | None:
    """The version of a model that a job has registered already, if it has."""
    with control.reading() as connection:
        row = row_of_job(connection, name, job_id)
    return None if row is None else version_of_row(control, row)


def abandoned_files(control: Control, layout: Layout, *, is_removing: bool) -> tuple[Path, ...]:
    """Files of versions that no row names, and that nobody is publishing: a process was killed in between.

    When removing, only those go that have the name of a version's file.
    """
    found: list[Path] = []
    for folder in sorted(path for path in layout.models.iterdir() if path.is_dir() and not path.name.startswith(".")):
        with _unless_publishing(folder) as is_alone:
            if is_alone:
                known = _known(control, folder.name)
                files = [path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")]
                left = sorted(path for path in files if path.stem not in known)
                found += left
                for path in left if is_removing else ():
                    if _OURS.fullmatch(path.name):
                        path.unlink(missing_ok=True)
    return tuple(found)


@contextmanager
def _unless_publishing(folder: Path) -> Iterator[bool]:
    """Whether nobody publishes in a folder; who begins to meanwhile waits."""
    with (folder / _LOCK).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def _known(control: Control, name: str) -> set[str]:
    query = sa.select(_VERSIONS.c.duckdb_path).where(_VERSIONS.c.name == name)
    with control.reading() as connection:
        return {Path(path).stem for path in connection.execute(query).scalars()}


def _registered(control: Control, version: ModelVersion) -> ModelVersion | None:
    """What is registered under the number; asked as a writer, who waits for a transaction whose end nobody has heard."""
    with control.writing() as connection:
        row = row_of(connection, version.name, version.version)
    return None if row is None else version_of_row(control, row)
