"""Leases of job workers: a worker that does not renew its lease loses it, and can write nothing more.

The row is the lease and the fence at once. Whoever finds that a worker is gone deletes its row (`end_lease`); from then on
every writing transaction of that worker fails with LeaseLost, wherever it was stopped, because `Control.writing` looks
for the row first and there is one writer at a time. (Gray and Cheriton (1989) describe leases; the fence is what
Chubby calls a sequencer: Burrows (2006), section 2.4.)
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from storage.control import tables
from storage.control.control import Control
from storage.errors import LeaseLost

_WORKERS = tables.workers


@dataclass(frozen=True)
class Lease:
    """Lease of a live worker."""

    id: str  # of this start of the worker; never used again
    host: str  # where it runs, with the slot
    slot: int
    beats: int  # grows with each renewal: others see by it that the worker lives, whatever their clocks say
    lease_s: float  # seconds without a beat after which others may end the lease
    renewed_at: datetime  # by the worker's own clock, for people; aware, UTC


def take_lease(control: Control, worker: str, host: str, slot: int, lease_s: float) -> None:
    """Register a starting worker, and fence all later writes of this `control` by its lease.

    It holds the lock of its slot, so the former holder of the slot on this machine is dead: that lease ends.
    """
    values = {"id": worker, "host": host, "slot": slot, "beats": 0, "lease_s": lease_s, "renewed_at": tables.utc_now()}
    with control.writing() as connection:
        connection.execute(sa.delete(_WORKERS).where(_WORKERS.c.host == host, _WORKERS.c.slot == slot))
        connection.execute(sa.insert(_WORKERS).values(**values))
    control.lease = worker


def renew_lease(control: Control, worker: str) -> None:
    """Renew the worker's lease; LeaseLost if others have ended it."""
    renewed = sa.update(_WORKERS).where(_WORKERS.c.id == worker)
    with control.writing() as connection:
        values = {"beats": _WORKERS.c.beats + 1, "renewed_at": tables.utc_now()}
        if connection.execute(renewed.values(**values)).rowcount == 0:
            raise LeaseLost(worker)


def end_lease(control: Control, worker: str) -> bool:
    """End the lease of this worker or of a lost one; return whether this call ended it."""
    with control.writing() as connection:
        return connection.execute(sa.delete(_WORKERS).where(_WORKERS.c.id == worker)).rowcount == 1


def list_worker_leases(control: Control) -> tuple[Lease, ...]:
    """Return all current leases, by worker."""
    with control.reading() as connection:
        rows = connection.execute(sa.select(_WORKERS).order_by(_WORKERS.c.id))
        return tuple(Lease(**row._mapping) for row in rows)
