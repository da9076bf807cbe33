"""What a version looks like, and takes with it elsewhere: its structure, pictures, circuit, network, SQL, and where it comes from."""

import json
from collections.abc import Sequence
from io import BytesIO

from learners.circuits.bayesian.model import BayesianCircuit
from learners.circuits.model import CircuitModel
from learners.ensembles.model import EnsembleModel
from learners.errors import InvalidParameter, LearnerError
from learners.models.model import Model
from learners.orders.drawing import heat_map_of
from learners.orders.formats.network_files import NetworkFormat
from learners.orders.model import OrderModel
from learners.registry.discrete_networks import network_text
from learners.registry.sql.script import sql_script
from service.product.versions.registry import find_version, served_model
from service.product.views.circuit_export import CircuitOf, Form, Picture, circuit_of
from service.product.views.column_graphs import graph_of, graph_of_posterior, graph_of_structure
from service.product.views.graph_svg import to_svg
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


class NoPosterior(LearnerError, ValueError):
    """A picture or file of a posterior over structures was asked of another kind of model."""

    def __init__(self, kind: str) -> None:
        super().__init__(
            f"A model of kind {kind!r} has no posterior over structures. Train with --learner orders to have one."
        )


def structure(workspace: Workspace, reference: str, member: int | None = None) -> JSONObject:
    """Nodes and edges of a model's graph, or of one member of an ensemble; InvalidParameter if there is no such member."""
    return structure_of(served_model(workspace, reference).model, member)


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

    Of a posterior over structures, every probable edge with its width by probability. Raises PictureTooLarge if it is a
    circuit of too many regions.
    """
    version = served_model(workspace, reference)
    if isinstance(version.model, CircuitModel):
        return circuit_of(version.model, "svg")
    graph = graph_of(version.model) if member is None else graph_of_structure(structure_of(version.model, member))
    return to_svg(graph, f"{version.name}@{version.version}").encode()


def draw_trace(workspace: Workspace, reference: str) -> bytes:
    """How the chains of a version went, as an SVG picture; NoChains if it was not sampled."""
    version = served_model(workspace, reference)
    model = version.model
    if not isinstance(model, BayesianCircuit):
        raise NoChains(model.kind)
    from service.product.views import pictures

    picture, trace = BytesIO(), model.trace
    pictures.draw(lambda axes: pictures.trace_on(axes, trace), picture, f"{version.name}@{version.version}", 8, 5)
    return picture.getvalue()


def circuit(workspace: Workspace, reference: str, form: Form, of: CircuitOf = "columns") -> bytes:
    """The circuit of a version or of its network; or of a posterior's graphs, as `circuit_of`."""
    return circuit_of(served_model(workspace, reference).model, form, of)


def draw_posterior(
    workspace: Workspace, reference: str, picture: Picture, present: Sequence[str] = (), absent: Sequence[str] = ()
) -> bytes:
    """The edges of a posterior as an SVG picture: a heat map of probabilities ("edges"), or a "graph" with lines as wide.

    Edges that are known are written "parent->child". Raises NoPosterior, UnknownColumn, InvalidParameter or ImpossibleEdges.
    """
    version = served_model(workspace, reference)
    model = version.model
    if not isinstance(model, OrderModel):
        raise NoPosterior(model.kind)
    given = ", ".join([*present, *(f"no {edge}" for edge in absent)])
    title = f"{version.name}@{version.version}" + (f" given {given}" if given else "")
    if picture == "graph":
        return to_svg(graph_of_posterior(model, present, absent), title).encode()
    return heat_map_of(model.graph_queries, title, tuple(present), tuple(absent)).encode()


def network(workspace: Workspace, reference: str, form: NetworkFormat) -> str:
    """The network of a version as BIF, XMLBIF or XDSL; see `learners.registry.discrete_networks.network_text`.

    Raises NoTables or TablesTooLarge if its tables are too large; InvalidNetwork if columns are numbers, which only BIF can
    hold; NoNetwork.
    """
    version = served_model(workspace, reference)
    return network_text(version.model, version.name, form)


def sql(
    workspace: Workspace,
    reference: str,
    table: str,
    dialect: str = "duckdb",
    view: str | None = None,
    key: Sequence[str] = (),
    absent: Sequence[str] = (),
) -> str:
    """A version as SQL that answers every row of a table; see `learners.registry.sql.script.sql_script`.

    The view is called like the model, with `_` for dots, unless it gets a name. Raises NoSQL, TooLargeForSQL,
    UnknownDialect, UnsupportedColumn, UnwritableText, UnknownColumn or InvalidParameter.
    """
    version = served_model(workspace, reference)
    name = version.name.replace(".", "_") if view is None else view
    return sql_script(version.model, name=name, table=table, dialect=dialect, key=key, absent=absent)
