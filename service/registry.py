"""The verbs of the registry beyond listing: tags, lineage, rollback, retention, decisions, export and import."""

import json
import math
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field, ValidationError

from learners.circuits.model import CircuitModel
from learners.classifiers.lookup import LookupModel
from learners.errors import LearnerError
from learners.kinds import load_model
from learners.model import Model
from learners.query import Marginal
from learners.schema.records import encode_records, record_classifier
from service.circuits import Form, circuit_of
from service.ledger import DATA, LOCAL, remove_counted
from service.outputs import check_free
from service.predictor import map_version
from service.problems import Conflict, InvalidRequest
from service.requests import NAME
from storage import aliases, bundle, model_file, models, promotions, removal, retention
from storage.aliases import AliasMove
from storage.errors import CorruptFile, NotFound
from storage.files import drafting, publish, verify_file
from storage.models import ModelVersion
from storage.paging import Page
from storage.promotions import Promotion

if TYPE_CHECKING:
    from service.jobs.queue import Job
    from service.workspace import Workspace


class Manifest(BaseModel):
    """What the registry keeps of an imported version."""

    name: str = Field(pattern=NAME)
    version: int = Field(ge=1, lt=2**31)
    learner: str = Field(max_length=64)
    parameters: dict[str, Any]
    dataset: str | None = Field(max_length=64)
    metrics: dict[str, Any]
    files: list[dict[str, Any]]
    n_rows: int = Field(ge=0, lt=2**63)
    tags: dict[str, str]


