"""Answers of every model: by its circuit, after interventions, by any graph of a posterior, and averaged over graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from learners.circuits.errors import NoGraphs
from learners.circuits.model import CircuitModel
from learners.circuits.queries.queries import check_plain
from learners.circuits.structures.from_network import MAX_EDGES, NetworkTooLarge
from learners.models.evidence import Average
from learners.models.model import Model
from learners.models.query import Query, Surprise
from learners.orders.model import OrderModel
from learners.registry.networks.averages import averaged
from learners.registry.networks.interventions import answer_after
from learners.registry.networks.model import ArcModel
from learners.registry.networks.of_models import GraphParameters, network_of


def answer_all(
    model: Model,
    queries: Sequence[Query],
    compiled: Callable[[], CircuitModel],
    max_edges: int = MAX_EDGES,
    pause: Callable[[], None] | None = None,
) -> list[dict[str, Any]]:
    """Answer queries about the joint distribution of a model.

    `model`: a network, a circuit, or a posterior over structures, which says by which `graph` it answers.
    `compiled`: gives the model as a circuit; asked only if a query needs it.
    `max_edges`: of the circuit of each network that is cut, or of another graph. Beyond it, queries with `sampling` get
    samples.
    `pause`: called again and again; what it raises ends the answering.
    Returns list of dict: as `queries.answer_all` tells, after interventions as `interventions.answer_after` does, and
    of averages as `averaged` does.
    Raises NoArcs, NoGraphs; UnknownColumn, InvalidEvidence, SchemaError, ImpossibleEvidence, InvalidParameter;
    ImpossibleEdges, NoRows, NoTables, NetworkTooLarge, TablesTooLarge.
    """
    plain = [query for query in queries if is_plain(query)]
    whole = iter(_by_circuit(model, plain, compiled, pause) if plain else [])
    answers: list[dict[str, Any]] = []
    for query in queries:
        answer = next(whole) if is_plain(query) else _special(model, query, max_edges, pause)
        answers.append({**answer} | ({"graph": _named(query)} if isinstance(model, OrderModel) else {}))
    return answers


def _by_circuit(
    model: Model, queries: Sequence[Query], compiled: Callable[[], CircuitModel], pause: Callable[[], None] | None
) -> Sequence[Mapping[str, Any]]:
    """Exact answers; or, if the circuit is too large and every query asks for it, answers from samples."""
    try:
        circuit = compiled()
    except NetworkTooLarge:
        if any(isinstance(query, Surprise) or query.sampling is None for query in queries):
            raise
        network = network_of(model)
        return [answer_after(network, query, 0, pause) for query in queries]
    return circuit.answer(queries, pause)


def is_plain(query: Query) -> bool:
    """Whether the model's own circuit answers a query."""
    return isinstance(query, Surprise) or (not query.do and query.graph == "best")


def check_all(model: Model, queries: Sequence[Query]) -> None:
    """Refuse what `answer_all` would refuse without looking at columns and probabilities.

    Raises NoArcs, NoGraphs, UnknownColumn, InvalidParameter or ImpossibleEdges.
    """
    for query in queries:
        if is_plain(query) or isinstance(query, Surprise):
            continue
        if not isinstance(model, OrderModel):
            if query.graph != "best":
                raise NoGraphs
            if isinstance(model, CircuitModel) and not isinstance(model, ArcModel):
                check_plain([query])
        elif isinstance(query.graph, Average):
            model.graph_queries.known(query.graph)
        elif query.graph != "best":
            model.graph_queries.parents_of(query.graph, "graph")


def _special(model: Model, query: Query, max_edges: int, pause: Callable[[], None] | None) -> Mapping[str, Any]:
    assert not isinstance(query, Surprise)
    if query.graph == "best":
        return answer_after(network_of(model), query, max_edges, pause)
    if not isinstance(model, OrderModel):
        raise NoGraphs
    if isinstance(query.graph, Average):
        return averaged(model, query, query.graph, max_edges, pause)
    network = GraphParameters(model).mean(model.graph_queries.parents_of(query.graph, "graph"))
    return answer_after(network, query, max_edges, pause)


def _named(query: Query) -> str:
    if isinstance(query, Surprise) or query.graph == "best":
        return "best"
    return "average" if isinstance(query.graph, Average) else "given"
