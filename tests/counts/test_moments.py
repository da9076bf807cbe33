"""Moments: the laws of statistics, and exact sums whatever the numbers."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learners.counts.moments import Moments, Unit
from learners.errors import EmptyStatistic, SchemaError, StatisticMismatch, UnknownColumn
from learners.schema import Attribute
from tests import laws, strategies


def unit(name, *cuts):
    return Unit.of(Attribute(name, "numeric", cuts=cuts, arrow_type="double"))


UNITS = [unit("a", -1.0, 0.5, 2.0), unit("b", 1e6), unit("c", 0.0), unit("d", 1e-9, 2e-9)]
NUMBERS = st.one_of(
    st.none(),
    st.floats(-100, 100),
    st.integers(-(10**7), 10**7).map(float),
    st.sampled_from([0.0, -0.0, math.nan, 1e12, -1e12, 1e-12]),
)


ROWS = st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS, st.floats(-1e-3, 1e-3)), min_size=1, max_size=40)
COLUMNS = ROWS.map(lambda rows: [pa.array(column, pa.float64()) for column in zip(*rows, strict=True)])
TABLES = COLUMNS.map(lambda columns: pa.table(columns, names=list("abcd")))


@given(batches=strategies.batch_lists(TABLES))
def test_moments_keep_the_laws(batches):
    laws.every_law(Moments(UNITS), batches, strategies.joined)


def naive(batches):
    """Mean and scatter of complete rows in rational arithmetic, each number rounded to its unit."""

    def rounded(unit, value):
        step = Fraction(2) ** unit.exponent
        return Fraction(unit.shift) + step * round(Fraction(float(value - unit.shift)) / step)

    rows = []
    for row in strategies.joined(batches).to_pylist():
        values = [row[unit.name] for unit in UNITS]
        if all(value is not None and not math.isnan(value) for value in values):
            rows.append([rounded(unit, value) for unit, value in zip(UNITS, values, strict=True)])
    n = len(rows)
    mean = [sum(column) / n for column in zip(*rows, strict=True)] if n else []
    scatter = [[sum((row[i] - mean[i]) * (row[j] - mean[j]) for row in rows) for j in range(4)] for i in range(4)]
    return n, mean, scatter


@given(batches=strategies.batch_lists(TABLES))
def test_sums_are_exact(batches):
    moments = laws.updated(Moments(UNITS), batches)
    n, mean, scatter = naive(batches)
    assert (moments.n_rows, moments.n_rows + moments.n_incomplete) == (n, strategies.joined(batches).num_rows)
    if n:
        assert moments.mean().tolist() == [float(number) for number in mean]
        assert moments.scatter().tolist() == [[float(number) for number in row] for row in scatter]
    else:
        with pytest.raises(EmptyStatistic, match="no rows in which every column has a number"):
            moments.scatter()


def test_rounding_is_far_below_the_spread():
    """Units follow from cut points alone."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(20_000, 3)) * [1.0, 1e-8, 1e7] + [1e3, 0.0, -1e9]
    x[:, 1] += 1e-9 * x[:, 0]
    cuts = np.quantile(x, [0.125, 0.5, 0.875], axis=0).T
    moments = Moments([unit(name, *own) for name, own in zip("abc", cuts.tolist(), strict=True)])
    moments.update(pa.RecordBatch.from_arrays([pa.array(column) for column in x.T], list("abc")))
    expected = np.cov(x.T, bias=True) * len(x)
    size = np.sqrt(np.diag(expected))
    np.testing.assert_allclose(moments.scatter() / np.outer(size, size), expected / np.outer(size, size), atol=1e-8)
    np.testing.assert_allclose((moments.mean() - x.mean(axis=0)) / size, 0.0, atol=1e-10)


@pytest.mark.parametrize(
    ("column", "error", "message"),
    [
        ([1.0, math.inf], SchemaError, "Column 'a' holds inf, too far from its other numbers"),
        ([1.0, 1e300], SchemaError, r"Column 'a' holds 1e\+300, too far"),
        (["x", "y"], SchemaError, r"Column 'a' holds 'x' \(str\), but the model expects a number"),
        ([1.0], UnknownColumn, "Column 'b' is not in the table"),
    ],
)
def test_what_cannot_be_added_up_is_named(column, error, message):
    units = UNITS if error is UnknownColumn else UNITS[:1]
    with pytest.raises(error, match=message):
        Moments(units).update(pa.RecordBatch.from_pydict({"a": column}))


def test_a_time_too_far_from_others_is_named_as_a_date():
    times = pa.array([0, 253_370_764_800], pa.timestamp("s"))
    moments = Moments([replace(unit("a", 0.0, 1e-300), arrow_type="timestamp[s]")])
    with pytest.raises(SchemaError, match="Column 'a' holds 9999-01-01, too far from its other numbers"):
        moments.update(pa.RecordBatch.from_pydict({"a": times}))


def test_other_columns_and_units_are_refused():
    batch = pa.RecordBatch.from_pydict({name: [1.0, 2.0] for name in "abcd"})
    for units in (UNITS[:3], [*UNITS[:3], unit("d", 0.0, 5.0)]):
        stranger = laws.updated(Moments(units), [batch])
        laws.others_are_refused(Moments(UNITS), stranger, [batch])
    with pytest.raises(StatisticMismatch, match="other columns"):
        Moments(UNITS).from_arrow(Moments(UNITS[:3]).to_arrow())