class Registry:
    """The registry of a workspace.

    Parameters
    ----------
    workspace : Workspace
    """

    def __init__(self, workspace: "Workspace") -> None:
        self.workspace = workspace

    # Tags and where a version comes from

    def set_tag(self, reference: str, tag: str, value: str | None) -> ModelVersion:
        """Set a tag of a version; None removes it."""
        version = self.workspace.model(reference)
        return models.set_tag(self.workspace.control, version.name, version.version, tag, value)

    def lineage(self, reference: str) -> dict[str, Any]:
        """Which files, job, schema, request and libraries a version was made of."""
        version = self.workspace.model(reference)
        told = model_file.read_provenance(version.duckdb_path)
        return {
            "name": version.name,
            "version": version.version,
            "sha256": version.sha256,
            "created_at": version.created_at,
            "job_id": version.job_id,
            "dataset": version.dataset,
            "n_rows": version.n_rows,
            "files": version.files,
            "schema": json.loads(map_version(version).schema.to_json()),
            "provenance": {name: json.loads(text) for name, text in told.items()},
            "libraries": model_file.read_libraries(version.duckdb_path),
        }

    def draw(self, reference: str) -> bytes:
        """The structure of a version as an SVG picture: attributes around the class, or the nodes of a circuit.

        Raises
        ------
        PictureTooLarge
            If it is a circuit of too many regions.
        """
        version = self.workspace.model(reference)
        model = map_version(version).model
        if isinstance(model, CircuitModel):
            return circuit_of(model, Form.SVG).encode()
        from service.pictures import draw_structure  # matplotlib takes a second to import

        picture = BytesIO()
        draw_structure(model.structure(), picture, f"{version.name}@{version.version}")
        return picture.getvalue()

    def circuit(self, reference: str, form: Form) -> str:
        """The circuit of a version, of a network the one that it is compiled to.

        Raises
        ------
        NoJoint, NetworkTooLarge, PictureTooLarge
        """
        return circuit_of(self.workspace.served(reference).model, form)

    def circuit_to(self, reference: str, form: Form, output: Path, *, replace: bool = False) -> int:
        """Write the circuit of a version to a file; returns the number of bytes.

        Raises
        ------
        InvalidRequest
            If the file exists and is not to be replaced.
        NoJoint, NetworkTooLarge, PictureTooLarge
        """
        check_free(output, replace=replace)
        text = self.circuit(reference, form).encode()
        with publish(output, replace=replace) as draft:
            draft.write_bytes(text)
        return len(text)

    # Aliases and decisions

    def roll_back(self, name: str, alias: str) -> int:
        """Let an alias mean what it meant before, once more each time; returns the version."""
        return aliases.roll_back(self.workspace.control, name, alias)

    def history(self, name: str, limit: int = 100, cursor: str | None = None) -> Page[AliasMove]:
        """Where the aliases of a model have pointed, newest first."""
        self.retention(name)  # so that an unknown model is not found
        return aliases.alias_history(self.workspace.control, name, limit, cursor)

    def promotions(self, name: str, limit: int = 100, cursor: str | None = None) -> Page[Promotion]:
        """The decisions between champions and challengers of a model, newest first."""
        self.retention(name)  # so that an unknown model is not found
        return promotions.list_promotions(self.workspace.control, name, limit, cursor)

    # What goes

    def delete_version(self, name: str, version: int) -> None:
        """Remove a version and its files; an aliased version is refused."""
        model_file.remove_model(removal.delete_version(self.workspace.control, name, version).duckdb_path)

    def delete(self, name: str) -> list[int]:
        """Remove all versions of a model with their files, its aliases and its history; returns which.

        Raises
        ------
        Conflict
            If a job that has not ended is at work on it.
        """
        busy = [job.id for job in self.workspace.queue.unfinished() if _model_of(job) == name]
        if busy:
            raise Conflict(f"Job {busy[0]} is at work on {name!r}: let it end, or cancel it, first.", job=busy[0])
        gone = removal.delete_model(self.workspace.control, name)
        for version in gone:
            model_file.remove_model(version.duckdb_path)
        remove_counted(self.workspace.layout.model_directory(name) / DATA)
        return [version.version for version in gone]

    def retention(self, name: str) -> int | None:
        """How many versions of a model are kept; None for all."""
        return retention.retention(self.workspace.control, name)

    def set_retention(self, name: str, keep: int | None) -> None:
        """Say how many versions of a model are kept when it is pruned and after each refresh; None for all."""
        retention.set_retention(self.workspace.control, name, keep)

    def prune(self, name: str, keep: int | None = None, *, job_id: str | None = None) -> list[int]:
        """Remove all but the newest versions and their files; returns which.

        Those that an alias points at stay, and those that a job made or names which has not ended: it may be comparing
        or promoting them just now.

        Parameters
        ----------
        name : str
        keep : int, optional
            By default what the model's retention says; a model without one is left as it is.
        job_id : str, optional
            The job that prunes: it needs its own versions no more.
        """
        if keep is None:
            keep = self.retention(name)
        if keep is None:
            return []
        named = self._named_by_jobs(name)

        def is_spared(version: ModelVersion) -> bool:
            return version.version in named or (version.job_id != job_id and self._is_unfinished(version.job_id))

        gone = removal.retain_versions(self.workspace.control, name, keep, is_spared)
        for version in gone:
            model_file.remove_model(version.duckdb_path)
        return [version.version for version in gone]

    def _is_unfinished(self, job_id: str | None) -> bool:
        # Asked after the version was seen: its job is older than it, and one that has ended never goes on.
        if job_id is None or job_id.startswith(LOCAL):
            return False
        try:
            return not self.workspace.queue.get(job_id).is_finished
        except NotFound:
            return False

    def _named_by_jobs(self, name: str) -> set[int]:
        """The versions that jobs name by number, such as "name@3", and that have not ended."""
        references = (str(job.request.get("model")).partition("@") for job in self.workspace.queue.unfinished())
        return {int(number) for model, _, number in references if model == name and number.isdecimal()}

    # One file to carry elsewhere

    def export_version(self, reference: str) -> tuple[ModelVersion, int, Iterator[bytes]]:
        """A version as one file: what it is, the number of bytes, and the bytes piece by piece."""
        version = self.workspace.model(reference)
        verify_file(version.duckdb_path, version.sha256)  # before the first byte is sent, so that it can still be said
        return version, bundle.bundle_size(version), bundle.bundle_chunks(version)

    def export_to(self, reference: str, output: Path, *, replace: bool = False) -> tuple[ModelVersion, int]:
        """Write a version to one file, which appears when it is whole.

        Raises
        ------
        InvalidRequest
            If the file exists and is not to be replaced.
        """
        check_free(output, replace=replace)
        version, n_bytes, chunks = self.export_version(reference)
        with publish(output, replace=replace) as draft, draft.open("wb") as file:
            file.writelines(chunks)
        return version, n_bytes

    def import_version(self, path: Path, name: str | None = None) -> ModelVersion:
        """Add an exported version to the registry, as the next version of its name, after checking all of it.

        Parameters
        ----------
        path : Path
            Of the exported file.
        name : str, optional
            Of the model here; by default the name that it was exported under.

        Raises
        ------
        InvalidRequest
            If a byte differs from what was exported, or it is not a model that this release can answer with.
        """
        layout, control = self.workspace.layout, self.workspace.control
        with drafting(layout.models, bundle.MODEL) as draft:
            try:
                manifest = _checked(path, bundle.unpack_bundle(path, draft))
                header, arrays = model_file.read_model(draft)
                _check_answers(path, header, arrays)
                _check_lineage(path, draft)
            except CorruptFile as error:
                raise InvalidRequest(f"Nothing was imported: {error.reason}") from error
            name = name or manifest.name
            number = models.reserve_version(control, name)
            files = model_file.adopt_model(layout.models, name, number, draft, header, arrays)
        version = ModelVersion(
            name=name,
            version=number,
            learner=manifest.learner,
            parameters=manifest.parameters,
            dataset=manifest.dataset,
            metrics=manifest.metrics,
            job_id=None,
            files=tuple(manifest.files),
            n_rows=manifest.n_rows,
            sha256=files.sha256,
            duckdb_path=files.duckdb_path,
            arrow_path=files.arrow_path,
            tags=manifest.tags | {"imported_from": f"{manifest.name}@{manifest.version}"},
        )
        try:
            return models.add_version(control, version)
        except BaseException:
            model_file.remove_model(files.duckdb_path)
            raise


