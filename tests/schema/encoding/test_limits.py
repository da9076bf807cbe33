"""Every Arrow type at its limits, as attribute, nominal value and class: kept exactly, or refused by name."""

import itertools
from decimal import Context, Decimal, localcontext
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from learners import Source, infer_schema
from learners.errors import SchemaError
from learners.schema.encoding.encode import encode, numeric_column_as_floats
from learners.schema.encoding.json_records import encode_json_columns, encode_json_records

GUIDE = Path(__file__).parents[3] / "docs" / "how-to" / "data.md"
ROWS = 12  # of each value
LEAST, MOST = -(2**63), 2**63 - 1


def counted(kind, counts):
    """Values of a type by the numbers that Arrow keeps of them."""
    width = pa.int32() if kind.bit_width == 32 else pa.int64()
    return pa.array(list(counts), width).cast(kind)


def powers(kind):
    near = [2**53 + 1] if kind.precision > 16 else []
    most = 10**kind.precision - 1
    with localcontext(Context(prec=100)):
        return pa.array([Decimal(number) for number in (-most, 0, 1, *near, most - 1, most)], kind)


def whole(bits):
    return {
        f"int{bits}": pa.array([-(2 ** (bits - 1)), 0, 1, 2 ** (bits - 1) - 2, 2 ** (bits - 1) - 1], f"int{bits}"),
        f"uint{bits}": pa.array([0, 1, 2 ** (bits - 1) - 1, 2 ** (bits - 1), 2**bits - 2, 2**bits - 1], f"uint{bits}"),
    }


def moments(unit, zone):
    ticks = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    edges = [ticks * second for second in (-62_135_596_800, -1, 0, 1, 253_402_300_799)]
    # The least of all counts is no time to numpy and pandas.
    inner = [edge for edge in edges if LEAST < edge <= MOST]
    return counted(pa.timestamp(unit, zone), [LEAST + 1, *inner, MOST - 1, MOST])


TYPES: dict[str, pa.Array] = {
    **whole(8), **whole(16), **whole(32), **whole(64),
    **{name: pa.array(np.array([-np.finfo(name).max, 0, 0.5, 1, 2**11, np.finfo(name).max], name)) for name in ("float16", "float32")},
    "float64": pa.array([-1.7976931348623157e308, -(2.0**63), 0, 1, 2**53 - 1, 2**53, 2.0**63 - 1024, 2.0**63]),
    "decimal32": powers(pa.decimal32(9)), "decimal64": powers(pa.decimal64(18)),
    "decimal128": powers(pa.decimal128(38)), "decimal256": powers(pa.decimal256(76)),
    "date32": counted(pa.date32(), [-(2**31), -719_162, 0, 1, 2_932_896, 2**31 - 1]),
    "date64": counted(pa.date64(), [day * 86_400_000 for day in (-106_751_991_167, -719_162, 0, 2_932_896, 106_751_991_167)]),
    "time32[s]": counted(pa.time32("s"), [0, 1, 86_399]), "time32[ms]": counted(pa.time32("ms"), [0, 1, 86_399_999]),
    "time64[us]": counted(pa.time64("us"), [0, 1, 86_399_999_999]),
    "time64[ns]": counted(pa.time64("ns"), [0, 1000, 86_399_999_999_000]),
    **{
        f"timestamp[{unit}{', UTC' if zone else ''}]": moments(unit, zone)
        for unit, zone in itertools.product(("s", "ms", "us", "ns"), (None, "UTC"))
    },
    "timestamp[s, Europe/Berlin]": counted(pa.timestamp("s", "Europe/Berlin"), [-(10**10), 0, 1, 10**10, MOST]),
    **{f"duration[{unit}]": counted(pa.duration(unit), [LEAST + 1, 0, 1, MOST - 1, MOST]) for unit in ("s", "ms", "us")},
    "duration[ns]": counted(pa.duration("ns"), [-(2**53) * 1000, 0, 1000, 2**53 * 1000]),
    "bool": pa.array([False, True]),
    **{name: pa.array(["", "a", "a\0", "\U0010ffff", "b" * 9000], name) for name in ("string", "large_string", "string_view")},
    **{name: pa.array([b"", b"\xff"], name) for name in ("binary", "large_binary", "binary_view")},
    "fixed_size_binary": pa.array([b"a", b"\xff"], pa.binary(1)),
    "null": pa.nulls(2),
    "list": pa.array([[1], [2]]), "fixed_size_list": pa.array([[1], [2]], pa.list_(pa.int64(), 1)),
    "struct": pa.array([{"a": 1}, {"a": 2}]), "map": pa.array([[("a", 1)], [("b", 2)]], pa.map_(pa.string(), pa.int64())),
    "run_end_encoded": pa.RunEndEncodedArray.from_arrays(pa.array([1, 2], pa.int32()), pa.array([1, 2])),
    "interval": pa.array([(1, 2, 3), (1, 2, 4)], pa.month_day_nano_interval()),
    "extension": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"a" * 16, b"b" * 16], pa.binary(16))),
}  # fmt: skip
TYPES |= {
    f"dictionary of {name}": TYPES[name].dictionary_encode()
    for name in ("int8", "uint64", "float64", "decimal128", "date32", "timestamp[s]", "duration[s]", "bool", "string")
}
PLACES = ("attribute", "nominal", "class")


