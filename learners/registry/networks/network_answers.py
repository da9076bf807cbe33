"""Answers of every model: by its circuit, after interventions, with any graph of a posterior, or averaged over graphs
and parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from learners.circuits.errors import ImpossibleEvidence, NoGraphs
from learners.circuits.mixtures.mixture import DependentRanges
from learners.circuits.model import CircuitModel
from learners.circuits.queries.named_answers import Answer
from learners.circuits.queries.queries import check_needs_no_network
from learners.circuits.structures.from_network import MAX_EDGES
from learners.errors import InvalidParameter
from learners.kernels.arrays import Floats
from learners.models.estimation import Average
from learners.models.evidence import Evidence, NoneOf, Range
from learners.models.model import Model
from learners.models.query import Conditional, Marginal, Moments, Query, Surprise
from learners.orders.lattice.graph_samples import bitset_nodes
from learners.orders.model import OrderModel
from learners.orders.queries.graph_scores import WeightedGraphs
from learners.registry.model_kinds import kind_of, structure_posterior
from learners.registry.networks.arc_networks import ArcNetwork
from learners.registry.networks.interventions import (
    answer_after_intervention,
    describe_intervention,
    exact_answer_in_cut_network,
    intervention_codes,
)
from learners.registry.networks.model_networks import GraphParameters
from learners.schema import Schema
from learners.schema.encoding.json_records import numeric_value_code


def model_arc_network(model: Model, most_cells: int | None = None) -> ArcNetwork:
    """The network of a classifier, of an ensemble's joint member or a file; of a posterior over structures its best graph.

    Raises NoArcs if it has none; TablesTooLarge or NoTables.
    """
    return kind_of(model).network(model, most_cells)


def compile_model_circuit(model: Model, max_edges: int = MAX_EDGES, most_bytes: int | None = None) -> CircuitModel:
    """Return the circuit that answers plain queries to a model: the joint member of an ensemble, the best graph of a posterior.

    `max_edges`, `most_bytes`: of a network, see `NetworkModel`.
    Raises NoJoint if it has no joint distribution; TablesTooLarge or NoTables.
    """
    return kind_of(model).circuit(model, max_edges, most_bytes)


def answer_network_queries(
    model: Model,
    queries: Sequence[Query],
    compiled: Callable[[], CircuitModel],
    most_bytes: int | None = None,
    pause: Callable[[], None] | None = None,
) -> list[dict[str, Any]]:
    """Answer queries about the joint distribution of a model.

    `model`: a network, a circuit, or a posterior over structures, which names the `graph` that answers.
    `compiled`: gives the model as a circuit; asked only if a query needs it.
    `most_bytes`: for the tables of each network that is cut, or of another graph; by default FEWPASS_MEMORY. Beyond
    it samples answer. `pause`: called again and again; what it raises ends the answering. Returns list of dict: as in
    `queries.answer_all`, after interventions as `interventions.answer_after_intervention` does, and of averages as
    `graph_averaged_answer` does. `stands_for` of an answer holds the intervals that numbers of the evidence stand
    for, if there are any (`interval_readings`). Raises NoArcs, NoGraphs; UnknownColumn, InvalidEvidence, SchemaError,
    ImpossibleEvidence, InvalidParameter; ImpossibleEdges, NoRows, NoTables, NotSampled, NoWorlds, TablesTooLarge.
    """
    plain = [query for query in queries if is_circuit_query(query)]
    whole = iter(compiled().answer(plain, pause) if plain else [])
    posterior = structure_posterior(model)
    names_graph, has_intervals = posterior is not None, posterior is None or posterior.facts.get("score") != "bge"
    answers: list[dict[str, Any]] = []
    for query in queries:
        answer = next(whole) if is_circuit_query(query) else _special(model, query, most_bytes, pause)
        readings = {}
        if has_intervals and not isinstance(query, Surprise):
            readings = interval_readings(model.joint.schema, {**query.evidence, **query.do})
        answers.append(
            {**answer}
            | ({"graph": _named(query)} if names_graph else {})
            | ({"stands_for": readings} if readings else {})
        )
    return answers


def interval_readings(schema: Schema, evidence: Evidence) -> dict[str, str]:
    """Return the intervals as which numbers of the evidence are read, by column, such as {'age': '(35.5, 44.5]'}.

    Left out are ranges, which consist of whole intervals, intervals named by their labels, and columns whose own numbers the
    model knows. Raises SchemaError if a value is not a number.
    """
    readings = {}
    for attribute in schema.attributes:
        value = evidence.get(attribute.name)
        if not attribute.cuts or attribute.distribution is not None or isinstance(value, Range | None):
            continue
        labels, code = attribute.unique_labels(), numeric_value_code(attribute)
        values = value.none_of if isinstance(value, NoneOf) else value
        several = values if isinstance(values, tuple | list | set | frozenset) else (values,)
        codes = {code(one) for one in several if one is not None and one not in labels}
        intervals = [labels[each] for each in sorted(codes) if each < len(labels)]
        if intervals:
            readings[attribute.name] = " or ".join(intervals)
    return readings


def is_circuit_query(query: Query) -> bool:
    """Return whether a query needs neither an intervention nor another graph."""
    return isinstance(query, Surprise) or (not query.do and query.graph == "best")


def check_network_queries(model: Model, queries: Sequence[Query]) -> None:
    """Refuse the queries that `answer_network_queries` would refuse without reading columns and probabilities.

    Raises NoArcs, NoGraphs, UnknownColumn, InvalidParameter or ImpossibleEdges.
    """
    kind, posterior = kind_of(model), structure_posterior(model)
    for query in queries:
        if is_circuit_query(query) or isinstance(query, Surprise):
            continue
        if posterior is None:
            if query.graph != "best":
                raise NoGraphs
            if kind.is_circuit and not kind.has_arcs:
                check_needs_no_network([query])
        elif isinstance(query.graph, Average):
            posterior.graph_queries.known(query.graph)
        elif query.graph != "best":
            posterior.graph_queries.parents_of(query.graph, "graph")


def _special(model: Model, query: Query, most_bytes: int | None, pause: Callable[[], None] | None) -> Mapping[str, Any]:
    assert not isinstance(query, Surprise)
    if query.graph == "best":
        return answer_after_intervention(model_arc_network(model), query, most_bytes, pause)
    if (posterior := structure_posterior(model)) is None:
        raise NoGraphs
    if isinstance(query.graph, Average):
        return graph_averaged_answer(posterior, query, query.graph, most_bytes, pause)
    network = GraphParameters(posterior).mean(posterior.graph_queries.parents_of(query.graph, "graph"))
    return answer_after_intervention(network, query, most_bytes, pause)


def _named(query: Query) -> str:
    if isinstance(query, Surprise) or query.graph == "best":
        return "best"
    return "average" if isinstance(query.graph, Average) else "given"


# Of draws of parameters; graphs are drawn with the seed alone.
PARAMETER_STREAM = 2
DEPENDENT = (
    "ranges of several columns that depend on each other have no exact answer in some graphs: give a range of one column, or ask the "
    "best graph (graph='best') for an answer from samples"
)


class _Values(NamedTuple):
    """Answer of one network: the log evidence of a marginal; else probabilities, or means followed by second moments
    (k,).
    """

    log_evidence: float
    values: Floats


def graph_averaged_answer(
    model: OrderModel,
    query: Query,
    average: Average,
    most_bytes: int | None = None,
    pause: Callable[[], None] | None = None,
) -> dict[str, Any]:
    """Average the answer to a query over drawn graphs, each with its expected parameters.

    A graph's weight is its posterior probability times the probability of the evidence. Intervals come from
    graphs with drawn parameters.

    Returns dict: as for one network, with `standard_error` of the draws of graphs, `interval` of probability `level`,
    `n` draws, `n_graphs` different ones, and the posterior's `coverage`. `intervention` has probabilities: of each
    cut arc, of a column being a cause, and of another one being in the adjustment set. Raises InvalidParameter of a
    query that has no average; UnknownColumn, InvalidEvidence, SchemaError, ImpossibleEdges or ImpossibleEvidence;
    NoRows, NoTables or TablesTooLargeToSum.
    """
    if not isinstance(query, Marginal | Conditional | Moments) or (isinstance(query, Conditional) and query.joint):
        raise InvalidParameter(
            "graph",
            query.kind,
            because="only marginal, conditional (of single columns) and moments can be averaged over graphs",
        )
    query = replace(query, sampling=None)  # whose error an average would not tell
    drawn, coverage = model.graph_queries.graphs_of(average, pause)
    rows, place = np.unique(drawn.graphs.parents, axis=0, return_inverse=True)
    place = place.ravel()
    graphs = [tuple(bitset_nodes(own) for own in row.tolist()) for row in rows]
    parameters = GraphParameters(model)
    columns = parameters.mean(graphs[0]).columns  # the same for every graph
    codes = intervention_codes(columns, query)
    form: list[Answer] = []

    def values_of(network: ArcNetwork) -> _Values:
        if pause is not None:
            pause()
        try:
            answer = exact_answer_in_cut_network(network, codes, query, most_bytes)
        except ImpossibleEvidence:
            return _Values(-np.inf, np.empty(0))
        except DependentRanges as error:
            raise InvalidParameter("graph", "average", because=DEPENDENT) from error
        form[:] = form or [answer]
        return _in_arrays(answer)

    rng = np.random.default_rng([average.seed, PARAMETER_STREAM])
    means = [values_of(parameters.mean(parents)) for parents in graphs]
    draws = [values_of(parameters.drawn(graphs[at], rng)) for at in place.tolist()]
    if not form:
        raise ImpossibleEvidence
    shown = [means[at] for at in place.tolist()]
    numbers: dict[str, Any] = {"level": average.level}
    if isinstance(query, Marginal):
        numbers |= _marginal(form[0], drawn, shown, draws, average.level)
    else:
        numbers |= _by_name(form[0], _given_evidence(drawn, shown), _given_evidence(drawn, draws), average.level)
    weights: Floats = np.bincount(place, drawn.weights).astype(np.float64)
    cuts = [describe_intervention(columns, parents, codes, query) for parents in graphs] if codes else []
    extra: dict[str, Any] = {"n": average.n, "n_graphs": len(graphs), "coverage": model.posterior.facts(coverage)}
    return {"kind": query.kind, **numbers, **_interventions(cuts, weights), **extra, **drawn.effective_size}


def _in_arrays(answer: Answer) -> _Values:
    if "distributions" in answer:
        every = [p for shares in answer["distributions"].values() for p in shares.values()]
    elif "moments" in answer:
        means = [moment["mean"] for moment in answer["moments"].values()]
        every = means + [moment["variance"] + moment["mean"] ** 2 for moment in answer["moments"].values()]
    else:
        return _Values(answer["log_probability"], np.empty(0))
    return _Values(answer["log_evidence"], np.array(every))


class _Weighed(NamedTuple):
    """Graphs weighted by the probability of the evidence, their values (n, k), and the log evidence."""

    graphs: WeightedGraphs
    values: Floats
    log_evidence: float


def _given_evidence(drawn: WeightedGraphs, answers: list[_Values]) -> _Weighed:
    logs = np.array([each.log_evidence for each in answers])
    k = max(each.values.size for each in answers)
    values = np.array([each.values if each.values.size else np.zeros(k) for each in answers])
    most = logs.max()
    weights = drawn.weights * np.exp(logs - most)
    total = weights.sum()
    is_equal = drawn.is_equal and bool(np.ptp(logs) == 0.0)
    return _Weighed(WeightedGraphs(drawn.graphs, weights / total, is_equal), values, float(most + np.log(total)))


def _marginal(
    form: Answer, drawn: WeightedGraphs, means: list[_Values], draws: list[_Values], level: float
) -> dict[str, Any]:
    logs = np.array([each.log_evidence for each in means])
    own = np.array([each.log_evidence for each in draws])
    most = max(logs.max(), -700.0)  # of impossible evidence
    mean, error = drawn.mean(np.exp(logs - most))
    low, high = drawn.interval(np.exp(own - most), level)
    scale = np.exp(most)
    return {
        "log_probability": float(most + np.log(mean)) if mean > 0 else -np.inf,
        ("density" if "density" in form else "probability"): float(mean * scale),
        "standard_error": float(error * scale),
        "interval": [float(low * scale), float(high * scale)],
    }


def _by_name(form: Answer, shown: _Weighed, spread: _Weighed, level: float) -> dict[str, Any]:
    mean, error = shown.graphs.mean(shown.values)
    low, high = spread.graphs.interval(spread.values, level)
    answer: dict[str, Any] = {"log_evidence": shown.log_evidence}
    if "moments" in form:
        k = len(form["moments"])
        answer["moments"] = {
            name: {
                "mean": float(mean[i]),
                "variance": float(mean[k + i] - mean[i] ** 2),
                "standard_error": float(error[i]),
                "interval": [float(low[i]), float(high[i])],
            }
            for i, name in enumerate(form["moments"])
        }
        return answer
    answer["distributions"], answer["standard_errors"], answer["intervals"] = {}, {}, {}
    at = 0
    for name, shares in form["distributions"].items():
        part = slice(at, at := at + len(shares))
        answer["distributions"][name] = dict(zip(shares, mean[part].tolist(), strict=True))
        answer["standard_errors"][name] = dict(zip(shares, error[part].tolist(), strict=True))
        ends = np.stack([low[part], high[part]], axis=1).tolist()
        answer["intervals"][name] = dict(zip(shares, ends, strict=True))
    return answer


def _interventions(every: Sequence[Mapping[str, Any]], weights: Floats) -> Mapping[str, Any]:
    """Merge `describe_intervention` of all graphs, with the probability of each arc and column."""
    if not every:
        return {}
    cut: dict[tuple[str, str], float] = {}
    causes: dict[tuple[str, str], float] = {}
    adjusted: dict[tuple[str, str], dict[str, float]] = {}
    for each, weight in zip(every, weights.tolist(), strict=True):
        for arc in each["cut"]:
            key = arc["from"], arc["to"]
            cut[key] = cut.get(key, 0.0) + weight
        for pair in each.get("back_door", ()):
            key = pair["from"], pair["to"]
            causes[key] = causes.get(key, 0.0) + weight * pair["is_cause"]
            shares = adjusted.setdefault(key, {})
            for name in pair["adjust_for"]:
                shares[name] = shares.get(name, 0.0) + weight
    shown: dict[str, Any] = {
        "set": every[0]["set"],
        "cut": [{"from": a, "to": b, "probability": p} for (a, b), p in sorted(cut.items())],
    }
    if causes:
        shown["back_door"] = [
            {"from": a, "to": b, "probability": p, "adjust_for": adjusted[a, b]} for (a, b), p in causes.items()
        ]
    return {"intervention": shown}
