"""Models fitted in Python, saved as files and published as versions in the format that `export` writes and `import`
reads.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from pydantic import TypeAdapter

from learners.models.model import Model
from learners.orders.formats.network_files import network_file_format, read_network
from learners.registry import recipes
from learners.registry.discrete_networks import network_model
from learners.registry.model_kinds import load_model
from learners.schema import Schema
from service.product.versions.export_import import model_refusal_reason, read_export
from service.product.versions.provenance import library_versions_table
from service.product.versions.registry import find_version
from service.requests.json_values import JSONMapping, JSONObject
from service.requests.problems import InvalidRequest
from service.settings import Settings, max_model_bytes
from service.workspace import Workspace
from storage.errors import CorruptFile, NotFound
from storage.files.atomic_files import write_file_atomically as publishing_file
from storage.files.workspace_layout import checked_alias, checked_resource_name
from storage.models import bundle, model_file, model_versions
from storage.models.model_file import ModelFiles, read_model_table, write_model
from storage.models.model_versions import ModelVersion, register_model_version, version_publishing_lock

SAVED_AS = "model"  # a model that is saved has no name yet: whoever imports it gives one
INPUT = "input_columns"
LEARNER_OF_FILES = "network"


@dataclass(frozen=True)
class Fitted:
    """A model with what its estimator needs: the learner (a key of `recipes.LEARNERS` or another word) and its
    parameters.

    `columns` are all of the table but the target, in order; of an array, which has no names, `is_named` is false.
    """

    model: Model
    learner: str
    parameters: JSONMapping
    columns: tuple[str, ...]
    is_named: bool = True
    metrics: JSONMapping = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)


def save_fitted_model(fitted: Fitted, output: Path, *, replace: bool = False) -> int:
    """Write a model to one file that appears only when complete; return its bytes. InvalidRequest if it exists, unless
    `replace`.
    """
    if output.exists() and not replace:
        raise InvalidRequest(f"{output} already exists. Choose another name, or replace it with replace=True.")
    with TemporaryDirectory() as folder:
        version = _version(fitted, SAVED_AS, 1, _written(fitted, Path(folder), SAVED_AS, 1))
        with publishing_file(output, replace=replace) as draft, draft.open("wb") as file:
            file.writelines(bundle.bundle_chunks(version))
    return output.stat().st_size


def load_fitted_model(path: Path) -> Fitted:
    """Read a model from a file written by `save_fitted_model` or `export` after checking every byte, or a network from
    a BIF, XMLBIF or XDSL file.

    The model is tried in this process. `fewpass models import` tries untrusted files in a separate process. Raises
    NotFound if there is no such file; CorruptFile if it is another file, is damaged, or is not a model that this
    release can answer with; NetworkFileError, InvalidNetwork or NetworkTooLarge.
    """
    if not os.path.isfile(path):  # noqa: PTH113  # also of a name too long for a file
        raise NotFound("file", str(path))
    if network_file_format(path) is not None:
        return _network(path)
    with TemporaryDirectory() as folder:
        draft = Path(folder) / bundle.MODEL
        manifest, header, arrays = read_export(path, draft, max_model_bytes(Settings()))
        if reason := model_refusal_reason(header, arrays):
            raise CorruptFile(path, reason)
        columns, is_named = _columns(draft, Schema.from_json(str(header["schema"])))
        return Fitted(
            load_model(header, arrays),
            manifest.learner,
            manifest.parameters,
            columns,
            is_named,
            manifest.metrics,
            manifest.tags,
        )


def publish_fitted_model(
    workspace: Workspace, fitted: Fitted, name: str, aliases: Sequence[str] = (), tags: Mapping[str, str] | None = None
) -> ModelVersion:
    """Add a model to the registry as the next version of a name (InvalidName), and point aliases at it."""
    checked_resource_name("model", name)
    for alias in aliases:
        checked_alias(alias)
    number = model_versions.reserve_version(workspace.control, name)
    with version_publishing_lock(workspace.layout.model_directory(name)):
        files = _written(fitted, workspace.layout.models, name, number)
        version = _version(fitted, name, number, files, fitted.tags if tags is None else tags)
        return register_model_version(workspace.control, version, aliases=aliases, reason="published from Python")


def import_network(workspace: Workspace, path: Path, name: str) -> ModelVersion:
    """Add the network of a BIF, XMLBIF, XDSL or SEM file to the registry as the next version of a name.

    Raises NetworkFileError, naming the line; InvalidNetwork, NetworkTooLarge or InvalidName.
    """
    checked_resource_name("model", name)
    return publish_fitted_model(workspace, _network(path), name)


def _network(path: Path) -> Fitted:
    model = network_model(read_network(path))
    columns = tuple(attribute.name for attribute in model.schema.attributes)
    return Fitted(model, LEARNER_OF_FILES, {}, columns, tags={"imported_from": path.name})


def load_registered_model(workspace: Workspace, reference: str) -> Fitted:
    """Read and check the registered model of "name", "name@3" or "name@alias" (NotFound, CorruptFile)."""
    version = find_version(workspace, reference)
    header, arrays = model_file.read_model_file(version.duckdb_path)
    model = load_model(header, arrays)
    columns, is_named = _columns(version.duckdb_path, model.schema)
    return Fitted(model, version.learner, version.parameters, columns, is_named, version.metrics, version.tags)


def json_learner_parameters(learner: str, parameters: Mapping[str, object]) -> JSONObject:
    """Return all parameters of a learner as JSON values; InvalidParameter if one is unknown or wrong."""
    record = recipes.parse_learner_parameters(learner, parameters)
    plain: JSONObject = TypeAdapter(type(record)).dump_python(record, mode="json")
    return plain


def _written(fitted: Fitted, directory: Path, name: str, number: int) -> ModelFiles:
    header, arrays = fitted.model.to_arrays()
    is_named = pa.array([fitted.is_named] * len(fitted.columns), pa.bool_())
    columns = pa.table({"name": pa.array(fitted.columns, pa.string()), "is_named": is_named})
    tables = fitted.model.tables() | {"libraries": library_versions_table(), INPUT: columns}
    return write_model(directory, name, number, header, arrays, tables)


def _version(
    fitted: Fitted, name: str, number: int, files: ModelFiles, tags: Mapping[str, str] | None = None
) -> ModelVersion:
    facts = getattr(fitted.model, "facts", {})
    return ModelVersion(
        name=name,
        version=number,
        learner=fitted.learner,
        parameters=json.loads(json.dumps(fitted.parameters)),
        dataset=None,
        metrics=fitted.metrics,
        job_id=None,
        files=(),
        n_rows=int(facts.get("n_rows", 0)),
        tags=fitted.tags if tags is None else tags,
        **vars(files),
    )


def _columns(path: Path, schema: Schema) -> tuple[tuple[str, ...], bool]:
    """Return the training columns and whether they had names; for a version trained by the service, the columns of its
    schema.
    """
    table = read_model_table(path, INPUT)
    attributes = [attribute.name for attribute in schema.attributes]
    if table is None:
        return (*attributes, *(entry.name for entry in schema.left_out if entry.name not in attributes)), True
    rows = table.to_pylist()
    names = tuple(str(row.get("name")) for row in rows)
    if not set(attributes) <= set(names) or len(set(names)) < len(names):
        raise CorruptFile(path, f"its table {INPUT!r} does not have the columns of its model.")
    return names, all(row.get("is_named") is True for row in rows)