def table_of(values, place):
    """Each value in some rows, with classes that tell them apart."""
    codes = np.repeat(np.arange(len(values)), ROWS)
    tells = pa.array([f"v{code}" for code in codes])
    x = pa.concat_arrays([values.slice(code, 1) for code in codes]) if len(values) else values
    if pa.types.is_run_end_encoded(values.type):
        x = pc.run_end_encode(pa.array(codes))
    return pa.table({"x": x, "other" if place == "class" else "y": tells})


def schema_of(source, place):
    target, overrides = ("x", None) if place == "class" else ("y", {"x": "nominal"} if place == "nominal" else None)
    return infer_schema(source, target, overrides)


def outcome(values, place):
    """The kind of an attribute, or `kept`; else why the values are refused."""
    try:
        schema = schema_of(Source.of_table(table_of(values, place)), place)
    except SchemaError as error:
        if "No column is left" in str(error):
            return "left out"
        assert "'x'" in str(error), "by name"
        return "refused"
    if place == "class":
        return "kept"
    return next((attribute.kind for attribute in schema.attributes if attribute.name == "x"), "left out")


def python_values(values):
    try:
        return values.to_pylist()
    except (OverflowError, ValueError):
        return None  # moments that Python does not have


def kept(values, place):
    """The values that are not refused."""
    if outcome(values, place) != "refused":
        return values
    each = [values.slice(i, 1) for i in range(len(values))]
    return pa.concat_arrays([value for value in each if can_be_nominal(value)] or [values.slice(0, 0)])


def can_be_nominal(value):
    """Whether a column of it alone is not refused; beside a missing one, as constant columns are left out."""
    return outcome(pa.concat_arrays([value, pa.nulls(1, value.type)]), "nominal") == "nominal"


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", TYPES)
def test_values_at_the_limits_are_kept_exactly_or_refused_by_name(name, place, tmp_path):
    values = TYPES[name]
    able = kept(values, place)
    if outcome(values, place) == "left out" or len(able) < 2:
        return
    table = table_of(able, place)
    sources = [Source.of_table(table)]
    path = tmp_path / "t.parquet"
    if parquet_keeps(table.slice(0, 0), path):
        pq.write_table(table, path)
        sources.append(Source.open(path))
    for source in sources:
        schema = schema_of(source, place)
        batch = table_of(able, place)
        if place == "class":
            assert len(schema.classes) == len(able), "none are merged"
            codes = encode(batch, schema).y[::ROWS].tolist()
        else:
            attribute = schema.attributes[0]
            codes = encode(batch, schema).x[0][::ROWS].tolist()
            assert max(codes) < attribute.n_values
            raw, is_time = python_values(able), pa.types.is_temporal(kind_of_values(able.type))
            if raw is not None and not (attribute.kind == "nominal" and is_time):
                assert encode_json_records([{"x": value} for value in raw], schema).x[0].tolist() == codes
                assert encode_json_columns({"x": raw}, schema).x[0].tolist() == codes
        if place == "attribute" and attribute.kind == "numeric":
            own = numeric_column_as_floats(able, "x")
            order = np.argsort(own)
            assert (np.diff(np.array(codes)[order]) >= 0).all(), "intervals keep the order"
            exact = able.cast(pa.int64()) if pa.types.is_timestamp(able.type) else None
            assert exact is None or order.tolist() == np.argsort(exact.to_numpy()).tolist(), "no moment wraps"
        else:
            assert len(set(codes)) == len(able), "each has a code of its own"


