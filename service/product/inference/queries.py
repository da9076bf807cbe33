"""Queries to models: to a joint distribution, or to a posterior over structures."""

import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, get_args

from learners.circuits.map.solvers import look_up
from learners.circuits.model import CircuitModel
from learners.circuits.queries.queries import circuit_answer_size
from learners.errors import LearnerError
from learners.models.estimation import Average, Sampling
from learners.models.evidence import Given
from learners.models.model import Model
from learners.models.query import AnyQuery, Map, Moments, Query, Sample, StructureQuery, Surprise
from learners.orders.queries.queries import n_graphs_to_draw
from learners.orders.queries.queries import structure_answer_size as structures_size
from learners.registry.kind import NoCircuit
from learners.registry.model_kinds import kind_of, structure_posterior
from learners.registry.networks.network_answers import answer_network_queries
from service.requests.abandonment import check_still_asked
from service.requests.json_values import JSONObject
from service.requests.problems import BodyTooLarge, TooSlow
from service.serving.compiled_networks import compiled_network

# Samples are rows, and a row has at most some values; so the most that answers may hold follows from the most rows.
VALUES_PER_ROW = 50
# The sums over all orders of 20 columns are hundreds of megabytes: a process holds those of one request at a time.
_adding_up = threading.Lock()


class WrongQuery(LearnerError, ValueError):
    """Raised for a query that this kind of model does not answer."""

    def __init__(self, query: str, kind: str, known: Sequence[type[AnyQuery]]) -> None:
        kinds = ", ".join(each.kind for each in known)
        super().__init__(f"A model of kind {kind!r} does not answer {query!r}; it answers {kinds}.")
        self.query = query


def queryable_circuit(model: Model) -> CircuitModel:
    """Return the circuit that answers queries: the model, its network (see `service.serving.compiled_networks`), or the
    joint member of an ensemble.

    A posterior over structures answers by its most probable graph. The `circuit` of a network is compiled when it is first read, which raises
    NetworkTooLarge. Raises NoJoint if the model has no joint distribution; NoTables, TablesTooLarge.
    """
    return compiled_network(model.joint)


def exportable_circuit(model: Model) -> CircuitModel:
    """Return the model as an exportable circuit; NoCircuit if leaves span several columns, else as `queryable_circuit`."""
    known = queryable_circuit(model)
    if not kind_of(known).has_regions:
        raise NoCircuit(known.kind)
    return known


def structure_queries(queries: Sequence[AnyQuery]) -> list[StructureQuery]:
    """Return the queries about structures."""
    return [query for query in queries if isinstance(query, StructureQuery)]


def joint_queries(model: Model, queries: Sequence[AnyQuery]) -> list[Query]:
    """Return the queries to the joint distribution, which for a posterior over structures is that of its best graph;
    WrongQuery for structure queries to other models.
    """
    answers_structures = kind_of(model).can("structures")
    for query in queries:
        if isinstance(query, StructureQuery) and not answers_structures:
            known = [each for each in get_args(Query) if each is not Moments or model.schema.continuous]
            raise WrongQuery(query.kind, model.kind, known)
    return [query for query in queries if not isinstance(query, StructureQuery)]


def limit_queries(model: Model, queries: Sequence[AnyQuery], max_queries: int, time_limit_s: float) -> list[AnyQuery]:
    """Limit the number of queries and samples (BodyTooLarge), and the total time of MAP searches and sampling."""
    n_samples = sum(query.n for query in queries if isinstance(query, Sample | Surprise))
    n_samples += sum(average.n for average in map(_average, queries) if average is not None)
    if (known := structure_posterior(model)) is not None:
        posterior = known.posterior
        n_samples += n_graphs_to_draw(structure_queries(queries), posterior.scores.d, posterior.coverage.is_exact)
    for n, what in ((len(queries), "queries"), (n_samples, "samples")):
        if n > max_queries:
            raise BodyTooLarge(
                f"{n} {what}; the limit is {max_queries} per request (FEWPASS_MAX_ROWS). "
                "A job of kind 'query', or fewpass query, has no such limit.",
                max_rows=max_queries,
            )
    n_timed = sum(isinstance(query, Map) or _sampling(query) is not None for query in queries)
    share = time_limit_s / max(1, n_timed)
    return [_within(query, share) for query in queries]


