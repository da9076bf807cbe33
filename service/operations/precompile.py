"""Run every kernel that a request or a job may need, so that an image holds all of them compiled."""

from __future__ import annotations

import time
from typing import get_args

from learners import recipes
from learners.circuits.model import CircuitModel
from learners.passes.learner import drive
from learners.passes.source import Source
from learners.query import Conditional, Map, Marginal, Moments, Query, Sample, Solver
from learners.schema.encode import encode
from service.http.warm_up import TABLE, compile_all
from service.json_values import JSONObject
from service.product.queries import queryable

CIRCUITS: list[JSONObject] = [
    {"structure": "hclt", "learning": "em"},
    {"structure": "learnspn", "learning": "adf"},
    {"structure": "random", "learning": "bmm"},
    {"leaves": "gaussian", "learning": "em"},
    {"leaves": "gaussian", "learning": "bmm"},
]


def compile_everything() -> float:
    """Run learners and queries once; returns the seconds it took."""
    started = time.perf_counter()
    compile_all()
    for parameters in CIRCUITS:
        model = drive(recipes.learner("spn", parameters, "class"), Source.of_table(TABLE))
        assert isinstance(model, CircuitModel)
        model.predict_proba(encode(TABLE, model.schema))
        _ask_everything(model)
    # Without pseudo-counts rows are impossible, which is found out in numbers of a wider range.
    network = drive(recipes.learner("nb", {"m": 0.0}, "class"), Source.of_table(TABLE))
    _ask_everything(queryable(network))
    return time.perf_counter() - started


def _ask_everything(model: CircuitModel) -> None:
    queries: list[Query] = [
        Marginal({"word": "a", "number": 1.0}),
        Conditional(("class",), {"word": "a"}),
        Conditional(("class", "word"), {}, joint=True),
        Sample(2, {"number": 1.5}),
    ]
    queries += [Map(("word", "class"), {"number": 1.5}, solver=solver) for solver in get_args(Solver)]
    if model.schema.continuous:
        queries.append(Moments(("number",), {"word": "a"}))
    for query in queries:
        model.answer([query])
    model.answer([queries[0]] * 40)
