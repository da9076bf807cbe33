"""The audit log: each act in the transaction of what it records, chained, read in pages, shortened from its beginning."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from storage.control import audit, tables
from storage.control.api_keys_and_sessions import create_api_key, revoke_api_key
from storage.control.audit import Actor, acting_as
from storage.control.control import open_control
from storage.datasets.dataset_definitions import Dataset, delete_dataset, register_dataset
from storage.errors import NotFound


@pytest.fixture
def control(tmp_path):
    with open_control(f"sqlite:///{tmp_path}/control.sqlite") as opened:
        yield opened


def lines(control, **more):
    with control.reading() as connection:
        return audit.audit_lines(connection, **more).items


def faults(control):
    with control.reading() as connection:
        return audit.audit_faults(connection)


def fill(control, key="bob"):
    with acting_as(Actor("key ana", "admin", "127.0.0.1", "r-1")):
        create_api_key(control, key, "read")
        revoke_api_key(control, key)
    register_dataset(control, Dataset(name="sales", uris=("a.parquet",)))
    delete_dataset(control, "sales")


def test_acts_are_recorded_with_who_and_from_where(control):
    fill(control)
    newest_first = lines(control)
    acts = [(line.action, line.subject) for line in reversed(newest_first)]
    assert acts == [
        ("key created", "bob"),
        ("key revoked", "bob"),
        ("dataset registered", "sales"),
        ("dataset deleted", "sales"),
    ]
    first = newest_first[-1]
    assert (first.actor, first.role, first.origin, first.request_id) == ("key ana", "admin", "127.0.0.1", "r-1")
    assert newest_first[0].actor.startswith("user ")
    assert [line.id for line in newest_first] == [4, 3, 2, 1]
    assert faults(control) == []
    assert [line.actor for line in lines(control, actor="key ana")] == ["key ana"] * 2


def test_an_act_that_fails_leaves_no_line(control):
    with pytest.raises(NotFound, match="never"):
        delete_dataset(control, "never")
    with pytest.raises(RuntimeError, match="afterwards"), control.writing() as connection:
        audit.record_act(connection, "dataset deleted", "never")
        raise RuntimeError("afterwards")
    assert lines(control) == ()
    assert faults(control) == []


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE audit_log SET actor = 'key eve' WHERE id = 2", "Line 2 was changed."),
        ('UPDATE audit_log SET detail = \'{"role": "admin"}\' WHERE id = 1', "Line 1 was changed."),
        ("DELETE FROM audit_log WHERE id = 1", "Line 1 is missing."),
        ("DELETE FROM audit_log WHERE id IN (2, 3)", "Lines 2 to 3 are missing."),
        ("DELETE FROM audit_log WHERE id = 4", "Line 4 is missing."),
    ],
)
def test_changed_and_removed_lines_are_found(control, statement, said):
    fill(control)
    with control.writing() as connection:
        connection.execute(sa.text(statement))
    assert said in faults(control)


def test_a_line_with_a_new_hash_breaks_the_chain(control):
    fill(control)
    with control.writing() as connection:
        line = audit._line(connection.execute(sa.select(tables.audit_log).where(tables.audit_log.c.id == 2)).one())
        other = replace(line, actor="key eve")
        values = {"actor": "key eve", "sha256": other.expected_sha256()}
        connection.execute(sa.update(tables.audit_log).where(tables.audit_log.c.id == 2).values(**values))
    assert faults(control) == ["Line 3 does not match the hash of the previous line."]


def test_old_lines_leave_from_the_beginning(control):
    fill(control)
    old = datetime.now(UTC) - timedelta(days=500)
    with control.writing() as connection:
        assert audit.delete_audit_lines_before(connection, old) == 0
    third = lines(control)[1]
    with control.writing() as connection:
        assert audit.delete_audit_lines_before(connection, third.at) == 2
    assert [line.id for line in lines(control)] == [4, 3]
    assert faults(control) == []
    with control.writing() as connection:
        assert audit.delete_audit_lines_before(connection, datetime.now(UTC) + timedelta(days=1)) == 2
    fill(control, "cleo")
    assert [line.id for line in lines(control)] == [8, 7, 6, 5]
    assert faults(control) == []
