"""Before a server says that it is ready, it has run every kernel of predictions and queries."""

import os
import subprocess
import sys

import numba
import pytest

from learners import Source, drive, load_model
from learners.registry import recipes
from service.http import app
from service.http import warm_up as warming
from service.http.warm_up import TABLE, warm_up_kernels, warm_up_model_queries
from service.product.inference.queries import queryable_circuit
from service.settings import Settings
from tests.service.operations.endpoints_after_precompiling import signatures


@pytest.mark.parametrize(
    ("learner", "parameters"),
    [
        ("kdb", {"k": 1}),
        ("spn", {"leaves": "gaussian", "learning": "em"}),
        ("spn", {"structure": "hclt", "learning": "em"}),
    ],
    ids=["a network", "densities", "a circuit"],
)
def test_queries_compile_nothing_once_a_server_is_warm(learner, parameters):
    header, arrays = drive(recipes.learner(learner, parameters, "class"), Source.of_table(TABLE)).to_arrays()
    for array in arrays.values():
        array.setflags(write=False)  # as mapped ones are
    model = queryable_circuit(load_model(header, arrays))
    warm_up_kernels()
    warm = signatures()
    warm_up_model_queries(model)
    assert signatures() - warm == set()


@pytest.mark.parametrize("is_cold", [True, False])
def test_other_cores_help_where_kernels_must_be_compiled(is_cold, monkeypatch):
    started = []

    def start(command, **_):
        started.append((command[1:], process := original([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)))
        return process

    def work():
        if is_cold:
            numba.njit(lambda x: x)(1)

    original = subprocess.Popen
    monkeypatch.setattr(warming.subprocess, "Popen", start)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    monkeypatch.setattr(warming, "warm_up_predictions", work)
    monkeypatch.setattr(warming, "warm_up_queries", work)
    warm_up_kernels.__wrapped__()
    shares = [["-m", "service.http.warm_up", share, "3"] for share in "12"]
    assert [command for command, _ in started] == (shares if is_cold else [])
    for _, process in started:
        assert process.returncode is not None, "ended with the work"
        process.stdin.close()


def test_a_server_says_that_it_compiles(tmp_path, monkeypatch):
    made = app.create_app(Settings(workspace=tmp_path / "workspace"))
    monkeypatch.setattr(app, "warm_up_kernels", lambda: numba.njit(lambda x: x)(1.5))
    app._warm_up(made)
    assert "compiling kernels" in made.state.not_ready
