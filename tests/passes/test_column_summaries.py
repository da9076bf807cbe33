"""The schema pass: which columns become attributes, with which domains, and what is left out by name."""

import datetime
import decimal
import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from learners import Source, infer_schema
from learners.errors import EmptyData, InvalidParameter, SchemaError, UnknownColumn
from learners.passes.column_summaries import ColumnSummaries, quantile_binned_schema
from learners.schema import Schema
from tests import strategies

N = 400
RNG = np.random.default_rng(0)
Y = RNG.integers(0, 2, N)


def schema_of(columns, target="class", overrides=None, **options):
    table = pa.table({"class": Y.astype(str)} | columns)
    return infer_schema(Source.of_table(table), target, overrides, **options)


def only_attribute(column, **options):
    schema = schema_of({"x": column}, **options)
    assert [attribute.name for attribute in schema.attributes] == ["x"]
    return schema.attributes[0]


def left_out(columns, **options):
    """Reasons by name, beside a column that is kept."""
    schema = schema_of({"kept": Y.astype(str)} | columns, **options)
    return {entry.name: entry.reason for entry in schema.left_out}


def cycled(values, kind=None):
    return pa.array([values[i % len(values)] for i in range(N)], kind)


@pytest.mark.parametrize(
    ("column", "kind", "values"),
    [
        (cycled(["b", "a", ""]), "nominal", ("", "a", "b")),
        (cycled(["b", "a"], pa.large_string()), "nominal", ("a", "b")),
        (cycled(["b", "a"], pa.string_view()), "nominal", ("a", "b")),
        (cycled(["b", "a"]).dictionary_encode(), "nominal", ("a", "b")),
        (cycled([7, 3]).dictionary_encode(), "nominal", (3, 7)),
        (cycled([True, False]), "nominal", (False, True)),
        (cycled([9, 3], pa.uint8()), "nominal", (3, 9)),
        (cycled([9, -3], pa.int8()), "nominal", (-3, 9)),
        (cycled(["NaN", "None", "", None]), "nominal", ("", "NaN", "None")),  # these are words
    ],
)
def test_nominal_columns(column, kind, values):
    attribute, has_missing = only_attribute(column), column.null_count > 0
    assert (attribute.kind, attribute.values, attribute.has_missing) == (kind, values, has_missing)
    assert attribute.n_values == len(values) + has_missing


@pytest.mark.parametrize(
    "kind", [pa.int16(), pa.int32(), pa.int64(), pa.uint16(), pa.float32(), pa.float64(), pa.decimal128(22, 2)]
)
def test_numeric_columns(kind):
    attribute = only_attribute(pa.array(Y * 10 + np.arange(N) % 3).cast(kind, safe=False))
    assert (attribute.kind, attribute.cuts) == ("numeric", (6.0,))


def test_times_are_numeric():
    days = [datetime.date(2024, 1, 1) + datetime.timedelta(days=int(10 * y)) for y in Y]
    assert only_attribute(pa.array(days)).cuts == (1_704_067_200.0 + 5 * 86_400,)
    moments = [datetime.datetime(2024, 1, 1, int(y)) for y in Y]
    assert only_attribute(pa.array(moments, pa.timestamp("ms"))).cuts == (1_704_067_200.0 + 1800,)
    assert only_attribute(pa.array([datetime.time(int(y)) for y in Y])).kind == "numeric"
    assert only_attribute(pa.array([datetime.timedelta(int(y)) for y in Y])).kind == "numeric"


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_missing_is_a_value_of_its_own(missing):
    numeric = only_attribute(pa.array([missing if i % 5 == 0 else float(y) for i, y in enumerate(Y)]))
    assert (numeric.cuts, numeric.has_missing, numeric.n_values, numeric.missing_code) == ((0.5,), True, 3, 0)
    nominal = only_attribute(pa.array([None if i % 5 == 0 else str(y) for i, y in enumerate(Y)]))
    assert (nominal.values, nominal.has_missing, nominal.n_values) == (("0", "1"), True, 3)


def test_missing_alone_can_be_informative():
    numeric = only_attribute(pa.array([None if y else 1.0 for y in Y]))
    assert (numeric.cuts, numeric.n_values, numeric.labels()) == ((), 2, ["(missing)", "(-inf, inf]"])
    nominal = only_attribute(pa.array([None if y else "a" for y in Y]))
    assert (nominal.values, nominal.n_values) == (("a",), 2)


