"""Evaluation records in a version's file: the report, and the counts of its evaluation rows."""

import json
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from learners.evaluation.model_report import ModelReport
from learners.models.model import Model
from learners.monitoring.count_layout import Watched
from learners.monitoring.reference import Reference, served_reference, training_reference
from learners.monitoring.served_counts import ServedCounts
from learners.passes.sources.source import Source
from service.product.versions.provenance import was_weighted
from service.requests.json_values import JSONMapping
from service.workspace import Workspace
from storage.files.atomic_files import write_file_atomically
from storage.models.model_file import read_model_table
from storage.models.model_versions import ModelVersion

MOST_ROWS = 50_000
COUNTS, LAYOUT, REPORT = "served_counts", "served_layout", "report"


def save_evaluation_counts(model: Model, rows: Source, beside: Path) -> None:
    """Count evaluation rows as if they had been served, into a file beside the learned model."""
    counts = ServedCounts(Watched(model), present=rows.arrow_schema.names)
    for batch in rows.thinned(MOST_ROWS).batches(counts.columns):
        counts.update(batch)
    with write_file_atomically(_place(beside), replace=True) as draft:
        metadata = {LAYOUT.encode(): counts.watched.fingerprint.encode()}
        pq.write_table(counts.to_arrow().replace_schema_metadata(metadata), draft)


def evaluation_count_tables(beside: Path) -> dict[str, pa.Table]:
    """Return the tables of a model file that hold these counts; empty if nothing was measured."""
    if not _place(beside).exists():
        return {}
    counts = pq.ParquetFile(_place(beside)).read()
    layout = (counts.schema.metadata or {})[LAYOUT.encode()].decode()
    return {COUNTS: counts.replace_schema_metadata(None), LAYOUT: pa.table({"sha256": [layout]})}


def load_evaluation_counts(version: ModelVersion, watched: Watched) -> ServedCounts | None:
    """Return the evaluation counts of a version if it has them in the layout of this release, else None."""
    layout = _table(version.duckdb_path, version.sha256, LAYOUT)
    if layout is None or layout["sha256"].to_pylist() != [watched.fingerprint]:
        return None
    counts = _table(version.duckdb_path, version.sha256, COUNTS)
    return None if counts is None else ServedCounts(watched).from_arrow(counts)


def reference_of_training(workspace: Workspace, version: ModelVersion, watched: Watched) -> Reference | None:
    """Return what served rows are compared with by default: the counts of training, or None if the version has none.

    Weighted counts are no counts of rows, so rows kept back take their place.
    """
    scored = load_evaluation_counts(version, watched)
    if not was_weighted(workspace, version):
        return training_reference(watched, scored)
    return None if scored is None or not scored.n_rows else served_reference("rows kept back", scored)


def save_report(report: ModelReport | None, beside: Path) -> None:
    """Write a report beside the learned model: it has values of columns, which the results of a job's steps shall not keep."""
    if report is None:
        _report_place(beside).unlink(missing_ok=True)
        return
    with write_file_atomically(_report_place(beside), replace=True) as draft:
        draft.write_text(json.dumps(report.to_dict()))


def report_tables(beside: Path, noted: JSONMapping | None) -> dict[str, pa.Table]:
    """Return the model-file table that holds the report beside the learned model, or one that the job of an earlier release
    has noted; empty without one.
    """
    place = _report_place(beside)
    text = place.read_text() if place.exists() else None if noted is None else json.dumps(noted)
    return {} if text is None else {REPORT: pa.table({"value": [text]})}


def load_model_report(version: ModelVersion) -> ModelReport | None:
    """Return the stored report on a version's evaluation rows, or None."""
    table = _table(version.duckdb_path, version.sha256, REPORT)
    return None if table is None else ModelReport.from_dict(json.loads(table["value"][0].as_py()))


@lru_cache(maxsize=64)
def _table(duckdb_path: Path, sha256: str, name: str) -> pa.Table | None:
    """Read a table of a version's file, which never changes."""
    del sha256
    return read_model_table(duckdb_path, name)


def _place(beside: Path) -> Path:
    return beside.with_name(f"{beside.name}.served.parquet")


def _report_place(beside: Path) -> Path:
    return beside.with_name(f"{beside.name}.report.json")
