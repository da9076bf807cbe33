"""Columns in which no row has a value that training had."""

import math

import pyarrow as pa
import pytest

from learners.schema import Attribute, Schema
from learners.schema.encoding.unlike_training import (
    FIRST_ROWS,
    UnlikeTraining,
    UnseenValues,
    has_unseen_value,
    nominal_value_codes,
)


def schema_of(has_missing=False, n_folded=0):
    sex = Attribute("sex", "nominal", ("Female", "Male"), has_missing=has_missing, n_folded=n_folded)
    return Schema((sex, Attribute("age", "numeric", cuts=(5.0,))), "y", ("a", "b"))


def by_table(schema, values):
    unlike = UnlikeTraining(schema)
    batches = [pa.record_batch({"age": [1.0] * len(part), "sex": pa.array(part, pa.string())}) for part in values]
    assert list(unlike.watch(batches)) == batches
    return unlike.warnings()


def by_records(schema, values):
    unseen, codes = UnseenValues(schema), nominal_value_codes(schema)
    for part in values:
        unseen.add_values(lambda name, part=part: part if name == "sex" else [1.0] * len(part), codes)
        assert has_unseen_value({"sex": part[0], "age": 1.0}, codes) == (part[0] not in ("Female", "Male", None))
    return list(unseen.warnings_by_column().values())


@pytest.mark.parametrize("warnings_of", [by_table, by_records])
@pytest.mark.parametrize("has_missing", [False, True])
def test_a_column_is_named_where_every_value_is_unseen(warnings_of, has_missing):
    schema = schema_of(has_missing)
    words = (
        "Column 'sex' has only values that training never had, such as 'male' (known: 'Female', 'Male'): they count "
        "as absent."
    )
    many = ["male"] * (FIRST_ROWS + 1)
    for values in ([["male"]], [["male", None]], [[None], ["male", "x"]], [many], [many, many]):
        assert warnings_of(schema, values) == [words]
    for values in (
        [["Male"]],
        [["male", "Male"]],
        [["male"], ["Male"]],
        [[*many, "Male"]],
        [[None]],
        [["Male"], ["male"]],
    ):
        assert not warnings_of(schema, values)


@pytest.mark.parametrize("warnings_of", [by_table, by_records])
def test_nothing_is_said_where_rare_values_were_folded_or_a_column_is_absent(warnings_of):
    if warnings_of is by_table:
        assert not warnings_of(schema_of(n_folded=3), [["male"]])
        unlike = UnlikeTraining(schema_of())
        unlike.add(pa.record_batch({"age": [1.0]}))
        assert not unlike.warnings()
    else:
        assert not nominal_value_codes(schema_of(n_folded=3))
        assert not has_unseen_value({"age": 1.0}, nominal_value_codes(schema_of()))


def test_marks_of_missing_values_are_no_values():
    pandas = pytest.importorskip("pandas")
    schema = schema_of()
    codes = nominal_value_codes(schema)
    for mark in (None, math.nan, pandas.NA, pandas.NaT):
        unseen = UnseenValues(schema)
        unseen.add_values(lambda name, mark=mark: [mark], codes)
        assert not unseen.warnings_by_column()
