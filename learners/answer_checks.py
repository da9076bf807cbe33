"""Final check of a model's predictions: each must be a distribution."""

from __future__ import annotations

import numpy as np

from learners.errors import InvalidPrediction
from learners.kernels.arrays import Floats

TOLERANCE = 1e-6


def check_answer_distributions(probabilities: Floats, first_row: int = 0) -> Floats:
    """Return the rows (n_rows, n_classes) float64 after checking that each is a distribution: nonnegative, with sum 1
    within 1e-6.

    Raises InvalidPrediction naming the first invalid row; `first_row` is the index of the first of these rows
    among all requested ones.
    """
    with np.errstate(invalid="ignore"):  # infinity less infinity; what is no number is not within the tolerance either
        is_right = np.abs(np.einsum("ij->i", probabilities) - 1.0) <= TOLERANCE
    if not (is_right.all() and probabilities.min(initial=0.0) >= 0.0):
        row = int(np.argmin(is_right & (probabilities >= 0.0).all(axis=1)))
        raise InvalidPrediction(first_row + row, probabilities[row].tolist())
    return probabilities


def check_answer_distribution(probabilities: Floats) -> Floats:
    """Check a single prediction (n_classes,) as `check_answer_distributions` does, with less overhead."""
    listed = probabilities.tolist()
    if not (abs(sum(listed) - 1.0) <= TOLERANCE and min(listed) >= 0.0):
        raise InvalidPrediction(0, listed)
    return probabilities
