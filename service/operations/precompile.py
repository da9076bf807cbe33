"""Run every kernel that a request or a job may need, so that an image holds all of them compiled."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa

from learners import recipes
from learners.circuits.model import CircuitModel
from learners.kinds import load_model
from learners.model import Model
from learners.orders.model import OrderModel
from learners.passes.learner import drive
from learners.passes.source import Source
from learners.query import Edges, Effects, Graph, Graphs, Paths, Score, StructureQuery
from learners.schema.encode import encode
from service.http.warm_up import TABLE, ask_everything, compile_all
from service.json_values import JSONObject

NUMBERS = pa.table({name: np.random.default_rng(i).normal(size=40) for i, name in enumerate("abcd")})
CIRCUITS: list[JSONObject] = [
    {"structure": "hclt", "learning": "em"},
    {"structure": "learnspn", "learning": "adf"},
    {"structure": "random", "learning": "bmm"},
    {"leaves": "gaussian", "learning": "em"},
    {"leaves": "gaussian", "learning": "bmm"},
    {"leaves": "auto", "learning": "em"},
    {"learning": "gibbs", "iterations": 4, "draws": 4},
    {"learning": "gibbs", "iterations": 4, "draws": 4, "sampler": "reference"},
    {"learning": "gibbs", "iterations": 4, "draws": 4, "sampler": "bottom-up"},
    {"learning": "gibbs", "iterations": 4, "draws": 4, "sampler": "collapsed-vb"},
]


STRUCTURES: list[JSONObject] = [{"method": "exact"}, {"method": "blocks", "candidates": 2, "sets": 100, "draws": 16}]


def compile_everything() -> float:
    """Run learners and queries once; returns the seconds it took."""
    started = time.perf_counter()
    compile_all()
    for parameters in CIRCUITS:
        model = drive(recipes.learner("spn", parameters, "class"), Source.of_table(TABLE))
        assert isinstance(model, CircuitModel)
        model.predict_proba(encode(TABLE, model.schema))
        ask_everything(model)
    average = drive(recipes.learner("tan", {"average": True}, "class"), Source.of_table(TABLE))
    average.predict_proba(encode(TABLE, average.schema))
    for parameters in STRUCTURES:
        for table in (TABLE, NUMBERS):
            _ask_structures(drive(recipes.learner("orders", parameters, None), Source.of_table(table)))
    return time.perf_counter() - started


def _ask_structures(learned: Model) -> None:
    """Every query, to the model and as it is mapped."""
    header, arrays = learned.to_arrays()
    for array in arrays.values():
        array.setflags(write=False)
    for model in (learned, load_model(header, arrays)):
        assert isinstance(model, OrderModel)
        queries: list[StructureQuery] = [Graph(), Score(), Graphs(2)]
        queries += [kind(prior=prior, n=4) for kind in (Edges, Paths) for prior in ("order", "graph")]
        if model.posterior.bge is not None:
            queries += [Effects(prior="order", n=4), Effects(prior="graph", n=4)]
        first, second = model.names[:2]
        queries.append(Edges(present=(f"{first}->{second}",), absent=(f"{second}->{first}",)))
        model.answer(queries)
