"""Rows kept back: a partition, the same in every pass, and stable when files come."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from learners.passes.sources.row_filter import Selection
from learners.passes.sources.source import Source, file_identity
from service.product.datasets.training_rows import Share


def held_out(source, share, seed):
    whole = Selection(source, dict.fromkeys(range(len(source.files)), ()))
    train, test = (whole.and_all([Share(share, seed, back)]).source for back in (False, True))
    return train, test


def ids_of(source):
    return [value for batch in source.batches(["id"]) for value in batch.column(0).to_pylist()]


def test_the_parts_are_a_stable_partition_of_the_expected_size(tmp_path):
    for number in range(3):
        table = pa.table({"id": range(number * 10_000, (number + 1) * 10_000)})
        pq.write_table(table, tmp_path / f"{number}.parquet", row_group_size=3_000)
    two = [str(tmp_path / "0.parquet"), str(tmp_path / "1.parquet")]
    train, test = held_out(Source.open(two), 0.2, seed=7)
    kept, back = ids_of(train), ids_of(test)
    assert sorted(kept + back) == list(range(20_000)) and ids_of(train) == kept
    assert abs(len(back) / 20_000 - 0.2) < 5 * np.sqrt(0.16 / 20_000)  # five standard deviations
    more = ids_of(held_out(Source.open([*two, str(tmp_path / "2.parquet")]), 0.2, seed=7)[1])
    assert more[: len(back)] == back
    assert ids_of(held_out(Source.open(two), 0.2, seed=8)[1]) != back


def test_parts_are_identified_and_never_taken_for_each_other(tmp_path):
    pq.write_table(pa.table({"id": range(100)}), tmp_path / "a.parquet")
    source = Source.open(str(tmp_path / "a.parquet"))
    parts = [source, *held_out(source, 0.2, 0), *held_out(source, 0.2, 1), *held_out(source, 0.3, 0)]
    assert all(part.is_identified for part in parts)
    assert len({file_identity(part.files[0]) for part in parts}) == len(parts)
    assert not held_out(Source.of_table(pa.table({"id": [1, 2]})), 0.5, 0)[0].is_identified
