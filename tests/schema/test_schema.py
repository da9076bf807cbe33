"""Schemas: codes of every kind of value, their words, and their way through JSON."""

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learners.schema import Attribute, LeftOut, Schema
from learners.schema.schema import NO_CUT, STORED_NO_CUT
from tests import strategies

values = st.one_of(
    st.lists(st.text(max_size=5), min_size=1, max_size=5, unique=True),
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5, unique=True),
    st.just([False, True]),
)


@st.composite
def attributes(draw):
    nominal = draw(st.booleans())
    cuts = draw(st.lists(st.floats(allow_nan=False, allow_infinity=False), unique=True, max_size=5))
    return Attribute(
        draw(st.text(max_size=5)),
        "nominal" if nominal else "numeric",
        tuple(draw(values)) if nominal else (),
        () if nominal else tuple(sorted(cuts)),
        draw(st.booleans()),
        draw(st.sampled_from(["string", "timestamp[us]"])),
        draw(st.sampled_from([0, 3])) if nominal else 0,
    )


@given(st.lists(attributes(), max_size=4), st.lists(st.text(max_size=5), min_size=1, max_size=4, unique=True))
def test_json_gives_an_equal_schema(drawn, classes):
    schema = Schema(tuple(drawn), "class", tuple(classes), "string", (LeftOut("x", "constant"),))
    read = Schema.from_json(schema.to_json())
    assert read == schema
    assert read.fingerprint == schema.fingerprint
    for ours, theirs in zip(schema.attributes, read.attributes, strict=True):
        assert [type(value) for value in ours.values] == [type(value) for value in theirs.values]


@given(attributes())
def test_codes_are_counted_and_worded(attribute):
    n_regular = len(attribute.values) if attribute.kind == "nominal" else len(attribute.cuts) + 1
    assert attribute.n_values == n_regular + attribute.has_missing + (attribute.n_folded > 0)
    assert len(attribute.labels()) == attribute.n_values
    assert attribute.missing_code == (0 if attribute.has_missing else attribute.n_values)
    assert attribute.unseen_code == (attribute.n_values - 1 if attribute.n_folded else attribute.n_values)


@pytest.mark.parametrize(("size", "dtype"), [(2, np.uint8), (255, np.uint8), (256, np.uint16), (65_000, np.uint16)])
def test_the_code_type_holds_the_unseen_code(size, dtype):
    schema = strategies.schema_of((2, size), 2)
    assert schema.code_dtype is dtype
    assert np.iinfo(dtype).max >= size
    assert not schema.domain_sizes.flags.writeable


def test_different_schemas_have_different_fingerprints():
    schemas = [strategies.schema_of(*of) for of in (((2, 3), 2), ((3, 2), 2), ((2, 3), 3), ((2, 3), 2, {1}))]
    assert len({schema.fingerprint for schema in schemas}) == 4


def test_intervals_have_different_names():
    """However near their cut points are; times are told as times."""
    near = Attribute("x", "numeric", cuts=(123456.1, 123456.2, 123456.3))
    assert near.labels() == ["(-inf, 123456.1]", "(123456.1, 123456.2]", "(123456.2, 123456.3]", "(123456.3, inf]"]
    day = Attribute("t", "numeric", cuts=(86_400.0, 90_000.5), arrow_type="timestamp[us]")
    assert day.labels()[1] == "(1970-01-02, 1970-01-02T01:00:00.500000]"
    assert day.number_in_words(1e300) == 1e300


def test_a_reason_that_a_release_stored_reads_as_today_and_keeps_the_keys_of_stored_counts():
    today = Schema((), "y", ("a", "b"), left_out=(LeftOut("x", NO_CUT),))
    released = today.to_json().replace(NO_CUT, STORED_NO_CUT)
    assert Schema.from_json(released) == today
    # What release 0.2.0 gave, under which its statistics are stored.
    assert today.fingerprint == hashlib.sha256(released.encode()).hexdigest()
