"""Statistics of datasets: immutable DuckDB files, found by what they are of, and believed only if their bytes are unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa


class StatisticStore:
    """The statistics in one folder."""

    def __init__(self, directory: Path | str):
        self.directory = Path(directory)

    def get(self, key: str) -> pa.Table | None:
        raise NotImplementedError

    def put(self, key: str, table: pa.Table, spec: Mapping[str, Any] | None = None) -> None:
        raise NotImplementedError
