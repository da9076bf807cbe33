"""The hold-out: a sample that depends on the rows alone; and folds of rows of which some are equal."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learners.counts.folds import equal_rows, random_folds
from learners.counts.kernels import hash_row_contents
from learners.counts.row_samples import RESERVE, DrawnRows, HoldOut
from learners.schema import Chunk
from learners.schema.schema_growth import schema_code_maps
from tests import laws, strategies


def rows_of(chunk):
    return Counter((*chunk.x[:, row].tolist(), int(chunk.y[row])) for row in range(chunk.n_rows))


@given(drawn=strategies.chunk_lists(), capacity=st.sampled_from([1, 10, 100, 5000]))
def test_draws_a_tenth_of_rows_that_exist(drawn, capacity):
    schema, parts = drawn
    counted = laws.updated(HoldOut(schema, capacity, 0), parts)
    whole, held = rows_of(strategies.joined(parts)), rows_of(counted.draw())
    size, sampled = min(counted.n_rows // 10, capacity), counted.sample
    assert sum(held.values()) == size
    known = sum(sampled.counts.tolist()[:capacity])
    for row, n in held.items():
        assert abs(n - whole[row] * size / known) < 1, "as many as its share of the occurrences"
    for content, count in zip(sampled.rows.tolist(), sampled.counts.tolist(), strict=True):
        assert whole[tuple(content)] == count, "every occurrence of a sampled row is counted"
    assert sampled.hashes.size == min(RESERVE * capacity, len(whole))
    assert np.all(sampled.hashes[1:] >= sampled.hashes[:-1])


def test_its_size_is_that_of_the_paper():
    schema = strategies.schema_of((200, 200, 200), 2)
    for n_rows, expected in ((9, 0), (10, 1), (500, 50), (60_000, 5000)):
        counted = laws.updated(HoldOut(schema), [strategies.chunk_of(0, schema, n_rows)])
        assert counted.draw().n_rows == expected


def test_does_not_depend_on_the_type_of_the_codes_or_of_the_order():
    schema = strategies.schema_of((5, 3), 2)
    chunk = strategies.chunk_of(0, schema, 2000)
    shuffled = chunk.rows(np.random.default_rng(0).permutation(2000))
    a, b = (laws.updated(HoldOut(schema, 20, 0), [part]) for part in (chunk, shuffled))
    assert a == b
    assert np.array_equal(a.draw().x, b.draw().x)


def test_rows_are_drawn_without_regard_to_their_class():
    """Shares of classes in the hold-out are those of the data within four standard deviations."""
    schema = strategies.schema_of((200, 200, 200), 2)
    chunk = strategies.chunk_of(1, schema, 40_000, 1.1)
    held = laws.updated(HoldOut(schema), [chunk]).draw()
    share = chunk.y.mean()
    assert abs(held.y.mean() - share) < 4 * np.sqrt(share * (1 - share) / held.n_rows)


def test_frequent_and_rare_rows_are_drawn_alike():
    """Half of the rows are one of four, the others hardly ever repeat."""
    rng = np.random.default_rng(0)
    schema = strategies.schema_of((200, 200), 2)
    x = np.where(rng.random(20_000) < 0.5, rng.integers(0, 2, (2, 20_000)), rng.integers(0, 200, (2, 20_000)))
    y = rng.integers(0, 2, 20_000)
    counted = laws.updated(HoldOut(schema, 30_000), [strategies.Chunk(x.astype(np.uint8), y.astype(np.uint8))])
    held = counted.draw()
    assert held.n_rows == 2000
    assert abs(np.mean((held.x < 2).all(axis=0)) - np.mean((x < 2).all(axis=0))) < 0.002


@pytest.mark.parametrize("wide", [False, True])
def test_different_rows_have_different_hashes(wide):
    schema = strategies.schema_of((300,) * 5 if wide else (100,) * 9, 5)
    chunk = strategies.chunk_of(0, schema, 30_000)
    counted = laws.updated(HoldOut(schema, 100_000), [chunk])
    assert np.unique(counted.sample.hashes).size == len(rows_of(chunk))


@given(drawn=strategies.chunk_lists(max_size=1))
def test_hashes_are_sums_of_the_keys_of_values(drawn):
    """However many attributes share a table, and whatever the type of the codes."""
    schema, (chunk,) = drawn
    expected = schema.class_keys[chunk.y].copy()
    for attribute, codes in zip(schema.attributes, chunk.x, strict=True):
        expected += np.array(attribute.value_keys(), np.uint64)[codes]
    expected = (expected ^ (expected >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    expected = (expected ^ (expected >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    expected ^= expected >> np.uint64(31)
    hashes = np.empty(chunk.n_rows, np.uint64)
    hash_row_contents(chunk.x, chunk.y, schema.value_keys, schema.class_keys, hashes)
    assert np.array_equal(hashes, expected)


def test_a_hold_out_is_subtracted_while_enough_is_known():
    empty = HoldOut(strategies.schema_of((40, 40, 40), 2), 100, 0)
    a, b, c = (strategies.chunk_of(seed, empty.schema, 3000) for seed in range(3))
    whole, rest = laws.updated(empty, [a, b, c]), laws.updated(empty, [b, c])
    whole.subtract(laws.updated(empty, [a]))
    assert whole.is_sufficient
    assert np.array_equal(whole.draw().x, rest.draw().x) and whole.n_rows == rest.n_rows
    whole.subtract(laws.updated(empty, [b]))
    assert not whole.is_sufficient, "two thirds are gone, and twice as many rows were known as are drawn"


def test_a_larger_domain_changes_no_hash():
    small, large = strategies.schema_of((4, 3), 2), strategies.schema_of((9, 5), 3, {0})
    chunk = strategies.chunk_of(0, small, 500)
    counted = laws.updated(HoldOut(small), [chunk])
    recoded = counted.recoded(large, schema_code_maps(small, large))
    assert np.array_equal(recoded.sample.hashes, counted.sample.hashes)
    moved = type(chunk)((chunk.x + np.array([[1], [0]])).astype(np.uint8), chunk.y.copy())
    assert recoded == laws.updated(HoldOut(large), [moved])


@pytest.mark.parametrize("n_attributes", [0, 1, 3])
def test_equal_rows_are_dealt_out(n_attributes):
    x = np.random.default_rng(0).integers(0, 3, (n_attributes, 403)).astype(np.uint16)
    fold = random_folds(x, 5, 1)
    assert np.ptp(np.bincount(fold, minlength=5)) <= 1
    for row in np.unique(x, axis=1).T if n_attributes else [np.empty(0)]:
        alike = (x == row[:, np.newaxis]).all(axis=0)
        assert np.ptp(np.bincount(fold[alike], minlength=5)) <= 1
    assert np.array_equal(fold, random_folds(x, 5, 1)) and not np.array_equal(fold, random_folds(x, 5, 2))


def test_rows_known_by_heart_predict_no_coin():
    """Classes that no attribute tells of: the shares of each combination in the other folds are worse than knowing nothing."""
    random = np.random.default_rng(3)
    cell, y = np.sort(random.integers(0, 400, 4000)), random.integers(0, 2, 4000)
    order = np.lexsort((y, cell))  # as a sample has them: equal rows side by side
    cell, y = cell[order], y[order]
    fold, loss = random_folds(cell[np.newaxis].astype(np.uint16), 5, 0), 0.0
    for number in range(5):
        known = fold != number
        counts = np.ones((400, 2))
        np.add.at(counts, (cell[known], y[known]), 1)
        shares = counts / counts.sum(axis=1, keepdims=True)
        loss -= np.log(shares[cell[~known], y[~known]]).sum() / y.size
    assert loss > np.log(2)


def rows_of_classes(schema, n_of_each, seed=0):
    """A chunk with so many rows of each class, shuffled."""
    random = np.random.default_rng(seed)
    y = random.permutation(np.repeat(np.arange(len(n_of_each)), n_of_each)).astype(np.uint8)
    x = np.stack([random.integers(0, size, y.size) for size in schema.domain_sizes]).astype(schema.code_dtype)
    return Chunk(x, y)


def test_every_row_of_a_rare_class_is_drawn_and_weighs_what_its_class_counts():
    schema = strategies.schema_of((200, 200, 200), 3)
    chunk = rows_of_classes(schema, (20_000, 7, 0))
    draw = laws.updated(DrawnRows(schema, 300, 50), [chunk]).draw_by_class(300)
    assert draw.is_by_class
    rare = {row: n for row, n in rows_of(chunk).items() if row[-1] == 1}
    assert {row: n for row, n in rows_of(draw.rows).items() if row[-1] == 1} == rare
    counts = np.array([20_000, 7, 0])
    weights = draw.weights(counts)
    shares = np.bincount(draw.rows.y, weights, 3) / weights.sum()
    np.testing.assert_allclose(shares, counts / counts.sum(), rtol=1e-12)
    assert weights.mean() == pytest.approx(1)


@pytest.mark.parametrize("counts", [(3_000, 3_000), (9_000, 40)])
def test_drawn_rows_know_how_many_rows_equal_them(counts):
    """Where all classes have enough rows, and where one gives more than its share."""
    schema = strategies.schema_of((5, 4), 2)
    chunk = rows_of_classes(schema, counts)
    draw = laws.updated(DrawnRows(schema, 300, 50), [chunk]).draw_by_class(300)
    assert draw.is_by_class == (counts[1] == 40)
    of_rows = rows_of(chunk)
    content = np.column_stack([draw.rows.x.T, draw.rows.y])
    assert draw.copies.tolist() == [of_rows[tuple(row)] for row in content.tolist()]


def test_rows_that_are_equal_by_chance_are_no_copies():
    schema = strategies.schema_of((5, 4), 2)
    draw = laws.updated(DrawnRows(schema, 300, 50), [rows_of_classes(schema, (3_000, 3_000))]).draw_by_class(300)
    assert np.array_equal(draw.without_coincidences(40, 40, 300), draw.copies), (
        "each row that is read is a distinct one"
    )
    assert set(draw.without_coincidences(40, 3_000, 6_000)) == {4}, "twice the mean weight"
    assert set(draw.without_coincidences(40, 40, 6_000)) == {1}, "a table that was grouped"


def test_the_distinct_rows_of_a_table_are_estimated():
    schema = strategies.schema_of((200, 200, 200), 2)
    few, many = (laws.updated(DrawnRows(schema, 300, 50), [rows_of_classes(schema, (n, n))]) for n in (50, 5_000))
    assert few.n_distinct_of_table == 100
    assert many.n_distinct_of_table == pytest.approx(10_000, rel=0.2)


def test_a_class_gives_no_more_rows_than_its_bound():
    schema = strategies.schema_of((200, 200, 200), 2)
    draw = laws.updated(DrawnRows(schema, 300, 50), [rows_of_classes(schema, (100_000, 400))]).draw_by_class(300)
    assert np.bincount(draw.rows.y)[1] == 50


def test_rows_are_drawn_as_before_where_no_class_lacks_any():
    schema = strategies.schema_of((200, 200, 200), 2)
    chunk = rows_of_classes(schema, (3_000, 3_000))
    draw = laws.updated(DrawnRows(schema, 300, 50), [chunk]).draw_by_class(300)
    plain = laws.updated(DrawnRows(schema, 300), [chunk]).occurrences(300)
    assert not draw.is_by_class and draw.weights(np.array([3_000, 3_000])) is None
    np.testing.assert_array_equal(draw.rows.x, plain.x)


def test_rare_rows_are_found_where_frequent_rows_are_thinned():
    schema = strategies.schema_of((2, 2), 2)
    draw = laws.updated(DrawnRows(schema, 300, 50), [rows_of_classes(schema, (9_000, 40))]).draw_by_class(300)
    assert np.bincount(draw.rows.y)[1] == 40


def test_a_class_of_which_too_many_rows_were_subtracted_is_said_to_lack_them():
    schema = strategies.schema_of((200, 200, 200), 2)
    few, many = rows_of_classes(schema, (3_000, 40)), rows_of_classes(schema, (1_000, 4_000), seed=1)
    counted = laws.updated(DrawnRows(schema, 300, 50), [few, many])
    assert counted.is_sufficient
    stored = counted.from_arrow(counted.to_arrow())
    assert stored == counted and stored.is_sufficient
    counted.subtract(laws.updated(DrawnRows(schema, 300, 50), [many]))
    assert not counted.is_sufficient


@pytest.mark.parametrize("n_attributes", [0, 1, 3])
def test_copies_of_a_row_stay_together(n_attributes):
    x = np.random.default_rng(0).integers(0, 30, (n_attributes, 403)).astype(np.uint16)
    fold = random_folds(x, 5, 1, are_copies=True)
    group = equal_rows(x)
    assert all(np.unique(fold[group == one]).size == 1 for one in np.unique(group))
    assert np.unique(group).size == (np.unique(x, axis=1).shape[1] if n_attributes else 1)
    assert n_attributes < 3 or np.bincount(fold, minlength=5).min() > 50
