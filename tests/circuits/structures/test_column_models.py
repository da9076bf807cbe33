"""Leaves chosen for each column: which, told how, stored, asked, learned anew."""

import numpy as np
import pyarrow as pa
import pytest

from learners import encode, load_model
from learners.circuits.structures.column_models import choose_leaf_distribution
from learners.circuits.structures.densities import coarsest_decimal_grid, fit_density_transform
from learners.errors import InvalidParameter, SchemaError
from learners.models.query import Impute, Marginal, Moments, Sample
from learners.schema import Attribute, Kept
from learners.schema.discretise import Histogram, equal_frequency_cut_points
from tests.circuits.answer_circuits import learned

PARAMETERS = {"structure": "chow-liu", "leaves": "auto", "passes": 3, "n_bins": 4}


def table_of(n=1500, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    columns = {
        "tenths": np.round(20 + 4 * x, 1),
        "skewed": np.exp(1.5 * x + rng.normal(size=n)),
        "whole": rng.poisson(3, n),
        "tailed": rng.standard_t(2.1, n),
    }
    return pa.table(columns)


@pytest.fixture(scope="module")
def model():
    return learned(table_of(), **PARAMETERS)


def choice_of(x, n_bins=1):
    histogram = Histogram.of(x, np.zeros(x.size, np.int64), 1)
    cuts = equal_frequency_cut_points(histogram, n_bins) if n_bins > 1 else ()
    return choose_leaf_distribution(Attribute("a", "numeric", cuts=cuts, arrow_type="double"), histogram)


@pytest.mark.parametrize(
    ("draw", "expected"),
    [
        (lambda rng: rng.normal(size=4000), "gaussian"),
        (lambda rng: rng.standard_t(3, 4000), "student"),
        (lambda rng: rng.lognormal(size=4000), "lognormal"),
        (lambda rng: np.concatenate([rng.uniform(0, 1, 2000), rng.uniform(9, 10, 2000)]), "quantile"),
        (lambda rng: np.round(rng.normal(size=4000), 1), "rounded"),
        (lambda rng: np.round(rng.lognormal(size=4000), 1), "rounded-lognormal"),
    ],
)
def test_the_distribution_that_made_a_column_is_chosen(draw, expected):
    """One leaf alone, so that no mixture imitates the others."""
    choice = choice_of(draw(np.random.default_rng(5)))
    assert choice.distribution == expected
    assert (choice.step > 0) == expected.startswith("rounded")
    assert choice.tried[expected] >= max(choice.tried.values()) - 0.002


@pytest.mark.parametrize("origin", [2.0**50, 2.0**60])
def test_keys_whose_logarithms_are_equal_get_no_lognormal_distribution(origin):
    """It was chosen, as if all rows were one number, and its mean and draws were several times as large as every row."""
    rng = np.random.default_rng(5)
    x = origin + 1000 * rng.integers(0, 2, 1200) + rng.integers(0, 500, 1200)
    choice = choice_of(x, 8)
    assert "lognormal" not in choice.tried and len(choice.tried) == 3


def test_masses_and_densities_are_never_compared():
    rng = np.random.default_rng(0)
    assert all(name.startswith("rounded") for name in choice_of(np.round(rng.normal(size=900), 1), 4).tried)
    assert not any(name.startswith("rounded") for name in choice_of(rng.normal(size=900), 4).tried)


@pytest.mark.parametrize(
    ("x", "step"),
    [
        ([1.0, 2.0, 4.0], 1.0),
        ([0.1, 0.3, 0.7], 0.2),
        ([0.25, 1.0], 0.75),
        ([10.0, 25.0, 40.0], 15.0),
        ([0.1, np.pi, 4.0], None),
        ([1.0], None),
        ([1e300, 2e300], None),
    ],
)
def test_a_grid_is_found_where_there_is_one(x, step):
    grid = coarsest_decimal_grid(np.array(x))
    assert (grid and grid.step) == (step and pytest.approx(step))


def test_numbers_of_seven_digits_have_a_grid_of_their_own():
    x = np.unique(np.float32([0.1, 0.2, 0.7]).astype(np.float64))
    assert coarsest_decimal_grid(x) is None
    assert coarsest_decimal_grid(x, "float").step == pytest.approx(0.1)


def test_a_quantile_transform_ascends_through_repeated_numbers():
    x, n = np.array([0.0, 1.0, 50.0]), np.array([900, 50, 50])
    warp = fit_density_transform("quantile", x, n, coarsest_decimal_grid(np.array([0.0, 1.0])))
    assert (np.diff(warp.x) > 0).all()
    assert (np.diff(warp.z) > 0).all()
    assert warp.of(warp.x) == pytest.approx(warp.z)


def test_a_model_says_what_was_chosen_and_what_is_a_mass(model):
    told = model.facts["leaves"]
    assert told["tenths"]["distribution"].startswith("rounded")
    assert told["tenths"]["step"] == pytest.approx(0.1)
    assert told["whole"]["step"] == 1
    assert told["skewed"]["step"] == told["tailed"]["step"] == 0
    assert [a.distribution for a in model.schema.attributes] == [
        told[a.name]["distribution"] for a in model.schema.attributes
    ]
    mass, both = model.answer([Marginal({"tenths": 20.0, "whole": 2}), Marginal({"tenths": 20.0, "skewed": 1.0})])
    assert 0 < mass["probability"] < 1
    assert "density" in both
    assert "probability" not in both


def test_the_masses_of_a_recorded_column_add_up_to_one(model):
    cells = [Marginal({"tenths": round(i / 10, 1)}) for i in range(600)]
    assert sum(answer["probability"] for answer in model.answer(cells)) == pytest.approx(1, abs=1e-4)
    near, at = model.answer([Marginal({"tenths": 20.03}), Marginal({"tenths": 20.0})])
    assert near["probability"] == at["probability"]


def test_moments_draws_and_guesses_of_chosen_leaves(model):
    table = table_of().to_pandas()
    (found,) = model.answer([Moments(("tenths", "whole"))])
    for name, own in found["moments"].items():
        assert own["mean"] == pytest.approx(table[name].mean(), abs=0.1)
        assert own["variance"] == pytest.approx(table[name].var(), rel=0.1)
    (drawn,) = model.answer([Sample(variables=("tenths", "skewed"), evidence={"whole": 3}, n=50, seed=1)])
    assert all(row["tenths"] == pytest.approx(round(row["tenths"], 1)) and row["skewed"] > 0 for row in drawn["rows"])
    (guess,) = model.answer([Impute(variables=("tenths",), evidence={"skewed": 5.0})])
    assert 10 < guess["imputed"]["tenths"]["value"] < 30


def test_a_stored_model_and_one_that_follows_new_data_keep_the_leaves(model):
    table = table_of()
    again = load_model(*model.to_arrays())
    chunk = encode(table, model.schema)
    assert np.array_equal(again.log_likelihood(chunk), model.log_likelihood(chunk))
    newer = learned(table_of(seed=1), given=Kept(model.schema), **PARAMETERS)
    assert [a.distribution for a in newer.schema.attributes] == [a.distribution for a in model.schema.attributes]


def test_learning_row_by_row_takes_gaussian_leaves():
    schema = learned(table_of(200), **PARAMETERS, learning="adf").schema
    assert {a.distribution for a in schema.attributes} == {"gaussian"}


@pytest.mark.parametrize(
    ("column", "overrides", "parameters", "error", "message"),
    [
        ("skewed", {"skewed": {"distribution": "lognormal"}}, {"learning": "adf"}, SchemaError,
         "'skewed' has the distribution 'lognormal', which adf cannot learn"),
        ("skewed", None, {"leaves": "rounded"}, SchemaError, "'skewed' is not recorded on a grid"),
        ("tailed", None, {"leaves": "lognormal"}, SchemaError, "'tailed' holds -.* must be above zero"),
        ("tailed", None, {"learning": "bmm", "leaves": "student"}, InvalidParameter, "bmm learns only gaussian, poisson, exponential"),
    ],
)  # fmt: skip
def test_leaves_that_a_column_or_its_learning_cannot_have_are_refused(column, overrides, parameters, error, message):
    with pytest.raises(error, match=message):
        learned(table_of(200).select([column]), overrides=overrides, **{**PARAMETERS, **parameters})
