"""Hypothesis strategies: schemas, chunks of codes, and small Arrow tables."""

import datetime
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st

from learners.schema import Attribute, Chunk, Schema

# Around the edges of words (64 rows), of the blocks of kernels (256, 1024, 4096 rows), and nothing at all.
N_ROWS = (0, 1, 2, 7, 63, 64, 65, 127, 200, 256, 257, 1023, 1025, 4097)
SMALL_DOMAINS = (1, 2, 3, 4, 5, 8, 16, 17, 64, 65, 100)
WIDE_DOMAINS = (2, 3, 65, 255, 256, 257, 300, 1000)
# Around the edges of uint8 codes.
CUT_POINTS = (2, 5, 253, 254, 255, 256, 700)
CLASSES = (2, 3, 254, 255, 256, 300)


def up_to(n, n_of_faults):
    """Numbers from 0 for `parametrize`: n of them for `make test`, and the others, up to n_of_faults, for `make faults`."""
    return [*range(n), *(pytest.param(i, marks=pytest.mark.faults) for i in range(n, n_of_faults))]


def schema_of(sizes, n_classes, missing=()):
    """Nominal attributes a0, a1, … of the given domain sizes; those in `missing` have their missing code among them."""

    def attribute(i, size):
        has_missing = i in missing and size > 1
        values = tuple(f"v{v:05d}" for v in range(size - has_missing))
        return Attribute(f"a{i}", "nominal", values, has_missing=has_missing)

    attributes = tuple(attribute(i, size) for i, size in enumerate(sizes))
    return Schema(attributes, "class", tuple(f"c{k:03d}" for k in range(n_classes)))


def chunk_of(seed, schema, n_rows, skew=1.0):
    """Codes that depend on the class; with a skew, few values are frequent."""
    rng = np.random.default_rng(seed)
    y = np.floor(schema.n_classes * rng.random(n_rows) ** skew).astype(np.int64)
    x = np.empty((schema.n_attributes, n_rows), schema.code_dtype)
    for i, size in enumerate(schema.domain_sizes.tolist()):
        drawn = np.floor(size * rng.random(n_rows) ** skew).astype(np.int64)
        copied = rng.random(n_rows) < 0.3
        x[i] = np.where(copied, y, drawn) % size
    return Chunk(x, y.astype(schema.code_dtype))


def grouped_schema_of(seed, n_cuts, n_classes, n_groupings=3, few=6, missing=()):
    """Numeric attributes a0, a1, … of so many cut points, each with groupings of at most `few` of them; those in `missing` have nulls."""
    rng = np.random.default_rng(seed)

    def grouping(n):
        return tuple(np.sort(rng.permutation(n)[: rng.integers(0, few + 1)]).tolist())

    attributes = tuple(
        Attribute(
            f"a{i}",
            "numeric",
            cuts=tuple((np.arange(n) / 4).tolist()),
            has_missing=i in missing,
            groupings=tuple(grouping(n) for _ in range(n_groupings)),
        )
        for i, n in enumerate(n_cuts)
    )
    return Schema(attributes, "class", tuple(f"c{k:03d}" for k in range(n_classes)))


@st.composite
def grouped_schemas(draw):
    """Schemas as those of ensembles: 2 to 700 cut points of a column beside a word; few values in a view and up to 300 classes, or the reverse."""
    n_cuts = draw(st.lists(st.sampled_from(CUT_POINTS), min_size=1, max_size=3))
    few = draw(st.sampled_from((2, 6, 300)))
    n_classes = draw(st.sampled_from(CLASSES if few < 300 else CLASSES[:2]))
    missing = draw(st.sets(st.integers(0, len(n_cuts) - 1)))
    schema = grouped_schema_of(draw(st.integers(0, 99)), n_cuts, n_classes, 3, few, missing)
    word = schema_of([draw(st.sampled_from((2, 5, 300)))], 2).attributes[0]
    return replace(schema, attributes=(*schema.attributes, replace(word, name="word")))


@st.composite
def schemas(draw, wide=None, max_attributes=5, max_classes=5):
    """Schemas of nominal attributes; `wide` ones need uint16 codes and may have sparse families."""
    wide = draw(st.booleans()) if wide is None else wide
    domains = st.sampled_from(WIDE_DOMAINS if wide else SMALL_DOMAINS)
    sizes = draw(st.lists(domains, min_size=1, max_size=max_attributes))
    if wide:
        sizes.append(300)
    missing = draw(st.sets(st.integers(0, len(sizes) - 1)))
    return schema_of(sizes, draw(st.integers(1, max_classes)), missing)


