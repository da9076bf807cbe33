"""API keys, shown once and stored as hashes, each with a role; and browser sessions, each tied to one key."""

from __future__ import annotations

import hashlib
import secrets
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from storage.control import tables
from storage.control.audit import record_act
from storage.control.control import Control, bump_control_generation
from storage.control.paging import DEFAULT_LIMIT, Page, page_of_rows
from storage.errors import Conflict, NotFound
from storage.files.workspace_layout import checked_resource_name

_KEYS = tables.keys
_PREFIX = "fp_"
MOST_SESSIONS = 100  # of one key at the same time
_SESSIONS = tables.browser_sessions


class Role(StrEnum):
    """Role of a key; each role includes the ones before it."""

    READ = "read"  # look at datasets, jobs, models
    PREDICT = "predict"  # predict and query
    TRAIN = "train"  # register datasets, run jobs, move aliases
    ADMIN = "admin"  # keys, deletions, settings

    def covers(self, needed: Role) -> bool:
        """Return whether this role includes `needed`."""
        return _ORDER.index(self) >= _ORDER.index(needed)


_ORDER = tuple(Role)  # made once: to walk over the enumeration takes microseconds, and every prediction asks


@dataclass(frozen=True)
class ApiKey:
    """An API key without its token; the name is unique, the id public, times are timezone-aware UTC, and None means
    never.
    """

    id: str
    name: str
    role: Role
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None

    def is_valid(self) -> bool:
        """Return whether the key has not expired."""
        return self.expires_at is None or self.expires_at.timestamp() > time.time()


def api_key_token_sha256(token: bytes) -> str:
    """Return the hash under which a key is stored; 256 random bits need no slow hash."""
    return hashlib.sha256(token).hexdigest()


def create_api_key(
    control: Control, name: str, role: Role | str, expires_at: datetime | None = None
) -> tuple[ApiKey, str]:
    """Create a key that expires at a timezone-aware time or never; return it with its token, which is not stored and
    cannot be shown again.

    Raises InvalidName; Conflict if the name is taken, even by a revoked key: a name in a log identifies one key.
    """
    key = ApiKey(secrets.token_hex(6), checked_resource_name("key", name), Role(role), tables.utc_now(), expires_at)
    token = _PREFIX + secrets.token_urlsafe(32)
    values = vars(key) | {"role": key.role.value, "token_sha256": api_key_token_sha256(token.encode())}
    try:
        with control.writing() as connection:
            connection.execute(sa.insert(_KEYS).values(**values))
            record_act(connection, "key created", name, role=key.role.value)
            bump_control_generation(connection)
    except IntegrityError as error:
        raise Conflict("key", name, "already exists, perhaps revoked. Use a new name.") from error
    return key, token


def list_api_keys(control: Control, limit: int = DEFAULT_LIMIT, cursor: str | None = None) -> Page[ApiKey]:
    """Return a page of keys by name, including revoked ones; InvalidCursor if the cursor is from another list."""
    with control.reading() as connection:
        return page_of_rows(connection, sa.select(_KEYS), _KEYS.c.name, limit, cursor).of(_key)


def revoke_api_key(control: Control, name: str) -> ApiKey:
    """Revoke a key now; NotFound if it does not exist. Revoking it again changes nothing."""
    with control.writing() as connection:
        still = (_KEYS.c.name == name) & _KEYS.c.revoked_at.is_(None)
        if connection.execute(sa.update(_KEYS).where(still).values(revoked_at=tables.utc_now())).rowcount:
            record_act(connection, "key revoked", name)
            bump_control_generation(connection)
        row = connection.execute(sa.select(_KEYS).where(_KEYS.c.name == name)).one_or_none()
    if row is None:
        raise NotFound("key", name)
    return _key(row)


def api_keys_by_hash(control: Control) -> dict[str, ApiKey]:
    """Return the valid keys by the SHA-256 of their tokens, for checks in memory."""
    # By hash, so that the time of a look-up tells nothing about a token.
    is_valid = _KEYS.c.revoked_at.is_(None) & (_KEYS.c.expires_at.is_(None) | (_KEYS.c.expires_at > tables.utc_now()))
    with control.reading() as connection:
        return {row.token_sha256: _key(row) for row in connection.execute(sa.select(_KEYS).where(is_valid))}


def _key(row: tables.Row) -> ApiKey:
    values = dict(row._mapping)
    del values["token_sha256"]
    return ApiKey(**values | {"role": Role(values["role"])})


@dataclass(frozen=True)
class BrowserSession:
    """A session without its id."""

    id_sha256: str  # of the id that the browser holds
    key_sha256: str  # of the token that it was exchanged for; the session is worth what that key is worth
    origin: str  # scheme, host and port that the browser asked
    expires_at: datetime  # aware, UTC


def create_browser_session(control: Control, key_sha256: str, origin: str, lifetime: timedelta) -> str:
    """Create a session; delete expired ones, and the key's oldest beyond `MOST_SESSIONS`. Return its id, which is not
    stored and cannot be shown again.
    """
    session_id = secrets.token_urlsafe(32)
    now = tables.utc_now()
    row = BrowserSession(browser_session_sha256(session_id), key_sha256, origin, now + lifetime)
    with control.writing() as connection:
        connection.execute(sa.delete(_SESSIONS).where(_SESSIONS.c.expires_at <= now))
        own = sa.select(_SESSIONS.c.id_sha256).where(_SESSIONS.c.key_sha256 == key_sha256)
        newest = own.order_by(_SESSIONS.c.expires_at.desc()).limit(MOST_SESSIONS - 1)
        kept = [row_id for (row_id,) in connection.execute(newest)]
        too_many = (_SESSIONS.c.key_sha256 == key_sha256) & _SESSIONS.c.id_sha256.not_in(kept)
        connection.execute(sa.delete(_SESSIONS).where(too_many))
        connection.execute(sa.insert(_SESSIONS).values(**vars(row)))
        record_act(connection, "console session begun", origin)
    return session_id


def find_browser_session(control: Control, id_sha256: str) -> BrowserSession | None:
    """Return the session of a hashed id; None if it has expired or was ended."""
    alive = (_SESSIONS.c.id_sha256 == id_sha256) & (_SESSIONS.c.expires_at > tables.utc_now())
    with control.reading() as connection:
        row = connection.execute(sa.select(_SESSIONS).where(alive)).one_or_none()
    return None if row is None else BrowserSession(**row._mapping)


def delete_browser_session(control: Control, id_sha256: str) -> None:
    """End a session; ending it again changes nothing."""
    with control.writing() as connection:
        connection.execute(sa.delete(_SESSIONS).where(_SESSIONS.c.id_sha256 == id_sha256))


def browser_session_sha256(session_id: str) -> str:
    """Return the hash under which a session is stored; 256 random bits need no slow hash."""
    return hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()