@pytest.mark.parametrize("target", ["class", None])
@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (cycled([7]), "one value only"),
        (cycled([float("inf")]), "one value only"),
        (pa.array(2**63 - 1 - np.arange(N)), "one value only in double precision"),
        (cycled([decimal.Decimal(1), 1 + decimal.Decimal("1e-20")]), "one value only in double precision"),
        (
            np.r_[np.ones(N - 20), -np.arange(20.0)],
            "nearly constant: its other values are too few for an interval of their own",
        ),
        (pa.nulls(N, pa.float64()), "every value is missing"),
    ],
)
def test_intervals_without_regard_to_the_class_give_their_own_reasons(column, reason, target):
    summaries = ColumnSummaries(target)
    for batch in pa.table({"class": Y.astype(str), "kept": Y.astype(str), "x": column}).to_batches():
        summaries.update(batch)
    assert {entry.name: entry.reason for entry in quantile_binned_schema(summaries, 8).left_out} == {"x": reason}


def test_useless_columns_are_left_out_by_name_with_the_reason():
    reasons = left_out(
        {
            "one word": cycled(["a"]),
            "one number": cycled([1.5]),
            "noise": RNG.random(N),
            "nothing": pa.nulls(N),
            "no text": pa.nulls(N, pa.string()),
            "no numbers": pa.nulls(N, pa.float64()),
            "key": [f"id-{i}" for i in range(N)],
            "list": [[1, 2]] * N,
            "struct": [{"a": 1}] * N,
            "map": pa.array([[("a", 1)]] * N, pa.map_(pa.string(), pa.int64())),
            "bytes": [b"a"] * N,
            "more bytes": pa.array([b"a", b"b"] * (N // 2), pa.large_binary()),
        }
    )
    kinds = {"list": "list<", "struct": "struct<", "map": "map<", "bytes": "binary", "more bytes": "large_binary"}
    for name, kind in kinds.items():
        assert kind in reasons[name] and "not supported; flatten or convert it" in reasons.pop(name)
    assert reasons == {
        "noise": "its values do not predict the class on their own",
        "key": "nearly unique (400 different values in 400 rows): an identifier",
        **dict.fromkeys(("one word", "one number"), "one value only"),
        **dict.fromkeys(("nothing", "no text", "no numbers"), "every value is missing"),
    }


def test_an_identifier_may_be_kept_on_request_and_few_rows_do_not_make_one():
    schema = schema_of({"key": [f"id-{i}" for i in range(N)]}, overrides={"key": "nominal"})
    assert len(schema.attributes[0].values) == N
    table = pa.table({"x": list("abcdefgh"), "class": ["u", "v"] * 4})
    assert infer_schema(Source.of_table(table), "class").n_attributes == 1


def test_the_most_frequent_values_are_kept_and_the_others_folded():
    words = [f"w{min(i % 20, 19 - i % 7):02d}" for i in range(N)]
    attribute = only_attribute(words, max_values=4)
    counts = {word: words.count(word) for word in set(words)}
    assert list(attribute.values) == sorted(sorted(counts, key=lambda word: (-counts[word], word))[:4])
    assert (attribute.n_folded, attribute.n_values, attribute.labels()[-1]) == (len(counts) - 4, 5, "(other)")


@pytest.mark.parametrize(
    ("target", "classes", "class_type"),
    [
        (["b", "a"], ("a", "b"), "string"),
        ([10, 9, -1], ("-1", "9", "10"), "int64"),
        ([1.0, 0.0], ("0", "1"), "int64"),
        ([True, False], ("False", "True"), "bool"),
        (["", "a"], ("", "a"), "string"),
    ],
)
def test_classes_are_sorted_by_value(target, classes, class_type):
    table = pa.table({"x": cycled(["u", "v", "w"]), "class": cycled(target)})
    schema = infer_schema(Source.of_table(table), "class")
    assert (schema.classes, schema.class_type) == (classes, class_type)
    assert schema.class_values() == sorted(set(target))


def test_without_a_target_numbers_are_cut_into_equal_shares():
    schema = infer_schema(Source.of_table(pa.table({"x": np.arange(800.0)})), None)
    assert (schema.target, schema.n_classes, len(schema.attributes[0].cuts)) == (None, 1, 7)


def test_overrides_decide():
    columns = {"a": Y * 1.0, "b": Y.astype(str), "c": Y + 5, "d": Y * 2.0}
    overrides = {"a": {"cuts": [0.25, 0.5]}, "b": {"order": ["1", "0", "2"]}, "c": "nominal", "d": "drop"}
    schema = schema_of(columns, overrides=overrides)
    a, b, c = schema.attributes
    assert (a.kind, a.cuts) == ("numeric", (0.25, 0.5))
    assert (b.kind, b.values, b.n_folded) == ("nominal", ("1", "0", "2"), 0)
    assert (c.kind, c.values) == ("nominal", (5, 6))
    assert {entry.name: entry.reason for entry in schema.left_out} == {"d": "dropped by request"}
    listed = schema_of(columns, overrides={"b": {"order": ["1"]}}).attributes[1]
    assert (listed.values, listed.n_folded, listed.n_values) == (("1",), 1, 2)


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("text", r"columns\['x'\]\.kind='text'.*'nominal', 'numeric' or 'drop'"),
        ({"colour": 1}, r"columns\['x'\].*unknown field 'colour'; use kind, drop, order, cuts"),
        ({"order": []}, r"columns\['x'\]\.order=\[\].*each value may appear once only"),
        ({"order": ["a", "a"]}, r"columns\['x'\]\.order=.*each value may appear once only"),
        ({"order": [["a"]]}, r"columns\['x'\]\.order=.*a list of texts, whole numbers of 64 bits"),
        ({"order": [None]}, r"columns\['x'\]\.order=.*a list of texts, whole numbers of 64 bits"),
        ({"order": ["\ud800"]}, r"columns\['x'\]\.order=.*a list of texts, whole numbers of 64 bits"),
        ({"order": [2**63]}, r"columns\['x'\]\.order=.*a list of texts, whole numbers of 64 bits"),
        ({"order": [1, "a"]}, r"columns\['x'\]\.order=.*its values must have one type"),
        ({"cuts": [2, 1]}, r"columns\['x'\]\.cuts=.*strictly ascending"),
        ({"cuts": [10**400]}, r"columns\['x'\]\.cuts=.*finite numbers"),
        ({"cuts": list(range(65_001))}, r"columns\['x'\]\.cuts=65001 must be at most 65,000 numbers"),
        ({"weight": 10**400}, r"columns\['x'\]\.weight=.*true \(whole numbers\)"),
        ({"cuts": [1, float("inf")]}, r"columns\['x'\]\.cuts=.*finite"),
        ({"cuts": ["a"]}, r"columns\['x'\]\.cuts=.*finite"),
    ],
)
def test_wrong_overrides_are_named(override, says):
    with pytest.raises(InvalidParameter, match=says):
        ColumnSummaries("class", {"x": override})


