"""Discriminants fitted to drawn rows: exact moments, and a weight only where they pay."""

import numpy as np
import pyarrow as pa
import pytest
from sklearn.covariance import empirical_covariance

from learners import Source
from learners.ensembles.discriminants import fitting
from learners.ensembles.discriminants.fitting import _moments, fit_discriminant, normal_scores
from learners.ensembles.weights import Rows, gain_reliability
from learners.passes.learner import drive
from learners.registry import recipes
from learners.schema.encoding.encode import encode
from learners.schema.schema import Attribute
from tests.support.tables_of_numbers import numbers_of


def auto(rows, threads=1, **parameters):
    made = recipes.learner("auto", {"members": 2, **parameters}, "class")
    return drive(made, Source.of_table(rows), threads=threads)


def test_classes_that_differ_in_where_numbers_lie_together_get_a_discriminant():
    model = auto(numbers_of(0, 300))
    facts = model.facts["discriminant"]
    assert facts["columns"] == ["n0", "n1", "n2"]
    losses = facts["left_out_losses"]
    assert losses["with discriminant"] < 0.99 * losses["ensemble"]
    assert any("Gaussian discriminants of 3 columns" in words for words in model.facts["choice"])


def test_rules_of_words_get_none():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 3, (2, 300))
    words = np.array(["p", "q", "r"])
    model = auto(pa.table({"a": words[a], "b": words[b], "class": words[(a + b) % 3]}))
    assert model.discriminant is None and "does not lower the loss" in model.facts["discriminant"]


def test_numbers_that_tell_nothing_do_no_harm(monkeypatch):
    rng = np.random.default_rng(1)
    z, y = rng.normal(size=(2400, 4)), rng.integers(0, 2, 2400)
    rows = pa.table({f"n{i}": z[:, i] for i in range(4)} | {"class": np.array(["a", "b"])[y]})

    def loss():
        model = auto(rows.slice(0, 400))
        p = model.predict_proba(encode(rows.slice(400), model.schema))
        return -np.log(p[np.arange(2000), y[400:]]).mean()

    own = loss()
    monkeypatch.setattr(fitting, "PAYS", np.inf)
    assert own < min(0.72, loss() + 0.005)


def test_the_evidence_of_a_gain_is_its_share_beside_chance():
    rng = np.random.default_rng(2)
    y, before = rng.integers(0, 2, 400).astype(np.uint8), np.full((400, 2), np.log(0.5))
    rows, found = Rows(y, np.zeros((400, 2))), []
    for gain in (-0.1, 0.0, 0.01, 0.02, 0.1, 1.0):
        scores = before.copy()
        scores[np.arange(400), y] += gain + rng.permutation(np.repeat([-1.0, 1.0], 200))
        losses = [
            np.array([-np.log(np.exp(own[k]) / np.exp(own).sum()) for own, k in zip(all_, y, strict=True)])
            for all_ in (before, scores)
        ]
        gains = losses[0] - losses[1]
        z = max(0.0, gains.mean()) / (gains.std() / 20)
        found.append(gain_reliability(before, scores, rows))
        assert found[-1] == pytest.approx(z**2 / (z**2 + 1))
    assert found[0] == 0.0 and found[-1] > 0.99 and found == sorted(found)


def test_weights_follow_the_evidence_without_a_threshold(monkeypatch):
    table = numbers_of(0, 300)
    whole = auto(table).facts["discriminant"]
    assert 0.9 < whole["evidence"] < 1.0
    found = []
    for evidence in (0.1, 0.2, 1.0):
        monkeypatch.setattr(fitting, "gain_reliability", lambda *_, evidence=evidence: evidence)
        found.append(auto(table).facts["discriminant"]["weights"])
    assert found[0]["discriminant"] == pytest.approx(0.1 * found[2]["discriminant"])
    assert 1 - found[1]["ensemble"] == pytest.approx(0.2 * (1 - found[2]["ensemble"]))
    assert whole["weights"]["discriminant"] == pytest.approx(whole["evidence"] * found[2]["discriminant"])


