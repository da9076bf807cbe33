"""What a small file unpacks to is found out before it is unpacked."""

from __future__ import annotations

import contextlib
import resource
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners import memory
from learners.errors import LearnerError, SourceError
from learners.passes.delta_kernels import sum_of_lengths
from learners.passes.engine import collect
from learners.passes.footers import column_chunks
from learners.passes.page_headers import DICTIONARY_PAGE, pages_between
from learners.passes.parquet_sizes import most_together
from learners.passes.repeated_text import text_bytes
from learners.passes.source import Source
from learners.schema.summaries import ColumnSummaries

MB = 1 << 20


@pytest.fixture
def limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_limit", memory.MemoryLimit(64 * MB, tmp_path))


def classes(n: int) -> pa.Array:
    return pa.array(["a", "b"] * (n // 2))


def written(path: Path, column: pa.Array, **how: object) -> Source:
    pq.write_table(pa.table({"bomb": column, "class": classes(len(column))}), path, compression="zstd", **how)
    assert path.stat().st_size < MB
    return Source.open(path)


def long_texts(n: int, n_bytes: int) -> pa.Array:
    """Texts of one letter, without Python's objects."""
    content = pa.py_buffer(np.full(n * n_bytes, ord("x"), np.uint8))
    return pa.Array.from_buffers(
        pa.string(), n, [None, pa.py_buffer(np.arange(n + 1, dtype=np.int32) * n_bytes), content]
    )


def summarised(source: Source) -> ColumnSummaries:
    return collect(ColumnSummaries("class"), source, threads=1)


def test_a_page_that_unpacks_to_much_is_refused_by_name_before_it_is_unpacked(tmp_path: Path, limit: None) -> None:
    source = written(tmp_path / "a.parquet", long_texts(200, MB), use_dictionary=False, data_page_size=400 * MB)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(SourceError, match=r"a\.parquet: row group 0 takes 209,\d+,\d+ bytes to read column 'bomb'"):
        summarised(source)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50 * 1024


def test_a_footer_that_lies_changes_nothing(tmp_path: Path, limit: None) -> None:
    path = tmp_path / "a.parquet"
    written(path, long_texts(200, MB), use_dictionary=False, data_page_size=400 * MB)
    told = pq.read_metadata(path).row_group(0).column(0).total_uncompressed_size
    content = path.read_bytes()
    footer = content[-8 - struct.unpack("<I", content[-8:-4])[0] :]
    assert footer.count(varint(told)) == 1
    small = varint(told)[:-1] + b"\x00"  # as many bytes, and less
    path.write_bytes(content[: -len(footer)] + footer.replace(varint(told), small))
    assert pq.read_metadata(path).row_group(0).column(0).total_uncompressed_size < told / 2
    with pytest.raises(SourceError, match="bytes to read column 'bomb'"):
        summarised(Source.open(path))


def varint(number: int) -> bytes:
    """A number as Thrift's compact protocol has it."""
    return unsigned(number << 1 if number >= 0 else (-number << 1) - 1)


def unsigned(number: int) -> bytes:
    left, found = number, bytearray()
    while left >= 0x80:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])


def test_what_cannot_be_learned_from_is_not_unpacked_to_say_so(tmp_path: Path, limit: None) -> None:
    offsets, numbers = pa.array([0, 50_000_000, 50_000_001], pa.int32()), pa.repeat(0, 50_000_001)
    source = written(tmp_path / "list.parquet", pa.ListArray.from_arrays(offsets, numbers))
    dense = pa.Array.from_buffers(pa.binary(), 200, long_texts(200, MB).buffers())
    other = written(tmp_path / "bytes.parquet", dense)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for bombed, kind in ((source, "list<"), (other, "binary")):
        assert summarised(bombed).found["bomb"].arrow_type.startswith(kind)
        assert bombed.learnable() == ["class"]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50 * 1024
    with pytest.raises(SourceError, match="bytes to read column 'bomb'"):
        next(source.batches(["bomb"]))


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "zstd", "lz4", "brotli"])
def test_ordinary_files_pass(tmp_path: Path, limit: None, codec: str) -> None:
    rng = np.random.default_rng(0)
    columns = {"x": rng.normal(size=5000), "t": pa.array([f"t{i % 97}" for i in range(5000)]), "class": classes(5000)}
    for version in ("1.0", "2.0"):
        pq.write_table(
            pa.table(columns), tmp_path / "a.parquet", compression=codec, data_page_version=version, row_group_size=2000
        )
        source = Source.open(tmp_path / "a.parquet")
        assert summarised(source).n_rows == 5000
        n_bytes = source.decoded_bytes(["x", "t"])
        assert n_bytes is not None and 2000 * 8 <= n_bytes < MB


REPEATING = {"use_dictionary": False, "column_encoding": {"bomb": "DELTA_BYTE_ARRAY", "class": "PLAIN"}}


