"""How unusual a row is: the rank of its likelihood among those of rows that the model draws itself."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from learners.kernels.arrays import Array, Floats


def ranks(logs: Floats, x: Array, drawn: Floats, log_likelihood: Callable[[Array], Floats]) -> tuple[Floats, Floats]:
    """The share of drawn rows that are at most as likely as each row, seen in the same columns, and its standard error.

    Both are (n_rows,) float64. A small rank is an unusual row; the error is that of a share of n draws.

    logs (n_rows,) float64: of the rows x (n_variables, n_rows) float64, NaN where nothing is known.
    drawn (n, n_variables) float64: rows of the model.
    log_likelihood: of rows (n_variables, n) float64.
    """
    seen = ~np.isnan(x)
    patterns, which = np.unique(seen, axis=1, return_inverse=True)
    found = np.empty(logs.size)
    n = len(drawn)
    for pattern in range(patterns.shape[1]):
        rows = np.flatnonzero(which.ravel() == pattern)
        others = np.where(patterns[:, [pattern]], drawn.T, np.nan)
        own = np.sort(log_likelihood(np.ascontiguousarray(others)))
        # A row that was drawn itself is as likely as it is, but for rounding.
        found[rows] = np.searchsorted(own, logs[rows] + 1e-9 * np.maximum(1.0, np.abs(logs[rows])), side="right") / n
    return found, np.sqrt(found * (1 - found) / n)