def test_no_outlier_excludes_a_class():
    # Columns that move together in both classes, differently far: a row where they do not is many deviations from both.
    rng = np.random.default_rng(7)
    y = rng.integers(0, 2, 400)
    z = rng.normal(size=(400, 1)) + (0.05 + 0.1 * y)[:, np.newaxis] * rng.normal(size=(400, 3))
    table = pa.table({f"n{i}": z[:, i] for i in range(3)} | {"class": np.array(["a", "b"])[y]})
    model = auto(table)
    own = model.discriminant
    assert own.weight[0] * own.bound[0] < 2 * np.log(400)
    far = encode(pa.table({"n0": [z.max()], "n1": [z.min()], "n2": [0.0]}), model.schema)
    out = np.zeros((1, 2))
    own.add_scores(far.x, out)
    odds = out[0] - own.weight[0] * own.log_shares
    assert np.ptp(odds) == pytest.approx(own.weight[0] * own.bound[0])


def test_threads_and_order_of_rows_do_not_matter():
    rows = numbers_of(2, 300)
    whole = auto(rows)
    shuffled = rows.take(np.random.default_rng(0).permutation(300))
    for other in (auto(rows, threads=2), auto(shuffled)):
        for name, array in whole.discriminant.to_arrays().items():
            assert np.array_equal(array, other.discriminant.to_arrays()[name]), name


def test_moments_are_exact_in_any_order_and_part():
    rng = np.random.default_rng(3)
    z, y = rng.integers(-1024, 1025, (500, 6)).astype(float), rng.integers(0, 3, 500).astype(np.uint8)
    whole = _moments(z, y, 3)
    order = rng.permutation(500)
    for other in (_moments(z[order], y[order], 3), whole.minus(_moments(z[:200], y[:200], 3))):
        own = other if other.counts.sum() == 500 else _moments(z[200:], y[200:], 3)
        for one, two in zip(other, own if own is not other else whole, strict=True):
            assert np.array_equal(one, two)


def test_covariances_are_those_of_each_class_and_of_all():
    rng = np.random.default_rng(4)
    z, y = np.rint(256 * rng.normal(size=(4000, 3))), rng.integers(0, 2, 4000).astype(np.uint8)
    z[y == 1, 0] *= 2
    moments = _moments(z, y, 2)
    means, covariances = moments.gaussians(0.0, 0.0)
    for k in range(2):
        assert means[k] == pytest.approx(z[y == k].mean(axis=0) / 256, abs=1e-3)
        assert covariances[k] == pytest.approx(empirical_covariance(z[y == k] / 256), abs=1e-3)
    _, pooled = moments.gaussians(None, 0.0)
    within = sum(n * c for n, c in zip(moments.counts, covariances, strict=True)) / (4000 - 2)
    assert pooled == pytest.approx(np.stack([within, within]), abs=2e-3)
    _, diagonal = moments.gaussians(None, 1.0)
    assert diagonal[0] == pytest.approx(np.diag(np.diag(within)), abs=2e-3)


def attribute_of(n_cuts, **fields):
    return Attribute("a", "numeric", cuts=tuple(range(n_cuts)), **fields)


def test_scores_are_normal_quantiles_in_units():
    scores = normal_scores(attribute_of(3), np.array([100, 200, 200, 100]))
    assert scores.tolist() == (-scores[::-1]).tolist() and scores.dtype == np.int64
    weights = np.array([100, 200, 200, 100]) / 600
    assert np.sqrt((weights * scores**2).sum()) == pytest.approx(fitting.UNIT, rel=0.01)
    with_null = normal_scores(attribute_of(3, has_missing=True), np.array([50, 100, 200, 200, 100]))
    assert with_null.tolist() == [0, *scores]


@pytest.mark.parametrize(
    ("attribute", "counts"),
    [
        (attribute_of(1), [10, 10]),  # two intervals
        (attribute_of(2), [95, 3, 2]),  # almost all in one
        (attribute_of(2, has_missing=True), [60, 10, 10, 10]),  # mostly null
        (attribute_of(2, arrow_type="timestamp[us]"), [10, 10, 10]),
        (Attribute("a", "nominal", values=("p", "q", "r")), [10, 10, 10]),
    ],
)
def test_columns_that_are_no_numbers_or_say_little_have_no_scores(attribute, counts):
    assert normal_scores(attribute, np.array(counts)) is None


def test_few_rows_have_none():
    model = auto(numbers_of(5, 300))
    rows = numbers_of(6, 300)
    chunk = encode(rows, model.schema)
    few = chunk.rows(slice(0, 4))
    left_out = np.full((4, 3), np.log(1 / 3))
    assert fit_discriminant(model.schema, few, left_out, model.class_counts, None, 0, 1) is None
