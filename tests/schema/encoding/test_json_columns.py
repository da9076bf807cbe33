"""Columns of JSON: the codes of the naive encoder, and nothing but them."""

from __future__ import annotations

import json

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from learners.errors import SchemaError
from learners.schema import Attribute, Schema
from learners.schema.encoding.json_columns import JsonColumns, NotColumns
from learners.schema.encoding.records import encode_columns
from tests.schema.encoding.test_batches import naive
from tests.schema.encoding.test_string_tables import WORDS

Value = str | int | float | bool | None
read = msgspec.json.Decoder(list[Value]).decode
split = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
CUTS = (-1e300, -2.5, -0.1, 0.0, 0.1, 0.30000000000000004, 1 / 3, 1e-9, 1.0, 7.0, 2.0**53, 1e17, 1e22, 1e300)
NUMBER = Attribute("x", "numeric", cuts=tuple(sorted(CUTS)), has_missing=True, arrow_type="double")


def codes(text, schema, max_rows=1000):
    return JsonColumns(schema).encode(split(text.encode()), read, max_rows).x


@st.composite
def tables(draw):
    n_rows = draw(st.integers(1, 12))
    attributes, columns = [], {}
    for i in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["text", "whole", "bool", "number"]))
        values = {
            "text": WORDS,
            "whole": st.integers(-3, 12) | st.integers(-(2**63), 2**63 - 1),
            "bool": st.booleans(),
            "number": st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(CUTS) | st.integers(-99, 99),
        }[kind]
        if kind == "number":
            attribute = Attribute(
                f"x{i}", "numeric", cuts=NUMBER.cuts, arrow_type="double", has_missing=draw(st.booleans())
            )
        else:
            domain = tuple(sorted(draw(st.sets(values, min_size=1, max_size=5))))
            attribute = Attribute(f"x{i}", "nominal", domain, has_missing=draw(st.booleans()))
            values = st.sampled_from(domain) | values
        attributes.append(attribute)
        if draw(st.integers(0, 4)):
            columns[attribute.name] = draw(st.lists(st.none() | values, min_size=n_rows, max_size=n_rows))
    columns["x9"] = ["more"] * n_rows
    return Schema(tuple(attributes), None, ("",)), columns


@given(tables(), st.booleans(), st.sampled_from([None, 1]))
def test_columns_have_the_codes_of_the_naive_encoder(drawn, ensure_ascii, indent):
    schema, columns = drawn
    text = json.dumps(columns, ensure_ascii=ensure_ascii, indent=indent)
    flags = {attribute.name for attribute in schema.attributes if {bool} == set(map(type, attribute.values))}
    if set(columns) <= flags | {"x9"}:
        with pytest.raises(NotColumns):
            codes(text, schema)
    else:
        assert codes(text, schema).tolist() == naive(columns, schema)


@given(st.sampled_from([*NUMBER.cuts, 123.456]), st.integers(-3, 3), st.integers(1, 25))
@example(0.1, 0, 25)
def test_numbers_around_cut_points_fall_as_their_exact_values(cut, steps, n_digits):
    value = cut
    for _ in range(abs(steps)):
        value = float(np.nextafter(value, np.inf if steps > 0 else -np.inf))
    texts = [repr(value), f"{value:.{n_digits}e}", f"{value:.{n_digits}g}", f"{value:.17E}"]
    values = [float(text) for text in texts]
    assert codes(f'{{"x": [{", ".join(texts)}]}}', Schema((NUMBER,), None, ("",))).tolist() == naive(
        {"x": values}, Schema((NUMBER,), None, ("",))
    )


WHOLE = Attribute("x", "nominal", (0, 1, 3, 300, 10**17), has_missing=True)
TEXT = Attribute("x", "nominal", ("a", 'say "hi"', "back\\slash", "ünseen"), has_missing=True)
FLAG = Attribute("x", "nominal", (False, True), has_missing=True)


@pytest.mark.parametrize("attribute", [WHOLE, TEXT, FLAG, NUMBER], ids=["whole", "text", "flag", "number"])
@pytest.mark.parametrize(
    "text",
    [
        "[1, 3.0, 3, 1e0, -0, -0.0, true, null]",
        "[0, 01234567890123456789, 1]".replace("01", "1"),
        "[100000000000000000, 1000000000000000000000, -1]",
        '["a", "say \\"hi\\"", "back\\\\slash", "\\u0061", "\\u00fcnseen", "ünseen", "ü", null]',
        '["a",1]',
        "[1,[2]]",
        "[[1],[2]]",
        "[{}]",
        "[true,false,null]",
        "[null]",
        "[ null , null ]",
        "[0.5, 1E2, 1e+2, 1e-2, 0.1e1, 123456789012345678901234567890, 1e-400]",
    ],
)
def test_whatever_stands_there_is_answered_as_column_of_python_values(attribute, text):
    schema = Schema((attribute, Attribute("y", "nominal", ("b",), has_missing=True)), None, ("",))
    nulls = [None] * (text.count(",") + 1)
    body = f'{{"y":{json.dumps(nulls)}, "x":{text}}}'
    try:
        expected = encode_columns({"x": read(text), "y": nulls}, schema).x.tolist()
    except (SchemaError, msgspec.MsgspecError) as error:
        with pytest.raises((NotColumns, type(error))) as caught:
            codes(body, schema)
        if caught.type is SchemaError:
            assert str(caught.value) == str(error)
    else:
        assert codes(body, schema).tolist() == expected


@pytest.mark.parametrize(
    "text",
    [
        '{"x":[]}',
        '{"x":7}',
        '{"x":null}',
        '{"x":"a"}',
        '{"x":{}}',
        "{}",
        '{"z":[1]}',
        '{"x":["a"],"y":["b","b"]}',
        '{"x":["a","a"],"y":[]}',
        '{"x":["a"],"y":["b"],"z":[1,2]}',
        '{"x":["a","a","a","a","a"]}',
    ],
)
def test_what_is_no_table_is_left_to_others(text):
    schema = Schema((TEXT, Attribute("y", "nominal", ("b",))), None, ("",))
    with pytest.raises(NotColumns):
        codes(text, schema, max_rows=4)


def test_text_that_is_not_utf8_is_refused():
    with pytest.raises(UnicodeDecodeError, match="utf-8"):
        JsonColumns(Schema((TEXT,), None, ("",))).encode({"x": b'["a","\xff"]'}, read, 9)
