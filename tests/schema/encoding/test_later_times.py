"""Columns of times of which all rows are later than those of training."""

import datetime

import pyarrow as pa
import pytest

from learners.schema import Attribute, Schema
from learners.schema.encoding.later_times import LaterTimes


def warnings_of(*batches, arrow_type="timestamp[us]"):
    attribute = Attribute("t", "numeric", cuts=(5.0,), arrow_type=arrow_type, quantiles=(0.0, 5.0, 86_400.0))
    later = LaterTimes(Schema((attribute,), "y", ("a", "b")))
    assert sum(1 for _ in later.watch(pa.record_batch({"t": column}) for column in batches)) == len(batches)
    return later.warnings()


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.timestamp("ns", "UTC"), pa.date32(), pa.string()])
def test_a_column_is_later_where_every_known_value_is(kind):
    day = datetime.datetime(1970, 1, 2)
    last, next_day, none = (
        pa.array([None if one is None else one.strftime("%Y-%m-%d")]).cast(pa.date32()).cast(kind)
        for one in (day, day + datetime.timedelta(days=1), None)
    )
    words = "'t' ended at 1970-01-02 in training and begins at 1970-01-03 here"
    for batches in ([next_day], [none, next_day], [next_day, none]):
        assert [words in text for text in warnings_of(*batches)] == [True]
    for batches in ([last], [next_day, last], [last, next_day], [none], []):
        assert not warnings_of(*batches)


def test_numbers_that_are_no_times_and_columns_of_another_type_say_nothing():
    assert not warnings_of(pa.array([1e9]), arrow_type="double")
    assert not warnings_of(pa.array([True]).cast(pa.string()))
