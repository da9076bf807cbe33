"""What guesses of missing values need: which variables are numbers, which value is best, what has a density."""

from __future__ import annotations

import numpy as np

from learners.circuits.columns import Columns
from learners.circuits.evaluation.leaf_shapes import density_variables
from learners.circuits.queries.column_values import nameable
from learners.kernels.arrays import Array, Floats, Integers, Mask


def of_densities(columns: Columns, x: Array) -> Mask:
    """(n_rows,) bool: whether what is observed in a row has a density, not a probability."""
    numeric = density_variables(columns.circuit)
    is_density: Mask = np.any(~np.isnan(np.asarray(x, np.float64)[numeric]), axis=0)
    return is_density


def by_kind(columns: Columns, variables: tuple[int, ...]) -> tuple[list[int], list[int]]:
    """Discrete and numeric variables."""
    return [v for v in variables if columns.n_values[v]], [v for v in variables if not columns.n_values[v]]


def best_codes(columns: Columns, variable: int, p: Floats) -> Integers:
    """(n_rows,) int64: the most probable value by distributions p (n_rows, n_values); neither what is missing nor what is rare."""
    return np.asarray(np.where(nameable(columns)[variable], p, -1.0).argmax(axis=1))
