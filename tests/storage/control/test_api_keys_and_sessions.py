"""API keys with their roles, and sessions of browsers."""

import hashlib
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from storage.control import tables
from storage.control.api_keys_and_sessions import (
    Role,
    api_keys_by_hash,
    browser_session_sha256,
    create_api_key,
    create_browser_session,
    delete_browser_session,
    find_browser_session,
    list_api_keys,
    revoke_api_key,
)
from storage.control.control import control_generation
from storage.errors import Conflict, InvalidName, NotFound


def test_a_key_is_valid_until_it_is_revoked(control):
    key, token = create_api_key(control, "nightly", "train")
    assert api_keys_by_hash(control) == {hashlib.sha256(token.encode()).hexdigest(): key}
    before = control_generation(control)
    revoked = revoke_api_key(control, "nightly")
    assert revoked.revoked_at is not None
    assert control_generation(control) > before
    assert revoke_api_key(control, "nightly") == revoked
    assert not api_keys_by_hash(control)


def test_an_expired_key_is_not_valid(control):
    moment = datetime.now(UTC)
    create_api_key(control, "old", Role.READ, expires_at=moment - timedelta(seconds=1))
    key, token = create_api_key(control, "new", Role.READ, expires_at=moment + timedelta(hours=1))
    assert api_keys_by_hash(control) == {hashlib.sha256(token.encode()).hexdigest(): key}


def test_the_token_is_nowhere_in_the_database(control):
    key, token = create_api_key(control, "a", Role.ADMIN)
    assert len(token) >= 43
    with control.reading() as connection:
        (row,) = connection.execute(sa.select(tables.keys)).all()
    assert row.token_sha256 == hashlib.sha256(token.encode()).hexdigest()
    assert token not in repr(row) + repr(key)


def test_names_are_unique_also_after_revocation(control):
    create_api_key(control, "a", Role.READ)
    revoke_api_key(control, "a")
    with pytest.raises(Conflict, match="exists already, perhaps revoked"):
        create_api_key(control, "a", Role.READ)
    with pytest.raises(InvalidName, match="is not a name for"):
        create_api_key(control, "A b", Role.READ)
    with pytest.raises(ValueError, match="'root' is not a valid Role"):
        create_api_key(control, "b", "root")
    with pytest.raises(NotFound, match="There is no key 'b'"):
        revoke_api_key(control, "b")


def test_keys_are_listed_without_tokens(control):
    for name in "cab":
        create_api_key(control, name, Role.PREDICT)
    page = list_api_keys(control, limit=2)
    assert [key.name for key in page.items] == ["a", "b"]
    assert [key.name for key in list_api_keys(control, cursor=page.next_cursor).items] == ["c"]


def test_each_role_covers_those_before_it():
    order = [Role.READ, Role.PREDICT, Role.TRAIN, Role.ADMIN]
    assert [[has.covers(needed) for needed in order] for has in order] == [[i <= j for i in range(4)] for j in range(4)]


ORIGIN = "http://127.0.0.1:8000"
HOUR = timedelta(hours=1)


def test_a_session_is_found_by_the_hash_of_its_id(control):
    session_id = create_browser_session(control, "f" * 64, ORIGIN, HOUR)
    found = find_browser_session(control, browser_session_sha256(session_id))
    assert found is not None and (found.key_sha256, found.origin) == ("f" * 64, ORIGIN)
    assert find_browser_session(control, session_id) is None and find_browser_session(control, "f" * 64) is None


def test_the_id_is_nowhere_in_the_database(control):
    session_id = create_browser_session(control, "f" * 64, ORIGIN, HOUR)
    with control.reading() as connection:
        (row,) = connection.execute(sa.select(tables.browser_sessions)).all()
    assert len(session_id) >= 43 and session_id not in repr(row)


def test_ended_and_expired_sessions_are_gone(control):
    ended, kept = (create_browser_session(control, "f" * 64, ORIGIN, HOUR) for _ in range(2))
    expired = create_browser_session(control, "f" * 64, ORIGIN, timedelta(seconds=-1))
    assert find_browser_session(control, browser_session_sha256(expired)) is None
    for _ in range(2):
        delete_browser_session(control, browser_session_sha256(ended))
    assert find_browser_session(control, browser_session_sha256(ended)) is None
    assert find_browser_session(control, browser_session_sha256(kept)) is not None
    create_browser_session(control, "f" * 64, ORIGIN, HOUR)
    with control.reading() as connection:
        assert len(connection.execute(sa.select(tables.browser_sessions)).all()) == 2, "the expired one is swept"
