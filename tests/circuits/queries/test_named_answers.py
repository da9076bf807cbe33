"""Best guesses and surprises, by circuits and posteriors over tables of every kind of column."""

from datetime import date

import numpy as np
import pyarrow as pa
import pytest

from learners import encode
from learners.circuits.errors import InvalidEvidence
from learners.errors import InvalidParameter
from learners.models.query import Conditional, Impute, Marginal, Moments, Surprise
from tests.circuits.answer_circuits import learned


def table_of(n=400, seed=0, missing=0.1):
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, n)

    def gaps():
        return rng.random(n) < missing

    return pa.table(
        {
            "x": pa.array(rng.normal(6.0 * group, 1.0), mask=gaps()),
            "whole": pa.array(rng.poisson(3 + 20 * group), pa.int32(), mask=gaps()),
            "word": pa.array(["u", "v", "w"])
            .take(pa.array((group + (rng.random(n) < 0.1)) % 3, mask=gaps()))
            .dictionary_encode(),
            "day": pa.array(
                [date(2020 + 2 * g, 1, 1 + int(d)) for g, d in zip(group, rng.integers(0, 28, n), strict=True)]
            ),
            "class": pa.array([True, False]).take(pa.array(group, mask=gaps())),
        }
    )


SETTINGS = {
    "em": {"structure": "chow-liu", "leaves": "gaussian"},
    "intervals": {"structure": "hclt", "states": 3},
    "gibbs": {"learner": "gibbs", "iterations": 30, "draws": 10},
}


@pytest.fixture(scope="module", params=SETTINGS)
def model(request):
    table = table_of().filter(pa.compute.is_valid(table_of()["class"]))
    return learned(table, "class", threads=1, **SETTINGS[request.param])


def test_a_guess_is_that_of_the_conditional_and_of_the_moments(model):
    has_numbers = model.schema.attributes[0].distribution is not None
    names, evidence = ("word", "x") if has_numbers else ("word",), {"class": True}
    guess, conditional = model.answer([Impute(names, evidence), Conditional(("word",), evidence)])
    best = max(conditional["distributions"]["word"].items(), key=lambda item: item[1])
    word = guess["imputed"]["word"]
    assert (word["value"], word["probability"]) == best
    if has_numbers:
        x = model.answer([Moments(("x",), evidence)])[0]["moments"]["x"]
        number = guess["imputed"]["x"]
        assert (number["value"], number["variance"]) == pytest.approx((x["mean"], x["variance"]))
    if hasattr(model, "draws"):
        low, high = word["interval"]
        assert low <= best[1] <= high and word["standard_error"] > 0


def test_the_rank_of_a_row_is_the_share_of_the_models_own_rows_that_are_less_likely(model):
    records = table_of(200, seed=4, missing=0.0).drop_columns("day").to_pylist()
    asked = model.answer([Surprise(record, n=500, seed=1) for record in records])
    ranks = np.array([answer["rank"] for answer in asked])
    logs = model.answer([Marginal(record) for record in records])
    assert [answer["log_likelihood"] for answer in asked] == [own["log_probability"] for own in logs]
    # Rows of the model's own kind have ranks from zero to one; strange ones are at the bottom.
    assert 0.3 < ranks.mean() < 0.7
    assert [answer["standard_error"] for answer in asked] == pytest.approx(np.sqrt(ranks * (1 - ranks) / 500))
    (strange,) = model.answer([Surprise({"x": -4.0, "whole": 23, "class": False}, n=500)])
    assert strange["rank"] < 0.1
    (nothing,) = model.answer([Surprise({})])
    assert nothing["rank"] == 1.0 and nothing["log_likelihood"] == pytest.approx(0.0, abs=1e-12)


def test_questions_that_make_no_sense_are_refused(model):
    with pytest.raises(InvalidParameter, match=r"n=0 .*1 to 100,000"):
        Surprise({}, n=0)
    with pytest.raises(InvalidEvidence, match="both queried and given"):
        model.answer([Impute(("x",), {"x": 1.0})])
    assert model.log_likelihood(encode(table_of(3, missing=0.0), model.schema)).shape == (3,)
