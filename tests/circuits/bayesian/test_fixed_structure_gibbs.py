"""Sampling of given structures: posteriors of small circuits against enumeration."""

import itertools
import math

import numpy as np
import pyarrow as pa
import pytest

from learners import load_model
from learners.circuits.evaluation.evaluate import log_values
from learners.errors import InvalidParameter, SchemaError
from learners.models.query import Conditional, Moments
from tests.circuits.answer_circuits import learned

# Three products; the second and the third share a leaf with the first.
SHARED = """vars 2 2
0 cat 0 0.5 0.5
1 cat 1 0.5 0.5
2 cat 0 0.5 0.5
3 cat 1 0.5 0.5
4 prod 0 1
5 prod 2 1
6 prod 0 3
7 sum 4:0.4 5:0.3 6:0.3
"""
PRODUCTS = ((0, 1), (2, 1), (0, 3))


def sampled(folder, text, table, **parameters):
    path = folder / "circuit.txt"
    path.write_text(text)
    return learned(pa.table(table), structure="file", circuit=str(path), learner="gibbs", **parameters)


def rising(alpha, n):
    """log of alpha (alpha + 1) … (alpha + n - 1)."""
    return math.lgamma(alpha + n) - math.lgamma(alpha)


def log_joint(trees, rows):
    """log P(rows, their trees), weights and leaves integrated out under priors of ones."""
    edges, cells = np.zeros(3, int), np.zeros((4, 2), int)
    for tree, row in zip(trees, rows, strict=True):
        edges[tree] += 1
        for leaf, value in zip(PRODUCTS[tree], row, strict=True):
            if value is not None:
                cells[leaf, value] += 1
    log = sum(rising(1.0, n) for n in edges) - rising(3.0, int(edges.sum()))
    return log + sum(rising(1.0, a) + rising(1.0, b) - rising(2.0, a + b) for a, b in cells.tolist())


def evidence(rows):
    return sum(math.exp(log_joint(trees, rows)) for trees in itertools.product(range(3), repeat=len(rows)))


def test_predictives_are_those_of_all_induced_trees(tmp_path):
    rows = [[0, 0], [0, 0], [1, 1], [0, None], [1, 1]]
    table = {name: [None if row[i] is None else f"{name}{row[i]}" for row in rows] for i, name in enumerate("ab")}
    model = sampled(tmp_path, SHARED, table, iterations=1200, draws=600)
    whole = evidence(rows)
    for world in itertools.product((0, 1), repeat=2):
        x = np.array(world, float)[:, np.newaxis]
        each = np.exp(model.draws.log_likelihoods(x))[0]
        expected = evidence([*rows, list(world)]) / whole
        assert each.mean() == pytest.approx(expected, abs=5 * each.std() / math.sqrt(len(each) / 4))
    again = load_model(*model.to_arrays())
    answer = again.answer([Conditional(("a",), {"b": "b1"})])[0]
    assert set(answer["distributions"]["a"]) == {"a0", "a1"} and answer["intervals"]["a"]["a0"][0] > 0
    assert model.facts["diagnostics"]["n_sweeps"] == 1200


def test_numbers_have_their_conjugate_posteriors(tmp_path):
    """One leaf of each kind: means of draws are the posterior means; an impossible weight stays zero."""
    rng = np.random.default_rng(1)
    table = {"g": rng.normal(3.0, 2.0, 30), "p": rng.poisson(4.0, 30) + 0.0, "e": rng.exponential(0.5, 30)}
    text = """vars 0 0 0
0 gauss 0 0 1
1 pois 1 1
2 expo 2 1
3 prod 0 1 2
4 gauss 0 5 1
5 prod 4 1 2
6 sum 3:1 5:0
"""
    model = sampled(tmp_path, text, table, iterations=1000, draws=500)
    assert (model.draws.weight[1] == 0.0).all()
    parameter = model.draws.parameter
    g, p, e = (np.asarray(table[name]) for name in "gpe")
    # Under the priors of `Strengths` around each column's mean and variance.
    for own, expected in (
        (parameter[0], g.mean()),
        (parameter[1] ** -2.0, (1.0 + 15.0) / (g.var() + 0.5 * 30 * g.var())),
        (parameter[2], (1.0 + p.sum()) / (1.0 / p.mean() + 30)),
        (parameter[3], (3.0 + 30) / (3.0 * e.mean() + e.sum())),
    ):
        assert own.mean() == pytest.approx(expected, abs=5 * own.std() / math.sqrt(500))
    assert model.answer([Moments(("g",))])[0]["moments"]["g"]["mean"] == pytest.approx(g.mean(), abs=0.1)
    assert np.isfinite(log_values(model.circuit, np.array([[3.0], [4.0], [0.5]]))).all()


def test_what_cannot_be_sampled_is_refused(tmp_path):
    table = {"g": [1.0, 2.0, 3.0]}
    with pytest.raises(SchemaError, match="Column 'g' has student leaves, which sampling cannot learn"):
        sampled(tmp_path, "vars 0\n0 student 0 1 1 4\n1 sum 0:1\n", table)
    with pytest.raises(InvalidParameter, match=r"trials=3.*sampling the structure of a file does not use it"):
        sampled(tmp_path, SHARED, table, trials=3)
