"""Aliases: names such as "champion" that point to a version, with a history that allows rollback."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from storage.control import tables
from storage.control.audit import record_act
from storage.control.control import Control, bump_control_generation
from storage.control.paging import DEFAULT_LIMIT, Page, page_of_rows
from storage.errors import Conflict, NotFound
from storage.files.workspace_layout import checked_alias, is_valid_name, is_valid_version_number, require_valid_name

_VERSIONS, _ALIASES, _MOVES = tables.versions, tables.aliases, tables.moves


Check = Callable[[Mapping[str, int]], None]
"""Looks at the number of the last move of each alias of a model, within the transaction, and raises if nothing may change."""


@dataclass(frozen=True)
class AliasMove:
    """One move of an alias: the version it pointed to from then on, and the reason given.

    `moved_at` is aware, UTC.
    """

    alias: str
    version: int
    reason: str
    moved_at: datetime


def set_alias(
    control: Control, name: str, alias: str, version: int, reason: str = "", check: Check | None = None
) -> None:
    """Point an alias at a version; if it points there already, nothing changes.

    Raises InvalidName, NotFound without such a version, and what `check` raises.
    """
    with control.writing() as connection:
        _run_check(connection, name, check)
        set_alias_in_transaction(connection, name, alias, version, reason)


def set_alias_in_transaction(connection: Connection, name: str, alias: str, version: int, reason: str) -> None:
    """Do as `set_alias`, inside a larger transaction."""
    checked_alias(alias)
    if not _exists(connection, name, version):
        raise NotFound("model version", f"{name}@{version}")
    here = _pointer(connection, name, alias)
    if here is None or here.version != version:
        _move(connection, name, alias, version, None if here is None else here.move, reason)


def aliased_version(connection: Connection, name: str, alias: str) -> int | None:
    """Return the version that an alias points to, or None."""
    here = _pointer(connection, name, alias)
    return None if here is None else int(here.version)


def delete_alias(control: Control, name: str, alias: str, check: Check | None = None) -> None:
    """Remove an alias; the version it pointed at stays. Raises NotFound without such an alias, and what `check` raises."""
    with control.writing() as connection:
        _run_check(connection, name, check)
        if _pointer(connection, name, alias) is None:
            raise _no_alias(connection, name, alias)
        connection.execute(sa.delete(_ALIASES).where(_ALIASES.c.name == name, _ALIASES.c.alias == alias))
        record_act(connection, "alias deleted", f"{name}@{alias}")
        bump_control_generation(connection)


def versions_by_alias(control: Control, name: str) -> dict[str, int]:
    """Return alias -> version, sorted by alias; empty if the model has none."""
    if not is_valid_name(name):
        return {}
    with control.reading() as connection:
        rows = connection.execute(sa.select(_ALIASES).where(_ALIASES.c.name == name).order_by(_ALIASES.c.alias)).all()
    return {row.alias: row.version for row in rows}


def alias_moves(control: Control, name: str) -> dict[str, int]:
    """Alias -> number of its last move; empty if the model has none."""
    with control.reading() as connection:
        return _last_moves(connection, name)


def _last_moves(connection: Connection, name: str) -> dict[str, int]:
    if not is_valid_name(name):
        return {}
    rows = connection.execute(sa.select(_ALIASES).where(_ALIASES.c.name == name)).all()
    return {row.alias: row.move for row in rows}


def _run_check(connection: Connection, name: str, check: Check | None) -> None:
    if check is not None:
        check(_last_moves(connection, name))


def alias_names(connection: Connection, name: str) -> list[str]:
    """Return the aliases of a model."""
    if not is_valid_name(name):
        return []
    return list(connection.scalars(sa.select(_ALIASES.c.alias).where(_ALIASES.c.name == name)))


def _no_alias(connection: Connection, name: str, alias: str) -> NotFound:
    return NotFound("alias", f"{name}@{alias}", [f"{name}@{known}" for known in alias_names(connection, name)])


def roll_back(control: Control, name: str, alias: str, reason: str = "rolled back", check: Check | None = None) -> int:
    """Move an alias back to its previous version; a second call goes back further. Deleted versions are skipped.

    Returns the version it points at now. Raises NotFound if there is no such alias; Conflict if it has never pointed
    elsewhere, or those versions are all deleted; what `check` raises.
    """
    with control.writing() as connection:
        _run_check(connection, name, check)
        here = _pointer(connection, name, alias)
        if here is None:
            raise _no_alias(connection, name, alias)
        now = _place(connection, here.move)
        place = None if now is None else _place(connection, now.parent)
        while place is not None and not _exists(connection, name, place.version):
            place = _place(connection, place.parent)
        if place is None:
            reason = "has no previous version. Point it at a version instead."
            raise Conflict("alias", f"{name}@{alias}", reason)
        _move(connection, name, alias, place.version, place.parent, reason)
    return int(place.version)


def alias_history(
    control: Control, name: str, limit: int = DEFAULT_LIMIT, cursor: str | None = None
) -> Page[AliasMove]:
    """Return the moves of a model's aliases, newest first, including deleted aliases; NotFound for an invalid name,
    InvalidCursor.
    """
    query = sa.select(_MOVES).where(_MOVES.c.name == require_valid_name("model", name))
    with control.reading() as connection:
        rows = page_of_rows(connection, query, _MOVES.c.id, limit, cursor, newest_first=True)
    return rows.of(lambda row: AliasMove(row.alias, row.version, row.reason, row.moved_at))


def _exists(connection: Connection, name: str, version: int) -> bool:
    if not (is_valid_name(name) and is_valid_version_number(version)):
        return False
    query = sa.select(_VERSIONS.c.version).where(_VERSIONS.c.name == name, _VERSIONS.c.version == version)
    return connection.execute(query).one_or_none() is not None


def _pointer(connection: Connection, name: str, alias: str) -> tables.Row | None:
    if not (is_valid_name(name) and is_valid_name(alias)):
        return None
    query = sa.select(_ALIASES).where(_ALIASES.c.name == name, _ALIASES.c.alias == alias)
    return connection.execute(query).one_or_none()


def _place(connection: Connection, move: int | None) -> tables.Row | None:
    return None if move is None else connection.execute(sa.select(_MOVES).where(_MOVES.c.id == move)).one()


def _move(connection: Connection, name: str, alias: str, version: int, parent: int | None, reason: str) -> None:
    values = {"version": version, "parent": parent, "reason": reason, "moved_at": tables.utc_now()}
    insert = sa.insert(_MOVES).values(name=name, alias=alias, **values)
    move = connection.execute(insert.returning(_MOVES.c.id)).scalar_one()
    chosen = (_ALIASES.c.name == name) & (_ALIASES.c.alias == alias)
    if connection.execute(sa.update(_ALIASES).where(chosen).values(version=version, move=move)).rowcount == 0:
        connection.execute(sa.insert(_ALIASES).values(name=name, alias=alias, version=version, move=move))
    record_act(connection, "alias moved", f"{name}@{alias}", version=version, reason=reason)
    bump_control_generation(connection)
