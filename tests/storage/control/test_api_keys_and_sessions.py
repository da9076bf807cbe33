"""API keys with their roles, and sessions of browsers."""

import hashlib
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from storage.control import api_keys_and_sessions as keys
from storage.control import tables
from storage.control.control import control_generation
from storage.errors import Conflict, InvalidName, NotFound

ORIGIN = "http://127.0.0.1:8000"
HOUR = timedelta(hours=1)


def test_a_key_is_valid_until_it_is_revoked_or_expires(control):
    keys.create_api_key(control, "old", keys.Role.READ, expires_at=datetime.now(UTC) - timedelta(seconds=1))
    key, token = keys.create_api_key(control, "nightly", "train", expires_at=datetime.now(UTC) + HOUR)
    assert keys.api_keys_by_hash(control) == {hashlib.sha256(token.encode()).hexdigest(): key}
    before = control_generation(control)
    revoked = keys.revoke_api_key(control, "nightly")
    assert revoked.revoked_at is not None and control_generation(control) > before
    assert keys.revoke_api_key(control, "nightly") == revoked and not keys.api_keys_by_hash(control)


def test_tokens_and_ids_of_sessions_are_nowhere_in_the_database(control):
    key, token = keys.create_api_key(control, "a", keys.Role.ADMIN)
    session_id = keys.create_browser_session(control, "f" * 64, ORIGIN, HOUR)
    with control.reading() as connection:
        rows = [connection.execute(sa.select(table)).one() for table in (tables.keys, tables.browser_sessions)]
    assert rows[0].token_sha256 == hashlib.sha256(token.encode()).hexdigest()
    for secret in (token, session_id):
        assert len(secret) >= 43 and secret not in repr(rows) + repr(key)


def test_names_are_unique_also_after_revocation(control):
    keys.create_api_key(control, "a", keys.Role.READ)
    keys.revoke_api_key(control, "a")
    with pytest.raises(Conflict, match="already exists"):
        keys.create_api_key(control, "a", keys.Role.READ)
    with pytest.raises(InvalidName, match="is not a valid name for"):
        keys.create_api_key(control, "A b", keys.Role.READ)
    with pytest.raises(ValueError, match="'root' is not a valid Role"):
        keys.create_api_key(control, "b", "root")
    with pytest.raises(NotFound, match="There is no key 'b'"):
        keys.revoke_api_key(control, "b")


def test_keys_are_listed_without_tokens(control):
    for name in "cab":
        keys.create_api_key(control, name, keys.Role.PREDICT)
    page = keys.list_api_keys(control, limit=2)
    assert [key.name for key in page.items] == ["a", "b"]
    assert [key.name for key in keys.list_api_keys(control, cursor=page.next_cursor).items] == ["c"]


def test_each_role_covers_those_before_it():
    order = [keys.Role.READ, keys.Role.PREDICT, keys.Role.TRAIN, keys.Role.ADMIN]
    assert [[has.covers(needed) for needed in order] for has in order] == [[i <= j for i in range(4)] for j in range(4)]


def test_a_session_is_found_by_the_hash_of_its_id(control):
    session_id = keys.create_browser_session(control, "f" * 64, ORIGIN, HOUR)
    found = keys.find_browser_session(control, keys.browser_session_sha256(session_id))
    assert found is not None and (found.key_sha256, found.origin) == ("f" * 64, ORIGIN)
    assert [keys.find_browser_session(control, other) for other in (session_id, "f" * 64)] == [None, None]


def test_ended_and_expired_sessions_are_gone(control):
    ended, kept = (keys.create_browser_session(control, "f" * 64, ORIGIN, HOUR) for _ in range(2))
    expired = keys.create_browser_session(control, "f" * 64, ORIGIN, timedelta(seconds=-1))
    assert keys.find_browser_session(control, keys.browser_session_sha256(expired)) is None
    for _ in range(2):
        keys.delete_browser_session(control, keys.browser_session_sha256(ended))
    assert keys.find_browser_session(control, keys.browser_session_sha256(ended)) is None
    assert keys.find_browser_session(control, keys.browser_session_sha256(kept)) is not None
    keys.create_browser_session(control, "f" * 64, ORIGIN, HOUR)
    with control.reading() as connection:
        assert len(connection.execute(sa.select(tables.browser_sessions)).all()) == 2, "the expired one is swept"
