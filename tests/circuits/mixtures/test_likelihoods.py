"""Evidence of every kind to mixtures of Gaussians: sums over the values of the discrete column."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from learners.circuits.errors import ImpossibleEvidence
from learners.circuits.mixtures.conditioning import conditional_marginals, conditional_moments
from learners.circuits.mixtures.mixture import DependentRanges, GaussianMixture
from learners.circuits.mixtures.model import GaussianModel
from learners.models.estimation import Sampling
from learners.models.evidence import NoneOf, Range
from learners.models.query import Conditional, Map, Marginal, Moments, Sample
from learners.schema import Attribute, Schema
from tests.circuits.mixtures.strategies import example
from tests.naive.map import logs

LENGTH, WIDTH = (Attribute(name, "numeric", arrow_type="double") for name in ("length", "width"))


def schema_of(*attributes):
    return Schema(attributes, None, ("",))


SCHEMA = schema_of(LENGTH, Attribute("kind", "nominal", ("a", "b", "c")), WIDTH)
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
    marginal, conditional, best, ranked, moments = MODEL.answer(
        [
            Marginal(evidence | numbers, likely=likely),
            Conditional(("kind",), evidence | numbers, likely=likely),
            Map(("kind",), evidence | numbers, likely=likely),
            Map(("kind",), evidence | numbers, best=5, likely=likely),
            Moments(("width",), evidence | {"length": 1.5}, likely=likely),
        ]
    )
    each = weighted(weights, **numbers)
    assert marginal["density"] == pytest.approx(each.sum(), rel=1e-10)
    assert list(conditional["distributions"]["kind"].values()) == pytest.approx(each / each.sum(), rel=1e-10)
    assert np.exp(best["log_probability"]) == pytest.approx(each.max(), rel=1e-10)
    assert best["assignment"]["kind"] == "abc"[each.argmax()]
    expected = sorted(each[each > 0], reverse=True)
    assert np.exp([own["log_probability"] for own in ranked["best"]]) == pytest.approx(expected, rel=1e-10)
    shares = weighted(weights, length=1.5)
    each = MODEL.answer([Moments(("width",), {"length": 1.5, "kind": kind}) for kind in "abc"])
    means = [one["moments"]["width"]["mean"] for one in each]
    assert moments["moments"]["width"]["mean"] == pytest.approx(shares @ means / shares.sum(), rel=1e-10)


def test_kbt_tells_the_modes_of_components():
    (told,) = MODEL.answer([Map(("length", "width"), {"kind": "a"}, "kbt", best=2)])
    assert [list(each["assignment"].values()) for each in told["best"]] == [[0.0, 0.0], [4.0, -2.0]]
    assert told["best"][0]["log_probability"] == told["log_probability"] > told["best"][1]["log_probability"]


NODES, WEIGHTS = np.polynomial.legendre.leggauss(64)


@pytest.mark.parametrize("n_mixtures", [8, pytest.param(200, marks=pytest.mark.faults)])
def test_a_range_is_what_integration_over_it_says(n_mixtures):
    """Of random mixtures: sums over 64 numbers in the range, of what the mixture says given each."""
    rng = np.random.default_rng(3)
    for _ in range(n_mixtures):
        factor = rng.normal(size=(2, 3, 3)) + 2.0 * np.eye(3)
        mixture = GaussianMixture(
            np.log(rng.dirichlet(np.ones(2))),
            rng.normal(size=(2, 3)),
            factor @ np.swapaxes(factor, 1, 2),
            np.log(rng.dirichlet(np.ones(2), 2)),
            np.array([0, 2, 0, 0]),
        )
        numbers = [Attribute(name, "numeric", arrow_type="double") for name in "yz"]
        model = GaussianModel(schema_of(LENGTH, Attribute("k", "nominal", ("a", "b")), *numbers), mixture, {})
        low = rng.normal()
        evidence = {"length": Range(low, low + 1.5), "y": rng.normal()}
        rows = np.repeat([[np.nan], [np.nan], [evidence["y"]], [np.nan]], 64, axis=1)
        rows[0] = low + 0.75 + 0.75 * NODES
        shares = 0.75 * WEIGHTS * np.exp(mixture.log_density(rows))
        mean, variance = conditional_moments(mixture, rows, [0, 3])
        marginal, conditional, told, draw = model.answer(
            [Marginal(evidence), Conditional(("k",), evidence), Moments((), evidence), Sample(2, evidence)]
        )
        assert marginal["density"] == pytest.approx(shares.sum(), rel=1e-10)
        shares /= shares.sum()
        p = shares @ conditional_marginals(mixture, rows, [1])[0]
        assert list(conditional["distributions"]["k"].values()) == pytest.approx(p, rel=1e-10)
        for i, name in enumerate(("length", "z")):
            own = shares @ mean[:, i]
            expected = {"mean": own, "variance": shares @ (variance[:, i] + mean[:, i] ** 2) - own**2}
            assert told["moments"][name] == pytest.approx(expected, rel=1e-9)
        assert all(low <= row["length"] <= low + 1.5 for row in draw["rows"])


def test_draws_follow_a_range():
    evidence = {"length": Range(0.5, 3.0), "kind": ("a", "b")}
    rows = MODEL.answer([Sample(4000, evidence, seed=2)])[0]["rows"]
    told = MODEL.answer([Moments((), evidence)])[0]["moments"]
    for name in ("length", "width"):
        drawn = np.array([row[name] for row in rows])
        assert drawn.mean() == pytest.approx(told[name]["mean"], abs=4 * np.sqrt(told[name]["variance"] / 4000))
        assert drawn.var() == pytest.approx(told[name]["variance"], rel=0.15)
    assert MODEL.answer([Sample(10, evidence, seed=2)])[0]["rows"] == rows[:10]


@pytest.mark.parametrize("n_seeds", [25, pytest.param(150, marks=pytest.mark.faults)])
def test_ranges_of_columns_that_depend_on_each_other_are_sampled_on_request_only(n_seeds):
    """Within three standard errors of the integral over both ranges in at least 97 % of the queries.

    Where one component has all rows, a standard error is below the rounding of sums, which counts beside it.
    """
    mixture, ratios, rounding = MODEL.mixture, [], 1e-14
    for seed in range(n_seeds):
        rng = np.random.default_rng(seed)
        low = rng.normal(size=2)
        evidence = {"length": Range(low[0], low[0] + 2.0), "width": Range(low[1], low[1] + 1.0)}
        own, first = [np.exp(mixture.log_weight), mixture.shares_of(1)[:, 0]], low + np.array([2.0, 1.0])
        masses = [
            multivariate_normal(mean, covariance).cdf(first, lower_limit=low)
            for mean, covariance in zip(mixture.mean, mixture.covariance, strict=True)
        ]
        total = own[0] @ masses
        marginal, conditional = MODEL.answer(
            [
                Marginal(evidence, sampling=Sampling(error=0.02, seed=seed)),
                Conditional(("kind",), evidence, sampling=Sampling(error=0.01, seed=seed)),
            ]
        )
        ratios.append((marginal["probability"] - total) / (marginal["standard_error"] + rounding))
        share = (own[0] * masses) @ np.exp(own[1]) / total
        error = conditional["standard_errors"]["kind"]["a"] + rounding
        ratios.append((conditional["distributions"]["kind"]["a"] - share) / error)
        assert marginal["sampled"]["is_reached"] and conditional["sampled"]["largest_error"] <= 0.01
    assert np.mean(np.abs(ratios) <= 3.0) >= 0.97
    told = MODEL.answer([Moments((), evidence, sampling=Sampling(error=0.05))])[0]["moments"]
    assert low[0] <= told["length"]["mean"] <= first[0] and 0 < told["length"]["variance"] < 4.0 / 12.0
    for query in (Marginal(evidence), Sample(2, evidence, sampling=Sampling()), Map(("kind",), evidence)):
        with pytest.raises(
            DependentRanges,
            match="No exact formula exists for ranges of several columns that depend on each other: give a range for only one of",
        ):
            MODEL.answer([query])


def test_map_searches_numbers_in_their_ranges():
    """One Gaussian: no number in the box, and no other in a fine grid, is denser."""
    old = example()
    mixture = GaussianMixture(np.zeros(1), old.mean[1:], old.covariance[1:], old.log_share[1:], old.n_values)
    model = GaussianModel(SCHEMA, mixture, {})
    evidence = {"length": Range(0.0, 1.0), "width": Range(-3.0, -1.5)}
    for known in (evidence, {"length": evidence["length"]}):
        (told,) = model.answer([Map((), {**known, "kind": "a"}, solver="kbt")])
        x, y = np.meshgrid(np.linspace(0.0, 1.0, 201), np.linspace(-3.0, -1.5 if len(known) == 2 else 3.0, 201))
        densest = mixture.log_density(np.array([x.ravel(), np.zeros(x.size), y.ravel()])).max()
        assert told["log_probability"] == pytest.approx(densest, abs=1e-3) and told["is_optimal"]
        assert told["log_probability"] >= densest - 1e-12
    (told,) = model.answer([Map(("width",), {"length": Range(0.0, 1.0)}, solver="kbt")])
    assert told["log_probability"] <= told["upper_bound"]


def test_columns_that_are_independent_take_a_range_each():
    mixture = GaussianMixture(
        np.zeros(1), np.zeros((1, 2)), np.diag([1.0, 4.0])[np.newaxis], np.zeros((1, 1)), np.array([0, 1, 0])
    )
    schema = schema_of(LENGTH, Attribute("kind", "nominal", ("a",)), WIDTH)
    evidence = {"length": Range(0.0, 1.0), "width": Range(-1.0)}
    (told,) = GaussianModel(schema, mixture, {}).answer([Marginal(evidence)])
    assert told["probability"] == pytest.approx((norm.cdf(1.0) - 0.5) * norm.cdf(0.5), rel=1e-12)


def test_what_no_component_allows_is_impossible():
    mixture = GaussianMixture.from_arrays(example().to_arrays() | {"log_share": np.array([logs(1, 0, 0)] * 2)})
    model = GaussianModel(SCHEMA, mixture, {})
    assert model.answer([Marginal({"kind": ("b", "c")})])[0]["probability"] == 0.0
    for query in (Moments(("width",), {"kind": ("b",)}), Map(("kind",), {}, likely={"kind": {"c": 1.0}})):
        with pytest.raises(ImpossibleEvidence, match="column 'kind' is never"):
            model.answer([query])
