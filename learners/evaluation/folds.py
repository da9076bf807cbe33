"""Which rows train and which test."""

from __future__ import annotations

import warnings

import numpy as np

from learners.errors import EmptyData
from learners.kernels.arrays import Integers


def stratified_folds(y: Integers, n_folds: int, seed: int) -> list[tuple[Integers, Integers]]:
    """Shuffled folds with about the same class shares, as scikit-learn's StratifiedKFold makes them.

    A class with fewer rows than folds is in some of them only.

    `y`, (n_rows,) int64: classes.
    `seed`: the same seed gives the same folds.
    Returns list of (train, test): row numbers (n,) int64, ascending.
    Raises EmptyData if there are fewer rows than folds.
    """
    from sklearn.model_selection import KFold, StratifiedKFold

    y = np.asarray(y)
    if y.size < n_folds:
        raise EmptyData(f"{y.size} rows cannot be split into {n_folds} folds.")
    # Where no class has a row for each fold there is nothing to stratify, and scikit-learn refuses.
    is_stratified = np.unique(y, return_counts=True)[1].max() >= n_folds
    splitter = (StratifiedKFold if is_stratified else KFold)(n_folds, shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The least populated class", category=UserWarning)
        return [(train.astype(np.int64), test.astype(np.int64)) for train, test in splitter.split(y, y)]


def first_shuffled(rows: Integers, limit: int | None, seed: int) -> Integers:
    """At most `limit` of the rows, ascending; for the same seed fewer rows are a subset of more, as a learning curve needs."""
    if limit is None or limit >= rows.size:
        return rows
    return np.sort(np.random.default_rng(seed).permutation(rows)[:limit])
