"""Pictures of a version: its graph, its edge probabilities, and the trace of its chains."""

from collections.abc import Sequence
from io import BytesIO

from learners.orders.edge_heat_map import draw_edge_heat_map
from learners.registry.column_graphs import posterior_column_graph, structure_column_graph
from learners.registry.model_kinds import kind_of
from service.product.versions.registry import load_served_model
from service.product.views.circuit_export import Picture, export_model_circuit
from service.product.views.graph_svg import column_graph_svg
from service.product.views.version_views import model_structure
from service.workspace import Workspace


def draw_version_structure(workspace: Workspace, reference: str, member: int | None = None) -> bytes:
    """Draw the structure of a version as SVG: columns in layers below the class, or the nodes of a circuit.

    For a posterior over structures it draws every probable edge, with its width by probability. Raises PictureTooLarge if it is a
    circuit of too many regions.
    """
    version = load_served_model(workspace, reference)
    kind = kind_of(version.model)
    if kind.is_circuit:
        return export_model_circuit(version.model, "svg")
    graph = (
        kind.graph(version.model) if member is None else structure_column_graph(model_structure(version.model, member))
    )
    return column_graph_svg(graph, f"{version.name}@{version.version}").encode()


def draw_chain_trace(workspace: Workspace, reference: str) -> bytes:
    """Draw the chains of a version as SVG; NoChains if it was not sampled."""
    version = load_served_model(workspace, reference)
    trace = kind_of(version.model).trace(version.model)
    from service.product.views import pictures

    picture = BytesIO()
    pictures.draw_svg_picture(
        lambda axes: pictures.draw_trace_on_axes(axes, trace), picture, f"{version.name}@{version.version}", 8, 5
    )
    return picture.getvalue()


def draw_edge_posterior(
    workspace: Workspace, reference: str, picture: Picture, present: Sequence[str] = (), absent: Sequence[str] = ()
) -> bytes:
    """Draw the edges of a posterior as SVG: a heat map of probabilities ("edges"), or a "graph" with widths by
    probability.

    Edges that are known are written "parent->child". Raises NoPosterior, UnknownColumn, InvalidParameter or ImpossibleEdges.
    """
    version = load_served_model(workspace, reference)
    model = kind_of(version.model).structures(version.model)
    conditions = ", ".join([*present, *(f"no {edge}" for edge in absent)])
    title = f"{version.name}@{version.version}" + (f" given {conditions}" if conditions else "")
    if picture == "graph":
        return column_graph_svg(posterior_column_graph(model, present, absent), title).encode()
    return draw_edge_heat_map(model.graph_queries, title, tuple(present), tuple(absent)).encode()
