"""Folds of rows of which some are equal."""

from __future__ import annotations

import numpy as np

from learners.kernels.arrays import Integers


def random_folds(n_rows: int, n_folds: int, seed: int) -> Integers:
    """(n_rows,) int64: the fold of each row, of almost equal size, whatever the rows' order.

    Equal rows must be spread as chance has it. If every fold had its share of them, a model that learns rows by heart would
    find the classes of the fold left out in the same proportions as it has learned them; if one fold had them all, in none.
    """
    return np.random.default_rng([seed, n_rows]).permutation(n_rows) % n_folds
