import numpy as np
import pyarrow as pa
import pytest

from learners import Source, collect, encode
from learners.circuits.bayesian.column_families import INTERVALS, assign_column_families
from learners.circuits.parameters import BY_COLUMN, PAPER
from learners.errors import SchemaError
from learners.passes.column_summaries import ColumnSummaries, quantile_binned_schema

RNG = np.random.default_rng(0)
N = 600
COLUMNS = {
    "word": pa.array(["a", "b", None] * (N // 3)),
    "few": pa.array(RNG.integers(0, 4, N)),
    "count": pa.array(RNG.poisson(6.0, N) + 40 * (RNG.random(N) < 0.2)),
    "year": pa.array(RNG.integers(1950, 2020, N)),
    "stepped": pa.array(np.round(RNG.normal(0, 1, N), 1)),
    "real": pa.array(RNG.normal(1e6, 1.0, N)),
    "wait": pa.array(RNG.exponential(2.0, N)),
    "zeros": pa.array(np.where(RNG.random(N) < 0.5, 0.0, RNG.gamma(2.0, 1.0, N))),
}


def coded_table(columns, leaves=BY_COLUMN, target=None, **overrides):
    table = pa.table(columns)
    summaries = collect(ColumnSummaries(target, overrides), Source.of_table(table))
    schema = quantile_binned_schema(summaries, 8)
    histograms = {name: column.histogram for name, column in summaries.found.items()}
    return (*assign_column_families(schema, histograms, leaves), table)


def rows_of(schema, coding, table, first=0):
    return coding.rows(schema, encode(table, schema), first)


ALL = ("gaussian", "exponential", "poisson")


@pytest.mark.parametrize(
    ("leaves", "expected"),
    [
        (BY_COLUMN, {"few": ("categorical",), "count": ALL, "year": ALL[:1], "stepped": ALL[:1], "real": ALL[:1], "wait": ALL[:2], "zeros": ALL[:2]}),
        (PAPER, {"few": ALL, "count": ALL, "year": ALL, "stepped": ALL[:1], "real": ALL[:2], "wait": ALL[:2], "zeros": ALL[:2]}),
        (INTERVALS, dict.fromkeys(COLUMNS, ("categorical",))),
        ("gaussian", dict.fromkeys(COLUMNS, ("gaussian",))),
    ],
)  # fmt: skip
def test_columns_get_the_families_that_they_ask_for(leaves, expected):
    schema, coding, _ = coded_table(COLUMNS, leaves)
    families = {a.name: column.families for a, column in zip(schema.attributes, coding.columns, strict=True)}
    assert families == expected | {"word": ("categorical",)}


def test_few_whole_numbers_are_values_of_their_own_and_the_class_comes_last():
    words = pa.array(["a", "b"] * (N // 2))
    schema, coding, table = coded_table({"word": words, "few": COLUMNS["few"]}, target="word")
    assert schema.attributes[0].values == (0, 1, 2, 3)
    assert [column.n_values for column in coding.columns] == [4, 2]
    few, word = rows_of(schema, coding, table).T
    assert few.tolist() == table["few"].to_pylist() and word[:4].tolist() == [0, 1, 0, 1]


def test_missing_and_unseen_values_are_nan_and_numbers_come_less_their_centre():
    schema, coding, _ = coded_table({"word": COLUMNS["word"], "real": COLUMNS["real"]})
    new = pa.table({"word": ["b", None, "zebra"], "real": [1e6 + 1.5, None, 1e6]})
    rows = rows_of(schema, coding, new)
    assert rows.dtype == np.float32
    assert rows[:, 1].tolist()[0] == 1.0 and np.isnan(rows[1:, 1]).all()
    numbers = rows[:, 0] + coding.columns[0].centre
    assert numbers[[0, 2]] == pytest.approx([1e6 + 1.5, 1e6], abs=1e-5) and np.isnan(numbers[1])


def test_numbers_that_repeat_get_noise_of_one_recorded_step():
    schema, coding, table = coded_table(
        {"stepped": COLUMNS["stepped"], "count": COLUMNS["count"], "real": COLUMNS["real"]}
    )
    assert coding.noise == pytest.approx((1.0, 0.0, 0.1))
    rows = rows_of(schema, coding, table)
    centre = [column.centre for column in coding.columns]
    for d, name in ((0, "count"), (2, "stepped")):
        noise = rows[:, d] + centre[d] - table[name].to_numpy()
        assert np.abs(noise).max() <= coding.noise[d] / 2 * 1.0001
        assert np.abs(noise).mean() == pytest.approx(coding.noise[d] / 4, rel=0.1)
    assert np.array_equal(np.rint(rows[:, 0] + centre[0]), table["count"].to_numpy())


def test_a_value_that_half_of_the_rows_have_gets_noise_though_others_are_near():
    _, coding, _ = coded_table({"zeros": COLUMNS["zeros"]})
    assert coding.noise[0] >= 1e-3 * np.std(COLUMNS["zeros"].to_numpy())


def test_noise_depends_on_the_row_and_not_on_the_batch():
    schema, coding, table = coded_table({"stepped": COLUMNS["stepped"]})
    whole = rows_of(schema, coding, table)
    parts = [rows_of(schema, coding, table.slice(first, 100), first) for first in range(0, N, 100)]
    assert np.array_equal(whole, np.concatenate(parts))
    assert np.unique(whole[table["stepped"].to_numpy() == 0.0]).size > 20


def test_numbers_that_a_distribution_cannot_have_are_refused():
    with pytest.raises(SchemaError, match=r"'stepped' holds -.*exponential distribution must be zero or more"):
        coded_table({"stepped": COLUMNS["stepped"]}, "exponential")
