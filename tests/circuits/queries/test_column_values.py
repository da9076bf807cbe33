"""Missing cells: the same as by enumerating all worlds, and as the data's own types."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.circuits.evaluation.leaf_distributions import leaf_modes_of_variable
from learners.circuits.model import CircuitModel
from learners.circuits.queries.column_values import (
    cell_value,
    fill_cells,
    missing_cells,
    nameable,
    raw_value,
    rows_of_batch,
    with_cells,
)
from learners.circuits.structures.text import parse_text
from learners.errors import SchemaError
from learners.schema.nominal_forms import nominal_forms
from tests.circuits.answer_circuits import circuits_and_rows, learned
from tests.naive.circuits import naive_filled
from tests.naive.map import categorical, mixture


class Bare(CircuitModel):
    """A circuit without a schema."""

    def __init__(self, circuit):
        self.circuit = circuit


def names_of(circuit):
    return [np.ones(size, np.bool_) for size in circuit.n_values.tolist()]


@given(circuits_and_rows(numeric=True), st.sampled_from(["mode", "mean"]))
@settings(max_examples=40, deadline=None)
def test_cells_are_filled_as_the_naive_reference_fills_them(drawn, how):
    circuit, rows, x = drawn
    is_missing = np.isnan(x)
    found = fill_cells(Bare(circuit), x, is_missing, how, nameable=names_of(circuit))[0]
    assert (np.isnan(found) | is_missing).all()
    for row, evidence in enumerate(rows):
        for v, expected in naive_filled(circuit, evidence, how).items():
            assert np.isclose(found[v, row], expected, rtol=1e-6, atol=1e-9, equal_nan=True).any(), (v, row)


@given(circuits_and_rows(numeric=False))
@settings(max_examples=20, deadline=None)
def test_a_draw_depends_on_seed_and_row_alone(drawn):
    circuit, _, x = drawn

    def drawn_for(rows, first_row):
        how = {"nameable": names_of(circuit), "seed": 3, "first_row": first_row, "n_draws": 2}
        return fill_cells(Bare(circuit), rows, np.isnan(rows), "draw", **how)

    np.testing.assert_array_equal(drawn_for(x, 7)[:, :, -1:], drawn_for(x[:, -1:], 7 + x.shape[1] - 1))


def table_of_types(n=400):
    rng = np.random.default_rng(0)
    group = rng.random(n) < 0.5
    number = rng.normal(np.where(group, 2.0, 8.0), 0.5)
    day = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    missing = np.arange(n) % 5 == 0

    def column(values, kind=None):
        return pa.array(values, kind, mask=missing)

    return pa.table(
        {
            "group": np.where(group, "a", "b"),
            "whole": column(np.round(number).astype(np.int16)),
            "small": column(np.round(number).clip(0, 9).astype(np.uint8)),
            "price": column([Decimal(f"{v:.2f}") for v in number]),
            "when": column([day + dt.timedelta(days=float(v)) for v in number], pa.timestamp("ms", tz="UTC")),
            "clock": column([dt.time(int(v) + 8) for v in number], pa.time32("s")),
            "flag": column(group),
            "word": column(np.where(group, "x", "y")).dictionary_encode(),
        }
    )


@pytest.fixture(scope="module")
def typed():
    table = table_of_types()
    return learned(table, states=2, passes=3, leaves="gaussian"), table


@pytest.mark.parametrize("how", ["mode", "mean", "draw"])
def test_every_column_keeps_its_type_and_what_it_had(typed, how):
    model, table = typed
    (batch,) = table.combine_chunks().to_batches()
    x, is_missing = rows_of_batch(model.columns, batch), missing_cells(model.columns, batch)
    values = fill_cells(model, x, is_missing, how, nameable=nameable(model.columns), seed=1)[0]
    for v, name in enumerate(model.columns.names):
        column = batch.column(batch.schema.names.index(name))
        new = with_cells(model.columns, v, column, values[v])
        plain = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        assert new.type == plain.type and new.null_count == 0, name
        kept = ~is_missing[v]
        assert new.filter(pa.array(kept)).equals(plain.filter(pa.array(kept))), name
        if how != "draw" and name != "group":
            of_a = np.array(table["group"]) == "a"
            assert len(set(new.filter(pa.array(~kept & of_a)).to_pylist())) < 5, name


@pytest.mark.parametrize("leaves", ["gaussian", "intervals"])
def test_a_cell_of_a_record_is_that_of_a_file(leaves):
    """Over REST, a column of whole numbers got fractions, and one of dates the noon of a day."""
    table = table_of_types()
    table = table.append_column("day", table["when"].cast(pa.date32(), safe=False))
    table = table.append_column("berlin", table["when"].cast(pa.timestamp("s", tz="Europe/Berlin"), safe=False))
    table = table.append_column("local", table["when"].cast(pa.timestamp("us")))
    table = table.append_column("took", table["whole"].cast(pa.int64()).cast(pa.duration("s")))
    model = learned(table, states=2, passes=3, leaves=leaves)
    (batch,) = table.combine_chunks().to_batches()
    x, is_missing = rows_of_batch(model.columns, batch), missing_cells(model.columns, batch)
    rounded = set()
    for how in ("mode", "mean", "draw"):
        values = fill_cells(model, x, is_missing, how, nameable=nameable(model.columns), seed=1)[0]
        for name in table.column_names:
            v = model.columns.number[name]
            own = values[v][is_missing[v]]
            column = with_cells(model.columns, v, pa.nulls(own.size, table.schema.field(name).type), own)
            expected = [in_json(cell) for cell in column.to_pylist()]
            cells = [cell_value(model.columns, v, number) for number in own.tolist()]
            assert cells == expected and list(map(type, cells)) == list(map(type, expected)), name
            rounded |= {name} if cells != [raw_value(model.columns, v, number) for number in own.tolist()] else set()
    assert rounded >= {"whole", "day", "berlin", "price", "took"}


def in_json(cell):
    """Write a cell of an Arrow column as JSON has it: a time of a zone in UTC, with a Z."""
    match cell:
        case Decimal():
            return float(cell)
        case dt.timedelta():
            return f"PT{int(cell.total_seconds())}S"
        case dt.datetime(tzinfo=None) | dt.time():
            return cell.isoformat()
        case dt.datetime():
            return cell.astimezone(dt.UTC).isoformat().replace("+00:00", "Z")
        case dt.date():
            return cell.isoformat()
        case _:
            return cell


def test_a_column_of_string_views_is_filled_and_stays_one(typed):
    model, _ = typed
    v = model.columns.number["word"]
    column = pa.array(["x", None, "y"], pa.string_view())
    new = with_cells(model.columns, v, column, np.array([np.nan, 0.0, np.nan]))
    named = raw_value(model.columns, v, 0)
    assert new.type == pa.string_view() and new.to_pylist() == ["x", named, "y"]


def test_a_value_that_its_column_cannot_hold_is_an_error_naming_it(typed):
    model, _ = typed
    v = model.columns.number["word"]
    with pytest.raises(SchemaError, match="Column 'word' of type date32"):
        with_cells(model.columns, v, pa.nulls(2, pa.date32()), np.array([0.0, np.nan]))


def test_an_interval_is_filled_by_its_middle_and_rare_values_have_no_name():
    rng = np.random.default_rng(0)
    words = np.where(rng.random(600) < 0.9, "often", np.char.add("w", rng.integers(0, 40, 600).astype(str)))
    table = pa.table({"n": rng.normal(size=600), "word": words})
    model = learned(table, passes=2, states=2, n_bins=4, max_values=2)
    columns = model.columns
    cuts = model.schema.attributes[0].cuts
    assert raw_value(columns, 0, 0) == cuts[0] and raw_value(columns, 0, 3) == cuts[-1]
    assert raw_value(columns, 0, 1) == pytest.approx((cuts[0] + cuts[1]) / 2)
    named = nameable(columns)[1]
    assert not named[-1] and named[:-1].all()
    x = np.array([[np.nan], [np.nan]])
    drawn = fill_cells(model, x, np.isnan(x), "draw", nameable=nameable(columns), seed=0, n_draws=300)
    assert 0 < np.isnan(drawn[:, 1]).mean() < 0.5 and not np.isnan(drawn[:, 0]).any()
    assert fill_cells(model, x, np.isnan(x), "mode", nameable=nameable(columns))[0, 1, 0] == 0


def test_rows_of_probability_zero_are_left_and_others_filled():
    hard = Bare(mixture([[categorical(1, 0)] * 3, [categorical(0, 1)] * 3], [0.5, 0.5]))
    x = np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 1.0], [np.nan] * 3])
    assert np.isneginf(hard.row_logs(x)).tolist() == [True, False, False]
    for how in ("mode", "mean", "draw"):
        found = fill_cells(hard, x, np.isnan(x), how, nameable=names_of(hard.circuit))[0, 2]
        assert np.isnan(found[0]) and found[1:].tolist() == [0.0, 1.0]


def test_peaks_are_told_once_and_ascending():
    circuit = parse_text(["vars 0 0 0", "0 gauss 0 2 1", "1 pois 1 3.7", "2 expo 2 0.5", "3 prod 0 1 2"])
    assert [leaf_modes_of_variable(circuit, v).tolist() for v in range(3)] == [[2.0], [3.0], [0.0]]


TIMES = {
    **{f"timestamp {unit} {zone}": pa.array([0, 90, 10**6], pa.int64()).cast(pa.timestamp("s")).cast(pa.timestamp(unit)).cast(pa.int64())
       .cast(pa.timestamp(unit, zone)) for unit in ("s", "ns") for zone in (None, "Europe/Berlin")},
    "date32": pa.array([0, 1, 400], pa.int32()).cast(pa.date32()),
    "date64": pa.array([0, 1, 400], pa.int32()).cast(pa.date32()).cast(pa.date64()),
    "time32": pa.array([0, 1500, 86_399_999], pa.int32()).cast(pa.time32("ms")),
    "time64": pa.array([0, 1500, 86_399_999_999_999], pa.int64()).cast(pa.time64("ns")),
    "duration": pa.array([-1500, 0, 10**9], pa.int64()).cast(pa.duration("ms")),
}  # fmt: skip


def test_nominal_times_are_filled_in_the_type_of_their_column():
    table = pa.table({name: pa.chunked_array([times] * 20) for name, times in TIMES.items()})
    model = learned(table, overrides=dict.fromkeys(TIMES, "nominal"), passes=1)
    for place, (name, times) in enumerate(sorted(TIMES.items())):
        words = model.schema.attributes[place].values
        codes = np.array([float(words.index(word)) for word in nominal_forms(times, name)[0].to_pylist()])
        assert with_cells(model.columns, place, pa.nulls(3, times.type), codes).equals(times), name
