"""Evidence of every kind to mixtures of Gaussians: sums over the values of the discrete column."""

from __future__ import annotations

import numpy as np
import pytest

from learners.circuits.errors import ImpossibleEvidence, InvalidEvidence
from learners.circuits.mixtures.mixture import GaussianMixture
from learners.circuits.mixtures.model import GaussianModel
from learners.models.evidence import NoneOf, Range
from learners.models.query import Conditional, Map, Marginal, Moments
from learners.schema import Attribute, Schema
from tests.circuits.mixtures.strategies import example

SCHEMA = Schema(
    (
        Attribute("length", "numeric", arrow_type="double"),
        Attribute("kind", "nominal", ("a", "b", "c")),
        Attribute("width", "numeric", arrow_type="double"),
    ),
    None,
    ("",),
)
MODEL = GaussianModel(SCHEMA, example(), {})


def weighted(weights, length=np.nan, width=np.nan):
    """(3,) float64: weights times the density of each kind with the numbers."""
    rows = np.array([[length] * 3, [0.0, 1.0, 2.0], [width] * 3])
    return np.asarray(weights) * np.exp(MODEL.mixture.log_density(rows))


@pytest.mark.parametrize(
    ("evidence", "likely", "weights"),
    [
        ({"kind": ("a", "c")}, {}, [1, 0, 1]),
        ({"kind": NoneOf("c")}, {}, [1, 1, 0]),
        ({}, {"kind": {"a": 0.2, "b": 3.0}}, [0.2, 3.0, 0]),
    ],
)
def test_every_query_is_what_enumeration_says(evidence, likely, weights):
    numbers = {"length": 1.5, "width": 0.25}
    marginal, conditional, best, moments = MODEL.answer(
        [
            Marginal(evidence | numbers, likely=likely),
            Conditional(("kind",), evidence | numbers, likely=likely),
            Map(("kind",), evidence | numbers, likely=likely),
            Moments(("width",), evidence | {"length": 1.5}, likely=likely),
        ]
    )
    each = weighted(weights, **numbers)
    assert marginal["density"] == pytest.approx(each.sum(), rel=1e-10)
    assert list(conditional["distributions"]["kind"].values()) == pytest.approx(each / each.sum(), rel=1e-10)
    assert np.exp(best["log_probability"]) == pytest.approx(each.max(), rel=1e-10)
    assert best["assignment"]["kind"] == "abc"[each.argmax()]
    (ranked,) = MODEL.answer([Map(("kind",), evidence | numbers, best=5, likely=likely)])
    expected = sorted(each[each > 0], reverse=True)
    assert np.exp([own["log_probability"] for own in ranked["best"]]) == pytest.approx(expected, rel=1e-10)
    shares = weighted(weights, length=1.5)
    means = [
        MODEL.answer([Moments(("width",), {"length": 1.5, "kind": kind})])[0]["moments"]["width"]["mean"]
        for kind in "abc"
    ]
    assert moments["moments"]["width"]["mean"] == pytest.approx(shares @ means / shares.sum(), rel=1e-10)


def test_kbt_tells_the_modes_of_components():
    (told,) = MODEL.answer([Map(("length", "width"), {"kind": "a"}, "kbt", best=2)])
    assert [list(each["assignment"].values()) for each in told["best"]] == [[0.0, 0.0], [4.0, -2.0]]
    assert told["best"][0]["log_probability"] == told["log_probability"] > told["best"][1]["log_probability"]


def test_a_range_of_numbers_that_depend_on_others_is_refused():
    with pytest.raises(InvalidEvidence, match="takes no range of a numeric column"):
        MODEL.answer([Marginal({"length": Range(0, 1)})])


def test_what_no_component_allows_is_impossible():
    shares = np.log([[1.0, 1e-300, 1e-300], [1.0, 1e-300, 1e-300]])
    shares[:, 1:] = -np.inf
    old = example()
    mixture = GaussianMixture(old.log_weight, old.mean, old.covariance, shares, old.n_values)
    model = GaussianModel(SCHEMA, mixture, {})
    assert model.answer([Marginal({"kind": ("b", "c")})])[0]["probability"] == 0.0
    for query in (Moments(("width",), {"kind": ("b",)}), Map(("kind",), {}, likely={"kind": {"c": 1.0}})):
        with pytest.raises(ImpossibleEvidence, match="column 'kind' can never be"):
            model.answer([query])