def test_overrides_of_unknown_columns_and_of_the_target_are_refused():
    with pytest.raises(UnknownColumn, match=r"'xx' is not in the table \(similar: x\)"):
        schema_of({"x": Y.astype(str)}, overrides={"xx": "nominal"})
    with pytest.raises(InvalidParameter, match="the target cannot be dropped"):
        ColumnSummaries("class", {"class": "drop"})
    with pytest.raises(InvalidParameter, match="max_values=1"):
        ColumnSummaries("class", max_values=1)
    with pytest.raises(SchemaError, match="Column 'x' holds text and cannot be numeric") as raised:
        schema_of({"x": Y.astype(str)}, overrides={"x": "numeric"})
    assert raised.value.column == "x"


def test_whole_numbers_with_gaps_can_be_nominal_and_fractions_cannot():
    """pandas turns whole numbers with gaps into float64 with NaN."""
    attribute = only_attribute(np.where(np.arange(N) % 7 == 0, np.nan, Y), overrides={"x": "nominal"})
    assert (attribute.values, attribute.has_missing) == ((0, 1), True)
    with pytest.raises(SchemaError, match="Column 'x' holds double, which cannot be read as nominal"):
        schema_of({"x": Y + 0.5}, overrides={"x": "nominal"})


@pytest.mark.parametrize(
    ("target", "says"),
    [
        (["a"] * 6, r"target 'class' has only one class, 'a': a classifier needs at least two"),
        (["a", "b", None, "a", None, "b"], r"target 'class' is null in at least 2 rows"),
        ([1.0, 2.0, float("nan"), 1.0, 2.0, 1.0], r"target 'class' is null in at least 1 row"),
        ([None] * 6, r"target 'class' is null in at least 6 rows"),
        ([1.5, 2.0, 1.0, 2.5, 1.0, 1.0], r"'class' holds numbers such as 1.5. Predicting numbers is regression"),
        ([[1], [2]] * 3, r"target 'class' holds list<.*>\. Use text, whole numbers or booleans"),
        ([[1], None] * 3, r"target 'class' holds list<.*>\. Use text, whole numbers or booleans"),
        ([{"a": 1}, {"a": 2}] * 3, r"target 'class' holds struct<.*>\. Use text"),
        ([b"a", b"b"] * 3, r"target 'class' holds binary\. Use text"),
        ([decimal.Decimal("1.25"), decimal.Decimal("2.5")] * 3, r"such as 1.25\. .* fewpass only classifies: cut them"),
        ([1e300, 2.0] * 3, r"such as .*regression, and fewpass only classifies: cut them"),
        (list(range(300)), r"'class' has .* different values.*Predicting numbers is regression"),
        (list(range(30_000)), r"'class' has .* different values.*Predicting numbers is regression"),
        ([f"name{i}" for i in range(300)], "Name a class column, or group the values"),
    ],
)
def test_targets_that_cannot_be_classified_are_refused(target, says):
    table = pa.table({"x": ["abc"[i % 3] for i in range(len(target))], "class": target})
    with pytest.raises(SchemaError, match=says) as raised:
        infer_schema(Source.of_table(table), "class")
    assert raised.value.column == "class"