@st.composite
def chunks(draw, schema):
    """A chunk of a schema, possibly without rows."""
    seed, n_rows = draw(st.integers(0, 2**32 - 1)), draw(st.sampled_from(N_ROWS))
    return chunk_of(seed, schema, n_rows, draw(st.sampled_from((1.0, 3.0))))


@st.composite
def chunk_lists(draw, wide=None, max_size=4, of=None):
    """(schema, list of chunks), of a given schema or of any."""
    schema = draw(schemas(wide) if of is None else of)
    return schema, draw(st.lists(chunks(schema), min_size=1, max_size=max_size))


def table_of(schema, parts):
    """The raw table that encodes to the chunks."""
    x = np.concatenate([part.x for part in parts], axis=1)
    y = np.concatenate([part.y for part in parts])
    columns = {}
    for attribute, codes in zip(schema.attributes, x, strict=True):
        values = pa.array([None] * attribute.has_missing + list(attribute.values), pa.string())
        columns[attribute.name] = values.take(pa.array(codes.astype(np.int64)))
    return pa.table(columns | {schema.target: pa.array(schema.classes).take(pa.array(y.astype(np.int64)))})


def extended(schema):
    """The schema with a value and a class before and after those there are, and missing values where there were none."""
    attributes = tuple(
        replace(attribute, values=("", *attribute.values, "~") if attribute.values else (), has_missing=True)
        for attribute in schema.attributes
    )
    return replace(schema, attributes=attributes, classes=("", *schema.classes, "~"))


def recoded(chunk, maps):
    """The chunk by the schema that `maps` lead to, of which the codes fit uint16."""
    x = np.stack([codes[own] for codes, own in zip(maps.attributes, chunk.x, strict=True)]).astype(np.uint16)
    return Chunk(x, maps.classes[chunk.y].astype(x.dtype))


def joined(parts):
    """Several chunks, or several record batches, as one."""
    if isinstance(parts[0], pa.RecordBatch):
        return pa.Table.from_batches(parts).combine_chunks().to_batches()[0]
    x = np.ascontiguousarray(np.concatenate([part.x for part in parts], axis=1))
    return Chunk(x, np.concatenate([part.y for part in parts]))


def column_values():
    """(Arrow type, strategy of its values), with nulls, NaN and infinities."""
    words = st.sampled_from(["", "a", "b", "ä", "a b", "NaN", "None"])
    numbers = st.one_of(
        st.sampled_from([0.0, -0.0, 1.5, 2.0, float("nan"), float("inf"), float("-inf"), 1e308, 5e-324]),
        st.floats(-10, 10, width=32),
    )
    moments = st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2200, 1, 1))
    return st.sampled_from(
        [
            (pa.string(), words),
            (pa.large_string(), words),
            (pa.dictionary(pa.int8(), pa.string()), words),
            (pa.bool_(), st.booleans()),
            (pa.uint8(), st.integers(0, 255)),
            (pa.int8(), st.integers(-128, 127)),
            (pa.int64(), st.one_of(st.integers(-3, 3), st.integers(-(2**53), 2**53))),
            (pa.float64(), numbers),
            (pa.float32(), numbers),
            (pa.timestamp("us"), moments),
            (pa.date32(), st.dates(datetime.date(1900, 1, 1), datetime.date(2200, 1, 1))),
        ]
    )


@st.composite
def tables(draw, min_rows=1, max_rows=60, max_columns=4):
    """Small tables with a class column named "class" of at least two values; the other columns may be anything."""
    n_rows = draw(st.integers(max(2, min_rows), max_rows))
    columns = {}
    for i in range(draw(st.integers(1, max_columns))):
        kind, values = draw(column_values())
        pool = draw(st.lists(st.one_of(st.none(), values), min_size=1, max_size=6))
        rows = draw(st.lists(st.sampled_from(pool), min_size=n_rows, max_size=n_rows))
        columns[f"x{i}"] = pa.array(rows, kind)
    labels = draw(st.sampled_from([["yes", "no"], [0, 1, 7], [False, True], ["", "a", "b"]]))
    classes = labels[:2] + draw(st.lists(st.sampled_from(labels), min_size=n_rows - 2, max_size=n_rows - 2))
    return pa.table(columns | {"class": classes})


@st.composite
def batch_lists(draw, of=None):
    """A table, any or of the given ones, cut into record batches at arbitrary places."""
    table = draw(tables() if of is None else of)
    cuts = sorted(draw(st.lists(st.integers(0, table.num_rows), max_size=3)))
    edges = [0, *cuts, table.num_rows]
    return [
        batch
        for low, high in zip(edges, edges[1:], strict=False)
        for batch in table.slice(low, high - low).combine_chunks().to_batches()
    ]
