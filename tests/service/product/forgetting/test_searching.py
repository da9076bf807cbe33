"""Searching the rows that a condition matches."""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from learners.passes.sources.source import Source, file_identity
from service.product.datasets import forgotten_rows
from service.product.datasets.forgotten_rows import count_matching_rows
from storage.datasets.forgotten import Forgotten
from storage.datasets.predicates import RowPredicate

ROWS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from([None, "a", "b", "Älter"])), min_size=1, max_size=12)


@given(ROWS, st.integers(1, 5), st.sampled_from([1, 40, 1 << 20]))
def test_batches_that_are_judged_together_count_as_each_alone(rows, group_rows, searched_bytes):
    with tempfile.TemporaryDirectory() as folder:
        user, name = zip(*rows, strict=True)
        pq.write_table(
            pa.table({"user": user, "name": pa.array(name, pa.string())}),
            f"{folder}/t.parquet",
            row_group_size=group_rows,
        )
        source, predicate = Source.open(f"{folder}/t.parquet"), RowPredicate("user = 3 OR name <> 'a'")
        forgotten = Forgotten(Path(folder) / "forgotten.json")
        before, forgotten_rows.SEARCHED_BYTES = forgotten_rows.SEARCHED_BYTES, searched_bytes
        try:
            forgotten.add(predicate.text)
            n = count_matching_rows(source, predicate, [0], forgotten)
        finally:
            forgotten_rows.SEARCHED_BYTES = before
        matches = np.array([one == 3 or other in ("b", "Älter") for one, other in rows])
        starts = range(0, len(rows), group_rows)
        of_each = {place: int(matches[start : start + group_rows].sum()) for place, start in enumerate(starts)}
    assert n == {0: int(matches.sum())}
    groups = forgotten.groups(predicate.text).get(file_identity(source.files[0]), {})
    assert groups == {place: count for place, count in of_each.items() if count}
