"""Before a server says that it is ready, it has run every kernel of predictions and queries."""

from __future__ import annotations

import sys

import pytest
from numba.core.registry import CPUDispatcher

from learners import recipes
from learners.kinds import load_model
from learners.passes.learner import drive
from learners.passes.source import Source
from service.http.warm_up import TABLE, ask_everything, warm_up
from service.product.queries import queryable


def signatures() -> set[str]:
    """Each kernel with what it has been compiled or loaded for."""
    kernels = {
        id(found): found
        for name, module in list(sys.modules.items())
        if name.startswith("learners.")
        for found in vars(module).values()
        if isinstance(found, CPUDispatcher)
    }
    return {f"{kernel.__module__}.{kernel.__name__}{each}" for kernel in kernels.values() for each in kernel.signatures}


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
    model = queryable(load_model(header, arrays))
    warm_up()
    warm = signatures()
    ask_everything(model)
    assert signatures() - warm == set()
