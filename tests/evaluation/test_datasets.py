"""Splitting rows into folds."""

import warnings

import numpy as np
import pytest
from sklearn.model_selection import StratifiedKFold

from learners.errors import EmptyData
from learners.evaluation.datasets import first_shuffled, stratified_folds


def test_folds_are_those_of_scikit_learn():
    y = np.random.default_rng(0).integers(0, 3, 101)
    ours = stratified_folds(y, 2, seed=7)
    theirs = list(StratifiedKFold(2, shuffle=True, random_state=7).split(y, y))
    for (train, test), (their_train, their_test) in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(train, their_train)
        np.testing.assert_array_equal(test, their_test)


def test_every_row_tests_once_and_classes_keep_their_shares():
    y = np.repeat([0, 1, 2], [50, 30, 21])
    folds = stratified_folds(y, 2, seed=0)
    np.testing.assert_array_equal(np.sort(np.concatenate([test for _, test in folds])), np.arange(y.size))
    for train, test in folds:
        assert not set(train) & set(test)
        assert np.abs(np.bincount(y[test]) - np.bincount(y) / 2).max() <= 1


def test_a_class_with_one_row_is_in_one_fold_and_nothing_warns():
    y = np.array([0] * 10 + [1] * 10 + [2])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        folds = stratified_folds(y, 2, seed=3)
    assert sorted(int((y[test] == 2).sum()) for _, test in folds) == [0, 1]


def test_classes_that_all_have_one_row_are_split_all_the_same():
    folds = stratified_folds(np.arange(5), 2, seed=0)
    assert sorted(test.size for _, test in folds) == [2, 3]


def test_too_few_rows_are_refused():
    with pytest.raises(EmptyData, match="1 rows cannot be split into 2 folds"):
        stratified_folds(np.zeros(1), 2, seed=0)


def test_fewer_training_rows_are_a_subset_of_more():
    rows = np.arange(0, 200, 2)
    small, large = first_shuffled(rows, 10, seed=1), first_shuffled(rows, 40, seed=1)
    assert small.size == 10
    assert set(small) < set(large) < set(rows)
    assert first_shuffled(rows, 100, seed=1) is rows