def _model_of(job: "Job") -> str:
    """The name of the model that a job makes or asks."""
    return str(job.request.get("model")).partition("@")[0]


def _checked(path: Path, manifest: Mapping[str, Any]) -> Manifest:
    try:
        checked = Manifest(**manifest)
        json.dumps([checked.parameters, checked.files], allow_nan=False)
        return checked
    except ValidationError as error:
        raise CorruptFile(path, f"its manifest is not one that `export` writes: {error.errors()[0]['msg']}.") from error
    except ValueError as error:  # infinite numbers
        raise CorruptFile(path, f"its manifest cannot be stored: {error}.") from error


def _check_answers(path: Path, header: Any, arrays: Any) -> None:
    """Look at all of a model, and let it answer when nothing is known, before anyone relies on it."""
    try:
        model = load_model(header, arrays, is_trusted=False)
        json.dumps(model.structure(), ensure_ascii=False).encode()
        probabilities = _answer(model)
    except (LearnerError, ValueError, ArithmeticError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptFile(path, f"its model cannot be used ({type(error).__name__}: {error}).") from error
    if len(probabilities) != model.schema.n_classes or not math.isclose(sum(probabilities), 1, abs_tol=1e-6):
        raise CorruptFile(path, "its model gives no probabilities that sum to one.")


def _check_lineage(path: Path, model: Path) -> None:
    """Read what the file says of its making, as lists and lineages will."""
    model_file.read_libraries(model)
    try:
        for text in model_file.read_provenance(model).values():
            json.dumps(json.loads(text), ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise CorruptFile(path, f"its provenance cannot be read ({error}).") from error


def _answer(model: Model) -> list[float]:
    """The probability of each class, or without classes of everything, when nothing is known."""
    if isinstance(model, CircuitModel) and model.schema.target is None:
        return [answer["probability"] for answer in model.answer([Marginal({})])]
    if isinstance(model, LookupModel) and model.variances:
        model.credible_intervals(encode_records([{}], model.schema))
    return record_classifier(model)({}).tolist()
