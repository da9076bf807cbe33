"""Trees read at every level, with and without a row."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.classifiers.estimates.context_tree import context_tree_from_cells
from learners.classifiers.lookup.compilation import compile_lookup_tables
from learners.classifiers.lookup.look_up_tables import fill_class_log_joints
from learners.counts.family_counts import Family, FamilyCounts
from learners.ensembles.levels import Levels
from learners.ensembles.pool import PooledFamilies
from learners.schema import Chunk
from tests import strategies
from tests.naive import ensembles as naive


def counted(seed, sizes, n_classes, n_rows):
    """Rows whose first attribute depends on the others, and the counts of its family."""
    schema = strategies.schema_of(sizes, n_classes)
    chunk = strategies.chunk_of(seed, schema, n_rows, 2.0)
    family = Family(0, tuple(range(1, len(sizes))))
    counts = FamilyCounts(schema, [family])
    counts.update(chunk)
    return schema, chunk, family, counts


def levels_of(counts, n_values):
    sizes = counts.schema.domain_sizes[list(counts.families[0].parents)]
    return Levels.solved(context_tree_from_cells(*counts.cells(0), n_values), sizes)


SIZES = st.lists(st.integers(2, 4), min_size=1, max_size=4) | st.sampled_from(
    [[701, 3, 5], [3, 701, 2], [2, 2, 256, 255], [254, 255]]
)
N_CLASSES = st.sampled_from([2, 3, 254, 255, 256, 300])


def with_missing(seed, schema, chunk, share):
    """The rows with some codes but those of the first attribute missing."""
    x = chunk.x.copy()
    is_missing = np.random.default_rng(seed).random(x[1:].shape) < share
    x[1:] = np.where(is_missing, schema.domain_sizes[1:, np.newaxis], x[1:])
    return Chunk(x, chunk.y)


def path_of(schema, family, x, row, label):
    """Class and parents of a row, None for a missing one."""
    sizes = schema.domain_sizes
    return (label, *(int(x[p, row]) if x[p, row] < sizes[p] else None for p in family.parents))


@pytest.mark.parametrize("missing", [None, 0.0, 0.4])
@given(st.integers(0, 10**6), SIZES, N_CLASSES, st.sampled_from([5, 1, 40]))
@settings(max_examples=20)
def test_every_level_is_as_defined(missing, seed, sizes, n_classes, n_rows):
    """With the row left out, or (`missing`, a share of the parents' codes) of other rows."""
    schema, chunk, family, counts = counted(seed, sizes, n_classes, n_rows)
    leave_out = missing is None
    if not leave_out:
        chunk = with_missing(seed, schema, strategies.chunk_of(seed + 1, schema, n_rows, 2.0), missing)
    levels = levels_of(counts, sizes[0])
    k = len(family.parents)
    log_p = np.empty((n_rows, k + 1, n_classes), np.float32)
    levels.log_probabilities(family, chunk, log_p, leave_out)
    rows = naive.tree_of(*counts.cells(0))
    customers = naive.customers_of(levels.tree, levels.arrays.customers)
    random = np.random.default_rng(seed)
    for row in random.permutation(n_rows)[:12]:
        for label in {int(chunk.y[row]), *random.integers(0, n_classes, 4).tolist()}:
            path = path_of(schema, family, chunk.x, row, label)
            for j in range(k + 1):
                expected = naive.log_probability(
                    rows, customers, levels.arrays.concentration[1:], sizes[0], int(chunk.x[0, row]), path, j,
                    leave_out and label == chunk.y[row],
                )  # fmt: skip
                assert log_p[row, j, label] == pytest.approx(expected, abs=2e-5)


def test_leaving_a_row_out_is_close_to_learning_without_it():
    """The concentrations stay and tables leave in expectation, so log p is off by a little: 0.02 nats in the mean here."""
    errors = []
    for seed in range(3):
        schema, chunk, family, counts = counted(seed, [3, 3, 2], 2, 120)
        levels = levels_of(counts, 3)
        log_p = np.empty((chunk.n_rows, 3, 2), np.float32)
        levels.log_probabilities(family, chunk, log_p, True)
        for row in range(0, chunk.n_rows, 6):
            rest = FamilyCounts(schema, [family])
            rest.update(chunk.rows(np.arange(chunk.n_rows) != row))
            one = chunk.rows(slice(row, row + 1))
            without = np.empty((1, 3, 2), np.float32)
            levels_of(rest, 3).log_probabilities(family, one, without, False)
            label = int(chunk.y[row])
            errors.append(np.abs(log_p[row, :, label] - without[0, :, label]))
    assert np.mean(errors) < 0.02
    assert np.max(errors) < 0.25


@pytest.mark.parametrize("form", ["dense", "hashed"])
@pytest.mark.parametrize(
    ("sizes", "n_classes"), [([3, 3, 2], 3), ([4, 3, 2, 3], 2), ([701, 3, 5], 2), ([3, 701, 2], 3), ([2, 3, 2], 300)]
)
@pytest.mark.parametrize("is_averaged", [True, False])
def test_weighted_estimates_are_as_defined(sizes, n_classes, form, is_averaged):
    """Through the look-up form: a log p_0 + b (log p - log p_0), also of rows whose parents are missing.

    Tables of before 25 November 2026 have no averages: a missing parent is a context that training never saw.
    """
    schema, _chunk, family, counts = counted(3, sizes, n_classes, 90)
    levels = levels_of(counts, sizes[0])
    a, b = 0.7, 1.3
    weighted = levels.weighted(a, b)
    tables = compile_lookup_tables(
        schema,
        PooledFamilies((0,), (family.parents,)),
        counts.class_counts,
        [levels.tree],
        [weighted if is_averaged else weighted._replace(averaged=None)],
        most_dense=0 if form == "hashed" else 1 << 26,
    )
    assert (tables.dense_starts[0] < 0) == (form == "hashed")
    for array in tables:
        array.setflags(write=False)
    asked = with_missing(5, schema, strategies.chunk_of(4, schema, 60), 0.3)
    joint = np.empty((60, n_classes))
    fill_class_log_joints(tables, asked.x, 0, 60, joint)
    rows, customers = naive.tree_of(*counts.cells(0)), naive.customers_of(levels.tree, levels.arrays.customers)
    log_p = partial(naive.log_probability, rows, customers, levels.arrays.concentration[1:], sizes[0])
    for row in range(60):
        for label in range(0, n_classes, max(1, n_classes // 7)):
            path, value = path_of(schema, family, asked.x, row, label), int(asked.x[0, row])
            path = path if is_averaged else tuple(-1 if code is None else code for code in path)
            alone, whole = log_p(value, path, 0, False), log_p(value, path, len(family.parents), False)
            expected = a * alone + b * (whole - alone)
            assert joint[row, label] - tables.log_prior[label] == pytest.approx(expected, abs=1e-4)


def test_a_shorter_tree_is_the_same_tree_read_with_fewer_parents():
    _, chunk, family, counts = counted(5, [3, 3, 2], 2, 80)
    levels = levels_of(counts, 3)
    whole, short = np.empty((80, 3, 2), np.float32), np.empty((80, 2, 2), np.float32)
    levels.log_probabilities(family, chunk, whole, False)
    levels.cut(1).log_probabilities(Family(0, family.parents[:1]), chunk, short, False)
    assert np.array_equal(whole[:, :2], short)


def test_a_row_is_left_out_with_its_copies():
    """Close to learning without them, as for a row that stands alone."""
    errors = []
    for seed in range(3):
        schema, alone, family, _ = counted(seed, [3, 3, 2], 2, 90)
        copies = np.random.default_rng(seed).integers(1, 4, alone.n_rows)
        counts = FamilyCounts(schema, [family])
        counts.update(alone.rows(np.repeat(np.arange(alone.n_rows), copies)))
        log_p = np.empty((alone.n_rows, 3, 2), np.float32)
        levels_of(counts, 3).log_probabilities(family, alone, log_p, True, copies)
        for row in range(0, alone.n_rows, 6):
            rest = FamilyCounts(schema, [family])
            others = np.arange(alone.n_rows) != row
            rest.update(alone.rows(others).rows(np.repeat(np.arange(alone.n_rows - 1), copies[others])))
            without = np.empty((1, 3, 2), np.float32)
            levels_of(rest, 3).log_probabilities(family, alone.rows(slice(row, row + 1)), without, False)
            label = int(alone.y[row])
            errors.append(np.abs(log_p[row, :, label] - without[0, :, label]))
    assert np.mean(errors) < 0.05
    assert np.max(errors) < 0.5
