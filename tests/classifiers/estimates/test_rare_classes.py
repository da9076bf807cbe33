"""The concentrations of rare classes."""

import numpy as np
import pyarrow as pa
import pytest

from learners import Source
from learners.classifiers.estimates.context_tree import context_tree_probabilities
from learners.passes.learner import drive
from learners.registry.recipes import learner

N, RARE = 40_000, 30


def table(telling):
    """One row in 1,333 is rare; a column that tells of it, or does not, and one with as many values as a rare row can fill."""
    random = np.random.default_rng(5)
    y = random.permutation(N) < RARE
    x = np.where(y & telling, 0, random.integers(0, 4, N))
    return pa.table({"x": np.char.add("v", x.astype(str)), "class": np.where(y, "rare", "common")})


def probabilities(rows):
    """(n_classes, n_values) of the column by naive Bayes, the common class first."""
    model = drive(learner("nb", {}, "class"), Source.of_table(rows))
    (tree,), (estimates,) = model.trees, model.estimates
    p = context_tree_probabilities(tree, estimates, (2, tree.n_values))
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-6)
    return p


def test_a_column_that_tells_nothing_of_a_rare_class_says_nothing_of_it():
    p = probabilities(table(telling=False))
    assert p[1] == pytest.approx([0.25] * 4, abs=0.01), "though its 30 rows are spread from .2 to .3"


def test_a_column_that_tells_of_a_rare_class_keeps_saying_so():
    p = probabilities(table(telling=True))
    assert p[1].max() > 0.9 and p[1].min() > 0, "values without a row of the class are possible"
    assert p[0] == pytest.approx([0.25] * 4, abs=0.01)
