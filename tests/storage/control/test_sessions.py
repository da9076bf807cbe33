"""Sessions of browsers: opaque, kept as hashes, ended in time."""

from datetime import timedelta

import sqlalchemy as sa

from storage.control import tables
from storage.control.sessions import end_session, find_session, open_session, session_sha256

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
