"""Where a pass leaves its statistic, so that a restart, a retry or another learner does not read the data again."""

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import structlog

from service.requests.json_values import JSONMapping
from storage.datasets.statistics import StatisticStore
from storage.errors import CorruptFile, Unwritable
from storage.files.checkpoints import CheckpointFile, Note


class ForgivingStore(StatisticStore):
    """One for training, of `max_bytes` at most, the oldest going first: what it loses is counted again and stops nothing."""

    def __init__(self, directory: Path, max_bytes: int) -> None:
        super().__init__(directory)
        self.max_bytes, self.log = max_bytes, structlog.get_logger("jobs")

    def get(self, key: str) -> pa.Table | None:
        """The stored table; a damaged one is discarded and missing."""
        try:
            return super().get(key)
        except CorruptFile as error:
            self.log.warning("a stored statistic is damaged and will be counted again", key=key, reason=str(error))
            self.discard(key)
            return None

    def put(
        self,
        key: str,
        table: pa.Table,
        spec: JSONMapping | None = None,
        *,
        schema: str | None = None,
        files: Iterable[str] = (),
    ) -> None:
        """Keep the table if the disk lets us; without it only a restart or a refresh gets slower."""
        try:
            super().put(key, table, spec, schema=schema, files=files)
            self.prune(self.max_bytes)
        except Unwritable as error:
            self.log.warning("a statistic was not stored", key=key, reason=str(error))


class PassCheckpoint(CheckpointFile):
    """What one pass has counted so far; a disk that refuses only makes a restart slower."""

    def __init__(self, path: Path, every_s: float) -> None:
        super().__init__(path)
        self.every_s = every_s

    def save(self, table: pa.Table, note: Note) -> None:
        """Replace what was saved."""
        try:
            super().save(table, note)
        except Unwritable as error:
            structlog.get_logger("jobs").warning("a pass left no checkpoint", reason=str(error))


class JobCheckpoints:
    """The passes of one job, in its scratch folder; a pass is saved every `every_s` seconds."""

    def __init__(self, directory: Path, every_s: float) -> None:
        self.directory, self.every_s = directory, every_s

    def at(self, key: str) -> PassCheckpoint:
        """That of the pass with this key."""
        return PassCheckpoint(self.directory / f"{key}.checkpoint", self.every_s)
