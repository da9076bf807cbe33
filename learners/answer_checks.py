"""The last look at a model's answers, wherever they leave: whether each is a distribution."""

from __future__ import annotations

import numpy as np

from learners.errors import InvalidPrediction
from learners.kernels.arrays import Floats

TOLERANCE = 1e-6


def check_answer_distributions(probabilities: Floats, first_row: int = 0) -> Floats:
    """The same rows (n_rows, n_classes) float64, each of which is a distribution: not negative, with sum 1 within 1e-6.

    Raises InvalidPrediction naming the first row that is none; `first_row` is the number of the first of these rows
    among all that are asked.
    """
    with np.errstate(invalid="ignore"):  # infinity less infinity; what is no number is not within the tolerance either
        is_right = np.abs(np.einsum("ij->i", probabilities) - 1.0) <= TOLERANCE
    if not (is_right.all() and probabilities.min(initial=0.0) >= 0.0):
        row = int(np.argmin(is_right & (probabilities >= 0.0).all(axis=1)))
        raise InvalidPrediction(first_row + row, probabilities[row].tolist())
    return probabilities


def check_answer_distribution(probabilities: Floats) -> Floats:
    """As `check_answer_distributions`, of the answer (n_classes,) for one row, and sooner."""
    listed = probabilities.tolist()
    if not (abs(sum(listed) - 1.0) <= TOLERANCE and min(listed) >= 0.0):
        raise InvalidPrediction(0, listed)
    return probabilities