@pytest.mark.parametrize(
    ("one", "other"), [("time32[s]", "time64[us]"), ("duration[ms]", "duration[s]"), ("date32[day]", "time32[s]")]
)
def test_units_that_differ_from_file_to_file_are_refused(one, other):
    """Their numbers do not compare: noon is 43,200 here and 43,200,000,000 there."""
    tables = [
        pa.table({"x": pa.array([0, 1, None], pa.type_for_alias(name.replace("[day]", ""))), "class": ["u", "v", "u"]})
        for name in (one, other)
    ]
    parts = [ColumnSummaries("class") for _ in tables]
    for part, table in zip(parts, tables, strict=True):
        part.update(table.to_batches()[0])
    says = rf"Column 'x' holds {re.escape(other)} here, but {re.escape(one)} elsewhere"
    with pytest.raises(SchemaError, match=says):
        parts[0].update(tables[1].to_batches()[0])
    with pytest.raises(SchemaError, match=says):
        parts[0].merge(parts[1])


def test_nothing_left_to_learn_from_is_refused_with_the_reasons():
    table = pa.table({"x": ["a"] * 30, "key": [str(i) for i in range(30)], "class": ["u", "v"] * 15})
    with pytest.raises(SchemaError, match=r"No column is left.*\(x: one value only; key: nearly unique"):
        infer_schema(Source.of_table(table), "class")
    with pytest.raises(SchemaError, match="No column is left"):
        infer_schema(Source.of_table(pa.table({"class": ["u", "v"]})), "class")
    for schema in (
        lambda: infer_schema(Source.of_table(table.slice(0, 0)), "class"),
        ColumnSummaries("class").build_schema,
    ):
        with pytest.raises(EmptyData, match="no rows"):
            schema()
    with pytest.raises(UnknownColumn, match=r"'klass' is not in the table \(similar: class\)") as raised:
        infer_schema(Source.of_table(table), "klass")
    assert raised.value.column == "klass"


def test_text_that_is_not_utf8_is_refused_by_name():
    broken = pa.Array.from_buffers(pa.string(), N, pa.array([b"\xff\xfe", b"a"] * (N // 2)).buffers())
    with pytest.raises(SchemaError, match="Column 'x' holds text that is not UTF-8"):
        schema_of({"x": broken})
    table = pa.table({"x": cycled(["a", "b"]), "class": broken})
    with pytest.raises(SchemaError, match="Column 'class' holds text that is not UTF-8"):
        infer_schema(Source.of_table(table), "class")


def test_more_values_than_can_be_counted_are_left_out(monkeypatch):
    monkeypatch.setattr("learners.schema.category_counts.MAX_DISTINCT", 100)
    reasons = left_out({"x": [f"w{i % 150}" for i in range(N)]})
    assert reasons == {"x": "more than 100 different values"}


@given(strategies.tables())
def test_any_table_gives_a_schema_or_an_error_of_ours(table):
    try:
        schema = infer_schema(Source.of_table(table), "class")
    except SchemaError:
        return
    read = Schema.from_json(schema.to_json())
    assert (read, read.to_json()) == (schema, schema.to_json())
    names = {each.name for each in (*schema.attributes, *schema.left_out)}
    assert names == set(table.column_names) - {"class"}
    assert all(len(attribute.labels()) == attribute.n_values >= 2 for attribute in schema.attributes)
