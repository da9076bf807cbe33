"""Packed tables give back every term, key and variance; what an ensemble answers does not change by a bit."""

from functools import cache
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from learners import Source, drive, encode, load_model
from learners.classifiers.lookup import compilation
from learners.classifiers.lookup.kernels import LookupTables
from learners.ensembles.model import EnsembleModel
from learners.ensembles.packed_tables import GRID, are_on_grid, is_packed, pack_tables, unpack_tables
from learners.registry import recipes
from tests.support.ensembles import table_of

FORMS = {
    "dense and hashed": {},
    "hashed alone": {"DENSE_RATIO": 0, "SMALL_TABLE": 0},
    "dense alone": {"SMALL_TABLE": 1 << 22},
}


@cache
def trained(form, n_classes=2):
    classes = tuple(f"c{number}" for number in range(n_classes))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in FORMS[form].items():
            patch.setattr(compilation, name, value)
        table = table_of(900, classes=classes[:3])
        if n_classes > 3:
            column = pa.array(np.array(classes)[np.random.default_rng(0).integers(n_classes, size=900)])
            table = table.set_column(table.column_names.index("class"), "class", column)
        return drive(recipes.learner("auto", {"members": 2}, "class"), Source.of_table(table)), table


def unpacked(model):
    """The arrays as they were stored before tables were packed."""
    header, arrays = model.to_arrays()
    plain = {name: array for name, array in arrays.items() if not name.startswith("packed_")}
    plain |= {f"table_{name}": array for name, array in model._tables._asdict().items()}
    return header, plain | {f"entry_{name}": array for name, array in vars(model.entries).items()}


def rows_by_key(tables, *rows):
    """Keys of each hash table with their rows of several arrays, ascending."""
    keys = tables.key_low.astype(np.int64)
    if tables.key_high.size:
        keys |= tables.key_high.astype(np.int64) << 32
    edges = np.concatenate([[0], np.cumsum(np.bitwise_count(tables.hash_words), dtype=np.int64)])[tables.hash_starts]
    for first, last in pairwise(edges.tolist()):
        order = np.argsort(keys[first:last])
        yield [part[first:last][order] for part in (keys, *rows)]


@pytest.mark.parametrize("n_classes", [2, 3, 9])
@pytest.mark.parametrize("form", FORMS)
def test_every_term_key_and_variance_comes_back(form, n_classes):
    model, table = trained(form, n_classes)
    tables, entries = model._tables, model.entries
    header, arrays = model.to_arrays()
    assert is_packed(arrays) and not any(
        name in arrays for name in ("table_vectors", "table_key_low", "entry_spread_dense")
    )
    back = unpack_tables(arrays)
    again = LookupTables(**{name: back[f"table_{name}"] for name in LookupTables._fields})
    own_order = {"key_low", "key_high", "vectors"}
    for name in set(LookupTables._fields) - own_order:
        np.testing.assert_array_equal(getattr(again, name), getattr(tables, name), err_msg=name)
    assert [getattr(again, name).dtype for name in LookupTables._fields] == [array.dtype for array in tables]
    np.testing.assert_array_equal(back["entry_spread_dense"], entries.spread_dense)
    before = rows_by_key(tables, tables.vectors, entries.spread_vectors)
    after = rows_by_key(again, again.vectors, back["entry_spread_vectors"])
    for ours, theirs in zip(before, after, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(one, other)
    chunk = encode(table, model.schema)
    loaded = load_model(header, arrays, is_trusted=False)
    np.testing.assert_array_equal(loaded.predict_proba(chunk), model.predict_proba(chunk))
    for one, other in zip(loaded.credible_intervals(chunk), model.credible_intervals(chunk), strict=True):
        np.testing.assert_array_equal(one, other)
    hidden = encode(table.drop_columns(["a", "word"]), model.schema, with_class=False)
    np.testing.assert_array_equal(loaded.predict_proba(hidden), model.predict_proba(hidden))
    packed_again = loaded.to_arrays()[1]
    for name, array in arrays.items():
        np.testing.assert_array_equal(packed_again[name], array, err_msg=name)


def test_models_stored_before_tables_were_packed_answer_as_they_did():
    model, table = trained("dense and hashed")
    header, arrays = unpacked(model)
    chunk = encode(table, model.schema)
    for is_trusted in (True, False):
        loaded = load_model(header, arrays, is_trusted=is_trusted)
        np.testing.assert_array_equal(loaded.predict_proba(chunk), model.predict_proba(chunk))


def test_packed_tables_take_less():
    model, _ = trained("hashed alone", 9)
    codec = pa.Codec("zstd", 6)
    sizes = [
        sum(
            len(codec.compress(np.ascontiguousarray(array).tobytes()))
            for name, array in arrays.items()
            if array.size and name.startswith(("table_", "entry_", "packed_"))
        )
        for _, arrays in (unpacked(model), model.to_arrays())
    ]
    assert sizes[1] < 0.8 * sizes[0], sizes


@pytest.mark.parametrize("change", [0.3 / float(GRID), np.nan, -np.inf, 1e6])
def test_terms_that_are_not_on_the_grid_are_stored_as_they_are(change):
    model, table = trained("hashed alone")
    vectors = model._tables.vectors.copy()
    vectors[0, 0] += np.float32(change)
    tables = model._tables._replace(vectors=vectors)
    assert are_on_grid(model._tables) and not are_on_grid(tables)
    moved = EnsembleModel(
        model.schema, model.class_counts, tables, model.entries, model.joints, model.correction, model.facts
    )
    header, arrays = moved.to_arrays()
    assert not is_packed(arrays)
    loaded = load_model(header, arrays)
    chunk = encode(table, model.schema)
    np.testing.assert_array_equal(loaded.predict_proba(chunk), moved.predict_proba(chunk))


def test_keys_beyond_32_bits_are_packed():
    model, _ = trained("hashed alone")
    tables, entries = model._tables, model.entries
    high = np.zeros(tables.key_low.size, np.uint32)
    wide = tables._replace(key_high=high)
    packed = [pack_tables(one, entries.spread_dense, entries.spread_vectors) for one in (tables, wide)]
    for name, array in packed[0].items():
        np.testing.assert_array_equal(packed[1][name], array, err_msg=name)
