"""MDL cut points against Fayyad and Irani's recursion, and histograms against sorting."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learners.errors import StatisticMismatch
from learners.schema import discretise
from learners.schema.discretise import (
    Histogram,
    Tally,
    equal_frequency_cut_points,
    floats_from_ordered_keys,
    mdl_cut_points,
    ordered_keys_from_floats,
)
from learners.schema.schema_inference import Column
from tests.naive import discretise as naive
from tests.naive.counts import numbers_by_class

any_number = st.floats(allow_nan=False)


def histogram_of(values, labels, n_classes=None):
    labels = np.asarray(labels, np.int64)
    return Histogram.of(np.asarray(values, np.float64), labels, n_classes or int(labels.max(initial=0)) + 1)


def as_counter(histogram):
    return {
        (float(floats_from_ordered_keys(key << histogram.level)), k): int(n)
        for key, row in zip(histogram.keys, histogram.counts, strict=True)
        for k, n in enumerate(row)
        if n
    }


@st.composite
def labelled_values(draw):
    """Values that tell the classes apart more or less."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    n, n_classes = draw(st.sampled_from([1, 2, 3, 20, 150, 600])), draw(st.integers(1, 4))
    labels = rng.integers(0, n_classes, n)
    noise = draw(st.sampled_from([0.01, 0.5, 2.0]))
    decimals = draw(st.sampled_from([0, 1, 6]))
    return np.round(labels * draw(st.sampled_from([0.0, 1.0, 3.0])) + noise * rng.standard_normal(n), decimals), labels


@given(labelled_values())
def test_cut_points_are_those_of_the_recursion(drawn):
    values, labels = drawn
    expected = naive.mdl_cuts((values + 0.0).tolist(), labels.tolist())
    assert mdl_cut_points(histogram_of(values, labels)) == pytest.approx(expected)


def test_nothing_to_cut():
    assert mdl_cut_points(Histogram.empty(2)) == ()
    assert mdl_cut_points(histogram_of([1.0] * 9, [0, 1, 0] * 3)) == ()
    assert mdl_cut_points(histogram_of([1, 2, 3, 4], [0, 0, 0, 0], 2)) == ()
    rng = np.random.default_rng(0)
    assert mdl_cut_points(histogram_of(rng.random(2000), rng.integers(0, 2, 2000))) == ()


def test_a_class_number_far_above_those_present_does_not_overflow():
    labels = np.repeat([3, 250], 50)
    assert mdl_cut_points(histogram_of(np.arange(100), labels, 256)) == (49.5,)
    labels = np.repeat(np.arange(200), 30)
    assert len(mdl_cut_points(histogram_of(np.arange(6000), labels, 256))) == pytest.approx(199, abs=30)


@given(st.lists(any_number, min_size=1, max_size=30))
def test_keys_are_ordered_as_the_numbers_are_and_give_them_back(values):
    x = np.array(values) + 0.0
    keys = ordered_keys_from_floats(x)
    assert np.array_equal(floats_from_ordered_keys(keys), x)
    assert np.array_equal(np.argsort(keys, kind="stable"), np.argsort(x, kind="stable"))
    assert ordered_keys_from_floats(np.array([0.0]))[0] == ordered_keys_from_floats(np.array([-0.0]))[0]


@given(st.lists(st.tuples(any_number, st.integers(0, 2)), max_size=60))
def test_a_histogram_counts_every_value(pairs):
    values, labels = [value + 0.0 for value, _ in pairs], [label for _, label in pairs]
    histogram = histogram_of(values, labels, 3)
    assert histogram.level == 0
    assert as_counter(histogram) == Counter(zip(values, labels, strict=True))
    thresholds = histogram.thresholds()
    distinct = sorted(set(values))
    assert thresholds.size == max(len(distinct) - 1, 0)
    for cut, low, high in zip(thresholds, distinct, distinct[1:], strict=False):
        assert low <= cut < high


TALLIED = st.floats(width=64) | st.sampled_from([0.0, -0.0, 1.0, -1.0, np.nan, np.inf, -np.inf])


