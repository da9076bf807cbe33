"""Queries in terms of the columns, and their answers in plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from learners.circuits.circuit import Circuit
from learners.circuits.errors import ImpossibleEvidence, InvalidEvidence, NoArcs, NoGraphs
from learners.circuits.evaluation.evaluate import log_values
from learners.circuits.evaluation.reweighted import Likelihoods, reweight_circuit
from learners.circuits.map.query import TREE_SOLVERS, MapAnswer, k_best
from learners.circuits.queries import array_answers as answers
from learners.circuits.queries.array_answers import sample
from learners.circuits.queries.likelihoods import Read, read_evidence, read_evidence_likelihoods, settled_columns
from learners.circuits.queries.named_answers import Answer, Assignment, Batches, Source, Summary
from learners.circuits.variables import Columns, circuit_columns
from learners.kernels.arrays import Array, Floats
from learners.models.evidence import Evidence, Known, Likely
from learners.models.query import Conditional, Impute, Map, Moments, Query, Sample, Surprise
from learners.schema import Schema

TOGETHER = 512  # queries between two pauses
# A kind, and what the queries of a group share besides.
_Group = tuple[Any, ...]


def answer(circuit: Circuit, schema: Schema, query: Query) -> Answer:
    """Answer one query as `answer_all` does; the schema's columns are the circuit's variables, see `variables.Columns`."""
    return answer_all(circuit, schema, [query])[0]


def answer_all(
    circuit: Circuit,
    schema: Schema,
    queries: Sequence[Query],
    batches: Callable[[Likelihoods], Batches] | None = None,
    pause: Callable[[], None] | None = None,
) -> list[Answer]:
    """Answer many queries; those that differ only in their evidence are evaluated together.

    batches: replaces the circuit by other handlers for likelihoods: `CircuitModel.batches` of another density.
    pause: called before each MAP search and before every 512 other queries; an error that it raises stops the
    evaluation.

    Returns one dict per query, each with `kind` and

    - marginal: `log_probability`, `probability`; the logarithm of a density, and `density`, where numbers are given;
    - conditional: `log_evidence` and `distributions` (column to label to probability), or if joint `distribution`
      (a list of `values` and `probability`, the most probable first);
    - moments: `log_evidence` and `moments` (column to `mean` and `variance`);
    - sample: `rows` (a list of column to value);
    - impute: `log_evidence` and `imputed` (column to `value`, with the `probability` of a discrete one and the `variance`
      around a mean);
    - `unused`, if there are any: columns of the evidence that the model selected away, which change nothing;
    - surprise: `log_likelihood`, and `rank`: the share of `n` rows drawn from the model that are at most as likely, with
      its `standard_error`;
    - map: `assignment` (column to value), `log_probability` of assignment and evidence together, `upper_bound`,
      `is_optimal`, `n_expanded`, `seconds`; for more than one, `best`: a list of them with the first four fields, the
      best first.

    Raises UnknownColumn; InvalidEvidence or SchemaError for a value that a column never had, or of the wrong type,
    and for a column both queried and given; ImpossibleEvidence if the evidence has probability zero, with the place
    of the query as `row`, if there are several, and the `column` at fault; NoArcs, NoGraphs of interventions and
    graphs.
    """
    check_needs_no_network(queries)
    columns = circuit_columns(circuit, schema)
    batches, go_on = batches or partial(circuit_query_handlers, circuit), pause or (lambda: None)
    evidence = [read_evidence(columns, query) for query in queries]
    groups: dict[_Group, list[int]] = {}
    for place, query in enumerate(queries):
        groups.setdefault((evidence[place].key, *_group(columns, query)), []).append(place)
    by_place: dict[int, Answer] = {}
    answered: dict[_Group, Batches] = {}
    for (key, kind, *rest), places in groups.items():
        if key not in answered:
            answered = {key: batches(evidence[places[0]].likelihoods)}
        try:
            if kind == "map":
                for place in places:
                    go_on()
                    (by_place[place],) = answered[key]["map"](columns, queries[place], evidence[place])
                continue
            for part in (places[at : at + TOGETHER] for at in range(0, len(places), TOGETHER)):
                go_on()
                x = columns.rows([evidence[place].values for place in part])
                by_place.update(zip(part, answered[key][kind](columns, x, *rest), strict=True))
        except ImpossibleEvidence as error:
            place = [place for place in places if place not in by_place][error.row or 0]
            raise _named(columns, queries[place], place if len(queries) > 1 else None, batches) from error
    return [
        Answer(kind=query.kind) | by_place[place] | unused_evidence(columns, query)
        for place, query in enumerate(queries)
    ]


def unused_evidence(columns: Columns, query: Query) -> Answer:
    """Return the evidence columns that feature selection removed, which have no effect."""
    known = [name for name, value in query.evidence.items() if value is not None]
    names = columns.unused(known if isinstance(query, Surprise) else [*known, *query.likely])
    return Answer(unused=names) if names else Answer()


def check_needs_no_network(queries: Sequence[Query]) -> None:
    """Refuse queries that require a network or a posterior over networks. Raises NoArcs, NoGraphs."""
    for query in queries:
        if not isinstance(query, Surprise) and query.do:
            raise NoArcs
        if not isinstance(query, Surprise) and query.graph != "best":
            raise NoGraphs


class _CircuitSource(Source):
    """Exact answers of a circuit."""

    def __init__(self, circuit: Circuit, log_scale: float) -> None:
        self.circuit, self.log_scale = circuit, log_scale

    def row_logs(self, x: Array) -> Floats:
        return log_values(self.circuit, x)

    def row_marginals(self, x: Array, variables: Sequence[int]) -> tuple[Floats, list[Summary]]:
        return self.row_logs(x), list(map(Summary, answers.marginals(self.circuit, x, variables)))

    def row_tables(self, x: Array, variables: Sequence[int]) -> tuple[Floats, Summary]:
        tables = answers.conditional(self.circuit, x, variables)
        return self.row_logs(x), Summary(tables.reshape(len(tables), -1))

    def row_moments(self, x: Array, variables: Sequence[int]) -> tuple[Floats, Summary, Floats]:
        mean, variance = answers.moments(self.circuit, x, variables)
        return self.row_logs(x), Summary(mean), variance

    def row_draws(self, x: Array, n: int, seed: int) -> Sequence[Floats]:
        drawn = []
        for row in range(x.shape[1]):
            try:
                drawn.append(sample(self.circuit, x[:, [row]], n, seed)[0])
            except ImpossibleEvidence as error:
                raise ImpossibleEvidence(row) from error
        return drawn


def circuit_query_handlers(circuit: Circuit, likelihoods: Likelihoods) -> Batches:
    """Return the handlers of each query kind for a circuit, conditioned on the likelihoods of given variables."""
    source = _CircuitSource(*reweight_circuit(circuit, likelihoods))
    return {**source.batches, "map": partial(answer_map_query, circuit, likelihoods)}


def check_circuit_queries(circuit: Circuit, schema: Schema, queries: Sequence[Query]) -> None:
    """Raise the errors of `answer_all` for invalid queries, without computing probabilities."""
    columns = circuit_columns(circuit, schema)
    for query in queries:
        columns.rows([read_evidence(columns, query).values])
        _n_told(columns, query)


def circuit_answer_size(circuit: Circuit, schema: Schema, queries: Sequence[Query]) -> int:
    """Return the number of values in the answers without reading the evidence. Raises UnknownColumn, InvalidEvidence for
    columns that cannot be queried.
    """
    columns = circuit_columns(circuit, schema)
    return sum(_n_told(columns, query) for query in queries)


def _n_told(columns: Columns, query: Query) -> int:
    """Return the number of values in the answer to a query."""
    if isinstance(query, Map):
        return len(resolve_map_variables(columns, query)) * query.best
    _, *rest = _group(columns, query)
    if not rest or isinstance(query, Surprise):
        return 1
    if isinstance(query, Conditional):
        sizes = [columns.n_values[v] for v in rest[0]]
        return answers.check_joint_cell_count(sizes) if query.joint else sum(sizes)
    return len(rest[0]) * (query.n if isinstance(query, Sample) else 2)


def _named(
    columns: Columns, query: Query, place: int | None, batches: Callable[[Likelihoods], Batches]
) -> ImpossibleEvidence:
    """Create the error for impossible evidence, naming a column that is impossible by itself, or else with those before
    it.
    """
    likely = {} if isinstance(query, Surprise) else query.likely
    given: list[tuple[str, object, Evidence, Likely]] = [
        (name, value, {name: value}, {}) for name, value in query.evidence.items() if value is not None
    ]
    given += [(name, dict(weights), {}, {name: weights}) for name, weights in likely.items()]
    together: tuple[dict[str, Known], dict[str, Mapping[str, float]]] = {}, {}
    for is_alone, how in ((True, "is never"), (False, "is never, given the other evidence,")):
        for name, value, known, weights in given:
            together[0].update(known)
            together[1].update(weights)
            own = (
                read_evidence_likelihoods(columns, known, weights)
                if is_alone
                else read_evidence_likelihoods(columns, *together)
            )
            (alone,) = batches(own.likelihoods)["marginal"](columns, columns.rows([own.values]))
            if alone["log_probability"] == -np.inf:
                reason = f": column {name!r} {how} {value!r}. Leave it out, or learn with a larger pseudo-count."
                return ImpossibleEvidence(place, name, reason)
        together = {}, {}
    return ImpossibleEvidence(place)


def _group(columns: Columns, query: Query) -> _Group:
    """Return the key of queries that can be answered together."""
    if isinstance(query, Conditional):
        return "conditional", resolve_query_variables(columns, query, discrete=True), query.joint
    if isinstance(query, Moments):
        return "moments", resolve_query_variables(columns, query, discrete=False)
    if isinstance(query, Sample):
        return "sample", resolve_query_variables(columns, query, discrete=None), query.n, query.seed
    if isinstance(query, Impute):
        return "impute", resolve_query_variables(columns, query, discrete=None)
    if isinstance(query, Surprise):
        return "surprise", query.n, query.seed
    return (query.kind,)


def resolve_query_variables(
    columns: Columns, query: Conditional | Moments | Sample | Map | Impute, discrete: bool | None
) -> tuple[int, ...]:
    """Return the variables of a query: those named, or all of its kind that are not given; samples include given ones."""
    settled: set[str] = set() if isinstance(query, Sample) else settled_columns(query.evidence, query.do)
    if query.variables:
        twice = [name for n, name in enumerate(query.variables) if name in query.variables[:n]]
        if twice:
            raise InvalidEvidence(f"Column {twice[0]!r} is queried twice: name it once.")
        both = settled.intersection(query.variables)
        if both:
            raise InvalidEvidence(f"Column {min(both)!r} is both queried and given as evidence: keep one of the two.")
        variables = tuple(columns.variables(query.variables))
        for v in variables:
            _check_kind(columns, v, discrete)
        return variables
    resolved = tuple(
        v
        for v in columns.circuit.scope(columns.circuit.root)
        if columns.names[v] not in settled and (discrete is None or (columns.n_values[v] > 0) == discrete)
    )
    if not resolved:
        raise _nothing_left(columns, discrete)
    return resolved


def _nothing_left(columns: Columns, discrete: bool | None) -> InvalidEvidence:
    """Create the error for a query without any column of its kind."""
    if discrete is False and min(columns.n_values) > 0:
        return InvalidEvidence(
            "The model has no moments, because all its columns are discrete or cut into intervals: ask for distributions, or train a "
            "circuit (learner spn) with leaves=gaussian."
        )
    if discrete and max(columns.n_values) == 0:
        return InvalidEvidence("All columns of the model are numeric: ask for their moments, or for samples.")
    which = {None: "", True: "discrete ", False: "numeric "}[discrete]
    return InvalidEvidence(f"No {which}column is left to query: give less evidence.")


def _check_kind(columns: Columns, v: int, discrete: bool | None) -> None:
    name = columns.names[v]
    columns.check_known(v)
    if discrete and not columns.n_values[v]:
        raise InvalidEvidence(f"Column {name!r} is numeric: ask for its moments, or for samples.")
    if discrete is False and columns.n_values[v]:
        if v < columns.schema.n_attributes and columns.schema.attributes[v].kind == "numeric":
            raise InvalidEvidence(
                f"Column {name!r} was cut into intervals: ask for its distribution, or learn a circuit (learner "
                "spn) with leaves=gaussian to have moments."
            )
        raise InvalidEvidence(f"Column {name!r} is discrete: ask for its distribution; its codes have no mean.")


def resolve_map_variables(columns: Columns, query: Map) -> tuple[int, ...]:
    """Return the variables of a MAP query; by default those that its solver supports, if any."""
    variables = resolve_query_variables(columns, query, discrete=None)
    if not query.variables and query.solver not in TREE_SOLVERS:
        variables = tuple(v for v in variables if columns.n_values[v]) or variables
    numeric = [columns.names[v] for v in variables if not columns.n_values[v]]
    if numeric and query.solver not in TREE_SOLVERS:
        raise InvalidEvidence(
            f"Solver {query.solver!r} searches finite domains, and {', '.join(map(repr, numeric[:4]))} are numbers: name the "
            f"discrete columns in variables, or use the solver {' or '.join(TREE_SOLVERS)}, which take a density's mode."
        )
    return variables


def answer_map_query(
    circuit: Circuit, likelihoods: Likelihoods, columns: Columns, query: Query, evidence: Read
) -> list[Answer]:
    """Answer a MAP query with a circuit given likelihoods; a queried number is searched in its range."""
    assert isinstance(query, Map)
    variables = resolve_map_variables(columns, query)
    others = {v: ends for v, ends in likelihoods.ranges.items() if v not in variables}
    reweighted = reweight_circuit(circuit, Likelihoods(likelihoods.log_weights, others))
    if reweighted.log_scale == -np.inf:
        raise ImpossibleEvidence
    x = columns.rows([evidence.values])[:, 0]
    observed = {int(v): float(x[v]) for v in np.flatnonzero(~np.isnan(x))}
    answers = k_best(
        reweighted.circuit,
        variables,
        observed,
        query.solver,
        query.best,
        time_limit_s=query.time_limit_s,
        k=query.k,
        seed=query.seed,
        ranges=likelihoods.ranges,
    )
    return format_map_answers(query, columns, answers, reweighted.log_scale)


def format_map_answers(query: Map, columns: Columns, answers: Sequence[MapAnswer], log_scale: float) -> list[Answer]:
    """Format the answer to a MAP query, adding the log scale of likelihoods or other evidence."""
    every = [
        Assignment(
            assignment={columns.names[v]: columns.value(v, code) for v, code in each.assignment.items()},
            log_probability=each.log_probability + log_scale,
            upper_bound=each.upper_bound + log_scale,
            is_optimal=bool(each.is_optimal),
        )
        for each in answers
    ]
    answer = Answer(**every[0], n_expanded=int(sum(each.n_expanded for each in answers)), seconds=answers[0].seconds)
    return [answer | Answer(best=every) if query.best > 1 else answer]
