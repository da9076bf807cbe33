"""The registry: named models and their immutable versions, each added with its files and aliases atomically."""

from __future__ import annotations

import fcntl
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from storage.control import tables
from storage.control.audit import record_act
from storage.control.control import Control, bump_control_generation
from storage.control.paging import DEFAULT_LIMIT, MOST_NAMES, Page, page_of_rows
from storage.errors import Conflict, LeaseLost, NotFound, OutcomeUnknown, StorageError
from storage.files.atomic_files import create_folder, disk_errors_as_unwritable
from storage.files.workspace_layout import (
    Layout,
    checked_resource_name,
    delete_model_files,
    is_valid_version_number,
    require_valid_name,
)
from storage.models.aliases import alias_names, aliased_version, set_alias_in_transaction

CHAMPION = "champion"
LATEST = "latest"

_MODELS, _VERSIONS, _ALIASES = tables.models, tables.versions, tables.aliases
_LOCK = ".publishing.lock"
_OURS = re.compile(r"\d+-[0-9a-f]{8}\.(duckdb|arrow|sha256)")


@dataclass(frozen=True)
class ModelVersion:
    """One immutable version of a model."""

    name: str  # with the version unique; that number comes from `reserve_version`
    version: int
    learner: str
    parameters: Mapping[str, object]
    dataset: str | None  # its name; it may have been deleted since
    metrics: Mapping[str, Any]  # measured when it was trained; one that is not finite is stored as None
    job_id: str | None  # the job that made it; one job makes at most one version of a model
    files: tuple[Mapping[str, object], ...]  # that it was learned from
    n_rows: int
    sha256: str  # of the DuckDB file
    duckdb_path: Path  # absolute here; relative to the workspace in the database
    arrow_path: Path
    tags: Mapping[str, str] = field(default_factory=dict)  # free words, the only part that may change
    created_at: datetime | None = None  # aware, UTC; set by `add_version`


@dataclass(frozen=True)
class RegisteredModel:
    """A model in the registry: its largest version number, the number of versions, and the version of each alias.

    `created_at` is when the first version was reserved; aware, UTC.
    """

    name: str
    latest_version: int
    n_versions: int
    aliases: Mapping[str, int]
    created_at: datetime


def reserve_version(control: Control, name: str) -> int:
    """Reserve the next version number of a model, which is never given out again.

    It is reserved before the files are written, because their names contain it. A job that dies leaves a gap, never a
    clash. Raises InvalidName.
    """
    checked_resource_name("model", name)
    with control.writing() as connection:
        update = sa.update(_MODELS).where(_MODELS.c.name == name).values(last_version=_MODELS.c.last_version + 1)
        grown = update.returning(_MODELS.c.last_version)
        number = connection.execute(grown).scalar_one_or_none()
        if number is None:
            connection.execute(sa.insert(_MODELS).values(name=name, last_version=0, created_at=tables.utc_now()))
            number = connection.execute(grown).scalar_one()
    return int(number)


def add_version(
    control: Control, version: ModelVersion, *, aliases: Iterable[str] = (), reason: str = ""
) -> ModelVersion:
    """Register a version whose files are published; if the same job repeats it, return the registered version.

    The aliases point at it from then on, with the reason why; in the same transaction. Raises Conflict if the number was
    not reserved, or is registered already by another job.
    """
    version = replace(version, created_at=tables.utc_now())
    with control.writing() as connection:
        if version.job_id is not None:
            row = find_job_version_row(connection, version.name, version.job_id)
            if row is not None:
                return model_version_from_row(control, row)
        label = f"{version.name}@{version.version}"
        reserved = connection.execute(
            sa.select(_MODELS.c.last_version).where(_MODELS.c.name == version.name)
        ).scalar_one_or_none()
        if reserved is None or not 1 <= version.version <= reserved:
            raise Conflict("model version", label, "has a number that was not reserved. Use reserve_version.")
        if find_version_row(connection, version.name, version.version) is not None:
            raise Conflict(
                "model version", label, "is already registered, and versions never change. Reserve a new number."
            )
        connection.execute(sa.insert(_VERSIONS).values(**_values(control, version)))
        record_act(connection, "version published", label, job=version.job_id)
        for alias in aliases:
            set_alias_in_transaction(connection, version.name, alias, version.version, reason)
        bump_control_generation(connection)
        return model_version_from_row(control, resolve_version_row(connection, version.name, version.version))


def find_model_version(control: Control, reference: str) -> ModelVersion:
    """Return the current version of "name", "name@3" or "name@alias"; NotFound if it does not exist."""
    name, _, version = reference.partition("@")
    return get_version(control, name, version or None)


