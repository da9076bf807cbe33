"""Folds of rows for cross-validation."""

from __future__ import annotations

import numpy as np

from learners.kernels.arrays import Codes, Integers


def random_folds(x: Codes, n_folds: int, seed: int, *, are_copies: bool = False) -> Integers:
    """Return the fold of each row; rows with equal attributes go to as many folds as possible, whatever their classes.

    A left-out row then finds as many equal rows as a new row will. Were each class of them spread evenly as well, the rows left
    out would have classes in the proportions of the others, and a model that learns rows by heart would seem to predict them.
    With weights, equal rows may be copies of one, which a model that has seen another copy knows by heart.

    `x`: (n_attributes, n_rows) uint8 or uint16.
    `are_copies`: equal rows go to one fold.
    Returns (n_rows,) int64.
    """
    n = x.shape[1]
    random = np.random.default_rng([seed, n])
    group = equal_rows(x)
    n_groups = int(group.max(initial=-1)) + 1
    if are_copies:
        return np.asarray(random.permutation(n_groups)[group] % n_folds)
    order = random.permutation(n)
    order = order[np.argsort(random.permutation(n_groups)[group[order]], kind="stable")]
    fold = np.empty(n, np.int64)
    fold[order] = np.arange(n) % n_folds
    return fold


def equal_rows(x: Codes) -> Integers:
    """Number the rows (n_attributes, n_rows) of codes such that equal rows have the same number, (n_rows,) int64."""
    if not len(x):
        return np.zeros(x.shape[1], np.int64)
    whole = np.ascontiguousarray(x.T).view(np.dtype((np.void, x.itemsize * x.shape[0]))).ravel()
    return np.asarray(np.unique(whole, return_inverse=True)[1])
