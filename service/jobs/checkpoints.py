"""Where a pass leaves its statistic, so that a restart, a retry or another learner does not read the data again."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import structlog

from service.requests.json_values import JSONMapping, JSONObject
from storage.datasets.statistics import Entry, StatisticStore
from storage.errors import CorruptFile, Unwritable
from storage.files.checkpoints import CheckpointFile


class ForgivingStore:
    """A StatisticStore for training: what it loses is counted again, so a damaged file or a full disk stops nothing.

    Parameters
    ----------
    max_bytes : int
        The oldest statistics are removed when all take more.
    """

    def __init__(self, store: StatisticStore, max_bytes: int) -> None:
        self.store, self.max_bytes = store, max_bytes
        self.log = structlog.get_logger("jobs")

    def get(self, key: str) -> pa.Table | None:
        """The stored table; a damaged one is discarded and missing."""
        try:
            return self.store.get(key)
        except CorruptFile as error:
            self.log.warning("a stored statistic is damaged and will be counted again", key=key, reason=str(error))
            self.store.discard(key)
            return None

    def entries(self) -> Sequence[Entry]:
        """What is stored, and of which files."""
        return self.store.entries()

    def put(self, key: str, table: pa.Table, *, spec: JSONMapping, schema: str | None, files: Iterable[str]) -> None:
        """Keep the table if the disk lets us; without it only a restart or a refresh gets slower."""
        try:
            self.store.put(key, table, spec, schema=schema, files=files)
            self.store.prune(self.max_bytes)
        except Unwritable as error:
            self.log.warning("a statistic was not stored", key=key, reason=str(error))


class PassCheckpoint:
    """What one pass has counted so far; a disk that refuses only makes a restart slower."""

    def __init__(self, file: CheckpointFile, every_s: float) -> None:
        self.file, self.every_s = file, every_s

    def load(self) -> tuple[pa.Table, JSONObject] | None:
        """What was saved last."""
        return self.file.load()

    def save(self, table: pa.Table, note: JSONObject) -> None:
        """Replace what was saved."""
        try:
            self.file.save(table, note)
        except Unwritable as error:
            structlog.get_logger("jobs").warning("a pass left no checkpoint", reason=str(error))


class JobCheckpoints:
    """The passes of one job, in its scratch folder.

    Parameters
    ----------
    every_s : float
        Time between two checkpoints of a pass.
    """

    def __init__(self, directory: Path, every_s: float) -> None:
        self.directory, self.every_s = directory, every_s

    def at(self, key: str) -> PassCheckpoint:
        """That of the pass with this key."""
        return PassCheckpoint(CheckpointFile(self.directory / f"{key}.checkpoint"), self.every_s)
