"""What a version looks like: its structure, its circuit, where it comes from."""

import json
from io import BytesIO

from learners.circuits.bayesian.posterior_samples.model import BayesianCircuit
from learners.circuits.model import CircuitModel
from learners.ensembles.model import EnsembleModel
from learners.errors import InvalidParameter, LearnerError
from learners.models.model import Model
from service.product.versions.registry import find_version
from service.product.versions.served import served
from service.product.views.circuit_export import CircuitOf, Form, circuit_of
from service.product.views.graphs import graph_of, graph_of_structure
from service.product.views.structure_svg import to_svg
from service.requests.json_values import JSONObject
from service.serving.predictor import map_version
from service.workspace import Workspace
from storage.models import model_file


class NoChains(LearnerError, ValueError):
    """Chains were asked of a model that was not sampled."""

    def __init__(self, kind: str) -> None:
        super().__init__(
            f"A model of kind {kind!r} has no chains to draw. Train with --learner spn --set learning=gibbs to have some."
        )


def structure(workspace: Workspace, reference: str, member: int | None = None) -> JSONObject:
    """Nodes and edges of a model's graph, or of one member of an ensemble.

    Raises
    ------
    InvalidParameter
        If there is no such member.
    """
    return structure_of(served(workspace, reference).model, member)


def structure_of(model: Model, member: int | None) -> JSONObject:
    """Nodes and edges of a model's graph, or of one member of an ensemble."""
    if member is None:
        return dict(model.structure())
    if not isinstance(model, EnsembleModel):
        raise InvalidParameter("member", member, f"a model of kind {model.kind!r} has no members; only ensembles have")
    return model.member_structure(member)


def lineage(workspace: Workspace, reference: str) -> JSONObject:
    """Which files, job, schema, request and libraries a version was made of."""
    version = find_version(workspace, reference)
    provenance = model_file.read_pairs(version.duckdb_path, "provenance")
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
        "provenance": {name: json.loads(text) for name, text in provenance.items()},
        "libraries": model_file.read_pairs(version.duckdb_path, "libraries"),
    }


def draw(workspace: Workspace, reference: str, member: int | None = None) -> bytes:
    """The structure of a version as an SVG picture: columns in layers below the class, or the nodes of a circuit.

    Of a posterior over structures, every probable edge with its width by probability.

    Raises
    ------
    PictureTooLarge
        If it is a circuit of too many regions.
    """
    version = served(workspace, reference)
    if isinstance(version.model, CircuitModel):
        return circuit_of(version.model, Form.SVG)
    return structure_svg(version.model, f"{version.name}@{version.version}", member).encode()


def structure_svg(model: Model, title: str, member: int | None = None) -> str:
    """The graph of a model, or of one member of an ensemble, in layers; see `structure_svg.to_svg`."""
    return to_svg(graph_of(model) if member is None else graph_of_structure(structure_of(model, member)), title)


def draw_trace(workspace: Workspace, reference: str) -> bytes:
    """How the chains of a sampled version went, as an SVG picture.

    Raises
    ------
    NoChains
        If the version was not sampled.
    """
    version = served(workspace, reference)
    model = version.model
    if not isinstance(model, BayesianCircuit):
        raise NoChains(model.kind)
    from service.product.views.pictures import draw_trace as drawn

    picture = BytesIO()
    drawn(model.trace, picture, f"{version.name}@{version.version}")
    return picture.getvalue()


def circuit(workspace: Workspace, reference: str, form: Form, of: CircuitOf = CircuitOf.COLUMNS) -> bytes:
    """The circuit of a version, of a network the one that it is compiled to; or of the graphs of a posterior over structures.

    Raises
    ------
    NoJoint, NetworkTooLarge, PictureTooLarge, NoPosterior, TooManyParentSets
    """
    return circuit_of(served(workspace, reference).model, form, of)
