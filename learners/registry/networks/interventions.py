"""Interventions do(): cut the arcs into a column and set its value as evidence; and find the columns that confound
cause and outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from learners.circuits.queries.likelihoods import evidence_with_interventions
from learners.circuits.queries.named_answers import Answer, Intervention
from learners.circuits.variables import Columns
from learners.models.query import Marginal, Query, Sample, Surprise
from learners.orders.lattice.graph_samples import Graph
from learners.registry.networks.arc_networks import ArcNetwork, DiscreteNetwork
from learners.registry.networks.elimination.answers import answer_by_elimination, answer_exactly_or_by_samples
from learners.registry.networks.elimination.rows import Elimination


def descendant_nodes(parents: Graph, node: int) -> set[int]:
    """Return the descendants of a node."""
    descendants, new = {node}, {node}
    while new:
        new = {v for v, own in enumerate(parents) if v not in descendants and new.intersection(own)}
        descendants |= new
    return descendants - {node}


def adjustment_set(parents: Graph, cause: int, outcome: int) -> tuple[int, ...]:
    """Return a minimal set of columns z with P(outcome | do(cause)) = sum over z of P(outcome | cause, z) P(z).

    `parents`: of each node.
    `cause`, `outcome`: the outcome is not a parent of the cause.

    References
    ----------
    Pearl (2009), Causality, section 3.3.1: the back-door criterion. The parents of the cause always meet it.
    """
    backward = tuple(
        tuple(parent for parent in own if parent != cause) for own in parents
    )  # without arcs out of the cause
    chosen = list(parents[cause])
    for parent in parents[cause]:
        fewer = [other for other in chosen if other != parent]
        if outcome not in d_connected_nodes(backward, cause, fewer):
            chosen = fewer
    return tuple(chosen)


def d_connected_nodes(parents: Graph, source: int, given: list[int]) -> set[int]:
    """Return the nodes that are d-connected to a source given others.

    References
    ----------
    Koller, Friedman (2009), Probabilistic Graphical Models, algorithm 3.1.
    """
    children: list[list[int]] = [[] for _ in parents]
    for v, own in enumerate(parents):
        for parent in own:
            children[parent].append(v)
    above, queue = set[int](), list(given)
    while queue:
        node = queue.pop()
        if node not in above:
            above.add(node)
            queue += parents[node]
    known, connected = set(given), set[int]()
    seen, trail = set[tuple[int, bool]](), [(source, True)]
    while trail:
        node, is_upward = step = trail.pop()
        if step in seen:
            continue
        seen.add(step)
        if node not in known:
            connected.add(node)
            trail += [(child, False) for child in children[node]]
        if (is_upward and node not in known) or (not is_upward and node in above):
            trail += [(parent, True) for parent in parents[node]]
    return connected


def answer_after_intervention(
    network: ArcNetwork, query: Query, most_bytes: int | None = None, pause: Callable[[], None] | None = None
) -> Answer:
    """Answer a query after its intervention, if any; the answer then has `intervention`, see `describe_intervention`.

    `most_bytes`: for the tables of an exact answer; by default FEWPASS_MEMORY. Beyond it see
    `answer_exactly_or_by_samples`. Raises UnknownColumn, InvalidEvidence, SchemaError, ImpossibleEvidence, NotSampled
    or NoWorlds.
    """
    codes = intervention_codes(network.columns, query)
    cut, known = network.after(codes), query_after_intervention(query)
    if isinstance(cut, DiscreteNetwork):
        answer = answer_exactly_or_by_samples(cut.columns, Elimination(cut, most_bytes), known, pause)
    else:
        (answer,) = cut.model().answer([known], pause)
    if codes:
        answer["intervention"] = describe_intervention(network.columns, network.parents, codes, query)
    return answer


def exact_answer_in_cut_network(
    network: ArcNetwork, codes: Mapping[int, float], query: Query, most_bytes: int | None = None
) -> Answer:
    """Return the exact answer after an intervention with known codes, without a description of the arcs. Raises
    TablesTooLargeToSum.
    """
    cut, known = network.after(codes), query_after_intervention(query)
    if isinstance(cut, DiscreteNetwork):
        return answer_by_elimination(cut.columns, Elimination(cut, most_bytes), [known])[0]
    return cut.model().answer([known])[0]


def intervention_codes(columns: Columns, query: Query) -> dict[int, float]:
    """Return the codes, or numbers, to which a query sets variables. Raises UnknownColumn, InvalidEvidence or
    SchemaError.
    """
    if isinstance(query, Surprise):
        return {}
    evidence_with_interventions(query)
    codes = {}
    for name, value in query.do.items():
        (v,) = columns.variables([name])
        codes[v] = columns.code(v, value)
    return codes


def query_after_intervention(query: Query) -> Query:
    """Return the query for a network whose arcs are already cut, or whose graph is chosen."""
    if isinstance(query, Surprise):
        return query
    return replace(query, evidence=evidence_with_interventions(query), do={}, graph="best")


def describe_intervention(columns: Columns, parents: Graph, codes: Mapping[int, float], query: Query) -> Intervention:
    """Describe the effect of setting columns on the arcs.

    Returns dict: `set`, the `cut` arcs, and, if one column is set, `back_door`: of each outcome whether the column is its
    cause, and the columns to adjust for, with which observed rows alone give the same answer.
    """
    names = columns.names
    values = {} if isinstance(query, Surprise) else dict(query.do)
    cut = [{"from": names[parent], "to": names[v]} for v in codes for parent in parents[v]]
    intervention = Intervention(set=values, cut=cut)
    if len(codes) == 1:
        (cause,) = codes
        below = descendant_nodes(parents, cause)
        intervention["back_door"] = [
            {
                "from": names[cause],
                "to": names[outcome],
                "is_cause": outcome in below,
                "adjust_for": [names[v] for v in adjustment_set(parents, cause, outcome)] if outcome in below else [],
            }
            for outcome in intervention_outcomes(columns, query, codes)
        ]
    return intervention


def intervention_outcomes(columns: Columns, query: Query, codes: Mapping[int, float]) -> list[int]:
    """Return the variables that a query asks for, or all that are not set."""
    if isinstance(query, Marginal | Surprise):
        return []
    if query.variables:
        return columns.variables(query.variables)
    if isinstance(query, Sample):
        return []
    known = {name for name, value in query.evidence.items() if value is not None}
    return [v for v in columns.circuit.scope(columns.circuit.root) if v not in codes and columns.names[v] not in known]
