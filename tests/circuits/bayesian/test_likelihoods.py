"""Evidence of every kind to draws of a posterior: the mean over the draws of what enumeration says of each."""

from functools import partial

import numpy as np
import pytest

from learners.circuits.bayesian.circuit_draws import CircuitDraws
from learners.circuits.bayesian.model import draws_query_handlers
from learners.circuits.errors import ImpossibleEvidence
from learners.circuits.kernels import CATEGORICAL, GAUSSIAN, SUM
from learners.circuits.queries.queries import answer_all
from learners.models.evidence import Range
from learners.models.query import Conditional, Map, Marginal, Moments, Sample
from tests.circuits.map_circuits import random_circuit
from tests.naive import circuits as naive
from tests.naive.map import categorical, mixture
from tests.strategies import up_to
from tests.support.circuits import CIRCUIT, MIXED, schema_of, some_evidence


def draws_of(rng, circuit, n_draws=5):
    """Other weights and leaves for one structure."""
    n_children = np.diff(circuit.child_starts)[circuit.kind == SUM]
    weight = [rng.dirichlet(np.ones(n), n_draws).T for n in n_children]
    parameter = np.repeat(circuit.leaf_parameters[:, np.newaxis], n_draws, axis=1)
    for node in np.flatnonzero(circuit.kind == CATEGORICAL):
        own = slice(circuit.leaf_starts[node], circuit.leaf_starts[node + 1])
        parameter[own] = np.log(rng.dirichlet(np.ones(own.stop - own.start), n_draws).T)
    return CircuitDraws(circuit, np.concatenate(weight), parameter)


@pytest.mark.parametrize("seed", up_to(40, 200))
def test_the_mean_of_what_enumeration_says_of_each_draw(seed):
    rng = np.random.default_rng(seed)
    circuit = random_circuit(rng, int(rng.integers(2, 5)), zeros=0.0)
    draws, schema, evidence, likely = draws_of(rng, circuit), schema_of(circuit), {}, {}
    weights = [np.ones(n) for n in circuit.n_values]
    for v in range(1, circuit.n_variables):
        known, soft, weights[v] = some_evidence(rng, circuit, v)
        evidence, likely = evidence | known, likely | soft
    asked = [
        Marginal(evidence, likely=likely),
        Conditional(("x0",), evidence, likely=likely),
        Map(("x0",), evidence, likely=likely),
    ]
    marginal, conditional, best = answer_all(circuit, schema, asked, partial(draws_query_handlers, draws, 1))
    each = []
    for one in [*(draws.of(draw) for draw in range(draws.n_draws)), circuit]:
        found = np.zeros(circuit.n_values[0])
        for codes, p in naive.joint(one).items():
            found[codes[0]] += p * np.prod([own[code] for own, code in zip(weights, codes, strict=True)])
        each.append(found)
    totals = [own.sum() for own in each[:-1]]
    assert marginal["probability"] == pytest.approx(np.mean(totals), rel=1e-10)
    assert np.exp(marginal["log_probability"]) == pytest.approx(np.mean(totals), rel=1e-10)
    shares = np.mean([own / own.sum() for own in each[:-1]], axis=0)
    assert list(conditional["distributions"]["x0"].values()) == pytest.approx(shares.tolist(), rel=1e-10)
    assert np.exp(conditional["log_evidence"]) == pytest.approx(np.mean(totals), rel=1e-10)
    assert np.exp(best["log_probability"]) == pytest.approx(each[-1].max(), rel=1e-10)


def test_a_column_in_a_range_is_cut_to_it_in_every_draw():
    parameter = np.repeat(CIRCUIT.leaf_parameters[:, np.newaxis], 3, axis=1)
    for leaf in np.flatnonzero(CIRCUIT.kind == GAUSSIAN):
        parameter[CIRCUIT.leaf_starts[leaf]] += [0.0, 0.5, 1.0]
        parameter[CIRCUIT.leaf_starts[leaf] + 1] *= [1.0, 0.7, 2.0]
    draws = CircuitDraws(CIRCUIT, np.array([[0.4, 0.5, 0.9], [0.6, 0.5, 0.1]]), parameter)
    asked = [Moments(("weight",), {"weight": Range(2.0, 5.0)}), Sample(200, {"weight": Range(2.0, 5.0)})]
    ours, sample = answer_all(CIRCUIT, MIXED, asked, partial(draws_query_handlers, draws, 1))
    each = [answer_all(draws.of(draw), MIXED, asked[:1])[0]["moments"]["weight"] for draw in range(3)]
    mean, square = np.mean([(one["mean"], one["variance"] + one["mean"] ** 2) for one in each], axis=0)
    assert ours["moments"]["weight"]["mean"] == pytest.approx(mean, rel=1e-10)
    assert ours["moments"]["weight"]["variance"] == pytest.approx(square - mean**2, rel=1e-10)
    assert all(2.0 <= row["weight"] <= 5.0 for row in sample["rows"])


def test_what_is_impossible_in_every_draw():
    circuit, weight = mixture([[categorical(1, 0)]] * 2, [0.5, 0.5]), np.array([[0.2, 0.5, 0.9], [0.8, 0.5, 0.1]])
    draws = CircuitDraws(circuit, weight, np.repeat(circuit.leaf_parameters[:, np.newaxis], 3, axis=1))
    batches, evidence = partial(draws_query_handlers, draws, 1), {"x0": ("b",)}
    assert answer_all(circuit, schema_of(circuit), [Marginal(evidence)], batches)[0]["probability"] == 0.0
    with pytest.raises(ImpossibleEvidence, match="probability zero"):
        answer_all(circuit, schema_of(circuit), [Conditional(("x0",), evidence)], batches)
