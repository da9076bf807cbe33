"""One encoding, several readings."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from learners.schema import Attribute, Schema
from learners.schema.encoding.column_views import Views
from learners.schema.encoding.encode import encode

CUTS = (-1.0, 0.5, 2.0, 3.5, 8.0)


@given(
    st.sampled_from([5, 254, 255, 256, 700]),
    st.lists(st.sets(st.integers(0, 699), max_size=300), min_size=1, max_size=4),
    st.booleans(),
    st.lists(st.one_of(st.none(), st.floats(-3, 10), st.floats(-3, 710)), min_size=1, max_size=30),
)
def test_a_view_is_what_its_own_schema_would_encode(n_cuts, groupings, has_missing, numbers):
    cuts = (*CUTS, *(8.5 + i for i in range(n_cuts - len(CUTS))))
    sorted_groupings = tuple(tuple(sorted({position % n_cuts for position in positions})) for positions in groupings)
    wide = Attribute("x", "numeric", cuts=cuts, has_missing=has_missing, groupings=sorted_groupings)
    word = Attribute("w", "nominal", ("a", "b"))
    schema = Schema((wide, word), "class", ("p", "q"))
    words = pa.array(["a" if i % 3 else "z" for i in range(len(numbers))])
    rows = pa.table({"x": pa.array(numbers, pa.float64()), "w": words})
    views = Views(schema)
    chunk = views.chunk(encode(rows, schema))
    for number, grouping in enumerate(sorted_groupings):
        own = replace(wide, cuts=tuple(cuts[position] for position in grouping), groupings=())
        expected = encode(rows, replace(schema, attributes=(own, word))).x
        assert np.array_equal(chunk.x[views.of(0, number)], expected[0])
    assert np.array_equal(chunk.x[views.of(1, 3)], encode(rows, schema).x[1])
    assert Schema.from_json(schema.to_json()) == schema
    assert Views(schema, 0).schema.n_attributes == 2
