"""Checks of queries, and of rows to score or to fill, without answering them."""

from collections.abc import Sequence

from learners.circuits.errors import NoGraphs
from learners.circuits.queries.queries import check_circuit_queries
from learners.circuits.variables import Columns, check_column_not_left_out
from learners.errors import UnknownColumn
from learners.models.model import Model
from learners.models.query import AnyQuery
from learners.registry.kind import NoJoint
from learners.registry.model_kinds import kind_of, structure_posterior
from learners.registry.networks.network_answers import check_network_queries
from service.product.inference.queries import joint_queries, queryable_circuit, structure_queries
from service.requests.requests import ImputeRequest, ScoreRequest


def check_density_request(model: Model, request: ScoreRequest | ImputeRequest) -> None:
    """Refuse a model without a joint distribution, and columns to fill that it does not know."""
    own, kind = model.joint, kind_of(model)
    if not kind.can("circuit"):
        raise NoJoint(model.kind)
    if isinstance(request, ScoreRequest) and request.average is not None and not kind.can("structures"):
        raise NoGraphs
    names = [*own.schema.columns]
    for name in request.columns if isinstance(request, ImputeRequest) else ():
        if name not in names:
            check_column_not_left_out(own.schema, name)
            raise UnknownColumn(name, names)


def check_queries(model: Model, queries: Sequence[AnyQuery]) -> None:
    """Refuse queries with unknown columns, values or edges, without answering them.

    Raises NoJoint, WrongQuery, UnknownColumn, InvalidEvidence, SchemaError, ImpossibleEdges, NotGaussian,
    InvalidParameter or NetworkFileError.
    """
    if (posterior := structure_posterior(model)) is not None:
        for about in structure_queries(queries):
            posterior.graph_queries.check(about)
    joint = joint_queries(model, queries)
    check_network_queries(model, joint)
    if joint:
        columns = _columns_of(model)
        check_circuit_queries(columns.circuit, columns.schema, joint)


def _columns_of(model: Model) -> Columns:
    """Return the columns of the model's circuit; for a classifier without building the circuit, which may be large."""
    columns = kind_of(model).columns
    return queryable_circuit(model).columns if columns is None else columns(model)
