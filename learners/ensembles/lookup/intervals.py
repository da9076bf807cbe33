"""How far a pooled probability may be off, from the posterior variances of the probabilities behind it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from learners.classifiers.lookup.look_up_tables import Tables, log_joints
from learners.kernels.arrays import Codes, Floats


def pooled_deviations(spreads: Sequence[Tables], x: Codes, n_classes: int) -> Floats:
    """(n_rows, n_classes) float64: the standard deviation of each class's pooled score, of codes x (n_views, n_rows).

    `spreads` are for each member the variances of its weighted terms. Within a member the terms are taken for
    independent. All members have learned from the same rows, so their errors are taken for one: the standard deviations
    of the members' scores add.
    """
    deviation = np.zeros((x.shape[1], n_classes))
    of_member = np.empty_like(deviation)
    for tables in spreads:
        log_joints(tables, x, 0, x.shape[1], of_member)
        deviation += np.sqrt(np.maximum(of_member, 0.0))
    return deviation
