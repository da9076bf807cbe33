"""Which Arrow streams are answered at once: those that hold what their bytes say."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.http.api.arrow_streams import MAX_SCHEMAS, QuickStreams, read_arrow_stream
from service.requests.problems import MalformedBody
from tests.support.http import stream_of

MOST = 1 << 20
BATCH = pa.RecordBatch.from_pydict({"a": ["x", None, "y"], "b": [1.5, 2.0, None]})


def test_one_plain_batch_is_read_again_and_again():
    streams = QuickStreams()
    for body in (stream_of(BATCH), stream_of(BATCH)[:-8], stream_of(BATCH.slice(1))):  # without its end, too
        batch, names = streams.read(body)
        assert batch.equals(read_arrow_stream(body, 10, MOST).to_batches()[0]) and names == ("a", "b")
    assert len(streams.schemas) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not arrow",
        *(stream_of(BATCH, compression=name) for name in ("zstd", "lz4")),
        stream_of(BATCH, BATCH),
        stream_of(pa.RecordBatch.from_pydict({"a": pa.array(["x"]).dictionary_encode()})),
        stream_of(BATCH, use_legacy_format=True),
        stream_of(BATCH)[:-16],
        stream_of(BATCH) + b"more",
        stream_of(BATCH)[:40] + b"\1" + stream_of(BATCH)[41:],  # the byte order of the schema
    ],
    ids=["empty", "garbage", "zstd", "lz4", "two", "dictionary", "legacy", "cut off", "longer", "highest byte first"],
)
def test_others_are_left_over(body):
    assert QuickStreams().read(body) is None


@given(st.integers(0, 2**32), st.integers(0, 255))
def test_a_spoiled_stream_is_read_as_arrow_reads_it_or_left_over(place, value):
    body = bytearray(stream_of(BATCH))
    body[place % len(body)] = value
    found = QuickStreams().read(bytes(body))
    if found is not None:
        assert found[0].get_total_buffer_size() <= len(body)
        try:
            table = read_arrow_stream(bytes(body), 10, MOST)
        except MalformedBody:  # by offsets that lead nowhere, which are checked when such a batch is encoded
            with pytest.raises(pa.ArrowInvalid, match="In column"):
                found[0].validate(full=True)
            return
        assert found[0].schema.equals(table.schema)
        assert found[0].num_rows == table.num_rows


def test_schemas_are_forgotten_before_they_are_too_many():
    streams = QuickStreams()
    for number in range(2 * MAX_SCHEMAS + 3):
        assert streams.read(stream_of(pa.RecordBatch.from_pydict({f"a{number}": [1]}))) is not None
        assert len(streams.schemas) <= MAX_SCHEMAS
