"""Answers of circuits against enumeration."""

import math
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.circuits.errors import ImpossibleEvidence, InvalidEvidence
from learners.circuits.evaluation.evaluate import log_values
from learners.circuits.kernels import CATEGORICAL, GAUSSIAN
from learners.circuits.map.query import prepared_map_circuit
from learners.circuits.queries import array_answers as answers
from learners.circuits.queries.array_answers import class_posterior, conditional, marginals, moments, sample
from learners.circuits.structures.random_regions import random_regions
from tests.circuits.answer_circuits import array_of, circuits_and_rows, independent
from tests.naive import circuits as naive
from tests.naive.map import categorical, flat_circuit, logs, mixture


@pytest.mark.parametrize("way", ["one by one", "in blocks", "in logarithms"])
@given(parts=circuits_and_rows(possible=True))
def test_marginals_are_those_of_enumeration(way, parts):
    circuit, rows, x = parts
    variables = list(range(circuit.n_variables))
    found = forced(way, lambda: marginals(circuit, x, variables))
    for r, row in enumerate(rows):
        for v in variables:
            expected = naive.conditional(circuit, row, [v])
            assert found[v][r] == pytest.approx(list(expected.values()), abs=1e-12)


def forced(way, ask):
    """The answer if rows go one by one, in blocks, or as too small for linear space."""
    one_by_one, few = answers.rowwise_posteriors, answers.FEW_ROWS
    if way == "in logarithms":
        answers.rowwise_posteriors = lambda arrays, wanted, x, rows, moments, scratch, out: out.fill(np.nan)
    answers.FEW_ROWS = 0 if way == "in blocks" else 1000
    try:
        return ask()
    finally:
        answers.rowwise_posteriors, answers.FEW_ROWS = one_by_one, few


@given(circuits_and_rows(possible=True))
def test_joint_distributions_are_those_of_enumeration(parts):
    circuit, rows, x = parts
    variables = list(range(circuit.n_variables))[::-1][:3]
    found = conditional(circuit, x, variables)
    for r, row in enumerate(rows):
        for codes, p in naive.conditional(circuit, row, variables).items():
            assert found[(r, *codes)] == pytest.approx(p, abs=1e-12)


@pytest.mark.parametrize("way", ["one by one", "in blocks", "in logarithms"])
@given(parts=circuits_and_rows(numeric=True, possible=True))
def test_moments_are_those_of_the_mixture(way, parts):
    circuit, rows, x = parts
    numeric = np.flatnonzero(circuit.n_values == 0).tolist()
    mean, variance = forced(way, lambda: moments(circuit, x, numeric))
    for r, row in enumerate(rows):
        for i, v in enumerate(numeric):
            expected = (row[v], 0.0) if v in row else naive.moments(circuit, row, v)
            assert (mean[r, i], variance[r, i]) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@given(parts=circuits_and_rows(possible=True))
def test_the_class_posterior_does_not_look_at_the_class(parts):
    circuit, rows, x = parts
    found = class_posterior(circuit, x, 0)
    for r, row in enumerate(rows):
        row.pop(0, None)
        assert found[r] == pytest.approx(list(naive.conditional(circuit, row, [0]).values()), abs=1e-12)


