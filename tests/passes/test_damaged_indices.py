"""Indices beyond their dictionary, as damaged pages hold them: nobody reads what is in memory there."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from learners import Source, collect, encode, infer_schema
from learners.classifiers.structure import naive_bayes_structure
from learners.counts.family_counts import FamilyCounts
from learners.counts.pairwise import PairwiseCounts
from learners.errors import InvalidBuffers, LearnerError, SourceError
from learners.passes.sources.parquet import ParquetContent
from tests import strategies

TABLE = pa.table({name: ["u", "v", "w", "u"] * 5 for name in ("word", "other", "class")})


def damaged(column, index):
    """The column with another index in its fourth row."""
    indices = np.array(column.indices)
    indices[3] = index
    buffers = [None, pa.py_buffer(indices.tobytes())]
    return pa.DictionaryArray.from_buffers(column.type, len(column), buffers, column.dictionary)


@pytest.fixture(params=["other", "class"])
def broken(request, tmp_path, monkeypatch):
    """A source one of whose columns has such an index, its name, and the schema of the sound file."""
    path = tmp_path / "x.parquet"
    pq.write_table(TABLE, path)
    source = Source.open(path)
    schema = infer_schema(source, "class")
    read = ParquetContent.batches

    def batches(self, filesystem, file, row_group, columns):
        for batch in read(self, filesystem, file, row_group, columns):
            place = batch.schema.names.index(request.param)
            yield batch.set_column(place, request.param, damaged(batch.column(place), 7))

    monkeypatch.setattr(ParquetContent, "batches", batches)
    return source, request.param, schema


def test_a_statistic_refuses_them_by_file_and_column(broken):
    source, name, schema = broken
    families = naive_bayes_structure(schema.n_attributes).families()
    for statistic in (PairwiseCounts(schema), FamilyCounts(schema, families)):
        with pytest.raises(SourceError, match=rf"x\.parquet is damaged: Column '{name}': .*Restore the file"):
            collect(statistic, source)


def test_whoever_reads_rows_does_not_see_them(broken):
    source, name, _ = broken
    with pytest.raises(SourceError, match=rf"x\.parquet: column '{name}' is damaged\. Restore the file"):
        list(source.batches())
    with pytest.raises(LearnerError, match=f"'{name}'"):
        infer_schema(source, "class")


def test_columns_that_only_arrow_reads_are_looked_at_as_well():
    """Numbers in a dictionary: the kernel does not know them."""
    schema = strategies.schema_of((3,), 2)
    fine = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0, 1], pa.int32()), pa.array([1.5, 2.5]))
    for column in (pa.array(["v00000"] * 4).dictionary_encode(), pa.array([b"v00000"] * 4).dictionary_encode(), fine):
        batch = pa.RecordBatch.from_arrays([damaged(column, 7)], ["a0"])
        with pytest.raises(InvalidBuffers, match="Column 'a0'"):
            encode(batch, schema)
