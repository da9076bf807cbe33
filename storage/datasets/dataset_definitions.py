"""Registered data sets: named Parquet files with a target and column overrides."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from storage.control import tables
from storage.control.audit import record_act
from storage.control.control import Control
from storage.control.paging import DEFAULT_LIMIT, MOST_NAMES, Page, page_of_rows
from storage.errors import Conflict, NotFound
from storage.files.workspace_layout import checked_resource_name, require_valid_name

_DATASETS = tables.datasets


@dataclass(frozen=True)
class Dataset:
    """A registered data set."""

    name: str
    uris: tuple[str, ...]  # Parquet files, globs, folders or URIs of object stores
    target: str | None = None
    columns: Mapping[str, object] = field(default_factory=dict)  # by name: kind, drop, order, cut points
    created_at: datetime | None = None  # aware, UTC; set when it is registered
    schema_json: str | None = None  # the inferred schema as JSON, once known
    # Those that the last pass found, or else registering it; each with its path, size and fingerprint.
    files: tuple[Mapping[str, object], ...] = ()


def register_dataset(control: Control, dataset: Dataset) -> Dataset:
    """Store a data set and return it as stored; repeating it changes nothing. InvalidName; Conflict with another
    definition.
    """
    checked_resource_name("dataset", dataset.name)
    dataset = replace(dataset, created_at=tables.utc_now())
    with control.writing() as connection:
        row = _row_of(connection, dataset.name)
        if row is None:
            connection.execute(sa.insert(_DATASETS).values(**_row(dataset)))
            record_act(connection, "dataset registered", dataset.name)
            return _dataset(_existing(connection, dataset.name))
    if _definition(_dataset(row)) != _definition(dataset):
        reason = "is already registered with other uris, target or columns. Delete it first, or use a new name."
        raise Conflict("dataset", dataset.name, reason)
    return _dataset(row)


def set_dataset_schema(control: Control, name: str, schema_json: str, files: Sequence[Mapping[str, object]]) -> Dataset:
    """Replace the stored schema and files of a data set (NotFound)."""
    with control.writing() as connection:
        _existing(connection, name)
        values = {"schema_json": schema_json, "files": [dict(file) for file in files]}
        connection.execute(sa.update(_DATASETS).where(_DATASETS.c.name == name).values(**values))
        return _dataset(_existing(connection, name))


def recorded_file_digests(file: Mapping[str, object]) -> list[str]:
    """The SHA-256 by which a file that was recorded is known: of what is stored, and of how it was read."""
    return [str(file[name]) for name in ("stored_sha256", "footer_sha256") if file.get(name)]


def discard_dataset_schemas(control: Control, digests: Collection[str]) -> None:
    """Remove the schemas of datasets with a file of these digests (SHA-256), whose rows are no longer what was found."""
    with control.writing() as connection:
        for dataset in map(_dataset, connection.execute(sa.select(_DATASETS)).all()):
            if any(digest in digests for file in dataset.files for digest in recorded_file_digests(file)):
                one = _DATASETS.c.name == dataset.name
                connection.execute(sa.update(_DATASETS).where(one).values(schema_json=None))


def set_dataset_files(control: Control, name: str, files: Sequence[Mapping[str, object]]) -> None:
    """Store the current files of a data set; one deleted meanwhile stays deleted."""
    with control.writing() as connection:
        values = {"files": [dict(file) for file in files]}
        connection.execute(sa.update(_DATASETS).where(_DATASETS.c.name == name).values(**values))


def get_dataset(control: Control, name: str) -> Dataset:
    """Return the data set of a name; NotFound if it does not exist."""
    with control.reading() as connection:
        return _dataset(_existing(connection, name))


def is_registered_dataset(control: Control, name: str) -> bool:
    """Return whether a data set of that name exists."""
    with control.reading() as connection:
        return _row_of(connection, name) is not None


def list_datasets(control: Control, limit: int = DEFAULT_LIMIT, cursor: str | None = None) -> Page[Dataset]:
    """Return a page of data sets by name; InvalidCursor if the cursor is from another list."""
    with control.reading() as connection:
        return page_of_rows(connection, sa.select(_DATASETS), _DATASETS.c.name, limit, cursor).of(_dataset)


def delete_dataset(control: Control, name: str) -> Dataset:
    """Delete a data set and return it (NotFound); its Parquet files and models stay."""
    with control.writing() as connection:
        row = _existing(connection, name)
        connection.execute(sa.delete(_DATASETS).where(_DATASETS.c.name == name))
        record_act(connection, "dataset deleted", name)
    return _dataset(row)


def _row_of(connection: Connection, name: str) -> tables.Row | None:
    return connection.execute(sa.select(_DATASETS).where(_DATASETS.c.name == name)).one_or_none()


def _existing(connection: Connection, name: str) -> tables.Row:
    row = _row_of(connection, require_valid_name("dataset", name))
    if row is None:
        raise NotFound("dataset", name, connection.scalars(sa.select(_DATASETS.c.name).limit(MOST_NAMES)))
    return row


def _definition(dataset: Dataset) -> tuple[object, ...]:
    # Through JSON, which is how it is stored: a tuple has become a list there.
    return dataset.uris, dataset.target, json.loads(json.dumps(dict(dataset.columns)))


def _row(dataset: Dataset) -> dict[str, object]:
    files = [dict(file) for file in dataset.files]
    return vars(dataset) | {"uris": list(dataset.uris), "columns": dict(dataset.columns), "files": files}


def _dataset(row: tables.Row) -> Dataset:
    values = dict(row._mapping)
    return Dataset(**values | {"uris": tuple(values["uris"]), "files": tuple(values["files"])})