@given(parts=st.lists(st.lists(st.tuples(TALLIED, st.integers(0, 3)), max_size=40), max_size=4))
def test_a_tally_counts_what_counting_row_by_row_does(parts):
    """The classes of a part are those that were seen so far, so that there may be more of them from part to part."""
    counted, n_missing, n_classes = Tally(), 0, 1
    for part in parts:
        x, y = np.array([number for number, _ in part], np.float64), np.array([k for _, k in part], np.int64)
        n_classes = max([n_classes, *(int(k) + 1 for k in y)])
        n_missing += counted.add(x, y, n_classes)
    rows = [row for part in parts for row in part]
    assert n_missing == sum(number != number for number, _ in rows)
    expected = numbers_by_class([number for number, _ in rows], [k for _, k in rows])
    assert as_counter(counted.histogram()) == expected


@pytest.mark.parametrize("max_bins", [16, 300, 1000])
@given(seed=st.integers(0, 10**6), n=st.sampled_from([0, 1, 300, 5000]), n_parts=st.integers(1, 5))
def test_coarser_histograms_depend_on_the_values_alone(max_bins, seed, n, n_parts):
    """Any partition and order gives the same bins, bit for bit, tallied or not, and the level is the least that fits."""
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal(n) * 10.0 ** rng.integers(-3, 9), rng.integers(0, 3, n)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(discretise, "MAX_BINS", max_bins)
        whole = histogram_of(x, y, 3)
        place = rng.integers(0, n_parts, n)
        parts = [histogram_of(x[place == p], y[place == p], 3) for p in range(n_parts)]
        for order in (parts, parts[::-1]):
            merged = Histogram.empty(3)
            for part in order:
                merged = merged.merge(part)
            assert (merged.level, merged.keys.tolist()) == (whole.level, whole.keys.tolist())
            assert np.array_equal(merged.counts, whole.counts)
        column = Column()
        for p in range(n_parts):
            column.add_numbers(x[place == p], y[place == p], 3)
            if rng.random() < 0.3:
                assert column.histogram.counts.sum() <= n  # merged in between, as passes on threads are
        found = column.histogram
        assert (found.level, found.keys.tolist()) == (whole.level, whole.keys.tolist())
        assert np.array_equal(found.widened(3).counts, whole.counts)
    assert whole.keys.size <= max_bins and whole.counts.sum() == n
    if whole.level:
        assert histogram_of(x, y, 3).at_level(whole.level - 1).keys.size > max_bins


def test_coarse_bins_find_the_cut_points_within_their_width():
    """With 65,536 bins instead of 200,000 values the cut points move by less than a thousandth of the range."""
    rng = np.random.default_rng(3)
    y = rng.integers(0, 3, 200_000)
    x = y + 0.3 * rng.standard_normal(200_000)
    coarse, order = histogram_of(x, y), np.argsort(x)
    assert coarse.level > 0
    exact = Histogram(ordered_keys_from_floats(x[order]), np.eye(3, dtype=np.int64)[y[order]])
    assert mdl_cut_points(coarse) == pytest.approx(mdl_cut_points(exact), abs=2e-3)


def test_cut_points_next_to_infinities_are_finite_and_separate():
    values = [-np.inf] * 30 + [0.0] * 30 + [np.inf] * 30
    low, high = mdl_cut_points(histogram_of(values, np.repeat([0, 1, 0], 30)))
    assert -np.inf < low < 0.0 <= high < np.inf


@given(st.lists(any_number, max_size=80), st.integers(2, 9))
def test_equal_frequency_intervals_are_about_equal(values, n_bins):
    cuts = equal_frequency_cut_points(histogram_of(values, [0] * len(values), 1), n_bins)
    assert len(cuts) <= n_bins - 1
    assert list(cuts) == sorted(set(cuts))
    x = np.array(values)
    most_common = max(Counter((x + 0.0).tolist()).values(), default=0)
    shares = np.bincount(np.searchsorted(cuts, x), minlength=len(cuts) + 1)
    if x.size:
        assert shares.max() <= x.size / n_bins + most_common and shares.min() > 0


def test_what_is_subtracted_of_an_exact_histogram_was_counted():
    x, y = np.array([1.0, 2.0, 2.0, 5.0]), np.array([0, 1, 0, 1])
    whole, part = Histogram.of(x, y, 2), Histogram.of(x[2:], y[2:], 2)
    left = whole.without(part)
    assert left.keys.tolist() == Histogram.of(x[:2], y[:2], 2).keys.tolist()
    assert left.counts.tolist() == [[1, 0], [0, 1]]
    for other in (np.array([7.0]), np.array([1.0, 1.0])):
        with pytest.raises(StatisticMismatch, match="Cannot subtract numbers that were never counted"):
            whole.without(Histogram.of(other, np.zeros(other.size, np.int64), 2))
