import numpy as np
import pytest

from learners.counts.samples.random_folds import random_folds


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
