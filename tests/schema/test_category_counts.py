"""Values are counted as they come, with the result of sorting them all."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learners.errors import SchemaError
from learners.schema import category_counts
from learners.schema.category_counts import ValueTally, category_value_counts
from tests.naive import counts as naive


@pytest.mark.parametrize(
    "column",
    [
        pa.array([3, -1, 3, None, 127, -128], pa.int8()),
        pa.array([3, 0, 255, 255], pa.uint8()),
        pa.array([3, 0, 255, 255], pa.uint8())[1:3],
        pa.array([True, None, False, True, True]),
        pa.array([True, True])[1:],
        pa.array(["b", "a", None, "b"]).dictionary_encode(),
        pa.array(["b", "a", "c", "b"]).dictionary_encode()[1:],
        pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 0], pa.int32()), pa.array(["a", None, "b"])),
        pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 0], pa.int32()), pa.array(["a", "b", "a"])),
        pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array([5, 7])),
        pa.array([], pa.string()).dictionary_encode(),
        pa.array(["x", None, "y", "x"]),
    ],
)
def test_values_are_counted_as_row_by_row(column):
    counts, n_missing = naive.values(column.to_pylist())
    found: Counter[object] = Counter()
    values, n_rows, n_null = category_value_counts(column, "x")
    for value, n in zip(values.to_pylist(), n_rows.tolist(), strict=True):
        found[value] += n
    assert +found == counts
    assert n_null == n_missing


VALUE_LISTS = tuple(
    st.lists(st.none() | values, max_size=30).map(lambda own, kind=kind: pa.array(own, kind))
    for values, kind in (
        (st.sampled_from("abcdefgh"), pa.string()),
        (st.integers(-3, 3), pa.int64()),
        (st.booleans(), pa.bool_()),
    )
)


@given(data=st.data(), kind=st.sampled_from(VALUE_LISTS), most_waiting=st.sampled_from([0, 10, 1 << 16]))
def test_values_of_many_batches_are_counted_as_row_by_row(data, kind, most_waiting):
    batches, other = data.draw(st.lists(kind, max_size=5)), data.draw(st.lists(kind, max_size=2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(category_counts, "MOST_WAITING", most_waiting)
        tallies = ValueTally(), ValueTally()
        for tally, own in zip(tallies, (batches, other), strict=True):
            for batch in own:
                tally.add(*category_value_counts(batch, "x")[:2], "x")
                if data.draw(st.booleans()):
                    assert not tally.is_overfull  # which counts what waits
        tallies[0].merge(tallies[1])
    rows = [value for batch in [*batches, *other] for value in batch.to_pylist()]
    assert tallies[0].counts == dict(naive.values(rows)[0])
    tallies[0].subtract(tallies[1])
    assert tallies[0].counts == dict(naive.values([value for batch in batches for value in batch.to_pylist()])[0])


def test_of_too_many_values_only_that_remains(monkeypatch):
    monkeypatch.setattr(category_counts, "MAX_DISTINCT", 3)
    tally, few = ValueTally(), ValueTally({"a": 1})
    tally.add(pa.array(list("abcd")), np.ones(4, np.int64), "x")
    few.add(pa.array(["b"]), np.ones(1, np.int64), "x")
    few.merge(tally)
    for counted in (tally, few):
        assert counted.is_overfull and counted.counts == {}


def test_an_index_beyond_its_dictionary_is_refused():
    broken = pa.DictionaryArray.from_arrays(pa.array([0, 7], pa.int32()), pa.array(["a"]), safe=False)
    with pytest.raises(SchemaError, match="'x' has indices beyond its dictionary"):
        category_value_counts(broken, "x")