def test_text_that_repeats_what_was_before_it_is_bounded_too(tmp_path: Path, limit: None) -> None:
    source = written(tmp_path / "a.parquet", long_texts(200, MB), **REPEATING)
    n_bytes = source.decoded_bytes(["bomb"])
    assert n_bytes is not None and 200 * MB <= n_bytes < 202 * MB
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(SourceError, match="bytes to read column 'bomb'"):
        summarised(source)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50 * 1024


@given(
    texts=st.lists(st.none() | st.text("ab", max_size=6).map(lambda t: 9 * t), min_size=1, max_size=300),
    codec=st.sampled_from(["none", "snappy", "gzip", "zstd", "brotli"]),
    version=st.sampled_from(["1.0", "2.0"]),
    size=st.sampled_from([50, 1000, 1 << 20]),
    is_list=st.booleans(),
)
def test_repeated_text_is_as_long_as_told(tmp_path_factory, texts, codec, version, size, is_list) -> None:
    """The twin: all values of a column, decoded; what else the sum holds are lengths, and the bytes that are not repeated."""
    path = tmp_path_factory.mktemp("texts") / "a.parquet"
    column = pa.array([texts], pa.list_(pa.string())) if is_list else pa.array(texts, pa.string())
    name = "t.list.element" if is_list else "t"
    pq.write_table(
        pa.table({"t": column}), path, compression=codec, data_page_version=version, data_page_size=size,
        write_batch_size=7, use_dictionary=False, column_encoding={name: "DELTA_BYTE_ARRAY"},
    )  # fmt: skip
    content = path.read_bytes()
    length = struct.unpack("<I", content[-8:-4])[0]
    (chunk,) = column_chunks(content[-8 - length : -8])[0]
    with pa.OSFile(str(path)) as file:
        pages = list(pages_between(file.read_at, chunk.begin, chunk.end))
        leaf = pq.read_metadata(path).schema.column(0)
        levels = leaf.max_repetition_level, leaf.max_definition_level
        told = [text_bytes(page, chunk.codec, levels, file.read_at) for page in pages]
    decoded = sum(len(text.encode()) for text in texts if text is not None)
    assert decoded <= sum(told) <= decoded + sum(page.decoded_bytes for page in pages)


@given(
    pages=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 9)), max_size=8),
    n_values=st.integers(1, 12),
)
def test_pages_that_some_values_lie_in(pages, n_values) -> None:
    owner = [place for place, (size, _) in enumerate(pages) for _ in range(size)]
    windows = [set(owner[first : first + n_values]) for first in range(len(owner))]
    expected = max((sum(pages[place][1] for place in window) for window in windows), default=0)
    assert most_together(pages, n_values) == expected


