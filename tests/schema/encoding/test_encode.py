"""Encoding against a naive encoder, and the three forms of raw rows against each other."""

import datetime
import itertools
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners import Source, drive, infer_schema
from learners.errors import SchemaError
from learners.kernels.arrays import freeze_arrays
from learners.models.record_classifier import record_classifier
from learners.registry import recipes
from learners.schema import Attribute, Schema
from learners.schema.discretise_kernels import MOST_COMPARED, interval_codes
from learners.schema.encoding.encode import encode, numeric_column_as_floats
from learners.schema.encoding.json_records import encode_json_columns, encode_json_records
from learners.schema.reading import Reading
from tests import strategies
from tests.naive.encoding import codes_of


def schema_or_none(table):
    try:
        return infer_schema(Source.of_table(table), "class")
    except SchemaError:
        return None


def naive_codes(table, schema):
    """From Python values; times as the seconds that cut points are in."""
    times = {a.name for a in schema.attributes if a.arrow_type.startswith(("timestamp", "date"))}
    columns = {name: list(map(seconds, own)) if name in times else own for name, own in table.to_pydict().items()}
    return np.array(codes_of(columns, schema)).reshape(schema.n_attributes, table.num_rows)


def seconds(value):
    if value is None:
        return None
    if not isinstance(value, datetime.datetime):
        value = datetime.datetime(value.year, value.month, value.day)
    return (value - datetime.datetime(1970, 1, 1)) / datetime.timedelta(seconds=1)


@given(strategies.tables(min_rows=30, max_rows=90))
def test_all_forms_of_rows_give_the_codes_of_the_naive_encoder(table):
    schema = schema_or_none(table)
    if schema is None:
        return
    expected = naive_codes(table, schema)
    assert (expected < schema.domain_sizes[:, np.newaxis]).all(), "nothing of the training data is unseen"
    chunk = encode(table, schema)
    assert np.array_equal(chunk.x, expected)
    assert chunk.x.dtype == schema.code_dtype and chunk.x.flags.c_contiguous and not chunk.x.flags.writeable
    assert [schema.class_values()[k] for k in chunk.y] == table["class"].to_pylist()
    assert np.array_equal(encode_json_records(table.to_pylist(), schema).x, expected)
    assert np.array_equal(encode_json_columns(table.to_pydict(), schema).x, expected)
    batches = [encode(batch, schema).x for batch in table.to_batches(max_chunksize=7)]
    assert np.array_equal(np.concatenate(batches, axis=1), expected)
    assert np.array_equal(encode(table.slice(5, 11), schema).x, expected[:, 5:16]), "an offset in the buffers"


@given(strategies.tables(min_rows=30, max_rows=90), st.sampled_from(["nb", "tan", "kdb"]))
def test_one_record_is_answered_as_its_row_of_a_table(table, learner):
    schema = schema_or_none(table)
    if schema is None or not schema.n_attributes:
        return
    model = drive(recipes.learner(learner, {}, "class"), Source.of_table(table))
    classify = record_classifier(model)
    expected = model.predict_proba(encode(table, model.schema))
    without = table.drop_columns([model.schema.attributes[0].name])
    expected_without = model.predict_proba(encode(without, model.schema))
    for row, (record, rest) in enumerate(zip(table.to_pylist()[:15], without.to_pylist(), strict=False)):
        assert np.array_equal(classify(record), expected[row])
        assert np.array_equal(classify(rest), expected_without[row])


def nominal_schema(values, **options):
    return Schema((Attribute("x", "nominal", tuple(values), **options),), "class", ("no", "yes"))


def numeric_schema(**options):
    return Schema((Attribute("x", "numeric", **options),), "class", ("no", "yes"))


def all_forms(values, kind, schema):
    """The codes of a column by each of the three ways in."""
    table = pa.table({"x": pa.array(values, kind)})
    return [
        encode(table, schema).x[0].tolist(),
        encode_json_columns({"x": values}, schema).x[0].tolist(),
        encode_json_records([{"x": value} for value in values], schema).x[0].tolist(),
    ]


