"""Counts by views, against counting raw rows by the views' own cut points."""

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.counts.family_counts import Family
from learners.counts.multi_view_counts import Viewed, ViewedFamilies
from learners.counts.pairwise import PairwiseCounts
from learners.schema.encoding.column_views import Views
from tests import laws, strategies
from tests.naive import ensembles as naive
from tests.naive.counts import family_counts, pair_counts


@given(strategies.chunk_lists(max_size=3, of=strategies.grouped_schemas()), st.integers(0, 99))
@settings(max_examples=40)
def test_families_of_views_are_counted_row_by_row(drawn, seed):
    schema, parts = drawn
    views, rng = Views(schema), np.random.default_rng(seed)
    families = []
    for view in range(views.schema.n_attributes):
        others = rng.permutation(np.flatnonzero(views.attribute != views.attribute[view]))
        families.append(Family(view, tuple(others[: rng.integers(0, 3)].tolist())))
    counted = laws.updated(ViewedFamilies(views, families), parts).counts
    whole = strategies.joined(parts)
    x = naive.codes_by_views(schema, whole.x)
    assert counted.class_counts.tolist() == np.bincount(whole.y, minlength=schema.n_classes).tolist()
    for index, family in enumerate(families):
        y, parents, own, n = (part.tolist() for part in counted.cells(index))
        found = Counter(dict(zip(zip(y, map(tuple, parents), own, strict=True), n, strict=True)))
        assert found == family_counts(x, whole.y, family.attribute, family.parents)


@given(strategies.chunk_lists(max_size=3, of=strategies.grouped_schemas()))
@settings(max_examples=25)
def test_pairs_of_views_are_counted_row_by_row(drawn):
    schema, parts = drawn
    views = Views(schema, 0)
    counted = laws.updated(Viewed(views, lambda own: PairwiseCounts(own.schema)), parts).counts
    whole = strategies.joined(parts)
    x, sizes = naive.codes_by_views(schema, whole.x, 0), views.schema.domain_sizes.tolist()
    for i in range(1, len(sizes)):
        expected = pair_counts(x[i - 1], x[i], whole.y, sizes[i - 1], sizes[i], schema.n_classes)
        assert np.array_equal(counted.table(i - 1, i), expected)
