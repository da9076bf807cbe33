"""Export and import of one version as a single file.

An imported model is tried before anybody relies on it; one that holds the bytes of another library, in a process that may die.
"""

import json
import math
import resource
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import BaseModel, Field, ValidationError

from learners.errors import LearnerError
from learners.kernels.arrays import Arrays
from learners.registry.model_kinds import add_derived_arrays, kind_of, load_model
from learners.registry.rehearsal import rehearse
from service.product.child_process import run_in_child_process
from service.product.outputs import Output, check_output_free, output_draft
from service.product.versions.registry import find_version
from service.requests.json_values import MOST_NESTED, JSONMapping, JSONObject, is_nested_deeper
from service.requests.problems import InvalidRequest
from service.requests.requests import NAME
from service.settings import max_model_bytes
from service.workspace import Workspace
from storage.errors import CorruptFile
from storage.files.atomic_files import draft_file_path, verify_file_sha256
from storage.models import bundle, model_file, model_versions
from storage.models.bundle import check_decoded_model_size
from storage.models.model_file import ModelFiles
from storage.models.model_versions import ModelVersion, register_model_version, version_publishing_lock

CPU_S = 60
LIBRARY = "booster"  # how the arrays begin that XGBoost reads


class Manifest(BaseModel):
    """Registry record of an imported version."""

    name: str = Field(pattern=NAME)
    version: int = Field(ge=1, lt=2**31)
    learner: str = Field(max_length=64)
    parameters: JSONObject
    dataset: str | None = Field(max_length=64)
    metrics: JSONObject
    files: list[JSONObject]
    n_rows: int = Field(ge=0, lt=2**63)
    tags: dict[str, str]


def export_version(workspace: Workspace, reference: str) -> tuple[ModelVersion, int, Iterator[bytes]]:
    """Export a version as one file: return its record, the number of bytes, and the bytes piece by piece."""
    version = find_version(workspace, reference)
    verify_file_sha256(
        version.duckdb_path, version.sha256
    )  # before the first byte is sent, so that it can still be said
    return version, bundle.bundle_size(version), bundle.bundle_chunks(version)


def write_export(
    workspace: Workspace, reference: str, output: Output, *, replace: bool = False
) -> tuple[ModelVersion, int]:
    """Write a version to one file that appears only when complete; InvalidRequest if it exists, unless `replace`."""
    check_output_free(output, replace=replace)
    version, n_bytes, chunks = export_version(workspace, reference)
    with output_draft(output, replace=replace) as draft, draft.open("wb") as file:
        file.writelines(chunks)
    return version, n_bytes


def import_version(
    workspace: Workspace, path: Path, name: str | None = None, *, is_remote: bool = False
) -> ModelVersion:
    """Add an exported version to the registry as the next version of `name` (by default the exported name), after
    checking all of it.

    One that came over REST, `is_remote`, is read in a separate process. Raises InvalidRequest if a byte differs from
    what was exported, or it is not a model that this release can answer with.
    """
    if is_remote:
        return run_in_child_process(workspace, import_version, path, name, is_trusted=False)
    layout, control = workspace.layout, workspace.control
    with draft_file_path(layout.models, bundle.MODEL) as draft:
        try:
            manifest, header, arrays = read_export(path, draft, max_model_bytes(workspace.settings))
            try_imported_model(workspace, path, draft, header, arrays)
        except CorruptFile as error:
            raise InvalidRequest(f"Nothing was imported: {error.reason}") from error
        name = name or manifest.name
        number = model_versions.reserve_version(control, name)
        with version_publishing_lock(layout.model_directory(name)):
            files = model_file.adopt_model_file(
                layout.models, name, number, draft, header, add_derived_arrays(header, arrays)
            )
            return register_model_version(control, _imported(manifest, name, number, files))


def read_export(path: Path, draft: Path, max_bytes: int) -> tuple[Manifest, Mapping[str, object], Arrays]:
    """Read and check the contents of an exported file; the model itself is tried later.

    The model file goes to `draft`; in memory the model may take `max_bytes`. Raises CorruptFile.
    """
    manifest = _checked(path, bundle.unpack_bundle(path, draft))
    model_file.refuse_model_file_views(draft)
    check_decoded_model_size(draft, max_bytes)
    header, arrays = model_file.read_model_file(draft)
    _check_lineage(path, draft)
    return manifest, header, arrays


def _imported(manifest: Manifest, name: str, number: int, files: ModelFiles) -> ModelVersion:
    tags = manifest.tags | {"imported_from": f"{manifest.name}@{manifest.version}"}
    own = {"name": name, "version": number, "job_id": None, "files": tuple(manifest.files), "tags": tags}
    return ModelVersion(**dict(manifest) | own | vars(files))


def _checked(path: Path, manifest: JSONMapping) -> Manifest:
    try:
        checked = Manifest(**manifest)
        json.dumps([checked.parameters, checked.files], allow_nan=False)

    except ValidationError as error:
        raise CorruptFile(path, f"its manifest was not written by `export`: {error.errors()[0]['msg']}.") from error
    except (ValueError, RecursionError) as error:  # infinite numbers
        raise CorruptFile(path, f"its manifest cannot be stored: {error}.") from error
    if is_nested_deeper([checked.parameters, checked.files]):
        raise CorruptFile(path, f"its manifest is nested more than {MOST_NESTED} levels deep.")
    return checked


def _check_lineage(path: Path, model: Path) -> None:
    """Read the lineage of a model file, as lists and lineage queries will."""
    model_file.read_model_key_values(model, "libraries")
    try:
        for text in model_file.read_model_key_values(model, "provenance").values():
            json.dumps(json.loads(text), ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise CorruptFile(path, f"its provenance cannot be read ({error}).") from error


def try_imported_model(
    workspace: Workspace, path: Path, draft: Path, header: Mapping[str, object], arrays: Arrays
) -> None:
    """Check all of a model, and let it answer without evidence.

    `path` is the imported file, for messages, and `draft` the model file that was in it. Raises CorruptFile if the model
    cannot be used, or ends the process that tries it.
    """
    if any(name.startswith(LIBRARY) for name in arrays):
        try:
            reason = run_in_child_process(workspace, _tried_file, draft, is_trusted=False)
        except InvalidRequest as error:
            raise CorruptFile(path, "its model crashes the process that reads it.") from error
    else:
        reason = model_refusal_reason(header, arrays)
    if reason:
        raise CorruptFile(path, reason)


def _tried_file(_workspace: Workspace, draft: Path) -> str:
    """Return why a model file cannot be used, found by a process with limited CPU time."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    most = int(usage.ru_utime + usage.ru_stime) + CPU_S
    resource.setrlimit(resource.RLIMIT_CPU, (most, most))
    return model_refusal_reason(*model_file.read_model_file(draft))


def model_refusal_reason(header: Mapping[str, object], arrays: Arrays) -> str:
    """Return why a loaded model cannot be used; empty if it can."""
    try:
        model = load_model(header, arrays, is_trusted=False)
        json.dumps(model.structure(), ensure_ascii=False).encode()
        probabilities = kind_of(model).trial(model)
        rehearse(model)
    except (LearnerError, ValueError, ArithmeticError, LookupError, TypeError, AttributeError, RecursionError) as error:
        return f"its model cannot be used ({type(error).__name__}: {error})."
    if len(probabilities) != model.schema.n_classes or not math.isclose(sum(probabilities), 1, abs_tol=1e-6):
        return "its model returns probabilities that do not sum to one."
    return ""
