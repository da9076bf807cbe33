"""Provenance in a version's file: its origin and its metrics."""

import json
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa

from learners.models.library_versions import installed_version
from learners.passes.row_rules import row_weight_rule
from learners.registry.model_kinds import load_model
from learners.schema import Schema
from service.product.datasets.later_rows import KeptBack
from service.product.versions.registry import find_version
from service.requests.json_values import JSONMapping, JSONObject
from service.requests.requests import TrainRequest
from service.version import VERSION
from service.workspace import Workspace
from storage.datasets.dataset_definitions import get_dataset
from storage.datasets.forgotten import forgotten_rule_sha256
from storage.errors import CorruptFile, NotFound
from storage.models.compiled import map_compiled
from storage.models.model_file import ModelFiles, read_model_key_values
from storage.models.model_versions import ModelVersion

FILES = pa.schema([("path", pa.string()), ("size", pa.int64()), ("n_rows", pa.int64()), ("footer_sha256", pa.string())])
LIBRARIES = ("numpy", "numba", "pyarrow", "duckdb", "xgboost", "scikit-learn")


def provenance_tables(
    request: TrainRequest, learned: JSONMapping, metrics: JSONMapping, job_id: str
) -> dict[str, pa.Table]:
    """Return the tables with request, files, library versions and metrics.

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
    } | {name: learned[name] for name in ("snapshot", "kept_back") if learned.get(name)}
    return {
        "metrics": _named(metrics),
        "provenance": _named(facts),
        "source_files": pa.Table.from_pylist(list(learned["files"]), FILES),
        "libraries": library_versions_table(),
    }


def request_with_last_columns(workspace: Workspace, request: TrainRequest) -> TrainRequest:
    """Return the request, with column overrides that an update omits taken from the newest version's training.

    An empty entry removes the former settings.
    """
    before: dict[str, object] = {}
    if request.update:
        with suppress(NotFound):
            version = find_version(workspace, f"{request.model}@latest")
            last = json.loads(stored_provenance(version).get("request") or "{}")
            before = last.get("columns", {}) if last.get("dataset") == request.dataset else {}
    columns = {name: entry for name, entry in (before | request.columns).items() if entry != {}}
    return request.model_copy(update={"columns": columns})


def parameters_with_decided_memory(parameters: JSONMapping, learner: str, model: object) -> JSONObject:
    """The parameters; where they leave it open, with the memory that decided how many rows a model of the learner drew."""
    facts = getattr(model, "facts", {})
    memory = facts.get("parameters", {}).get("memory") if facts.get("learner") == learner else None
    return dict(parameters) if memory is None else {"memory": memory, **parameters}


def last_trained_model(workspace: Workspace, name: str) -> object:
    """Return the newest version of a model; None if no version can be read."""
    with suppress(NotFound, CorruptFile):
        return load_model(*map_compiled(find_version(workspace, f"{name}@latest").arrow_path))
    return None


def was_weighted(workspace: Workspace, version: ModelVersion) -> bool:
    """Return True if a column or a class weighted the rows that a version was trained on."""
    request = json.loads(stored_provenance(version).get("request") or "{}")
    columns = dict(request.get("columns", {}))
    if request.get("dataset") is not None:
        with suppress(NotFound):
            columns = dict(get_dataset(workspace.control, request["dataset"]).columns) | columns
    return row_weight_rule(columns) is not None


def schema_of_version(version: ModelVersion) -> Schema:
    """Return the schema of a version's model. Raises CorruptFile or NotFound."""
    return load_model(*map_compiled(version.arrow_path)).schema


def kept_back(version: ModelVersion) -> KeptBack:
    """Return how the training of a version chose the rows that it kept back."""
    return KeptBack.of(json.loads(stored_provenance(version).get("kept_back") or "null"))


def stored_provenance(version: ModelVersion) -> Mapping[str, str]:
    """Return how a version was trained, each value as JSON. Raises NotFound or CorruptFile."""
    return _stored_provenance(version.duckdb_path, version.sha256)


@lru_cache(maxsize=256)  # every step asks for it, and opening a model file takes 35 ms
def _stored_provenance(path: Path, sha256: str) -> Mapping[str, str]:
    # The file with this hash never changes, so what this process has written into it need not be read.
    written = _WRITTEN.pop((path, sha256), None)
    return MappingProxyType(read_model_key_values(path, "provenance") if written is None else written)


_WRITTEN: dict[tuple[Path, str], dict[str, str]] = {}  # of the last version that this process has written


def remember_written_provenance(files: ModelFiles, tables: Mapping[str, pa.Table]) -> None:
    """Keep the provenance of a version just written, for who asks for it next."""
    written = tables["provenance"]
    _WRITTEN.clear()
    _WRITTEN[files.duckdb_path, files.sha256] = dict(
        zip(written["name"].to_pylist(), written["value"].to_pylist(), strict=True)
    )


def request_at_snapshot(request: TrainRequest, snapshot: JSONMapping | None) -> TrainRequest:
    """Return the request at the snapshot of its training, so that later questions about its rows do not see newer ones."""
    return request if not snapshot else request.model_copy(update={"at": str(snapshot["version"])})


def _named(values: JSONMapping) -> pa.Table:
    texts = [json.dumps(value) for value in values.values()]
    return pa.table({"name": pa.array(list(values), pa.string()), "value": pa.array(texts, pa.string())})


@cache
def library_versions_table() -> pa.Table:
    """Return the versions of the libraries in this process: name, version."""
    versions = [VERSION, *(installed_version(name) for name in LIBRARIES)]
    return pa.table({"name": ["fewpass", *LIBRARIES], "version": versions})
