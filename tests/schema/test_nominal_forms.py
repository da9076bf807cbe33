"""Times in words: one value for a moment, a time of day or a duration, whatever unit, zone or text it comes in, and out again."""

import itertools
import json
from datetime import UTC, date, datetime, time, timedelta, timezone

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from fewpass import NB
from learners import Source, drive, encode, infer_schema
from learners.errors import SchemaError
from learners.models.query import Conditional, Marginal, Sample
from learners.passes.sources.csv.types import declared_text_types
from learners.registry import recipes
from learners.schema import Attribute, Schema
from learners.schema.encoding.json_records import encode_json_columns, encode_json_records, json_number_reader
from learners.schema.nominal_forms import nominal_forms
from learners.schema.times_and_durations import canonical_time_text, parse_duration_seconds, time_or_duration_text

UNITS = ("s", "ms", "us", "ns")
MOMENTS = [datetime(1969, 12, 31, 23, 59, 59), datetime(2024, 1, 2), datetime(2024, 1, 2, 12, 30)]
DURATIONS = [timedelta(seconds=-90), timedelta(minutes=5), timedelta(days=1, seconds=1)]
CLOCKS = [time(0, 0, 1), time(12, 30), time(23, 59, 59)]
TEXTS = {
    "moments": ["1970-01-01T01:59:59+02:00", "2024-01-02 00:00:00.000", "2024-01-02T12:30Z"],
    "days": ["2024-01-02T00:00:00", "1969-12-31"],
    "durations": ["-0:01:30", "PT300S", "1 day, 0:00:01"],
    "clocks": ["00:00:01.000", "12:30", "23:59:59"],
}
OBJECTS = {
    "moments": [MOMENTS[0].replace(tzinfo=UTC), date(2024, 1, 2), datetime(2024, 1, 2, 13, 30, tzinfo=timezone(timedelta(hours=1)))],
    "days": [date(2024, 1, 2), datetime(1969, 12, 31)],
    "durations": DURATIONS,
    "clocks": CLOCKS,
}  # fmt: skip


MOMENT_TYPES = [pa.timestamp(unit, zone) for unit in UNITS for zone in (None, "UTC", "Europe/Berlin")]