@given(st.lists(st.integers(0, 1 << 20), max_size=400), st.binary(max_size=60))
def test_lengths_add_up_and_damage_is_noticed(lengths, noise) -> None:
    sums = sum_of_lengths(np.frombuffer(packed(lengths) + noise, np.uint8), len(lengths))
    assert sums == sum(lengths)
    cut = packed(lengths)[: len(packed(lengths)) // 2]
    assert sum_of_lengths(np.frombuffer(cut, np.uint8), len(lengths)) == -1
    assert sum_of_lengths(np.frombuffer(noise, np.uint8), 100) >= -1
    if lengths:
        assert sum_of_lengths(np.frombuffer(packed(lengths), np.uint8), len(lengths) - 1) == -1


def packed(lengths: list[int]) -> bytes:
    """The twin: DELTA_BINARY_PACKED as the format's text has it, in blocks of 128 numbers and groups of 32."""
    out = unsigned(128) + unsigned(4) + unsigned(len(lengths)) + varint(lengths[0] if lengths else 0)
    steps = [after - before for before, after in zip(lengths, lengths[1:], strict=False)]
    for at in range(0, len(steps), 128):
        block = steps[at : at + 128]
        least = min(block)
        groups = [[step - least for step in block[i : i + 32]] for i in range(0, 128, 32)]
        widths = [max((number.bit_length() for number in group), default=0) for group in groups]
        out += varint(least) + bytes(widths)
        for group, width in zip(groups, widths, strict=True):
            bits = sum(number << (i * width) for i, number in enumerate(group))
            out += bits.to_bytes(4 * width, "little") if group else b""
    return out


@given(
    n_rows=st.integers(1, 3000),
    size=st.sampled_from([200, 5000, 1 << 20]),
    dictionary=st.booleans(),
    version=st.sampled_from(["1.0", "2.0"]),
    checks=st.booleans(),
)
def test_page_headers_say_what_the_footer_sums_up(tmp_path_factory, n_rows, size, dictionary, version, checks) -> None:
    """The twin: all pages of a column hold its values, and their bytes with the headers are those of the column."""
    path = tmp_path_factory.mktemp("pages") / "a.parquet"
    table = pa.table({"t": pa.array([f"value {i % 50}" for i in range(n_rows)])})
    how = {"data_page_size": size, "use_dictionary": dictionary, "data_page_version": version, "write_batch_size": 100}
    pq.write_table(table, path, compression="snappy", write_page_checksum=checks, **how)
    content, column = path.read_bytes(), pq.read_metadata(path).row_group(0).column(0)
    begin = column.dictionary_page_offset if column.has_dictionary_page else column.data_page_offset
    pages = list(pages_between(lambda n, at: content[at : at + n], begin, begin + column.total_compressed_size))
    assert sum(page.n_values for page in pages if page.kind != DICTIONARY_PAGE) == n_rows
    assert [page.kind == DICTIONARY_PAGE for page in pages].count(True) == int(column.has_dictionary_page)
    n_headers = column.total_compressed_size - sum(page.stored_bytes for page in pages)
    assert n_headers == column.total_uncompressed_size - sum(page.decoded_bytes for page in pages)


@given(st.binary(max_size=300))
def test_no_bytes_make_the_headers_fail_otherwise(content: bytes) -> None:
    try:
        pages = list(pages_between(lambda n, at: content[at : at + n], 0, len(content)))
    except ValueError:
        return
    assert all(page.decoded_bytes >= 0 for page in pages)


@given(
    n_columns=st.integers(1, 20),
    n_groups=st.integers(1, 5),
    dictionary=st.booleans(),
    codec=st.sampled_from(["none", "snappy", "zstd"]),
)
@settings(deadline=None, max_examples=30)
def test_a_footer_places_columns_where_arrow_says(n_columns: int, n_groups: int, dictionary: bool, codec: str) -> None:
    sink = pa.BufferOutputStream()
    table = pa.table({f"c{i}": pa.array([str(n % (i + 1)) for n in range(10 * n_groups)]) for i in range(n_columns)})
    pq.write_table(table, sink, row_group_size=10, use_dictionary=dictionary, compression=codec)
    content = sink.getvalue().to_pybytes()
    length = int.from_bytes(content[-8:-4], "little")
    metadata = pq.read_metadata(pa.BufferReader(content))
    found = column_chunks(content[-8 - length : -8])
    assert len(found) == n_groups
    for g, columns in enumerate(found):
        for c, chunk in enumerate(columns):
            told = metadata.row_group(g).column(c)
            begin = told.dictionary_page_offset if told.has_dictionary_page else told.data_page_offset
            expected = (begin, begin + told.total_compressed_size, told.total_uncompressed_size, told.num_values)
            assert chunk[:4] == expected


@given(
    ticks=st.lists(st.one_of(st.none(), st.integers(-(10**15), 10**15)), min_size=1, max_size=40),
    kind=st.sampled_from(["ms", "us", "ns", "s", "date"]),
    zone=st.sampled_from([None, "Europe/Berlin"]),
    group=st.integers(1, 40),
)
@settings(deadline=None, max_examples=60)
def test_a_footer_bounds_times_as_the_rows_do(tmp_path_factory, ticks, kind, zone, group) -> None:
    is_date = kind == "date"
    values = [None if tick is None else tick % 100_000 if is_date else tick for tick in ticks]
    column = pa.array(values, pa.int32() if is_date else pa.int64())
    column = column.cast(pa.date32() if is_date else pa.timestamp(kind, zone))
    path = tmp_path_factory.mktemp("times") / "a.parquet"
    pq.write_table(pa.table({"time": column}), path, row_group_size=group)
    found, expected = Source.open(path).footer_bounds(0, "time"), pc.min_max(column)
    assert found is not None and found.n_null == column.null_count
    for told, read in ((found.least, expected["min"]), (found.greatest, expected["max"])):
        assert told.is_valid == read.is_valid
        assert not read.is_valid or told.cast(read.type).value == read.value


@given(content=st.binary(max_size=300))
def test_no_bytes_of_a_footer_do_harm(content: bytes) -> None:
    with contextlib.suppress(ValueError):
        column_chunks(content)


def test_a_damaged_footer_ends_no_process(tmp_path: Path) -> None:
    """Arrow ends the process that asks it for a codec it does not know, or for sizes that do not fit."""
    path = tmp_path / "a.parquet"
    times = pa.array(range(1000), pa.timestamp("us"))
    pq.write_table(
        pa.table({"word": ["a", "b"] * 500, "time": times, "class": classes(1000)}), path, row_group_size=100
    )
    whole = path.read_bytes()
    begin = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    random = np.random.default_rng(0)
    n_refused = 0
    for _ in range(400):
        damaged = bytearray(whole)
        damaged[random.integers(begin, len(whole) - 8)] ^= int(random.integers(1, 256))
        path.write_bytes(damaged)
        try:
            source = Source.open(path)
            source.footer_bounds(0, "time") if "time" in source.arrow_schema.names else None
            summarised(source)
        except LearnerError:
            n_refused += 1
    assert n_refused > 100
