"""Cut points of many members in one schema."""

import numpy as np
import pyarrow as pa

from learners import Source, collect, encode
from learners.ensembles.cuts import (
    ensemble_schema,
    member_parent_grouping_index,
    member_value_grouping_index,
    n_members_with_cuts,
)
from learners.passes.column_summaries import ColumnSummaries
from learners.schema.encoding.column_views import Views


def test_each_member_sees_numbers_by_its_own_cut_points():
    """Columns of 2 to more than 255 cut points side by side."""
    random, n, n_members = np.random.default_rng(0), 4000, 24
    columns = {
        "a real": random.normal(size=n),
        "few": random.integers(0, 3, n).astype(float),
        "some": random.integers(0, 40, n) / 4,
    }
    rows = pa.table(columns | {"class": np.where(columns["a real"] > 0.3, "yes", "no")})
    schema = ensemble_schema(collect(ColumnSummaries("class"), Source.of_table(rows)), n_members, 0)
    assert n_members_with_cuts(schema) == n_members
    sizes = [len(attribute.cuts) for attribute in schema.attributes]
    assert sizes[0] > 255 and sizes[1] == 2 and 2 < sizes[2] < 40
    views = Views(schema)
    x = views.chunk(encode(rows, schema)).x
    differing = set()
    for i, numbers in enumerate(columns.values()):
        for grouping in (
            0,
            *(of(m) for m in range(n_members) for of in (member_value_grouping_index, member_parent_grouping_index)),
        ):
            view = views.of(i, grouping)
            cuts = views.schema.attributes[view].cuts
            assert np.array_equal(x[view], np.searchsorted(cuts, numbers)), (i, grouping)
            differing.add((i, cuts))
    assert sum(i == 0 for i, _ in differing) > n_members, "members differ"
