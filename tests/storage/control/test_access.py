"""API keys with their roles, and sessions of browsers."""

import hashlib
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from storage.control import tables
from storage.control.access import (
    Role,
    create_key,
    end_session,
    find_session,
    hashed_keys,
    list_keys,
    open_session,
    revoke_key,
    session_sha256,
)
from storage.control.control import generation
from storage.errors import Conflict, InvalidName, NotFound


def test_a_key_is_valid_until_it_is_revoked(control):
    key, token = create_key(control, "nightly", "train")
    assert hashed_keys(control) == {hashlib.sha256(token.encode()).hexdigest(): key}
    before = generation(control)
    revoked = revoke_key(control, "nightly")
    assert revoked.revoked_at is not None
    assert generation(control) > before
    assert revoke_key(control, "nightly") == revoked
    assert not hashed_keys(control)


def test_an_expired_key_is_not_valid(control):
    moment = datetime.now(UTC)
    create_key(control, "old", Role.READ, expires_at=moment - timedelta(seconds=1))
    key, token = create_key(control, "new", Role.READ, expires_at=moment + timedelta(hours=1))
    assert hashed_keys(control) == {hashlib.sha256(token.encode()).hexdigest(): key}


def test_the_token_is_nowhere_in_the_database(control):
    key, token = create_key(control, "a", Role.ADMIN)
    assert len(token) >= 43
    with control.reading() as connection:
        (row,) = connection.execute(sa.select(tables.keys)).all()
    assert row.token_sha256 == hashlib.sha256(token.encode()).hexdigest()
    assert token not in repr(row) + repr(key)


def test_names_are_unique_also_after_revocation(control):
    create_key(control, "a", Role.READ)
    revoke_key(control, "a")
    with pytest.raises(Conflict, match="exists already, perhaps revoked"):
        create_key(control, "a", Role.READ)
    with pytest.raises(InvalidName, match="is not a name for"):
        create_key(control, "A b", Role.READ)
    with pytest.raises(ValueError, match="'root' is not a valid Role"):
        create_key(control, "b", "root")
    with pytest.raises(NotFound, match="There is no key 'b'"):
        revoke_key(control, "b")


def test_keys_are_listed_without_tokens(control):
    for name in "cab":
        create_key(control, name, Role.PREDICT)
    page = list_keys(control, limit=2)
    assert [key.name for key in page.items] == ["a", "b"]
    assert [key.name for key in list_keys(control, cursor=page.next_cursor).items] == ["c"]


def test_each_role_covers_those_before_it():
    order = [Role.READ, Role.PREDICT, Role.TRAIN, Role.ADMIN]
    assert [[has.covers(needed) for needed in order] for has in order] == [[i <= j for i in range(4)] for j in range(4)]


ORIGIN = "http://127.0.0.1:8000"
HOUR = timedelta(hours=1)


def test_a_session_is_found_by_the_hash_of_its_id(control):
    session_id = open_session(control, "f" * 64, ORIGIN, HOUR)
    found = find_session(control, session_sha256(session_id))
    assert found is not None and (found.key_sha256, found.origin) == ("f" * 64, ORIGIN)
    assert find_session(control, session_id) is None and find_session(control, "f" * 64) is None


def test_the_id_is_nowhere_in_the_database(control):
    session_id = open_session(control, "f" * 64, ORIGIN, HOUR)
    with control.reading() as connection:
        (row,) = connection.execute(sa.select(tables.browser_sessions)).all()
    assert len(session_id) >= 43 and session_id not in repr(row)


def test_ended_and_expired_sessions_are_gone(control):
    ended, kept = (open_session(control, "f" * 64, ORIGIN, HOUR) for _ in range(2))
    expired = open_session(control, "f" * 64, ORIGIN, timedelta(seconds=-1))
    assert find_session(control, session_sha256(expired)) is None
    for _ in range(2):
        end_session(control, session_sha256(ended))
    assert find_session(control, session_sha256(ended)) is None
    assert find_session(control, session_sha256(kept)) is not None
    open_session(control, "f" * 64, ORIGIN, HOUR)
    with control.reading() as connection:
        assert len(connection.execute(sa.select(tables.browser_sessions)).all()) == 2, "the expired one is swept"
