"""API keys: shown once, hashed at rest, with a role and an end."""

import hashlib
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from storage.control import tables
from storage.control.control import generation
from storage.control.keys import Role, create_key, hashed_keys, list_keys, revoke_key
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