def test_small_integers_that_are_their_own_codes():
    for n, kind in itertools.product((256, 255, 4), (pa.uint8(), pa.int64())):
        raw = [0, 1, n - 1, min(n, 255), 255]
        codes = encode(pa.table({"x": pa.array(raw, kind)}), nominal_schema(range(n))).x[0]
        assert codes.tolist() == [min(value, n) for value in raw]
    schema = nominal_schema([-2, -1, 0, 1])
    assert encode(pa.table({"x": pa.array([-2, 1, -128, 127], pa.int8())}), schema).x[0].tolist() == [0, 3, 4, 4]


NAN = float("nan")


@pytest.mark.parametrize(
    ("domain", "options", "values", "kind", "codes"),
    [
        (["a", "b"], {"has_missing": True, "n_folded": 3}, ["a", "rare", None], pa.string(), [1, 3, 0]),
        (["a", "b"], {}, [None, "a"], pa.string(), [2, 0]),
        ([1, 2, 3], {"has_missing": True}, [1.0, NAN, 3.0, None], pa.float64(), [1, 0, 3, 0]),
        ([1, 2, 3], {}, [1.0, 2.5], pa.float64(), [0, 3]),
        ([False, True], {}, [0, 1, 2], pa.int64(), [0, 1, 2]),
    ],
    ids=["folded and unseen", "missing where there was none", "whole numbers with gaps, as pandas has them",
         "fractions", "numbers where there were booleans"],
)  # fmt: skip
def test_every_value_has_a_code_in_every_form(domain, options, values, kind, codes):
    schema = nominal_schema(domain, **options)
    assert all_forms(values, kind, schema) == [codes] * 3
    absent = schema.attributes[0].n_values
    assert encode(pa.table({"other": [1]}), schema).x.tolist() == [[absent]], "an absent column is unseen"


def test_missing_numbers_where_training_had_none_are_unseen():
    numeric = numeric_schema(cuts=(1.0, 2.0))
    values = [None, NAN, 1.0, 1.5, float("inf"), float("-inf")]
    assert all_forms(values, pa.float64(), numeric) == [[3, 3, 0, 1, 2, 0]] * 3


def test_a_column_of_nulls_alone_is_missing_whatever_its_type():
    for kind in (pa.null(), pa.string(), pa.dictionary(pa.int8(), pa.string())):
        for has_missing, code in ((True, 0), (False, 2)):
            schema = nominal_schema(["a", "b"], has_missing=has_missing)
            assert encode(pa.table({"x": pa.array([None, None], kind)}), schema).x.tolist() == [[code, code]]


def test_no_rows_give_no_codes():
    schema = nominal_schema(["a", "b"])
    chunk = encode(pa.table({"x": pa.array([], pa.string()), "class": pa.array([], pa.string())}), schema)
    of_records, of_columns = encode_json_records([], schema), encode_json_columns({"x": []}, schema)
    assert [rows.x.shape for rows in (chunk, of_records, of_columns)] == [(1, 0)] * 3 and chunk.y.shape == (0,)


def test_large_whole_numbers_fall_in_the_same_interval_in_every_form():
    """Training compares float64: 2^53 + 1 is 2^53 there."""
    schema = numeric_schema(cuts=(2.0**53,))
    assert all_forms([2**53, 2**53 + 1, 2**53 + 2, -(2**60)], pa.int64(), schema) == [[0, 0, 1, 0]] * 3
    assert encode_json_records([{"x": 10**400}, {"x": -(10**400)}], schema).x.tolist() == [[1, 0]]
    assert encode_json_columns({"x": [10**400, 1.0, -(10**400)]}, schema).x.tolist() == [[1, 0, 0]]


def test_days_are_exact_seconds_even_far_from_now():
    days = [0, 19_358, -104_250, 2_000_000_000]
    *floats, missing = numeric_column_as_floats(pa.array([*days, None], pa.int32()).cast(pa.date32()), "day").tolist()
    assert floats == [day * 86_400.0 for day in days] and np.isnan(missing)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_of_any_unit_fall_in_the_same_interval(unit):
    noon = datetime.datetime(2024, 5, 17, 12, 0)
    schema = numeric_schema(cuts=(seconds(noon),), arrow_type="timestamp[us]")
    moments = [noon - datetime.timedelta(seconds=1), noon, noon + datetime.timedelta(seconds=1)]
    column = pa.array(moments, pa.timestamp(unit))
    for times in (column, column.cast(pa.timestamp(unit, "UTC"))):
        assert encode(pa.table({"x": times}), schema).x[0].tolist() == [0, 0, 1]
    for values in (moments, [moment.isoformat() for moment in moments]):
        assert encode_json_columns({"x": values}, schema).x[0].tolist() == [0, 0, 1]
    days = [datetime.date(2024, 5, 17), datetime.date(2024, 5, 18)]
    assert all_forms(days, pa.date32(), schema) == [[0, 1]] * 3


