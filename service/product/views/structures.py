"""Structures, looked at and taken elsewhere: pictures of posteriors, and networks as files."""

from collections.abc import Sequence
from typing import Literal

from learners.errors import LearnerError
from learners.orders.drawing import heat_map_of
from learners.orders.formats.network_files import NetworkFormat
from learners.orders.model import OrderModel
from learners.registry.discrete_networks import network_text
from service.product.versions.served import served
from service.product.views.graphs import graph_of_posterior
from service.product.views.structure_svg import to_svg
from service.serving.predictor import Served
from service.workspace import Workspace

Picture = Literal["edges", "graph"]


class NoPosterior(LearnerError, ValueError):
    """A picture or file of a posterior over structures was asked of another kind of model."""

    def __init__(self, kind: str) -> None:
        super().__init__(
            f"A model of kind {kind!r} has no posterior over structures. Train with --learner orders to have one."
        )


def draw_posterior(
    workspace: Workspace, reference: str, picture: Picture, present: Sequence[str] = (), absent: Sequence[str] = ()
) -> bytes:
    """The edges of a posterior as an SVG picture: a heat map of their probabilities, or a graph with widths by probability.

    Parameters
    ----------
    picture : 'edges' or 'graph'
    present, absent : known edges, each as "parent->child"

    Raises
    ------
    NoPosterior, UnknownColumn, InvalidParameter, ImpossibleEdges
    """
    version, model = _posterior(workspace, reference)
    given = ", ".join([*present, *(f"no {edge}" for edge in absent)])
    title = f"{version.name}@{version.version}" + (f" given {given}" if given else "")
    if picture == "graph":
        return to_svg(graph_of_posterior(model, present, absent), title).encode()
    return heat_map_of(model.graph_queries, title, tuple(present), tuple(absent)).encode()


def network(workspace: Workspace, reference: str, form: NetworkFormat) -> str:
    """The network of a version as BIF, XMLBIF or XDSL; see `learners.registry.discrete_networks.network_text`.

    Raises
    ------
    NoNetwork
    NoTables, TablesTooLarge
        If its tables are too large.
    InvalidNetwork
        If columns are numbers, which only BIF can hold.
    """
    version = served(workspace, reference)
    return network_text(version.model, version.name, form)


def _posterior(workspace: Workspace, reference: str) -> tuple[Served, OrderModel]:
    version = served(workspace, reference)
    if not isinstance(version.model, OrderModel):
        raise NoPosterior(version.model.kind)
    return version, version.model
