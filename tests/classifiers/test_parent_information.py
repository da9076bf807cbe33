"""What parents tell, and the tables behind an attribute, against their definitions."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learners.classifiers.estimates.context_tree import context_tree_from_cells, m_estimates
from learners.classifiers.parent_information import contexts_of, information_of_parents


def entropy(rows):
    counts = np.array(list(Counter(map(tuple, rows)).values()))
    return float(-(counts / counts.sum() * np.log(counts / counts.sum())).sum())


def drawn_tree(seed, n_rows, n_parents):
    """Rows of (class, parents..., value), and their tree."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 3, (n_rows, n_parents + 2))
    rows[:, -1] = np.where(rng.random(n_rows) < 0.5, rows[:, 0], rows[:, -1])
    cells = Counter(map(tuple, rows.tolist()))
    table = np.array([[*cell, n] for cell, n in cells.items()], np.int64)
    tree = context_tree_from_cells(table[:, 0], table[:, 1:-2], table[:, -2], table[:, -1], 3)
    return rows, tree


@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(0, 3))
def test_each_parent_tells_its_conditional_mutual_information(seed, n_rows, n_parents):
    """I(X; P_l | class, P_1, ..., P_{l-1}) by entropies of the rows themselves."""
    rows, tree = drawn_tree(seed, n_rows, n_parents)
    x = rows[:, -1:]
    wanted = []
    for level in range(n_parents + 1):
        before, after = rows[:, :level], rows[:, : level + 1]
        of_before = entropy(np.hstack([before, x])) - (entropy(before) if level else 0.0)
        wanted.append(of_before - (entropy(np.hstack([after, x])) - entropy(after)))
    assert information_of_parents(tree) == pytest.approx(np.maximum(0, wanted), abs=1e-9)


@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(0, 2))
def test_contexts_tell_rows_and_probabilities(seed, n_rows, n_parents):
    rows, tree = drawn_tree(seed, n_rows, n_parents)
    found = contexts_of(tree, m_estimates(tree, 1.0), 1000)
    counted = Counter(map(tuple, rows.tolist()))
    assert sum(int(context.n_rows.sum()) for context in found) == n_rows
    sizes = [int(context.n_rows.sum()) for context in found]
    assert sizes == sorted(sizes, reverse=True)
    for context in found:
        assert context.n_rows.tolist() == [counted[(*context.codes, value)] for value in range(3)]
        assert context.probability.sum() == pytest.approx(1.0)
