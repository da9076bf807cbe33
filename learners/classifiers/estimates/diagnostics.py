"""Has a sampler converged?"""

from __future__ import annotations

import numpy as np

from learners.kernels.arrays import Floats


def split_r_hat(trace: Floats) -> float:
    """The largest split R-hat of several quantities: near 1 when the first and the second half of a chain agree.

    Of a trace (n_draws, n_quantities) float64: 1 for a quantity that never moves; NaN with fewer than four draws or
    without quantities.

    References
    ----------
    Gelman et al. (2013), Bayesian Data Analysis, third edition, section 11.4.
    """
    half = len(trace) // 2
    if half < 2 or trace.shape[1] == 0:
        return float("nan")
    halves = np.stack([trace[:half], trace[-half:]])
    within = halves.var(axis=1, ddof=1).mean(axis=0)
    between = half * halves.mean(axis=1).var(axis=0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        r_hat = np.sqrt((half - 1) / half + between / (half * within))
    return float(np.where(within > 0, r_hat, np.where(between > 0, np.inf, 1.0)).max())
