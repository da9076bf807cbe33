"""What a footer tells of times, and which columns are never read."""

import resource

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners import Source, collect
from learners.passes.column_summaries import ColumnSummaries
from tests.passes.hostile import MB, classes, long_texts, written


def summarised(source):
    return collect(ColumnSummaries("class"), source, threads=1)


def test_what_cannot_be_learned_from_is_not_unpacked_to_say_so(tmp_path):
    offsets, numbers = pa.array([0, 20_000_000, 20_000_001], pa.int32()), pa.repeat(0, 20_000_001)
    source = written(tmp_path / "list.parquet", pa.ListArray.from_arrays(offsets, numbers))
    dense = pa.Array.from_buffers(pa.binary(), 120, long_texts(120, MB).buffers())
    other = written(tmp_path / "bytes.parquet", dense)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for bombed, kind in ((source, "list<"), (other, "binary")):
        assert summarised(bombed).found["bomb"].arrow_type.startswith(kind)
        assert bombed.learnable() == ["class"]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50 * 1024


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "zstd", "lz4", "brotli"])
def test_ordinary_files_pass(tmp_path, codec):
    rng = np.random.default_rng(0)
    columns = {"x": rng.normal(size=5000), "t": pa.array([f"t{i % 97}" for i in range(5000)]), "class": classes(5000)}
    for version in ("1.0", "2.0"):
        how = {"compression": codec, "data_page_version": version, "row_group_size": 2000}
        pq.write_table(pa.table(columns), tmp_path / "a.parquet", **how)
        assert summarised(Source.open(tmp_path / "a.parquet")).n_rows == 5000


@given(
    ticks=st.lists(st.one_of(st.none(), st.integers(-(10**15), 10**15)), min_size=1, max_size=40),
    kind=st.sampled_from(["ms", "us", "ns", "s", "date"]),
    zone=st.sampled_from([None, "Europe/Berlin"]),
    group=st.integers(1, 40),
)
@settings(deadline=None, max_examples=60)
def test_a_footer_bounds_times_as_the_rows_do(tmp_path_factory, ticks, kind, zone, group):
    is_date = kind == "date"
    values = [None if tick is None else tick % 100_000 if is_date else tick for tick in ticks]
    column = pa.array(values, pa.int32() if is_date else pa.int64())
    column = column.cast(pa.date32() if is_date else pa.timestamp(kind, zone))
    path = tmp_path_factory.mktemp("times") / "a.parquet"
    pq.write_table(pa.table({"time": column}), path, row_group_size=group)
    found, expected = Source.open(path).files[0].content.bounds("time"), pc.min_max(column)
    assert found is not None and found.n_null == column.null_count
    for told, read in ((found.least, expected["min"]), (found.greatest, expected["max"])):
        assert told.is_valid == read.is_valid
        assert not read.is_valid or told.cast(read.type).value == read.value


@given(
    values=st.one_of(
        st.lists(st.one_of(st.none(), st.integers(-20, 20)), min_size=1, max_size=30),
        st.lists(st.one_of(st.none(), st.text("aAzé√", max_size=3)), min_size=1, max_size=30),
    ),
    asked=st.one_of(st.integers(-25, 25), st.text("aAzé√", max_size=3)),
    group=st.integers(1, 30),
    has_bounds=st.booleans(),
)
@settings(deadline=None, max_examples=100)
def test_a_footer_excludes_no_group_that_has_the_value(tmp_path_factory, values, asked, group, has_bounds):
    path = tmp_path_factory.mktemp("bounds") / "a.parquet"
    is_text = any(isinstance(value, str) for value in values)
    column = pa.array(values, pa.string() if is_text else pa.int32())
    pq.write_table(pa.table({"x": column}), path, row_group_size=group, write_statistics=has_bounds)
    source = Source.open(path)
    for fragment in source.fragments:
        own = [value for value in values[fragment.row_group * group :][:group] if value is not None]
        is_said = source.may_equal(fragment, "x", [asked])
        assert is_said or asked not in own
        if own and has_bounds and isinstance(asked, str) == is_text:
            ordered = sorted([*own, asked], key=lambda value: value.encode() if is_text else value)
            assert is_said == (asked in own or ordered.index(asked) not in (0, len(own)))
        else:
            assert is_said
