"""Looking up text: the same codes as a dictionary gives."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from learners.schema import Attribute, Schema
from learners.schema.encode import encode
from learners.schema.strings import codes_of_strings, string_table

WORDS = st.text(max_size=6)


@given(st.lists(WORDS, max_size=40, unique=True), st.lists(WORDS, max_size=40), st.integers(0, 3))
def test_text_is_found_as_in_a_dictionary(domain, words, skipped):
    words = words + domain
    known = {word: 5 + number for number, word in enumerate(domain)}
    column = pa.array(words, pa.string()).slice(min(skipped, len(words)))
    codes = np.full(len(column), 77, np.uint16)
    codes_of_strings(column, string_table(domain), 5, 999, codes)
    assert codes.tolist() == [known.get(word, 999) for word in column.to_pylist()]


@given(
    st.lists(WORDS, min_size=1, max_size=9, unique=True),
    st.lists(st.none() | WORDS, min_size=1, max_size=30),
    st.booleans(),
)
def test_plain_and_dictionary_columns_have_the_same_codes(domain, words, has_missing):
    schema = Schema((Attribute("x", "nominal", tuple(sorted(domain)), has_missing=has_missing),), None, ("",))
    plain = pa.table({"x": pa.array(words, pa.string())})
    encoded = pa.table({"x": pa.array(words, pa.string()).dictionary_encode()})
    assert np.array_equal(encode(plain, schema).x, encode(encoded, schema).x)


def test_lists_of_columns_have_the_codes_of_tables():
    from learners.schema.records import encode_columns

    schema = Schema(
        (
            Attribute("word", "nominal", ("a", "b"), has_missing=True),
            Attribute("number", "numeric", cuts=(1.0, 2.5), has_missing=True, arrow_type="double"),
        ),
        None,
        ("",),
    )
    columns = {"word": ["a", "c", None, "b"], "number": [1.0, 3, float("nan"), -1]}
    table = pa.table({"word": columns["word"], "number": pa.array(columns["number"], pa.float64())})
    assert np.array_equal(encode_columns(columns, schema).x, encode(table, schema).x)
    columns = {"word": ["a", "b", "a", "b"], "number": [1.0, None, 2.5, 9.0]}
    table = pa.table({"word": columns["word"], "number": pa.array(columns["number"], pa.float64())})
    assert np.array_equal(encode_columns(columns, schema).x, encode(table, schema).x)
