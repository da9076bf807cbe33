"""Views and exports of a version: structure, pictures, circuit, network, SQL and lineage."""

import json
from collections.abc import Sequence
from pathlib import Path

from learners.models.model import Model
from learners.orders.formats.network_files import NetworkFormat
from learners.registry.discrete_networks import model_to_network_text
from learners.registry.model_kinds import kind_of
from learners.registry.sql.script import is_too_large_for_script, sql_logs_path, sql_script, write_log_probabilities
from service.product.outputs import check_output_free, output_draft
from service.product.versions.registry import find_version, load_served_model
from service.product.views.circuit_export import CircuitOf, Form, export_model_circuit
from service.requests.json_values import JSONObject
from service.serving.predictor import map_model_version
from service.workspace import Workspace
from storage.models import model_file

MAX_CONTEXTS = 200


def version_structure(workspace: Workspace, reference: str, member: int | None = None) -> JSONObject:
    """Return nodes and edges of a model's graph, or of one ensemble member; InvalidParameter for an unknown member."""
    return model_structure(load_served_model(workspace, reference).model, member)


def model_structure(model: Model, member: int | None) -> JSONObject:
    """Return nodes and edges of a model's graph, or of one ensemble member."""
    return dict(model.structure()) if member is None else model.member_structure(member)


def version_family_table(workspace: Workspace, reference: str, column: str, limit: int = MAX_CONTEXTS) -> JSONObject:
    """The table behind a column of a network: rows and probabilities of each value in each context, the largest first.

    The table of an ensemble is that of its joint member. At most `limit` contexts are listed. Raises NoGraph if the
    model is not a network; UnknownColumn.
    """
    return model_family_table(load_served_model(workspace, reference).model, column, limit)


def model_family_table(model: Model, column: str, limit: int = MAX_CONTEXTS) -> JSONObject:
    """Return the family table of a model, as `version_family_table` does for a version."""
    return kind_of(model).family_table(model, column, limit)


def version_lineage(workspace: Workspace, reference: str) -> JSONObject:
    """Return the files, job, schema, request and library versions that a version was made from."""
    version = find_version(workspace, reference)
    provenance = model_file.read_model_key_values(version.duckdb_path, "provenance")
    return {
        "name": version.name,
        "version": version.version,
        "sha256": version.sha256,
        "created_at": version.created_at,
        "job_id": version.job_id,
        "dataset": version.dataset,
        "n_rows": version.n_rows,
        "files": version.files,
        "schema": json.loads(map_model_version(version).schema.to_json()),
        "provenance": {name: json.loads(text) for name, text in provenance.items()},
        "libraries": model_file.read_model_key_values(version.duckdb_path, "libraries"),
    }


def export_version_circuit(workspace: Workspace, reference: str, form: Form, of: CircuitOf = "columns") -> bytes:
    """Export the circuit of a version or of its network, or the circuit over a posterior's graphs, as
    `export_model_circuit`.
    """
    return export_model_circuit(load_served_model(workspace, reference).model, form, of)


def export_version_network(workspace: Workspace, reference: str, form: NetworkFormat) -> str:
    """Export the network of a version as BIF, XMLBIF or XDSL; see
    `learners.registry.discrete_networks.model_to_network_text`.

    Raises NoTables or TablesTooLarge if its tables are too large; InvalidNetwork if columns are numbers, which only BIF can
    hold; NoNetwork.
    """
    version = load_served_model(workspace, reference)
    return model_to_network_text(version.model, version.name, form)


def export_version_sql(
    workspace: Workspace,
    reference: str,
    table: str,
    dialect: str = "duckdb",
    view: str | None = None,
    key: Sequence[str] = (),
    absent: Sequence[str] = (),
    beside: Path | None = None,
    replace: bool = False,
) -> tuple[str, Path | None]:
    """Export a version as SQL that answers every row of a table; see `learners.registry.sql.script.sql_script`.

    `beside` is the path of the script file: if the tables are too large for a script, the table of log probabilities
    becomes a Parquet file beside it.

    By default the view has the name of the model, with `_` for dots. Raises NoSQL, TooLargeForSQL,
    UnknownDialect, UnsupportedColumn, UnwritableText, UnknownColumn or InvalidParameter.
    """
    version = load_served_model(workspace, reference)
    name = version.name.replace(".", "_") if view is None else view
    logs = None
    if beside is not None and dialect == "duckdb" and is_too_large_for_script(version.model):
        logs = sql_logs_path(beside)
        check_output_free(logs, replace=replace)
    script = sql_script(
        version.model,
        name=name,
        table=table,
        dialect=dialect,
        key=key,
        absent=absent,
        logs_path=None if logs is None else str(logs),
    )
    if logs is not None:
        with output_draft(logs, replace=replace) as draft:
            write_log_probabilities(version.model, draft)
    return script, logs