def parquet_keeps(table, path):
    """Whether the type is the same once it is read; of seconds, Parquet makes milliseconds."""
    pq.write_table(table, path)
    return Source.open(path).arrow_schema.field("x").type == table.schema.field("x").type


def kind_of_values(kind):
    return kind.value_type if pa.types.is_dictionary(kind) else kind


@pytest.mark.parametrize(
    ("kind", "strange"),
    [
        (pa.uint64(), 2**64 - 1),
        (pa.float64(), 2.0**63),
        (pa.float64(), float("inf")),
        (pa.float64(), 0.5),
        (pa.decimal128(38), Decimal(2**63)),
        (pa.decimal128(38, 1), Decimal("0.5")),
        (pa.decimal32(3, 1), Decimal("0.5")),
    ],
)
def test_what_a_domain_of_whole_numbers_cannot_hold_is_unseen_by_every_way_in(kind, strange):
    whole_table = pa.table({"x": pa.array([-1, LEAST, MOST, 1] * ROWS), "y": ["a", "b", "a", "c"] * ROWS})
    schema = infer_schema(Source.of_table(whole_table), "y", {"x": "nominal"})
    unseen = schema.attributes[0].unseen_code
    batch = pa.table({"x": pa.array([strange, 1], kind)})
    assert encode(batch, schema).x[0].tolist() == [unseen, 2]
    assert encode_json_records([{"x": strange}], schema).x[0].tolist() == [unseen]
    assert encode_json_columns({"x": [strange]}, schema).x[0].tolist() == [unseen]


def test_a_double_is_not_taken_for_a_neighbouring_whole_number():
    table = pa.table({"x": pa.array([2**53, 2**53 + 1] * ROWS), "y": ["a", "b"] * ROWS})
    schema = infer_schema(Source.of_table(table), "y", {"x": "nominal"})
    assert encode(pa.table({"x": [2.0**53, 0.5]}), schema).x[0].tolist() == [0, schema.attributes[0].unseen_code]


def test_a_class_that_python_cannot_show_is_told_by_its_number():
    table = table_of(counted(pa.timestamp("s"), [0, 1]), "class")
    schema = infer_schema(Source.of_table(table), "x")
    far = pa.table({"x": counted(pa.timestamp("s"), [MOST]), "other": ["v0"]})
    with pytest.raises(SchemaError, match=f"is timestamp\\[s\\] {MOST}, which the model does not know "):
        encode(far, schema)


def guide_table():
    """What data.md says of each type."""
    lines = ["| Arrow type | attribute | nominal or class: refused values |", "| --- | --- | --- |"]
    for name, values in TYPES.items():
        alone = outcome(values, "attribute")
        refused = outcome(values, "nominal") == "refused"
        if outcome(values, "nominal") == "left out" and outcome(values, "class") == "refused":
            told = "all: convert it" if name != "null" else "all"
        elif not refused:
            told = "none"
        elif pa.types.is_temporal(kind_of_values(values.type)):
            told = "outside the years 1 to 9999"
        elif "uint" in name:
            told = "2^63 and more"
        else:
            told = "fractions; beyond −2^63 to 2^63 − 1"
        attribute = {"refused": "nominal", "left out": "left out"}.get(alone, alone)
        lines.append(f"| {name} | {attribute} | {told} |")
    return "\n".join(lines)


def test_the_guide_has_the_table_of_types():
    assert guide_table() in GUIDE.read_text()
