"""Run every kernel that a request or a job may need, so that an image holds all of them compiled."""

from __future__ import annotations

import time

from learners import recipes
from learners.circuits.model import CircuitModel
from learners.passes.learner import drive
from learners.passes.source import Source
from learners.schema.encode import encode
from service.http.warm_up import TABLE, ask_everything, compile_all
from service.json_values import JSONObject

CIRCUITS: list[JSONObject] = [
    {"structure": "hclt", "learning": "em"},
    {"structure": "learnspn", "learning": "adf"},
    {"structure": "random", "learning": "bmm"},
    {"leaves": "gaussian", "learning": "em"},
    {"leaves": "gaussian", "learning": "bmm"},
    {"learning": "gibbs", "iterations": 4, "draws": 4},
    {"learning": "gibbs", "iterations": 4, "draws": 4, "sampler": "reference"},
    {"learning": "gibbs", "iterations": 4, "draws": 4, "sampler": "bottom-up"},
    {"learning": "gibbs", "iterations": 4, "draws": 4, "sampler": "collapsed-vb"},
]


def compile_everything() -> float:
    """Run learners and queries once; returns the seconds it took."""
    started = time.perf_counter()
    compile_all()
    for parameters in CIRCUITS:
        model = drive(recipes.learner("spn", parameters, "class"), Source.of_table(TABLE))
        assert isinstance(model, CircuitModel)
        model.predict_proba(encode(TABLE, model.schema))
        ask_everything(model)
    return time.perf_counter() - started
