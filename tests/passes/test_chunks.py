"""Rows gathered into larger chunks are those of the batches, whatever their sizes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learners.counts.families.family_counts import Family, FamilyCounts
from learners.counts.pairs.pairwise import PairwiseCounts
from learners.counts.samples.holdout import HoldOut
from learners.errors import SchemaError, UnknownColumn
from learners.passes import chunks as chunks_module
from learners.passes import engine
from learners.passes.chunks import Chunks
from learners.passes.combined import Together
from learners.passes.sources.source import Source
from learners.schema.encoding.encode import Encoder, encode
from learners.schema.inference.summaries import ColumnSummaries
from tests.passes.test_engine import folder, table_of  # noqa: F401  (a fixture)


def schema_of(table):
    summaries = ColumnSummaries("class", {"number": {"kind": "numeric", "cuts": [0.5, 1.5]}})
    for batch in table.to_batches():
        summaries.update(batch)
    return summaries.build_schema()


TABLE = table_of(900).select(["number", "word", "small", "flag", "class"])
SCHEMA = schema_of(TABLE)


@given(edges=st.lists(st.integers(0, 900), max_size=8), n_rows=st.sampled_from([1, 7, 100, 900, 5000]))
def test_every_row_is_in_one_chunk(edges, n_rows):
    filled = Chunks(Encoder(SCHEMA), n_rows)
    found = []
    for first, last in zip([0, *sorted(edges)], [*sorted(edges), 900], strict=True):
        batch = TABLE.slice(first, last - first).combine_chunks().to_batches()
        found += [kept(chunk) for one in batch for chunk in filled.add(one, "a file")]
    assert all(y.size == n_rows for _, y in found)
    found += [kept(chunk) for chunk in filled.rest()]
    assert not list(filled.rest())
    whole = encode(TABLE, SCHEMA)
    assert np.array_equal(np.concatenate([x for x, _ in found], axis=1), whole.x)
    assert np.concatenate([y for _, y in found]).tolist() == whole.y.tolist()


def kept(chunk):
    """Copies: the next chunk may be written where this one is."""
    assert chunk.x.flags.c_contiguous and not chunk.x.flags.writeable
    return chunk.x.copy(), chunk.y.copy()


def test_chunks_share_their_room():
    filled = Chunks(Encoder(SCHEMA), 300)
    rooms = {chunk.x.ctypes.data for batch in TABLE.to_batches() for chunk in filled.add(batch, "a file")}
    assert len(rooms) == 1


def test_large_tables_get_many_rows_at_a_time(monkeypatch):
    encoder = Encoder(SCHEMA)
    pairs, rows = PairwiseCounts(SCHEMA), HoldOut(SCHEMA)
    assert Chunks.for_statistic(encoder, pairs).n_rows == 0
    monkeypatch.setattr(chunks_module, "MANY_CELLS", pairs.n_cells)
    assert Chunks.for_statistic(encoder, pairs).n_rows == chunks_module.MOST_ROWS
    assert Chunks.for_statistic(encoder, Together(rows, pairs)).n_rows == chunks_module.MOST_ROWS
    assert Chunks.for_statistic(encoder, rows).n_rows == 0
    monkeypatch.setattr(chunks_module, "MOST_BYTES", 100_000)  # a wide table has few rows in as much memory
    assert Chunks.for_statistic(encoder, pairs).n_rows == 0


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("n_rows", [1, 350, 1000, 10_000])
def test_a_pass_counts_the_same_in_chunks_of_any_size(folder, n_rows, threads, monkeypatch):  # noqa: F811
    source = Source.open([folder])
    schema = schema_of(source_table(source))
    families = [Family(0), Family(1, (0, 2)), Family(2, (1,)), Family(3)]
    made = Together(Together(PairwiseCounts(schema), FamilyCounts(schema, families)), HoldOut(schema))
    whole = engine.collect(made, source, threads=threads)
    monkeypatch.setattr(Chunks, "for_statistic", classmethod(lambda cls, encoder, _: cls(encoder, n_rows)))
    assert engine.collect(made, source, threads=threads) == whole
    assert whole.first.first.n_rows == source.n_rows


def source_table(source):
    columns = ["number", "word", "small", "flag", "class"]
    parts = [pa.Table.from_batches(source.read(fragment, columns)) for fragment in source.fragments]
    return pa.concat_tables([part.cast(pa.schema([*map(plain, part.schema)])) for part in parts])


def plain(field):
    return field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field


def test_bad_rows_are_refused_where_they_are():
    filled = Chunks(Encoder(SCHEMA), 1000)
    list(filled.add(TABLE.to_batches()[0], "a.parquet"))
    strange = TABLE.slice(0, 3).to_batches()[0]
    unknown = strange.set_column(1, "word", pa.array(["w0", "never", "w1"]))
    with pytest.raises(SchemaError, match=r"b\.parquet: column 'word' holds 'never'"):
        list(filled.add(unknown, "b.parquet"))
    nameless = strange.set_column(4, "class", pa.array(["a", "b", None]))
    with pytest.raises(SchemaError, match=r"b\.parquet: The class 'class' of a row is null"):
        list(filled.add(nameless, "b.parquet"))
    with pytest.raises(UnknownColumn, match="'flag' is not in the table"):
        list(filled.add(strange.drop_columns(["flag"]), "b.parquet"))