@given(circuits_and_rows(possible=True))
def test_a_row_does_not_depend_on_the_others_nor_on_the_type_of_codes(parts):
    circuit, rows, x = parts
    variables = list(range(circuit.n_variables))
    whole = marginals(circuit, x, variables)
    codes = np.where(np.isnan(x), -1, x).astype(np.int64)
    for v in variables:
        for r in range(len(rows)):
            assert marginals(circuit, x[:, [r]], [v])[0][0] == pytest.approx(whole[v][r], rel=1e-12, abs=1e-15)
        assert np.array_equal(marginals(circuit, codes, [v])[0], whole[v])


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=20)
def test_many_rows_of_a_wide_circuit_agree_one_by_one_and_in_blocks(seed):
    rng = np.random.default_rng(seed)
    sizes = [2, 3, 7, 5, 2, 9]
    shares = [rng.dirichlet(np.ones(n)).tolist() for n in sizes]
    circuit = random_regions(shares, depth=2, sums=2, replicas=2, seed=seed)
    x = rng.integers(0, sizes, (40, 6)).T.astype(float)
    x[rng.random(x.shape) < 0.5] = np.nan
    alone = forced("one by one", lambda: marginals(circuit, x, range(6)))
    together = forced("in blocks", lambda: marginals(circuit, x, range(6)))
    for ours, theirs in zip(alone, together, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-12)
        assert ours.sum(axis=1) == pytest.approx(np.ones(40))


def test_thousands_of_observed_variables_do_not_underflow():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2, (3000, 50))
    circuit = random_regions([(0.5, 0.5)] * 3000, depth=2, sums=2, replicas=2)
    x = codes.astype(float)
    x[0] = np.nan
    p = marginals(circuit, x, [0])[0]
    logs = []
    for value_of_first in (0, 1):
        x[0] = value_of_first
        logs.append(log_values(circuit, x))
    assert max(map(np.max, logs)) < -1000
    assert p[:, 1] == pytest.approx(1 / (1 + np.exp(logs[0] - logs[1])), rel=1e-6)


def test_narrow_densities_do_not_overflow():
    circuit = mixture([[*[(GAUSSIAN, [0.0, 1e-6])] * 100, categorical(0.25, 0.75)]])
    x = np.zeros((101, 1))
    x[100] = np.nan
    assert log_values(circuit, x)[0] == pytest.approx(-100 * math.log(1e-6 * math.sqrt(2 * math.pi)))
    assert marginals(circuit, x, [100])[0][0] == pytest.approx([0.25, 0.75])


def two_groups():
    """Variable 0 and 1 are equal; 2 is Gaussian, at 0 or 10 with them."""
    return mixture(
        [
            [categorical(1, 0), categorical(1, 0), (GAUSSIAN, [0.0, 1.0])],
            [categorical(0, 1), categorical(0, 1), (GAUSSIAN, [10.0, 2.0])],
        ],
        [0.25, 0.75],
    )


def test_a_worked_example():
    circuit = two_groups()
    x = array_of(circuit, [{}, {0: 1}])
    assert marginals(circuit, x, [1])[0] == pytest.approx(np.array([[0.25, 0.75], [0, 1]]))
    mean, variance = moments(circuit, x, [2])
    assert mean[:, 0] == pytest.approx([7.5, 10.0])
    assert variance[:, 0] == pytest.approx([0.25 * 1 + 0.75 * 4 + 0.25 * 7.5**2 + 0.75 * 2.5**2, 4.0])


def test_impossible_evidence_is_named():
    circuit = two_groups()
    x = array_of(circuit, [{0: 0}, {0: 0, 1: 1}])
    assert log_values(circuit, x)[1] == -math.inf
    for ask, variables in ((moments, [2]), (marginals, [0]), (conditional, [0, 1])):
        with pytest.raises(ImpossibleEvidence, match="evidence of row 1 probability zero") as caught:
            ask(circuit, x, variables)
        assert caught.value.row == 1


def test_questions_that_do_not_fit_are_refused():
    circuit = two_groups()
    lonely, many = flat_circuit([(CATEGORICAL, 1, logs(0.5, 0.5))], [2, 2]), independent([(0.5, 0.5)] * 20)
    for ask, of, variables, message in (
        (marginals, circuit, [3], "Variable 3 is not in the circuit"),
        (marginals, circuit, [2], "Variable 2 is numeric: ask for its moments"),
        (conditional, circuit, [0, 2], "Variable 2 is numeric"),
        (moments, circuit, [0], "Variable 0 is discrete"),
        (marginals, circuit, [0, 0], "is queried twice"),
        (marginals, circuit, [], "names no variable"),
        (marginals, lonely, [0], "Variable 0 has no leaf"),
        (conditional, many, range(20), "1,048,576 cells"),
    ):
        with pytest.raises(InvalidEvidence, match=message):
            ask(of, array_of(of, [{}]), variables)
    with pytest.raises(InvalidEvidence, match="shape"):
        marginals(circuit, array_of(circuit, [{}])[:2], [0])


