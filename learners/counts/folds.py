"""Folds of rows for cross-validation."""

from __future__ import annotations

import numpy as np

from learners.kernels.arrays import Codes, Integers


def random_folds(x: Codes, n_folds: int, seed: int) -> Integers:
    """Return the fold of each row; rows with equal attributes go to as many folds as possible, whatever their classes.

    A left-out row then finds as many equal rows as a new row will. Were each class of them spread evenly as well, the rows left
    out would have classes in the proportions of the others, and a model that learns rows by heart would seem to predict them.

    `x`: (n_attributes, n_rows) uint8 or uint16.
    Returns (n_rows,) int64.
    """
    n = x.shape[1]
    random = np.random.default_rng([seed, n])
    whole = (
        np.ascontiguousarray(x.T).view(np.dtype((np.void, x.itemsize * x.shape[0]))).ravel() if len(x) else np.zeros(n)
    )
    distinct, group = np.unique(whole, return_inverse=True)
    order = random.permutation(n)
    order = order[np.argsort(random.permutation(distinct.size)[group[order]], kind="stable")]
    fold = np.empty(n, np.int64)
    fold[order] = np.arange(n) % n_folds
    return fold
