"""Sessions of browsers: opaque ids, kept as hashes, each of one key and one origin, until they expire."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa

from storage.control import tables
from storage.control.control import Control

_SESSIONS = tables.browser_sessions


@dataclass(frozen=True)
class BrowserSession:
    """A session without its id.

    Parameters
    ----------
    id_sha256 : of the id that the browser holds
    key_sha256 : of the token that it was exchanged for; the session is worth what that key is worth
    origin : scheme, host and port that the browser asked
    expires_at : aware, UTC
    """

    id_sha256: str
    key_sha256: str
    origin: str
    expires_at: datetime


def open_session(control: Control, key_sha256: str, origin: str, lifetime: timedelta) -> str:
    """Begin a session, and forget those that have expired; returns its id, which is not stored and cannot be shown again."""
    session_id = secrets.token_urlsafe(32)
    now = tables.now()
    row = BrowserSession(session_sha256(session_id), key_sha256, origin, now + lifetime)
    with control.writing() as connection:
        connection.execute(sa.delete(_SESSIONS).where(_SESSIONS.c.expires_at <= now))
        connection.execute(sa.insert(_SESSIONS).values(**vars(row)))
    return session_id


def find_session(control: Control, id_sha256: str) -> BrowserSession | None:
    """The session of a hashed id, unless it has expired or was ended."""
    alive = (_SESSIONS.c.id_sha256 == id_sha256) & (_SESSIONS.c.expires_at > tables.now())
    with control.reading() as connection:
        row = connection.execute(sa.select(_SESSIONS).where(alive)).one_or_none()
    return None if row is None else BrowserSession(**row._mapping)


def end_session(control: Control, id_sha256: str) -> None:
    """End a session; to end it again changes nothing."""
    with control.writing() as connection:
        connection.execute(sa.delete(_SESSIONS).where(_SESSIONS.c.id_sha256 == id_sha256))


def session_sha256(session_id: str) -> str:
    """Under what a session is kept; 256 random bits need no slow hash."""
    return hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()
