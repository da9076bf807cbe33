"""Samples: repeatable, and distributed as the circuit says."""

import numpy as np
import pytest
from hypothesis import given
from scipy import stats

from learners.circuits.errors import ImpossibleEvidence
from learners.circuits.kernels import CATEGORICAL, GAUSSIAN, INDICATOR
from learners.circuits.queries.array_answers import sample
from learners.circuits.structures.random_regions import random_regions
from learners.circuits.structures.text import parse_text
from learners.errors import InvalidParameter
from tests.circuits.answer_circuits import array_of, circuits_and_rows
from tests.circuits.map_circuits import random_circuit
from tests.naive import circuits as naive
from tests.naive.map import categorical, flat_circuit, mixture, value


@pytest.mark.parametrize("seed", range(4))
def test_draws_have_the_conditional_distribution(seed):
    """The chi-squared statistic of 20,000 draws lies below the 0.9999 quantile."""
    rng = np.random.default_rng(seed)
    circuit = random_circuit(rng, 4, leaves=(INDICATOR, CATEGORICAL))
    for row in ({}, {0: 1}):
        if value(circuit, row) == 0:
            continue
        drawn = sample(circuit, array_of(circuit, [row]), 20_000, seed)[0].astype(int)
        expected = naive.conditional(circuit, row, [0, 1, 2, 3])
        cells, counts = np.unique(drawn, axis=0, return_counts=True)
        observed = {tuple(cell): int(n) for cell, n in zip(cells.tolist(), counts, strict=True)}
        assert all(expected[cell] > 0 for cell in observed)
        frequent = [cell for cell, p in expected.items() if p * 20_000 >= 5]
        statistic = sum((observed.get(c, 0) - 20_000 * expected[c]) ** 2 / (20_000 * expected[c]) for c in frequent)
        assert statistic < stats.chi2.ppf(0.9999, len(frequent))


@pytest.mark.parametrize(
    ("leaf", "law"),
    [
        ("gauss 0 3 2", stats.norm(3, 2)),
        ("expo 0 2", stats.expon(scale=0.5)),
        ("pois 0 2.5", stats.poisson(2.5)),
        ("pois 0 10", stats.poisson(10)),
        ("pois 0 4000", stats.poisson(4000)),
    ],
)
def test_numeric_leaves_draw_from_their_law(leaf, law):
    """Mean and variance within 5 standard errors of 50,000 draws; every quantile within 0.01."""
    drawn = sample(parse_text(["vars 0", f"0 {leaf}"]), np.full((1, 1), np.nan), 50_000, 1)[0, :, 0]
    assert drawn.mean() == pytest.approx(law.mean(), abs=5 * law.std() / np.sqrt(drawn.size))
    assert drawn.var() == pytest.approx(law.var(), rel=0.05)
    for q in (0.05, 0.25, 0.5, 0.75, 0.95):
        at = law.ppf(q)
        assert (drawn <= at).mean() == pytest.approx(law.cdf(at), abs=0.01)


@given(circuits_and_rows(numeric=True, possible=True))
def test_draws_repeat_and_keep_what_is_observed(parts):
    circuit, rows, x = parts
    drawn = sample(circuit, x, 3, seed=7)
    assert np.array_equal(drawn, sample(circuit, x, 3, seed=7))
    assert np.array_equal(drawn[:, :2], sample(circuit, x, 2, seed=7))
    assert np.array_equal(drawn[:1], sample(circuit, x[:, :1], 3, seed=7))
    for r, row in enumerate(rows):
        for v, code in row.items():
            assert (drawn[r, :, v] == code).all()
        for one in drawn[r]:
            assert value(circuit, dict(enumerate(one.tolist()))) > 0


def test_draws_differ_by_seed_row_and_number():
    circuit = flat_circuit([(GAUSSIAN, 0, [0.0, 1.0])], [0])
    drawn = np.concatenate([sample(circuit, np.full((1, 5), np.nan), 5, seed).ravel() for seed in range(4)])
    assert np.unique(drawn).size == 100


def test_rows_too_improbable_for_a_double_are_drawn_in_logarithms():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2, (3000, 20))
    circuit = random_regions([(0.5, 0.5)] * 3000, depth=2, sums=2, replicas=2)
    x = codes.astype(float)
    x[:10] = np.nan
    drawn = sample(circuit, x, 4)
    assert not np.isnan(drawn).any()
    assert np.array_equal(drawn[:, 0, 10:], x[10:].T)
    assert np.array_equal(drawn, sample(circuit, x, 4))


def test_what_cannot_be_drawn_is_refused():
    circuit = mixture([[categorical(1, 0), (GAUSSIAN, [0.0, 1.0])]])
    x = array_of(circuit, [{}, {0: 1}])
    with pytest.raises(ImpossibleEvidence, match="row 1"):
        sample(circuit, x)
    for wrong in ({"n": -1}, {"seed": -1}):
        with pytest.raises(InvalidParameter, match="=-1"):
            sample(circuit, x[:, :1], **wrong)
    assert sample(circuit, x[:, :1], 0).shape == (1, 0, 2)
