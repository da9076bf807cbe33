"""The audit log: each act that changes a workspace, and its actor; append-only, each line chained to the previous by
its hash.
"""

from __future__ import annotations

import getpass
import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from storage.control import tables
from storage.control.paging import DEFAULT_LIMIT, Page, page_of_rows

_LOG, _HEAD = tables.audit_log, tables.audit_head
BLOCK = 1000


@dataclass(frozen=True)
class Actor:
    """The person or program that performs an act.

    Parameters
    ----------
    name : str
        Name of the API key, "job job-…", or the user of the command line.
    role : str
        Role of the key; empty for commands and jobs.
    origin : str
        Address of the client; empty for commands and jobs.
    request_id : str
        Id of the request, as in the answer's header `X-Request-ID`.
    identity : mapping
        Facts that identify the person, such as issuer and subject of the company's login, if `name` alone does not.
    """

    name: str
    role: str = ""
    origin: str = ""
    request_id: str = ""
    identity: Mapping[str, str] = field(default_factory=dict)


_ACTOR: ContextVar[Actor | None] = ContextVar("actor", default=None)


def set_actor(actor: Actor) -> None:
    """Attribute the acts of the current task or thread to an actor."""
    _ACTOR.set(actor)


@contextmanager
def acting_as(actor: Actor) -> Iterator[None]:
    """Attribute the acts within the block to an actor."""
    token = _ACTOR.set(actor)
    try:
        yield
    finally:
        _ACTOR.reset(token)


def current_actor() -> Actor:
    """Return the actor of this task, by default the user who runs this process."""
    actor = _ACTOR.get()
    if actor is not None:
        return actor
    try:
        return Actor(f"user {getpass.getuser()}")
    except (KeyError, OSError):  # a container may run under a number without a name
        return Actor("user unknown")


@dataclass(frozen=True)
class AuditLine:
    """One line of the audit log.

    Parameters
    ----------
    id : int
        Ascending, without gaps.
    at : datetime
        Aware, UTC.
    actor, role, origin, request_id : str
        See `Actor`.
    action : str
        Such as "alias moved".
    subject : str
        The object, such as "sales@champion".
    detail : mapping
        Further facts; never a value of a row.
    previous_sha256, sha256 : str
        Hashes of the line before and of this line with `previous_sha256`.
    """

    id: int
    at: datetime
    actor: str
    role: str
    origin: str
    request_id: str
    action: str
    subject: str
    detail: Mapping[str, object]
    previous_sha256: str
    sha256: str = field(default="")

    def expected_sha256(self) -> str:
        """Return the SHA-256 of this line as JSON with sorted keys, without its `sha256` member."""
        content = {name: value for name, value in vars(self).items() if name != "sha256"}
        content |= {"at": self.at.isoformat(), "detail": dict(self.detail)}
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def record_act(connection: Connection, action: str, subject: str, **detail: object) -> None:
    """Append a line in the transaction of the act itself, so that both are stored or neither."""
    head = connection.execute(sa.select(_HEAD)).one()
    actor = current_actor()
    detail |= actor.identity
    line = AuditLine(
        id=head.last_id + 1,
        at=tables.utc_now(),
        actor=actor.name[:200],
        role=actor.role,
        origin=actor.origin[:200],
        request_id=actor.request_id[:200],
        action=action,
        subject=subject[:1000],
        detail=detail,
        previous_sha256=head.last_sha256,
    )
    sha256 = line.expected_sha256()
    connection.execute(sa.insert(_LOG).values(**vars(line) | {"detail": dict(detail), "sha256": sha256}))
    connection.execute(sa.update(_HEAD).values(last_id=line.id, last_sha256=sha256))


def audit_lines(
    connection: Connection, limit: int = DEFAULT_LIMIT, cursor: str | None = None, actor: str | None = None
) -> Page[AuditLine]:
    """Return a page of the log, newest first, optionally of one actor. Raises InvalidCursor."""
    query = sa.select(_LOG) if actor is None else sa.select(_LOG).where(_LOG.c.actor == actor)
    return page_of_rows(connection, query, _LOG.c.id, limit, cursor, newest_first=True).of(_line)


def audit_lines_after(connection: Connection, line_id: int, actions: Collection[str], limit: int) -> list[AuditLine]:
    """The lines with a greater id and one of these actions, oldest first."""
    query = sa.select(_LOG).where(_LOG.c.id > line_id, _LOG.c.action.in_(actions)).order_by(_LOG.c.id).limit(limit)
    return [_line(row) for row in connection.execute(query)]


def last_audit_line_id(connection: Connection) -> int:
    """The id of the newest line that was ever written."""
    return int(connection.execute(sa.select(_HEAD.c.last_id)).scalar_one())


def delete_audit_lines_before(connection: Connection, before: datetime) -> int:
    """Delete the oldest lines up to the first newer one, and return how many. The chain then starts after them."""
    keep = connection.execute(sa.select(sa.func.min(_LOG.c.id)).where(_LOG.c.at >= before)).scalar_one_or_none()
    old = _LOG.c.at < before if keep is None else _LOG.c.id < keep
    last = connection.execute(sa.select(_LOG).where(old).order_by(_LOG.c.id.desc()).limit(1)).one_or_none()
    if last is None:
        return 0
    n_deleted = connection.execute(sa.delete(_LOG).where(old)).rowcount
    connection.execute(sa.update(_HEAD).values(first_id=last.id + 1, first_previous_sha256=last.sha256))
    return int(n_deleted)


def audit_faults(connection: Connection) -> list[str]:
    """Return one sentence for each line that was changed or removed; empty if the chain is intact."""
    head = connection.execute(sa.select(_HEAD)).one()
    expected_id, previous = head.first_id, head.first_previous_sha256
    faults: list[str] = []
    after = -1
    while rows := connection.execute(sa.select(_LOG).where(_LOG.c.id > after).order_by(_LOG.c.id).limit(BLOCK)).all():
        for row in rows:
            line = _line(row)
            if line.id != expected_id:
                faults.append(_missing(expected_id, line.id - 1))
            elif line.previous_sha256 != previous:
                faults.append(f"Line {line.id} does not match the hash of the previous line.")
            if line.sha256 != line.expected_sha256():
                faults.append(f"Line {line.id} was changed.")
            expected_id, previous, after = line.id + 1, line.sha256, line.id
    if expected_id <= head.last_id:
        faults.append(_missing(expected_id, head.last_id))
    elif not faults and previous != head.last_sha256:
        faults.append(f"Line {head.last_id} was replaced.")
    return faults


def _missing(first: int, last: int) -> str:
    return f"Line {first} is missing." if first >= last else f"Lines {first} to {last} are missing."


def _line(row: tables.Row) -> AuditLine:
    return AuditLine(**row._mapping)
