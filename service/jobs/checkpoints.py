"""Where a pass leaves its statistic, so that a restart, a retry or another learner does not read the data again."""

from typing import Protocol

import pyarrow as pa
import structlog

from storage.errors import CorruptFile, Unwritable
from storage.statistics import StatisticStore


class Checkpoints(Protocol):
    """What the driver of a learner asks of a store: content-addressed tables."""

    def get(self, key: str) -> pa.Table | None:
        """The table that was stored under the key, or None."""

    def put(self, key: str, table: pa.Table) -> None:
        """Keep a table under the key."""


class ForgivingStore:
    """A StatisticStore for training: what it loses is counted again, so a damaged file or a full disk stops nothing."""

    def __init__(self, store: StatisticStore) -> None:
        self.store = store
        self.log = structlog.get_logger("jobs")

    def get(self, key: str) -> pa.Table | None:
        """The stored table; a damaged one is discarded and missing."""
        try:
            return self.store.get(key)
        except CorruptFile as error:
            self.log.warning("a stored statistic is damaged and will be counted again", key=key, reason=str(error))
            self.store.discard(key)
            return None

    def put(self, key: str, table: pa.Table) -> None:
        """Keep the table if the disk lets us; without it only a restart gets slower."""
        try:
            self.store.put(key, table)
        except Unwritable as error:
            self.log.warning("a statistic was not stored", key=key, reason=str(error))