KINDS = {
    "moments": (MOMENTS, MOMENT_TYPES, ["1969-12-31T23:59:59", "2024-01-02", "2024-01-02T12:30:00"]),
    "days": ([date(2024, 1, 2), date(1969, 12, 31)], [pa.date32(), pa.date64(), *MOMENT_TYPES], ["2024-01-02", "1969-12-31"]),
    "durations": (DURATIONS, [pa.duration(unit) for unit in UNITS], ["-PT1M30S", "PT5M", "P1DT1S"]),
    "clocks": (CLOCKS, [pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")], ["00:00:01", "12:30:00", "23:59:59"]),
}  # fmt: skip


def column(values, kind):
    if not pa.types.is_timestamp(kind):
        return pa.array(values, kind)
    moments = [value if isinstance(value, datetime) else datetime(*value.timetuple()[:3]) for value in values]
    return pa.array(moments, pa.timestamp(kind.unit)).cast(pa.int64()).cast(kind)


def schema_of(what, kind, n=40):
    values, _, _ = KINDS[what]
    y = np.arange(n * len(values)) % len(values)
    table = pa.table({"x": pa.concat_arrays([column(values, kind)] * n), "z": y * 1.0, "y": y})
    return infer_schema(Source.of_table(table), "y", {"x": "nominal", "z": {"cuts": [0.5]}})


@pytest.mark.parametrize(
    ("what", "kind"), [(what, kind) for what, (_, kinds, _) in KINDS.items() for kind in kinds], ids=str
)
def test_a_time_is_the_same_value_in_every_unit_zone_and_text(what, kind):
    values, kinds, words = KINDS[what]
    assert nominal_forms(column(values, kind), "x")[0].to_pylist() == words
    schema = schema_of(what, kind)
    assert sorted(schema.attributes[0].values) == sorted(words)
    expected = [schema.attributes[0].values.index(word) for word in words]
    for other in kinds:
        plain = column(values, other)
        for form in (plain, plain.dictionary_encode()):
            assert encode(pa.record_batch({"x": form}), schema).x[0].tolist() == expected, other
    for texts in (TEXTS[what], words):
        strings = pa.array(texts)
        for form in (strings, strings.dictionary_encode(), strings.cast(pa.large_string())):
            assert encode(pa.record_batch({"x": form}), schema).x[0].tolist() == expected
        assert encode_json_records([{"x": text} for text in texts], schema).x[0].tolist() == expected
        assert encode_json_columns({"x": texts, "z": [0] * len(texts)}, schema).x[0].tolist() == expected
    assert encode_json_records([{"x": value} for value in OBJECTS[what]], schema).x[0].tolist() == expected


def test_nanoseconds_are_told_apart():
    kind = pa.timestamp("ns")
    texts = ["2024-01-01T00:00:00.123456789", "2024-01-01T00:00:00.123456"]
    table = pa.table({"x": pa.array(texts * 20).cast(kind), "y": ["a", "b"] * 20})
    schema = infer_schema(Source.of_table(table), "y", {"x": "nominal"})
    values = schema.attributes[0].values
    assert set(values) == set(texts)
    codes = encode(pa.record_batch({"x": [*texts, "2024-01-01T00:00:00.1234567"]}), schema).x[0].tolist()
    assert codes == [*map(values.index, texts), 2]


@pytest.mark.parametrize(
    ("text", "kind"),
    [("soon", "timestamp[s]"), ("2024-13-01", "date32[day]"), ("25:00", "time32[s]"), ("P", "duration[s]"), ("", "duration[s]"),
     ("0001-01-01T00:00+05:00", "timestamp[s]"), ("PT0.0000000001S", "duration[s]"), ("12:30", "string")],
)  # fmt: skip
def test_what_is_no_time_has_no_form(text, kind):
    assert canonical_time_text(text, kind) is None


def test_a_count_in_text_is_one_of_the_columns_unit():
    assert canonical_time_text("90000", "duration[ms]") == canonical_time_text("90", "duration[s]") == "PT1M30S"
    assert canonical_time_text("1.5", "dictionary<values=duration[s], indices=int32, ordered=0>") == "PT1.5S"


def test_models_of_earlier_releases_are_read_with_one_form():
    schema = schema_of("durations", pa.duration("ms"))
    told = json.loads(schema.to_json())
    told["attributes"][0]["values"] = ["-90000", "300000", "86401000"]
    again = Schema.from_json(json.dumps(told))
    assert again.attributes[0].values == ("-PT1M30S", "PT5M", "P1DT1S")
    assert encode(pa.record_batch({"x": column(DURATIONS, pa.duration("s"))}), again).x[0].tolist() == [0, 1, 2]


def test_csv_parquet_and_frames_give_the_same_codes(tmp_path):
    moments = pa.table({"x": pa.array(MOMENTS * 20, pa.timestamp("us")), "d": pa.array([date(2024, 1, 2), date(2024, 2, 3), None] * 20),
                        "y": ["a", "b", "b"] * 20})  # fmt: skip
    pq.write_table(moments, tmp_path / "t.parquet")
    pacsv.write_csv(moments.set_column(0, "x", moments["x"].cast(pa.timestamp("s"))), tmp_path / "t.csv")
    columns = {"x": "nominal", "d": "nominal"}
    schemas = [infer_schema(Source.open(tmp_path / name), "y", columns) for name in ("t.parquet", "t.csv")]
    assert [a.values for a in schemas[0].attributes] == [a.values for a in schemas[1].attributes]
    for schema, name in itertools.product(schemas, ("t.parquet", "t.csv")):
        rows = pa.Table.from_batches(Source.open(tmp_path / name, types=declared_text_types(schema)).batches())
        codes = encode(rows, schema).x
        assert codes.tolist() == encode(moments, schema).x.tolist() and codes.max() < 3
    frame = moments.to_pandas()
    model = NB(target="y", columns=columns).fit(tmp_path / "t.csv")
    assert np.array_equal(model.predict_proba(frame), model.predict_proba(tmp_path / "t.parquet"))


def test_times_as_classes_have_one_form(tmp_path):
    table = pa.table({"x": [1.0, 2.0, 3.0] * 20, "y": pa.array(MOMENTS * 20, pa.timestamp("ms"))})
    schema = infer_schema(Source.of_table(table), "y", {"x": {"cuts": [1.5, 2.5]}})
    assert schema.classes == ("1969-12-31T23:59:59", "2024-01-02", "2024-01-02T12:30:00")
    pacsv.write_csv(table.set_column(1, "y", table["y"].cast(pa.timestamp("s"))), tmp_path / "t.csv")
    read = pa.Table.from_batches(Source.open(tmp_path / "t.csv", types=declared_text_types(schema)).batches())
    for rows in (table, table.set_column(1, "y", table["y"].cast(pa.timestamp("ns", "UTC"))), read):
        assert encode(rows, schema).y[:3].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("kind", "number", "words"),
    [
        ("duration[s]", 0, "PT0S"),
        ("duration[s]", 300, "PT5M"),
        ("duration[ms]", 1500, "PT1.5S"),
        ("duration[s]", 93_784, "P1DT2H3M4S"),
        ("duration[s]", -172_800, "-P2D"),
        ("duration[us]", 1, "PT0.000001S"),
        ("time32[s]", 45_000, "12:30:00"),
        ("time64[us]", 1, "00:00:00.000001"),
        ("date32[day]", 86_400, "1970-01-02"),
    ],
)
def test_words_are_the_number_again(kind, number, words):
    attribute = Attribute("x", "numeric", cuts=(1.0,), arrow_type=kind)
    assert attribute.number_in_words(float(number)) == words
    assert json_number_reader(attribute)(words) == number


def test_a_number_that_words_would_change_stays_a_number():
    assert time_or_duration_text("time", 1, 90_000.0) is None
    assert time_or_duration_text("time", 10**9, 1.0) is None
    assert time_or_duration_text("duration", 10**9, 0.5) is None


def test_durations_are_read_as_people_write_them():
    read = json_number_reader(Attribute("x", "numeric", cuts=(1.0,), arrow_type="duration[s]"))
    assert {read(duration) for duration in ("0:05:00", "PT5M", "PT300S", "300", timedelta(minutes=5))} == {300}
    assert parse_duration_seconds("1 day, 0:00:01") == 86_401


def test_queries_and_answers_carry_the_words():
    rng = np.random.default_rng(0)
    n = 300
    table = pa.table(
        {
            "wait": pa.array(rng.integers(0, 10_000, n) * 1000, pa.duration("ms")),
            "at": pa.array(rng.integers(0, 86_400, n).astype(np.int32), pa.time32("s")),
            "kind": rng.choice(["a", "b"], n),
        }
    )
    parameters = {"structure": "hclt", "states": 2, "passes": 1, "n_bins": 3}
    model = drive(recipes.learner("spn", parameters, None), Source.of_table(table))
    labels = next(attribute.labels() for attribute in model.schema.attributes if attribute.name == "wait")
    assert all(word.startswith("(PT") for word in labels[1:])
    marginals = [Marginal({"wait": "PT1H", "at": "12:30:00"}), Marginal({"wait": 3_600_000, "at": 45_000})]
    rows, told, by_words, by_number = model.answer([Sample(3, seed=1), Conditional(("wait",)), *marginals])
    assert set(told["distributions"]["wait"]) == set(labels)
    assert all(row["wait"] in labels for row in rows["rows"])
    assert by_words == by_number


@pytest.mark.parametrize("milliseconds", [1_700_000_000_000, 1_700_000_000_000.0, -1_700_000_000_000])
def test_milliseconds_are_not_taken_for_seconds(milliseconds):
    """A record, columns and a file of numbers, where training had timestamps."""
    schema = Schema((Attribute("when", "numeric", cuts=(1.6e9,), arrow_type="timestamp[ms]"),), "class", ("no", "yes"))
    words = r"Column 'when' contains -?1700000000000 instead of a time.* Divide milliseconds by 1,000"
    with pytest.raises(SchemaError, match=words):
        encode_json_records([{"when": milliseconds}], schema)
    with pytest.raises(SchemaError, match=words.replace("-?", "")):
        encode(pa.record_batch({"when": [abs(milliseconds)]}), schema, with_class=False)
    seconds = [{"when": 1_700_000_000}, {"when": 1.5e9}, {"when": "2023-11-14T22:13:20"}, {"when": None}]
    assert encode_json_records(seconds, schema).x.tolist() == [[1, 0, 1, 2]]
