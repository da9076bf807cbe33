"""Circuits given likelihoods are circuits again, wherever the evidence lies."""

import numpy as np
import pyarrow as pa
import pytest

from learners import Source, drive
from learners.circuits.evaluation.reweighted import Likelihoods, reweight_circuit
from learners.registry import recipes


@pytest.mark.parametrize("low", [5.0, 50.0, 1e6, 1e12])
def test_far_ranges_leave_weights_that_add_up_to_one(low):
    """Differences of logarithms of millions had lost digits, and the circuit was refused."""
    rng = np.random.default_rng(0)
    second = rng.random(200) < 0.5
    table = pa.table({"x": rng.normal(3 * second, 1), "k": np.where(second, "a", "b")})
    model = drive(recipes.learner("spn", {"learning": "em", "leaves": "gaussian"}, None), Source.of_table(table))
    v = model.columns.names.index("x")
    posterior, log_scale = reweight_circuit(model.circuit, Likelihoods({}, {v: (low, np.inf)}))
    assert posterior.n_nodes == model.circuit.n_nodes and np.isfinite(log_scale)
