"""When a refresh keeps cut points, and what it says where it does not."""

import math

import numpy as np
import pyarrow as pa
import pytest

from learners.passes.column_summaries import ColumnSummaries
from learners.passes.engine import collect
from learners.passes.refreshed_schema import (
    costly_columns,
    leave_one_out_loss,
    moved_columns,
    moved_cut_point_warnings,
)
from learners.passes.sources.source import Source
from learners.schema import Kept

RNG = np.random.default_rng(0)
N = 4000


def table_of(moved=0.0, **columns):
    y = RNG.integers(0, 2, N)
    words = {"word": RNG.choice(["a", "b", "c"], N), "class": np.array(["u", "v"])[y]}
    return pa.table({"number": RNG.normal(y * 2.0 + moved, 1.0)} | words | columns)


def summaries_of(*tables, **how):
    return collect(ColumnSummaries("class", **how), Source.of_table(pa.concat_tables(tables)))


def test_the_left_out_loss_is_that_of_each_row_without_itself():
    table = np.array([[5, 2, 0], [1, 0, 0], [0, 0, 0], [40, 0, 3]])
    losses = []
    for interval in table:
        for label in np.repeat(np.arange(3), interval):
            rest = interval - (np.arange(3) == label)
            losses.append(-math.log((rest[label] + 1 / 3) / (rest.sum() + 1)))
    assert leave_one_out_loss(table) == pytest.approx(sum(losses) / len(losses), rel=1e-12)
    assert leave_one_out_loss(np.zeros((2, 2), np.int64)) == 0.0


def test_cut_points_cost_too_much_once_the_rows_have_moved_away_from_them():
    first, near, far = table_of(), table_of().slice(0, 400), table_of(moved=30.0)
    old = summaries_of(first).build_schema()
    for more, costly in ((near, []), (far, ["number"])):
        summaries = summaries_of(first, more)
        assert costly_columns(old, summaries.build_schema(), summaries) == costly
        assert moved_columns(old, summaries.build_schema()) == ["number"]


def test_a_column_that_comes_or_goes_and_values_that_are_folded_cost_too_much():
    many = RNG.choice([f"v{i}" for i in range(30)], N)
    first, later = table_of(city=["x"] * N), table_of(city=many)
    summaries = summaries_of(first, later)
    assert costly_columns(summaries_of(first).build_schema(), summaries.build_schema(), summaries) == ["city"]
    few = np.where(np.arange(N) % 100 == 0, "rare", RNG.choice(["p", "q"], N))
    first, later = table_of(city=few), table_of(city=np.array(["rare"] * N))
    summaries = summaries_of(first, later, max_values=2)
    old = summaries_of(first, max_values=2).build_schema()
    assert old.attributes[0].n_folded == 1
    assert "city" in costly_columns(old, summaries.build_schema(), summaries)


def test_what_moved_is_said():
    old, new = (summaries_of(table_of(moved)).build_schema() for moved in (0.0, 9.0))
    words = "Cut points of 'number' moved since the last training"
    assert moved_cut_point_warnings(Kept(old, "auto"), new) == [
        f"{words} (keeping them lost more than 1% of a column's left-out log loss): these columns were counted again."
    ]
    assert moved_cut_point_warnings(Kept(old, "fresh"), new) == [f"{words} (fresh): these columns were counted again."]
    assert moved_cut_point_warnings(Kept(old, "auto"), old) == []