@given(st.lists(st.integers(-2_000_000, 2_932_896) | st.none(), min_size=1), st.integers(-2_000_000, 2_932_896))
@pytest.mark.parametrize(("kind", "ticks"), [(pa.date32(), 1), (pa.timestamp("us"), 86_400_000_001)])
def test_dates_and_moments_are_coded_as_pyarrow_counts_their_seconds(kind, ticks, days, cut):
    storage = pa.int32() if pa.types.is_date(kind) else pa.int64()
    column = pa.array([None if day is None else day * ticks for day in days], storage).cast(kind)
    cuts = (cut * ticks / 1e6 * (86_400e6 if ticks == 1 else 1),)
    schema = numeric_schema(cuts=cuts, has_missing=True, arrow_type=str(kind))
    seconds_of = numeric_column_as_floats(column, "x", str(kind))
    expected = np.where(np.isnan(seconds_of), 0, 1 + (seconds_of > schema.attributes[0].cuts[0]))
    assert encode(pa.table({"x": column}), schema).x[0].tolist() == expected.tolist()


@pytest.mark.parametrize("kind", [pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")])
@pytest.mark.parametrize(("trained", "ticks"), [("time32[ms]", 1e3), ("time64[us]", 1e6)])
def test_times_of_day_of_any_unit_fall_in_the_same_interval(kind, trained, ticks):
    schema = numeric_schema(cuts=(12 * 3600 * ticks,), arrow_type=trained, distribution="gaussian")
    times = [datetime.time(11, 59, 59), datetime.time(12), datetime.time(12, 0, 1), None]
    words = [None if moment is None else moment.isoformat() for moment in times]
    for chunk in (
        encode(pa.table({"x": pa.array(times, kind)}), schema),
        encode_json_columns({"x": times}, schema),
        encode_json_columns({"x": words}, schema),
        encode_json_records([{"x": word} for word in words], schema),
    ):
        assert chunk.x[0].tolist() == [0, 0, 1, 2]
        assert chunk.numbers[0, :3].tolist() == [43199 * ticks, 43200 * ticks, 43201 * ticks]
    assert encode_json_columns({"x": ["12:00:00.001"]}, schema).numbers[0, 0] == 43200.001 * ticks


@pytest.mark.parametrize(
    "kind", ["double", "int32", str(pa.decimal128(10, 2)), str(pa.dictionary(pa.int32(), pa.decimal128(10, 2)))]
)
def test_numbers_may_be_text(kind):
    schema = numeric_schema(cuts=(12.5,), arrow_type=kind)
    texts = ["12.50", "12.505", "-1e2", " .5 "]
    for values in (texts, [Decimal("12.50"), Decimal("12.505"), Decimal(-100), Decimal(0)]):
        assert encode_json_columns({"x": values}, schema).x[0].tolist() == [0, 1, 0, 0]
        assert encode_json_records([{"x": value} for value in values], schema).x[0].tolist() == [0, 1, 0, 0]
    for column in (pa.array(texts), pa.array(texts).dictionary_encode()):
        assert encode(pa.table({"x": column}), schema).x[0].tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize(
    ("values", "texts", "codes"),
    [
        ((3, 41), ["41", "+3", " 41 ", "5", None], [1, 0, 1, 2, 2]),
        ((False, True), ["true", "FALSE", "True"], [1, 0, 1]),
    ],
)
def test_whole_numbers_and_truths_may_be_text(values, texts, codes):
    schema = Schema((Attribute("x", "nominal", values),), "class", ("no", "yes"))
    assert encode_json_columns({"x": texts}, schema).x[0].tolist() == codes
    assert encode_json_records([{"x": text} for text in texts], schema).x[0].tolist() == codes
    assert encode(pa.table({"x": texts}), schema).x[0].tolist() == codes


def test_a_mark_of_missing_values_that_training_learned_as_a_value_stays_one():
    marks = Reading(missing=("?", "-"))
    schema = Schema((Attribute("x", "nominal", ("?", "a"), has_missing=True, reading=marks),), "class", ("no", "yes"))
    texts = ["?", "a", "-", " - ", "b", "\ud800"]
    assert encode_json_columns({"x": texts}, schema).x[0].tolist() == [1, 2, 0, 0, 3, 3]
    assert [encode_json_records([{"x": text}], schema).x[0, 0] for text in texts] == [1, 2, 0, 0, 3, 3]
    assert encode(pa.table({"x": texts[:-1]}), schema).x[0].tolist() == [1, 2, 0, 0, 3]


WORD = Attribute("x", "nominal", ("a", "b"))
NUMBER = Attribute("x", "numeric", cuts=(1.0,))
LASTING = Attribute("x", "numeric", cuts=(1.0,), arrow_type="duration[s]")
OF_DAY = Attribute("x", "numeric", cuts=(1.0,), arrow_type="time32[ms]")
PRICE = Attribute("x", "numeric", cuts=(1.0,), arrow_type="decimal128(10, 2)")


@pytest.mark.parametrize(
    ("attribute", "value", "says"),
    [
        (WORD, 3, r"Row 1: Column 'x' holds 3 \(int\).*one of 'a', 'b'"),
        (WORD, ["a"], r"Row 1: Column 'x' holds \['a'\] \(list\)"),
        (Attribute("x", "nominal", (1, 2)), "one", r"Row 1: Column 'x' holds 'one' \(str\).*one of 1, 2"),
        (Attribute("x", "nominal", (True, False)), "1", r"Row 1: Column 'x' holds '1' \(str\).*one of true, false"),
        (WORD, {"b": 1}, r"Row 1: Column 'x' holds \{'b': 1\} \(dict\)"),
        (NUMBER, "two", r"Row 1: Column 'x' holds 'two' \(str\).*a number"),
        (NUMBER, [2], r"Row 1: Column 'x' holds \[2\] \(list\).*a number"),
        (Attribute("x", "numeric", cuts=(1.0,), arrow_type="date32[day]"), "soon", "Row 1: Column 'x' holds 'soon'"),
        (OF_DAY, "25:00", "holds '25:00' .*a time of day such as '12:00', or a number of milliseconds"),
        (OF_DAY, "12", "holds '12' .*a time of day"),
        (OF_DAY, "12:00+01:00", r"holds '12:00\+01:00' .*a time of day"),
        (LASTING, "12:00", "a number of seconds"),
        (LASTING, datetime.time(1), "a number of seconds"),
        *(
            (PRICE, word, "Row 1: Column 'x' holds .*a number")
            for word in ("1_000", "1e999", "NaN", "", "1 2", "0x1", "1,5")
        ),
        (PRICE, Decimal("sNaN"), "Row 1: Column 'x' holds .*a number"),
        (PRICE, "9" * 1000 + "x", "Row 1: Column 'x' holds '9{79}… .str., but"),
        pytest.param(WORD, 10**5000, "Row 1: Column 'x' holds a whole number of 16,610 bits", id="huge"),
    ],
)
def test_a_value_of_the_wrong_type_is_named_with_row_and_column(attribute, value, says):
    schema = Schema((attribute,), "class", ("no", "yes"))
    with pytest.raises(SchemaError, match=says) as raised:
        encode_json_records([{}, {"x": value}], schema)
    assert raised.value.column == "x"
    with pytest.raises(SchemaError, match=says):
        encode_json_columns({"x": [None, value]}, schema)


@pytest.mark.parametrize(
    ("attribute", "column", "says"),
    [
        (WORD, [1, 2], "'x' has type int64 here, but had string in training"),
        (
            Attribute("x", "nominal", (1, 2)),
            ["1", "one"],
            r"'x' holds 'one' \(str\), but the model expects one of 1, 2",
        ),
        (NUMBER, ["1", "one"], r"'x' holds 'one' \(str\), but the model expects a number"),
        (WORD, [b"a"], "'x' holds binary"),
        (NUMBER, [[1.0]], r"'x' has type list<.*>, but the model needs numbers"),
        (WORD, [["a"]], r"'x' holds list<.*>, which cannot be read"),
        (WORD, [{"a": 1}], r"'x' holds struct<.*>, which cannot be read"),
    ],
)
def test_a_column_of_the_wrong_type_is_named(attribute, column, says):
    schema = Schema((attribute,), "class", ("no", "yes"))
    with pytest.raises(SchemaError, match=says) as raised:
        encode(pa.table({"x": column}), schema)
    assert raised.value.column == "x"


def test_columns_of_different_lengths_and_unknown_classes_are_refused():
    schema = nominal_schema(["a", "b"])
    with pytest.raises(SchemaError, match="Column 'y' has 1 values, but 'x' has 2"):
        encode_json_columns({"x": ["a", "b"], "y": [1]}, schema)
    with pytest.raises(SchemaError, match=r"class 'class' of a row is 'maybe'"):
        encode(pa.table({"x": ["a", "b"], "class": ["yes", "maybe"]}), schema)
    with pytest.raises(SchemaError, match=r"of a row is null"):
        encode(pa.table({"x": ["a"], "class": pa.array([None], pa.string())}), schema)


def test_numpy_scalars_in_records():
    """Records often come from an array or a data frame."""
    schema = nominal_schema([1, 2, 3])
    values = [np.int64(1), np.float64(3.0), np.int64(9)]
    assert encode_json_records([{"x": value} for value in values], schema).x.tolist() == [[0, 2, 3]]
    numeric = numeric_schema(cuts=(1.5,))
    assert encode_json_columns({"x": [np.int32(1), np.float32(2.5), True]}, numeric).x.tolist() == [[0, 1, 0]]


@given(
    cuts=st.lists(st.floats(-50, 50), max_size=200, unique=True),
    own=st.lists(st.floats(-60, 60) | st.just(float("nan")), max_size=40),
    first=st.integers(0, 1),
)
def test_intervals_are_those_of_a_search(cuts, own, first):
    """Few cut points are compared with all numbers at once, many are searched: both as NumPy's search has it."""
    cuts, x = np.sort(np.array(cuts, np.float64)), np.array([*own, *cuts] * 9, np.float64)
    codes = np.empty(x.size, np.uint16)
    freeze_arrays(x)
    interval_codes(x, cuts, first, 777, codes)
    np.testing.assert_array_equal(codes, np.where(np.isnan(x), 777, np.searchsorted(cuts, x, side="left") + first))


@pytest.mark.parametrize("n_cuts", [3, 60])
@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_intervals_of_the_numbers_at_the_edges(n_cuts, zero):
    """Zeros of both signs, infinities, and numbers whose difference is too large or too small for a float64."""
    most, least = np.finfo(np.float64).max, np.finfo(np.float64).smallest_subnormal
    cuts = np.sort([-most, -least, zero, least, most, *np.linspace(1, 2, n_cuts - 3)[:-2]])
    x = np.array([0.0, -0.0, least, -least, most, -most, np.inf, -np.inf, 1.0, np.nextafter(1.0, 2), np.nan])
    codes = np.empty(x.size, np.uint16)
    interval_codes(x, cuts, 1, 0, codes)
    wanted = [0 if np.isnan(number) else 1 + sum(cut < number for cut in cuts) for number in x]
    assert codes.tolist() == wanted


@settings(max_examples=40)
@given(
    quarters=st.lists(st.integers(-160, 160), min_size=MOST_COMPARED + 1, max_size=90, unique=True),
    far=st.sampled_from([(), (900.0,), (-1e6,), (1e17,), (-1e300, 1e300)]),
    is_day=st.booleans(),
    has_missing=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_whole_numbers_among_many_cuts_are_coded_as_by_a_search(quarters, far, is_day, has_missing, seed):
    """They are looked up in a table of the numbers between the cuts, unless it would be larger than it is worth."""
    rng = np.random.default_rng(seed)
    step, kind = (86_400.0, "date32[day]") if is_day else (1.0, "int32")
    cuts = np.sort([*(quarter / 4 * step for quarter in quarters), *far])
    own, is_null = rng.integers(-60, 60, 3000), rng.random(3000) < 0.1
    own[:2] = -(2**31), 2**31 - 1
    column = pa.array(own.astype(np.int32), mask=is_null).cast(pa.date32() if is_day else pa.int32())
    attribute = Attribute("x", "numeric", cuts=tuple(cuts.tolist()), has_missing=has_missing, arrow_type=kind)
    found = encode(pa.table({"x": column}), Schema((attribute,), None, ("",))).x[0]
    wanted = np.searchsorted(cuts, own * step, side="left") + int(has_missing)
    np.testing.assert_array_equal(found, np.where(is_null, attribute.missing_code, wanted))