def test_no_rows_have_no_answers():
    circuit = two_groups()
    x = np.empty((3, 0))
    assert marginals(circuit, x, [0])[0].shape == (0, 2)
    assert conditional(circuit, x, [0, 1]).shape == (0, 2, 2)
    assert moments(circuit, x, [2])[0].shape == (0, 1)
    assert class_posterior(circuit, x, 0).shape == (0, 2)


def test_only_the_queries_asked_last_are_kept():
    circuit = independent([(0.5, 0.5)] * 50)
    for v in range(50):
        marginals(circuit, np.full((50, 5), np.nan), [v])
    ready = answers.linear_space_circuit(circuit)
    assert list(ready.queries) == [(v,) for v in range(50 - answers.MOST_KEPT, 50)]


def test_threads_may_ask_of_one_circuit_at_the_same_time(monkeypatch):
    """What is kept for one is put out by another, and made by several at once."""
    monkeypatch.setattr(answers, "MOST_KEPT", 2)
    x, asked = np.full((6, 5), np.nan), [(v, w) for v in range(6) for w in range(6) if v != w]

    def ask(circuit, n_times=1):
        found = [marginals(circuit, x, pair)[0] for _ in range(n_times) for pair in asked]
        return np.array(found[-len(asked) :]), prepared_map_circuit(circuit).finite.log_bound

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            for seed in range(3):
                circuit, same = (independent([(0.2 + 0.1 * seed, 0.8 - 0.1 * seed)] * 6) for _ in range(2))
                expected = ask(circuit)
                for found in [threads.submit(ask, same, 8) for _ in range(8)]:
                    assert np.array_equal(found.result()[0], expected[0]) and found.result()[1] == expected[1]
    finally:
        sys.setswitchinterval(before)


@pytest.mark.parametrize("n_rows", [1, 20])
@pytest.mark.parametrize("far", [1e3, 1e6, 1e12, 1e100, 1e154])
def test_a_number_far_from_every_leaf_does_not_blur_the_rest(far, n_rows):
    """Its log density, -1e24 or less, has no digits left for what the other columns say; leaves alike say nothing."""
    circuit = mixture(
        [
            [(GAUSSIAN, [2.0, 1.0]), categorical(p, 1 - p), (GAUSSIAN, [p, 1.0]), categorical(p, 1 - p)]
            for p in (0.3, 0.9)
        ],
        [0.25, 0.75],
    )
    near, x = np.full((2, 4, n_rows), np.nan)
    x[0] = far
    assert marginals(circuit, x, [1])[0] == pytest.approx(marginals(circuit, near, [1])[0], rel=1e-12)
    assert conditional(circuit, x, [1, 3]) == pytest.approx(conditional(circuit, near, [1, 3]), rel=1e-12)
    for told, expected in zip(moments(circuit, x, [2]), moments(circuit, near, [2]), strict=True):
        assert told == pytest.approx(expected, rel=1e-12)
    assert np.mean(sample(circuit, x, 1000, seed=1)[0, :, 1]) == pytest.approx(0.25, abs=0.05)
    assert far > 1e150 or log_values(circuit, x) == pytest.approx(-0.5 * (far - 2.0) ** 2, rel=1e-5)
    x[2] = far
    assert marginals(circuit, x, [1])[0].sum(axis=1) == pytest.approx(np.ones(n_rows), rel=1e-12)
    assert conditional(circuit, x, [1, 3]).sum(axis=(1, 2)) == pytest.approx(np.ones(n_rows), rel=1e-12)