def get_version(control: Control, name: str, ref: str | int | None = None) -> ModelVersion:
    """Return a version of a model by its number, an alias, or "latest" (the largest number).

    None is the champion or, without one, the latest. Raises NotFound with kind "model" if the model has no version
    at all, else with kind "model version".
    """
    with control.reading() as connection:
        row = resolve_version_row(connection, name, ref)
    return model_version_from_row(control, row)


def resolve_version_row(connection: Connection, name: str, ref: str | int | None) -> tables.Row:
    """Return the row of `get_version`, inside a larger transaction."""
    require_valid_name("model", name)
    query = sa.select(sa.func.max(_VERSIONS.c.version)).where(_VERSIONS.c.name == name)
    latest = connection.execute(query).scalar_one()
    if latest is None:
        raise _no_model(connection, name)
    if ref is None:
        number = aliased_version(connection, name, CHAMPION) or latest
    elif ref == LATEST:
        number = latest
    elif isinstance(ref, int) or (ref.isascii() and ref.isdigit() and len(ref) < 10):
        number = int(ref)
    else:
        number = aliased_version(connection, name, ref)
    row = find_version_row(connection, name, number) if number is not None and is_valid_version_number(number) else None
    if row is None:
        known = alias_names(connection, name)
        raise NotFound("model version", f"{name}@{ref}", [f"{name}@{alias}" for alias in known])
    return row


def list_models(control: Control, limit: int = DEFAULT_LIMIT, cursor: str | None = None) -> Page[RegisteredModel]:
    """Return a page of models with a version, by name; InvalidCursor if the cursor is from another list."""
    latest, n_versions = sa.func.max(_VERSIONS.c.version), sa.func.count()
    columns = _MODELS.c.name, latest.label("latest_version"), n_versions.label("n_versions"), _MODELS.c.created_at
    query = (
        sa.select(*columns)
        .join(_VERSIONS, _VERSIONS.c.name == _MODELS.c.name)
        .group_by(_MODELS.c.name, _MODELS.c.created_at)
    )
    with control.reading() as connection:
        rows = page_of_rows(connection, query, _MODELS.c.name, limit, cursor)
        pointers: dict[str, dict[str, int]] = {row.name: {} for row in rows.items}
        query = sa.select(_ALIASES).where(_ALIASES.c.name.in_(pointers)).order_by(_ALIASES.c.alias)
        for pointer in connection.execute(query):
            pointers[pointer.name][pointer.alias] = pointer.version
    return rows.of(lambda row: RegisteredModel(**row._mapping, aliases=pointers[row.name]))


def default_version_created_at(control: Control) -> Mapping[str, datetime]:
    """Return, by name, the creation time of the version that each model's bare name refers to."""
    newest = _VERSIONS.alias("newest")
    latest = sa.select(sa.func.max(newest.c.version)).where(newest.c.name == _VERSIONS.c.name).scalar_subquery()
    champion = (_ALIASES.c.name == _VERSIONS.c.name) & (_ALIASES.c.alias == CHAMPION)
    query = (
        sa.select(_VERSIONS.c.name, _VERSIONS.c.created_at)
        .outerjoin(_ALIASES, champion)
        .where(_VERSIONS.c.version == sa.func.coalesce(_ALIASES.c.version, latest))
    )
    with control.reading() as connection:
        return {row.name: row.created_at for row in connection.execute(query)}


def list_model_versions(
    control: Control, name: str, limit: int = DEFAULT_LIMIT, cursor: str | None = None
) -> Page[ModelVersion]:
    """Return a page of a model's versions, newest first; NotFound if it has no version, InvalidCursor."""
    with control.reading() as connection:
        query = sa.select(_VERSIONS).where(_VERSIONS.c.name == require_valid_name("model", name))
        rows = page_of_rows(connection, query, _VERSIONS.c.version, limit, cursor, newest_first=True)
        if not rows.items and cursor is None:
            raise _no_model(connection, name)
    return rows.of(partial(model_version_from_row, control))


def store_version_tag(
    control: Control,
    name: str,
    version: int,
    tag: str,
    value: str | None,
    check: Callable[[ModelVersion], None] | None = None,
) -> ModelVersion:
    """Set one tag of a version, or remove it with None; the others stay.

    Raises NotFound without such a version, or tag to remove, and what `check` raises within the transaction.
    """
    with control.writing() as connection:
        row = resolve_version_row(connection, name, version)
        if check is not None:
            check(model_version_from_row(control, row))
        tags = dict(row.tags)
        if value is None and tag not in tags:
            raise NotFound("tag", tag)
        tags = {key: text for key, text in (tags | {tag: value}).items() if text is not None}
        chosen = (_VERSIONS.c.name == name) & (_VERSIONS.c.version == version)
        connection.execute(sa.update(_VERSIONS).where(chosen).values(tags=tags))
        record_act(connection, "tag removed" if value is None else "tag set", f"{name}@{version}", tag=tag)
        return model_version_from_row(control, resolve_version_row(connection, name, version))


