"""One version as one file, to carry elsewhere: export and import."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import BaseModel, Field, ValidationError

from learners.kernels.arrays import Arrays
from learners.registry.model_kinds import completed
from service.product.child_process import aside
from service.product.outputs import Output, check_free, delivering
from service.product.versions.import_sandbox import try_model
from service.product.versions.registry import find_version
from service.requests.json_values import JSONMapping, JSONObject
from service.requests.problems import InvalidRequest
from service.requests.requests import NAME
from service.settings import max_model_bytes
from service.workspace import Workspace
from storage.errors import CorruptFile
from storage.files.decoded_size import check_decoded_size
from storage.files.workspace_layout import drafting, verify_file
from storage.models import bundle, model_file, models
from storage.models.model_file import ModelFiles
from storage.models.models import ModelVersion
from storage.models.publication import publishing, register


class Manifest(BaseModel):
    """What the registry keeps of an imported version."""

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
    """A version as one file: what it is, the number of bytes, and the bytes piece by piece."""
    version = find_version(workspace, reference)
    verify_file(version.duckdb_path, version.sha256)  # before the first byte is sent, so that it can still be said
    return version, bundle.bundle_size(version), bundle.bundle_chunks(version)


def write_export(
    workspace: Workspace, reference: str, output: Output, *, replace: bool = False
) -> tuple[ModelVersion, int]:
    """Write a version to one file, which appears when it is whole; InvalidRequest if it exists, unless `replace`."""
    check_free(output, replace=replace)
    version, n_bytes, chunks = export_version(workspace, reference)
    with delivering(output, replace=replace) as draft, draft.open("wb") as file:
        file.writelines(chunks)
    return version, n_bytes


def import_version(
    workspace: Workspace, path: Path, name: str | None = None, *, is_remote: bool = False
) -> ModelVersion:
    """Add an exported version to the registry, as the next one of `name` (by default its own), after checking all of it.

    One that came over REST, `is_remote`, is read in a process of its own. Raises InvalidRequest if a byte differs from what
    was exported, or it is not a model that this release can answer with.
    """
    if is_remote:
        return aside(workspace, import_version, path, name, is_trusted=False)
    layout, control = workspace.layout, workspace.control
    with drafting(layout.models, bundle.MODEL) as draft:
        try:
            manifest, header, arrays = read_export(path, draft, max_model_bytes(workspace.settings))
            try_model(workspace, path, draft, header, arrays)
        except CorruptFile as error:
            raise InvalidRequest(f"Nothing was imported: {error.reason}") from error
        name = name or manifest.name
        number = models.reserve_version(control, name)
        with publishing(layout.model_directory(name)):
            files = model_file.adopt_model(layout.models, name, number, draft, header, completed(header, arrays))
            return register(control, _imported(manifest, name, number, files))


def read_export(path: Path, draft: Path, max_bytes: int) -> tuple[Manifest, Mapping[str, object], Arrays]:
    """What an exported file holds, checked but for the model itself, which is still to be tried.

    The model file goes to `draft`; in memory the model may take `max_bytes`. Raises CorruptFile.
    """
    manifest = _checked(path, bundle.unpack_bundle(path, draft))
    model_file.refuse_views(draft)
    check_decoded_size(draft, max_bytes)
    header, arrays = model_file.read_model(draft)
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
        return checked
    except ValidationError as error:
        raise CorruptFile(path, f"its manifest is not one that `export` writes: {error.errors()[0]['msg']}.") from error
    except ValueError as error:  # infinite numbers
        raise CorruptFile(path, f"its manifest cannot be stored: {error}.") from error


def _check_lineage(path: Path, model: Path) -> None:
    """Read what the file says of its making, as lists and lineages will."""
    model_file.read_pairs(model, "libraries")
    try:
        for text in model_file.read_pairs(model, "provenance").values():
            json.dumps(json.loads(text), ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise CorruptFile(path, f"its provenance cannot be read ({error}).") from error
