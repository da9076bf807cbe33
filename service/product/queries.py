"""Probabilistic queries to any model that has a joint distribution: circuits, and networks compiled to one."""

import math
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from learners.circuits.from_network import network_circuit
from learners.circuits.model import CircuitModel
from learners.circuits.queries import answer_size
from learners.classifiers.lookup import LookupModel
from learners.ensembles.model import EnsembleModel
from learners.errors import LearnerError
from learners.model import Model
from learners.query import Map, Query, Sample
from service.json_values import JSONObject
from service.problems import BodyTooLarge

# Samples are rows, and a row has at most some values; so the most that answers may hold follows from the most rows.
VALUES_PER_ROW = 50
_compiled: WeakKeyDictionary[Any, CircuitModel] = WeakKeyDictionary()
_compiling = threading.Lock()


class NoJoint(LearnerError, ValueError):
    """A model knows nothing but P(class | attributes)."""

    def __init__(self, kind: str) -> None:
        super().__init__(
            f"A model of kind {kind!r} has no joint distribution to ask. Use a circuit (learner spn), a network (nb, tan, kdb, skdb), or an ensemble (auto, eskdb)."
        )


def queryable(model: Model) -> CircuitModel:
    """The model as a circuit: itself, or its network compiled, once per process; of an ensemble its joint member.

    Raises
    ------
    NoJoint
        If it has no joint distribution.
    NetworkTooLarge
        If its network needs too large a circuit.
    """
    if isinstance(model, CircuitModel):
        return model
    if isinstance(model, EnsembleModel):
        model = model.joint
    if not isinstance(model, LookupModel):
        raise NoJoint(model.kind)
    with _compiling:
        if model not in _compiled:
            _compiled[model] = CircuitModel(model.schema, network_circuit(model), model.facts)
        return _compiled[model]


def limited(queries: Sequence[Query], max_queries: int, time_limit_s: float) -> list[Query]:
    """The queries with what they may take bounded: their number, the samples, the time of all MAP searches together.

    Raises
    ------
    BodyTooLarge
    """
    n_samples = sum(query.n for query in queries if isinstance(query, Sample))
    for n, what in ((len(queries), "queries"), (n_samples, "samples")):
        if n > max_queries:
            raise BodyTooLarge(
                f"{n} {what}; at most {max_queries} are answered in one request (FEWPASS_MAX_ROWS). "
                "A job of kind 'query', or fewpass query, answers more.",
                max_rows=max_queries,
            )
    n_maps = max(1, sum(isinstance(query, Map) for query in queries))
    share = time_limit_s / n_maps
    return [
        replace(query, time_limit_s=min(query.time_limit_s, share)) if isinstance(query, Map) else query
        for query in queries
    ]


def check_size(model: Model, queries: Sequence[Query], max_rows: int) -> None:
    """Refuse queries whose answers together are more than a request should carry.

    Raises
    ------
    BodyTooLarge
    NoJoint, NetworkTooLarge, UnknownColumn, InvalidEvidence
        As `answers`.
    """
    circuit = queryable(model)
    n_told, most = answer_size(circuit.circuit, circuit.schema, queries), VALUES_PER_ROW * max_rows
    if n_told > most:
        raise BodyTooLarge(
            f"The answers would have {n_told:,} values; at most {most:,} are told in one request ({VALUES_PER_ROW} times "
            "FEWPASS_MAX_ROWS). Name the variables that you need, or ask fewer queries at once.",
            max_values=most,
        )


def answers(model: Model, queries: Sequence[Query]) -> list[JSONObject]:
    """Answers in plain values that JSON has: the logarithm of zero is None. Those of an ensemble name the member that answers.

    Raises
    ------
    NoJoint, NetworkTooLarge, UnknownColumn, InvalidEvidence, ImpossibleEvidence, SchemaError, ContinuousQuery
    """
    told = [_finite(answer) for answer in queryable(model).answer(queries)]
    return [answer | {"member": "joint"} for answer in told] if isinstance(model, EnsembleModel) else told


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
