"""The generated table of orders has the shape that benchmarks say it has."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import real_tables


def test_the_table_has_skewed_texts_nulls_and_rare_classes():
    rows = real_tables.arrow_table(20_000, np.random.default_rng(1))
    assert rows.equals(real_tables.arrow_table(20_000, np.random.default_rng(1))), "one seed, one table"
    texts = [field.name for field in rows.schema if pa.types.is_string(field.type) and field.name != "outcome"]
    assert len(texts) == 21
    assert rows.num_columns == 41
    shares = np.array([pc.sum(pc.equal(rows["outcome"], name)).as_py() for name in real_tables.CLASSES]) / 20_000
    np.testing.assert_allclose(shares, real_tables.SHARES, atol=0.02)
    assert pc.count_distinct(rows["shop"]).as_py() > 3000
    assert all(0 < rows[name].null_count < 20_000 for name in real_tables.NULLS)
