import numpy as np
import pytest

from learners.circuits.bayesian.sampler.lazy_kernels import SIZE
from learners.circuits.bayesian.sampler.shape import complete_shape, n_sums_of
from learners.errors import InvalidParameter
from tests.circuits.bayesian.sampler.problems import WORDS, prior_of
from tests.naive.bayesian_circuits import induced_trees, tree_of


@pytest.mark.parametrize(
    ("n_columns", "n_children", "n_sums"),
    [(9, 2, 117), (9, 4, 1097), (41, 2, 2517), (41, 4, 111_177), (22, 4, 16_969), (35, 4, 62_025), (16, 2, 341)],
)
def test_sums_are_as_many_as_in_the_paper(n_columns, n_children, n_sums):
    """Yokoi, Sato (2024), table 9."""
    assert n_sums_of(n_columns, n_children)[0] == n_sums


@pytest.mark.parametrize("n_columns", [1, 2, 3, 5])
def test_every_induced_tree_has_a_leaf_of_each_column(n_columns):
    prior = prior_of([WORDS] * n_columns, seed=n_columns)
    shape = prior.shape
    trees = list(induced_trees(tree_of(prior)))
    assert len(trees) == 2 ** (2 * n_columns - 1)
    for choices, _, leaves in trees:
        assert len(choices) == shape.n_positions
        assert sorted(shape.column[np.array(leaves) // 2].tolist()) == list(range(n_columns))


def test_halves_are_drawn_for_each_product_and_follow_the_seed():
    assert np.array_equal(complete_shape(8, 3, 5).column, complete_shape(8, 3, 5).column)
    assert not np.array_equal(complete_shape(8, 3, 5).column, complete_shape(8, 3, 6).column)
    shape = complete_shape(8, 3, 5)
    halves = {frozenset(child[: child.size // 2].tolist()) for child in shape.column.reshape(3, -1)}
    assert len(halves) > 1


def test_positions_tell_sizes():
    shape = complete_shape(5, 2)
    assert shape.place[:, SIZE].tolist() == [5, 3, 2, 1, 1, 1, 2, 1, 1]
    assert (shape.n_positions, shape.n_columns) == (9, 5)


@pytest.mark.parametrize("n_children", [1, 257])
def test_children_out_of_range_are_refused(n_children):
    with pytest.raises(InvalidParameter, match=r"children=.* from 2 to 256"):
        complete_shape(3, n_children)


def test_no_column_is_refused():
    with pytest.raises(InvalidParameter, match="at least one column"):
        complete_shape(0, 2)
