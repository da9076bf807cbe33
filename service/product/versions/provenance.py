"""What the file of a version keeps of its making: where it comes from, how good it was, and what the rows that it was measured on are like."""

import json
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from learners.evaluation.model_report import ModelReport
from learners.models.library_versions import installed_version
from learners.models.model import Model
from learners.monitoring.count_layout import Watched
from learners.monitoring.served_counts import ServedCounts
from learners.passes.sources.source import Source
from service.product.versions.registry import find_version
from service.requests.json_values import JSONMapping
from service.requests.requests import TrainRequest
from service.version import VERSION
from service.workspace import Workspace
from storage.datasets.forgotten import forgotten_rule_sha256
from storage.errors import NotFound
from storage.files.atomic_files import write_file_atomically
from storage.models.model_file import read_model_key_values, read_model_table
from storage.models.model_versions import ModelVersion

FILES = pa.schema([("path", pa.string()), ("size", pa.int64()), ("n_rows", pa.int64()), ("footer_sha256", pa.string())])
LIBRARIES = ("numpy", "numba", "pyarrow", "duckdb", "xgboost", "scikit-learn")
MOST_ROWS = 50_000
COUNTS, LAYOUT, REPORT = "served_counts", "served_layout", "report"


def provenance_tables(
    request: TrainRequest, learned: JSONMapping, metrics: JSONMapping, job_id: str
) -> dict[str, pa.Table]:
    """What was asked for, from which files and with which libraries, and how good it is.

    `learned` is the receipt of the step that learned: `files`, `n_rows`, `passes`, the rules of `forgotten` rows, the
    `snapshot` of a lake table, and of files that hold rows of `databases` from where. Returns the tables `metrics` (name,
    value), `provenance` (name, value as JSON), `source_files` and `libraries`.
    """
    facts = {
        "learner": request.learner,
        "parameters": request.parameters,
        "dataset": request.dataset,
        "target": request.target,
        "holdout": request.holdout,
        "seed": request.seed,
        "job_id": job_id,
        "n_rows": learned["n_rows"],
        "request": request.model_dump(mode="json"),
        "passes": learned["passes"],
        "databases": learned.get("databases", {}),
        "forgotten": [forgotten_rule_sha256(where) for where in learned.get("forgotten", [])],
    } | ({"snapshot": learned["snapshot"]} if learned.get("snapshot") else {})
    return {
        "metrics": _named(metrics),
        "provenance": _named(facts),
        "source_files": pa.Table.from_pylist(list(learned["files"]), FILES),
        "libraries": library_versions_table(),
    }


def request_with_last_columns(workspace: Workspace, request: TrainRequest) -> TrainRequest:
    """The request; of columns that an update says nothing of, what the newest version's training was told of them.

    An empty entry takes back what was said, and says nothing itself.
    """
    before: dict[str, object] = {}
    if request.update:
        with suppress(NotFound):
            version = find_version(workspace, f"{request.model}@latest")
            last = json.loads(read_model_key_values(version.duckdb_path, "provenance").get("request") or "{}")
            before = last.get("columns", {}) if last.get("dataset") == request.dataset else {}
    columns = {name: entry for name, entry in (before | request.columns).items() if entry != {}}
    return request.model_copy(update={"columns": columns})


def request_at_snapshot(request: TrainRequest, snapshot: JSONMapping | None) -> TrainRequest:
    """The request with the snapshot that a training took: what is asked of its rows later shall not see newer ones."""
    return request if not snapshot else request.model_copy(update={"at": str(snapshot["version"])})


def _named(values: JSONMapping) -> pa.Table:
    texts = [json.dumps(value) for value in values.values()]
    return pa.table({"name": pa.array(list(values), pa.string()), "value": pa.array(texts, pa.string())})


@cache
def library_versions_table() -> pa.Table:
    """With which versions of the libraries this process works: name, version."""
    versions = [VERSION, *(installed_version(name) for name in LIBRARIES)]
    return pa.table({"name": ["fewpass", *LIBRARIES], "version": versions})


def save_evaluation_counts(model: Model, rows: Source, beside: Path) -> None:
    """Count rows as if they had been served, into a file beside that of the model that was learned."""
    counts = ServedCounts(Watched(model), present=rows.arrow_schema.names)
    for batch in rows.thinned(MOST_ROWS).batches(counts.columns):
        counts.update(batch)
    with write_file_atomically(_place(beside), replace=True) as draft:
        metadata = {LAYOUT.encode(): counts.watched.fingerprint.encode()}
        pq.write_table(counts.to_arrow().replace_schema_metadata(metadata), draft)


def evaluation_count_tables(beside: Path) -> dict[str, pa.Table]:
    """The tables of a model file that keep these counts; none where nothing was measured."""
    if not _place(beside).exists():
        return {}
    counts = pq.ParquetFile(_place(beside)).read()
    layout = (counts.schema.metadata or {})[LAYOUT.encode()].decode()
    return {COUNTS: counts.replace_schema_metadata(None), LAYOUT: pa.table({"sha256": [layout]})}


def load_evaluation_counts(version: ModelVersion, watched: Watched) -> ServedCounts | None:
    """The counts of a version, if it has them and by the layout of this release."""
    layout = _table(version.duckdb_path, version.sha256, LAYOUT)
    if layout is None or layout["sha256"].to_pylist() != [watched.fingerprint]:
        return None
    counts = _table(version.duckdb_path, version.sha256, COUNTS)
    return None if counts is None else ServedCounts(watched).from_arrow(counts)


def report_tables(report: JSONMapping | None) -> dict[str, pa.Table]:
    """The table of a model file that keeps a report, as `ModelReport.to_dict` tells it; none without one."""
    return {} if report is None else {REPORT: pa.table({"value": [json.dumps(report)]})}


def load_model_report(version: ModelVersion) -> ModelReport | None:
    """The report of a version on the rows that its training was measured on, if it keeps one."""
    table = _table(version.duckdb_path, version.sha256, REPORT)
    return None if table is None else ModelReport.from_dict(json.loads(table["value"][0].as_py()))


@lru_cache(maxsize=64)
def _table(duckdb_path: Path, sha256: str, name: str) -> pa.Table | None:
    """One of a version's file; its files never change."""
    del sha256
    return read_model_table(duckdb_path, name)


def _place(beside: Path) -> Path:
    return beside.with_name(f"{beside.name}.served.parquet")
