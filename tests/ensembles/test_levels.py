"""Trees read at every level, with and without a row."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.classifiers.compile import compile_tables
from learners.classifiers.context_tree import context_tree_from_cells
from learners.classifiers.tables import log_joints
from learners.counts.family import Family, FamilyCounts
from learners.ensembles.compile import PooledFamilies
from learners.ensembles.levels import Levels
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


@given(
    st.integers(0, 10**6),
    st.lists(st.integers(2, 4), min_size=1, max_size=4),
    st.integers(2, 3),
    st.sampled_from([1, 5, 40]),
    st.booleans(),
)
@settings(max_examples=25)
def test_every_level_is_as_defined(seed, sizes, n_classes, n_rows, leave_out):
    schema, chunk, family, counts = counted(seed, sizes, n_classes, n_rows)
    levels = levels_of(counts, sizes[0])
    k = len(family.parents)
    log_p = np.empty((n_rows, k + 1, n_classes), np.float32)
    levels.log_probabilities(family, chunk, log_p, leave_out)
    rows = naive.tree_of(*counts.cells(0))
    customers = naive.customers_of(levels.tree, levels.solution)
    for row in range(n_rows):
        for label in range(n_classes):
            path = (label, *(int(chunk.x[parent, row]) for parent in family.parents))
            for j in range(k + 1):
                expected = naive.log_probability(
                    rows, customers, levels.arrays.concentration[1:], sizes[0], int(chunk.x[0, row]), path, j,
                    leave_out and label == chunk.y[row],
                )  # fmt: skip
                assert log_p[row, j, label] == pytest.approx(expected, abs=2e-5)
    assert schema.n_classes == n_classes


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


def test_weighted_estimates_are_what_the_kernel_of_rows_says():
    """Through the look-up form: a log p_0 + b (log p - log p_0) for every row and class."""
    schema, _chunk, family, counts = counted(3, [3, 3, 2], 3, 90)
    levels = levels_of(counts, 3)
    a, b = 0.7, 1.3
    tables = compile_tables(
        schema, PooledFamilies((0,), (family.parents,)), counts.class_counts, [levels.tree], [levels.weighted(a, b)]
    )
    for array in tables:
        array.setflags(write=False)
    asked = strategies.chunk_of(4, schema, 60)
    joint = np.empty((60, 3))
    log_joints(tables, asked.x, 0, 60, joint)
    log_p = np.empty((60, 3, 3), np.float32)
    levels.log_probabilities(family, Chunk(asked.x, None), log_p, False)
    expected = a * log_p[:, 0] + b * (log_p[:, 2] - log_p[:, 0])
    assert joint - tables.log_prior == pytest.approx(expected, abs=1e-4)


def test_a_shorter_tree_is_the_same_tree_read_with_fewer_parents():
    _, chunk, family, counts = counted(5, [3, 3, 2], 2, 80)
    levels = levels_of(counts, 3)
    whole, short = np.empty((80, 3, 2), np.float32), np.empty((80, 2, 2), np.float32)
    levels.log_probabilities(family, chunk, whole, False)
    levels.cut(1).log_probabilities(Family(0, family.parents[:1]), chunk, short, False)
    assert np.array_equal(whole[:, :2], short)