def find_version_row(connection: Connection, name: str, version: int) -> tables.Row | None:
    """Return the row of a version, or None."""
    query = sa.select(_VERSIONS).where(_VERSIONS.c.name == name, _VERSIONS.c.version == version)
    return connection.execute(query).one_or_none()


def find_job_version_row(connection: Connection, name: str, job_id: str) -> tables.Row | None:
    """Return the row of the version that a job has made, or None."""
    query = sa.select(_VERSIONS).where(_VERSIONS.c.name == name, _VERSIONS.c.job_id == job_id)
    return connection.execute(query).one_or_none()


def _no_model(connection: Connection, name: str) -> NotFound:
    return NotFound("model", name, connection.scalars(sa.select(_VERSIONS.c.name).distinct().limit(MOST_NAMES)))


def nonfinite_metrics_as_null(metrics: Mapping[str, object]) -> dict[str, object]:
    """Replace non-finite metrics, which are undefined, by None (JSON null)."""
    return {name: None if isinstance(x, float) and not math.isfinite(x) else x for name, x in metrics.items()}


def _values(control: Control, version: ModelVersion) -> dict[str, object]:
    return vars(version) | {
        "parameters": dict(version.parameters),
        "metrics": nonfinite_metrics_as_null(version.metrics),
        "files": [dict(file) for file in version.files],
        "tags": dict(version.tags),
        "duckdb_path": control.relative(version.duckdb_path),
        "arrow_path": control.relative(version.arrow_path),
    }


def model_version_from_row(control: Control, row: tables.Row) -> ModelVersion:
    """Convert a row of `tables.versions` to a `ModelVersion` with absolute paths."""
    paths = {name: control.absolute(row._mapping[name]) for name in ("duckdb_path", "arrow_path")}
    return ModelVersion(**dict(row._mapping) | paths | {"files": tuple(row.files)})


@contextmanager
def version_publishing_lock(folder: Path) -> Iterator[None]:
    """Hold a lock while a version's files may exist without its row; the kernel releases it however the process ends.

    A missing folder of the model is created (Unwritable).
    """
    create_folder(folder)
    with disk_errors_as_unwritable(folder):
        lock = (folder / _LOCK).open("a")
    with lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield


def register_model_version(
    control: Control,
    version: ModelVersion,
    *,
    aliases: Iterable[str] = (),
    reason: str = "",
    check: Callable[[], object] = lambda: None,
) -> ModelVersion:
    """Add a version whose files are published and point aliases at it; on failure no row, alias or file remains.

    `check` is called as late as can be; what it raises stops the registration. Returns the version as registered;
    another one if an earlier start of the same job already reserved it.
    """
    try:
        check()
        registered_version = add_version(control, version, aliases=aliases, reason=reason)
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
            delete_model_files(version.duckdb_path)
        raise
    if registered_version.duckdb_path != version.duckdb_path:
        delete_model_files(version.duckdb_path)
    return registered_version


def find_job_model_version(control: Control, name: str, job_id: str) -> ModelVersion | None:
    """Return the version of a model that a job has already registered, or None."""
    with control.reading() as connection:
        row = find_job_version_row(connection, name, job_id)
    return None if row is None else model_version_from_row(control, row)


def abandoned_version_files(control: Control, layout: Layout, *, is_removing: bool) -> tuple[Path, ...]:
    """Return the files of versions without a row that no process is publishing, left by a killed process.

    When removing, only those go that have the name of a version's file.
    """
    abandoned: list[Path] = []
    for folder in sorted(path for path in layout.models.iterdir() if path.is_dir() and not path.name.startswith(".")):
        with _unless_publishing(folder) as is_alone:
            if is_alone:
                known = _known(control, folder.name)
                files = [path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")]
                left = sorted(path for path in files if path.stem not in known)
                abandoned += left
                for path in left if is_removing else ():
                    if _OURS.fullmatch(path.name):
                        path.unlink(missing_ok=True)
    return tuple(abandoned)


@contextmanager
def _unless_publishing(folder: Path) -> Iterator[bool]:
    """Yield True if no process is publishing in a folder; later publishers wait."""
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
    """Return the version registered under the number; read in a write transaction, which waits for any of unknown
    outcome.
    """
    with control.writing() as connection:
        row = find_version_row(connection, version.name, version.version)
    return None if row is None else model_version_from_row(control, row)
