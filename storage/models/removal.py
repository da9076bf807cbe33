"""Removal and retention of versions and models: rows first, here; then files, by
`storage.files.workspace_layout.delete_model_files`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from storage.control import tables
from storage.control.audit import record_act
from storage.control.control import Control, bump_control_generation
from storage.errors import Conflict, NotFound
from storage.files.workspace_layout import require_valid_name
from storage.models.model_versions import ModelVersion, model_version_from_row, resolve_version_row

_MODELS, _VERSIONS, _ALIASES = tables.models, tables.versions, tables.aliases


def delete_model_version(control: Control, name: str, version: int) -> ModelVersion:
    """Delete the row of a version, and return it with the paths of its files; NotFound, or Conflict if an alias points
    to it.
    """
    with control.writing() as connection:
        gone = model_version_from_row(control, resolve_version_row(connection, name, version))
        query = sa.select(_ALIASES.c.alias).where(_ALIASES.c.name == name, _ALIASES.c.version == version)
        pointing = connection.execute(query.order_by(_ALIASES.c.alias)).scalars().all()
        if pointing:
            reason = f"is in use as {', '.join(map(repr, pointing))}. Move or delete the alias first."
            raise Conflict("model version", f"{name}@{version}", reason)
        _delete_rows(connection, name, [version])
        record_act(connection, "version deleted", f"{name}@{version}")
    return gone


def delete_model(control: Control, name: str) -> tuple[ModelVersion, ...]:
    """Delete all versions of a model, its aliases with their history, its decisions and its retention.

    Later versions of the name continue the numbering, so that no number is used twice. Returns the versions
    that were deleted, newest first. Raises NotFound if it has no version.
    """
    require_valid_name("model", name)
    with control.writing() as connection:
        gone = _versions_of(control, connection, name)
        for table in (tables.aliases, tables.moves, tables.promotions):
            connection.execute(sa.delete(table).where(table.c.name == name))
        connection.execute(sa.update(_MODELS).where(_MODELS.c.name == name).values(keep_versions=None))
        _delete_rows(connection, name, [version.version for version in gone])
        record_act(connection, "model deleted", name, versions=len(gone))
    return gone


def delete_unretained_versions(
    control: Control, name: str, keep: int, is_spared: Callable[[ModelVersion], bool] = lambda _: False
) -> tuple[ModelVersion, ...]:
    """Delete all but the newest `keep` versions; those that an alias points to always stay.

    `is_spared` is called for each version to remove, inside the transaction, and returns True if it is still needed.
    Returns the versions that were deleted, newest first. Raises NotFound if it does not exist.
    """
    require_valid_name("model", name)
    with control.writing() as connection:
        versions = _versions_of(control, connection, name)
        pointed = set(connection.execute(sa.select(_ALIASES.c.version).where(_ALIASES.c.name == name)).scalars())
        old = [version for version in versions[max(keep, 1) :] if version.version not in pointed]
        gone = tuple(version for version in old if not is_spared(version))
        _delete_rows(connection, name, [version.version for version in gone])
        for version in gone:
            record_act(connection, "version deleted", f"{name}@{version.version}", reason="retention")
    return gone


def set_version_retention(control: Control, name: str, keep: int | None) -> None:
    """Set how many versions of a model to keep, None for all; NotFound for an unknown model."""
    changed = sa.update(_MODELS).where(_MODELS.c.name == require_valid_name("model", name)).values(keep_versions=keep)
    with control.writing() as connection:
        if connection.execute(changed).rowcount == 0:
            raise NotFound("model", name)
        record_act(connection, "retention set", name, keep=keep)


def get_version_retention(control: Control, name: str) -> int | None:
    """Return how many versions of a model to keep, None for all; NotFound for an unknown model."""
    query = sa.select(_MODELS.c.keep_versions).where(_MODELS.c.name == require_valid_name("model", name))
    with control.reading() as connection:
        row = connection.execute(query).one_or_none()
    if row is None:
        raise NotFound("model", name)
    keep: int | None = row.keep_versions
    return keep


def _versions_of(control: Control, connection: Connection, name: str) -> tuple[ModelVersion, ...]:
    """Return all versions of a model, newest first; NotFound if it has none."""
    query = sa.select(_VERSIONS).where(_VERSIONS.c.name == name).order_by(_VERSIONS.c.version.desc())
    versions = tuple(model_version_from_row(control, row) for row in connection.execute(query))
    if not versions:
        raise NotFound("model", name)
    return versions


def _delete_rows(connection: Connection, name: str, numbers: Sequence[int]) -> None:
    if numbers:
        connection.execute(sa.delete(_VERSIONS).where(_VERSIONS.c.name == name, _VERSIONS.c.version.in_(numbers)))
        bump_control_generation(connection)
