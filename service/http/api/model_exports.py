"""/v1/models/{reference}/…: a model as pictures, network files, SQL and circuits.

They take seconds to make, so they run in the pool of the queries, and lists do not wait for them.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response

from learners.orders.formats.network_files import FORMATS, NetworkFormat
from learners.registry.sql.dialects import DialectName
from service import product
from service.http.api.models import Member
from service.http.api.resources import BodyRoute, Opening, Ours, media_type_responses
from service.product.views.circuit_export import MEDIA_TYPES, CircuitOf, Form

router = APIRouter(route_class=BodyRoute, prefix="/v1/models", tags=["models"])
SVG: Mapping[str, Any] = {"response_class": Response, "responses": media_type_responses("image/svg+xml")}
Known = Annotated[list[str], Query(examples=[["a->b"]])]
Columns = Annotated[list[str], Query(examples=[["customer_id"]])]


async def _known_edges(present: Known = [], absent: Known = []) -> tuple[list[str], list[str]]:  # noqa: B006
    return present, absent


KnownEdges = Annotated[tuple[list[str], list[str]], Depends(_known_edges)]


@router.get("/{reference}/structure.svg", name="picture", summary="Draw the graph of a version", **SVG)
async def draw_model_picture_endpoint(
    reference: str, workspace: Ours, opening: Opening, member: Member = None
) -> Response:
    """Draw the attributes around the class, with an arrow from each parent; for a circuit, its nodes or its regions."""
    content = await opening.computing.run(product.draw_version_structure, workspace, reference, member)
    return Response(content, media_type="image/svg+xml")


@router.get("/{reference}/edges.svg", name="edges_picture", summary="Draw the edge probabilities of a posterior", **SVG)
async def draw_model_edges_endpoint(reference: str, workspace: Ours, opening: Opening, known: KnownEdges) -> Response:
    """Draw the edge probabilities of a posterior over structures as a heat map, given edges that are present or absent."""
    content = await opening.computing.run(product.draw_edge_posterior, workspace, reference, "edges", *known)
    return Response(content, media_type="image/svg+xml")


@router.get("/{reference}/graph.svg", name="graph_picture", summary="Draw the edges of a posterior as a graph", **SVG)
async def draw_model_graph_endpoint(reference: str, workspace: Ours, opening: Opening, known: KnownEdges) -> Response:
    """Draw a posterior over structures as a graph whose arrow widths are edge probabilities, given edges that are
    present or absent.
    """
    content = await opening.computing.run(product.draw_edge_posterior, workspace, reference, "graph", *known)
    return Response(content, media_type="image/svg+xml")


@router.get(
    "/{reference}/graph.{form}",
    name="network",
    summary="Export a network",
    response_class=Response,
    responses=media_type_responses(*(known.media_type for known in FORMATS.values())),
)
async def export_model_network_endpoint(
    reference: str, form: NetworkFormat, workspace: Ours, opening: Opening
) -> Response:
    """Export a network as BIF, XMLBIF or XDSL (GeNIe): the joint member of an ensemble, the most probable graph of a
    posterior.
    """
    content = await opening.computing.run(product.export_version_network, workspace, reference, form)
    return Response(content, media_type=FORMATS[form].media_type)


@router.get(
    "/{reference}/model.sql",
    name="sql",
    summary="Export SQL",
    response_class=Response,
    responses=media_type_responses("text/plain"),
)
async def export_model_sql_endpoint(
    reference: str,
    workspace: Ours,
    opening: Opening,
    table: str,
    dialect: DialectName = "duckdb",
    view: str | None = None,
    key: Columns = [],  # noqa: B006
    absent: Columns = [],  # noqa: B006
) -> Response:
    """Export a network or an ensemble as SQL: tables and a view with the class probabilities of every row of a table in
    a warehouse.
    """
    script, _ = await opening.computing.run(
        product.export_version_sql, workspace, reference, table, dialect, view, key, absent
    )
    return Response(script, media_type="text/plain")


@router.get("/{reference}/trace.svg", name="trace", summary="Draw the chains of a version", **SVG)
async def draw_model_trace_endpoint(reference: str, workspace: Ours, opening: Opening) -> Response:
    """Draw the log joint of every sweep of a sampled circuit, and the share of accepted proposals."""
    content = await opening.computing.run(product.draw_chain_trace, workspace, reference)
    return Response(content, media_type="image/svg+xml")


@router.get(
    "/{reference}/circuit",
    name="circuit",
    summary="Show the circuit of a version",
    response_class=Response,
    responses=media_type_responses(*MEDIA_TYPES.values()),
)
async def export_model_circuit_endpoint(
    reference: str,
    workspace: Ours,
    opening: Opening,
    form: Annotated[Form, Query(alias="format")] = "text",
    of: CircuitOf = "columns",
) -> Response:
    """Export a circuit; for a network, the circuit that it compiles to. `text` and `json` can be trained and served
    anywhere.

    `of=graphs`: the graphs of a posterior over structures, with the parents of each column as variables.
    """
    content = await opening.computing.run(product.export_version_circuit, workspace, reference, form, of)
    return Response(content, media_type=MEDIA_TYPES[form])
