"""The last look at a model's answers, wherever they leave."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from learners.distributions.kernels import TOLERANCE, first_invalid
from learners.errors import InvalidPrediction
from learners.kernels.arrays import Floats


def distributions(probabilities: Floats, first_row: int = 0) -> Floats:
    """The same rows (n_rows, n_classes), each of which is a distribution: not negative, with sum 1 within 1e-6.

    Parameters
    ----------
    probabilities : (n_rows, n_classes) float64
    first_row : int
        The number of the first of these rows among all that are asked.

    Raises
    ------
    InvalidPrediction
        Naming the first row that is none.
    """
    row = first_invalid(np.ascontiguousarray(probabilities, np.float64))
    if row >= 0:
        raise InvalidPrediction(first_row + row, probabilities[row].tolist())
    return probabilities


def distribution(probabilities: Floats) -> Floats:
    """As `distributions`, of the answer (n_classes,) for one row, and sooner."""
    listed = probabilities.tolist()
    if not (abs(sum(listed) - 1.0) <= TOLERANCE and min(listed) >= 0.0):
        raise InvalidPrediction(0, listed)
    return probabilities


def all_distributions(parts: Sequence[Floats], n_classes: int) -> Floats:
    """The rows of all parts (n, n_classes), one after the other.

    Raises
    ------
    InvalidPrediction
    """
    return distributions(np.concatenate(parts) if parts else np.empty((0, n_classes)))
