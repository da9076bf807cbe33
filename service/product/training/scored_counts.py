"""Counts of the rows that a version was measured on: what its predictions were like where it had not learned."""

from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from learners.models.model import Model
from learners.monitoring.count_layout import Watched
from learners.monitoring.served_counts import ServedCounts
from learners.passes.sources.source import Source
from storage.files.workspace_layout import publish
from storage.models.model_file import read_table
from storage.models.models import ModelVersion

MOST_ROWS = 50_000
COUNTS, LAYOUT = "served_counts", "served_layout"


def keep_scored(model: Model, rows: Source, beside: Path) -> None:
    """Count rows as if they had been served, into a file beside that of the model that was learned."""
    counts = ServedCounts(Watched(model), present=rows.arrow_schema.names)
    for batch in rows.thinned(MOST_ROWS).batches(counts.columns):
        counts.update(batch)
    with publish(_place(beside), replace=True) as draft:
        metadata = {LAYOUT.encode(): counts.watched.fingerprint.encode()}
        pq.write_table(counts.to_arrow().replace_schema_metadata(metadata), draft)


def scored_tables(beside: Path) -> dict[str, pa.Table]:
    """The tables of a model file that keep these counts; none where nothing was measured."""
    if not _place(beside).exists():
        return {}
    counts = pq.ParquetFile(_place(beside)).read()
    layout = (counts.schema.metadata or {})[LAYOUT.encode()].decode()
    return {COUNTS: counts.replace_schema_metadata(None), LAYOUT: pa.table({"sha256": [layout]})}


def scored_counts(version: ModelVersion, watched: Watched) -> ServedCounts | None:
    """The counts of a version, if it has them and by the layout of this release."""
    counts = _kept(version.duckdb_path, version.sha256, watched.fingerprint)
    return None if counts is None else ServedCounts(watched).from_arrow(counts)


@lru_cache(maxsize=16)
def _kept(duckdb_path: Path, sha256: str, fingerprint: str) -> pa.Table | None:
    """Of a version; its files never change."""
    del sha256
    layout = read_table(duckdb_path, LAYOUT)
    if layout is None or layout["sha256"].to_pylist() != [fingerprint]:
        return None
    return read_table(duckdb_path, COUNTS)


def _place(beside: Path) -> Path:
    return beside.with_name(f"{beside.name}.served.parquet")