def _within(query: AnyQuery, time_limit_s: float) -> AnyQuery:
    sampling = _sampling(query)
    if isinstance(query, Given) and sampling is not None:
        query = replace(query, sampling=replace(sampling, time_limit_s=min(sampling.time_limit_s, time_limit_s)))
    if isinstance(query, Map):
        query = replace(query, time_limit_s=min(query.time_limit_s, time_limit_s))
    return query


def _sampling(query: AnyQuery) -> Sampling | None:
    return query.sampling if isinstance(query, Given) else None


def check_query_answer_size(model: Model, queries: Sequence[AnyQuery], max_rows: int) -> None:
    """Refuse queries whose answers together exceed the size of one response.

    Raises BodyTooLarge; NoJoint, WrongQuery, TablesTooLarge, UnknownColumn or InvalidEvidence as `answer_model_queries`.
    """
    most = VALUES_PER_ROW * max_rows
    n_values = 0
    if kind_of(model).can("structures"):
        n_values = structures_size(model.schema.n_attributes, structure_queries(queries))
    if joint := joint_queries(model, queries):
        columns = queryable_circuit(model).columns
        n_values += circuit_answer_size(columns.circuit, columns.schema, joint)
    if n_values > most:
        raise BodyTooLarge(
            f"The answers would have {n_values:,} values; the limit for one request is {most:,} ({VALUES_PER_ROW} times "
            "FEWPASS_MAX_ROWS). Name the variables that you need, or ask fewer queries or draws at once.",
            max_values=most,
        )


def query_deadline_check(deadline: float, time_limit_s: float, kind: str = "query") -> Callable[[], None]:
    """Return a check that ends the answering of a request at `deadline`, a value of `time.monotonic`.

    It names the time limit, and the kind of the job that may take longer.
    """
    what, fewer = ("queries", "Ask fewer at once") if kind == "query" else ("rows", "Send fewer rows")

    def pause() -> None:
        check_still_asked()
        if time.monotonic() > deadline:
            raise TooSlow(
                f"The {what} took longer than the {time_limit_s:g} s allowed per request (FEWPASS_QUERY_S). {fewer}, or "
                f"submit a job of kind {kind!r}.",
                timeout_s=time_limit_s,
            )

    return pause


def answer_model_queries(
    model: Model, queries: Sequence[AnyQuery], pause: Callable[[], None] | None = None
) -> list[JSONObject]:
    """Answer queries in plain JSON values, with None for the logarithm of zero. Answers of an ensemble name the member
    that answered.

    `pause` is called again and again; what it raises ends the answering. Raises NoJoint, WrongQuery, UnknownColumn,
    InvalidEvidence, ImpossibleEvidence, SchemaError or ContinuousQuery; of networks TablesTooLarge, NotSampled or NoWorlds; of
    interventions and graphs NoArcs or NoGraphs; of posteriors over structures ImpossibleEdges, NotGaussian, NetworkFileError,
    InvalidParameter or NoRows.
    """
    pause = pause or check_still_asked
    look_up.set(pause)
    joint, structures = joint_queries(model, queries), structure_queries(queries)
    own, posterior = model.joint, structure_posterior(model)
    adds_up = posterior is not None and bool(structures or any(map(_average, joint)))
    with _adding_up if adds_up else nullcontext():
        of_edges = iter([] if posterior is None else posterior.answer(structures, pause))
        of_rows = iter(
            answer_network_queries(own, joint, partial(queryable_circuit, own), pause=pause) if joint else []
        )
    ordered = (next(of_edges if isinstance(query, StructureQuery) else of_rows) for query in queries)
    answers = [non_finite_to_none(answer) for answer in ordered]
    member = model.answering_member
    return answers if member is None else [answer | {"member": member} for answer in answers]


def _average(query: AnyQuery) -> Average | None:
    return query.graph if isinstance(query, Given) and isinstance(query.graph, Average) else None


def non_finite_to_none(value: Any) -> Any:
    """Replace non-finite numbers by None, as JSON requires."""
    if isinstance(value, dict):
        return {name: non_finite_to_none(each) for name, each in value.items()}
    if isinstance(value, list):
        return [non_finite_to_none(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
