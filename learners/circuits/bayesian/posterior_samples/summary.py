"""What draws of a posterior say of a number: mean, standard error of the mean, credible interval."""

from __future__ import annotations

import math

import numpy as np

from learners.circuits.queries.named_answers import Summary
from learners.errors import InvalidParameter
from learners.kernels.arrays import Floats

LEVEL = 0.9


def summarised(values: Floats, n_chains: int = 1, level: float = LEVEL) -> Summary:
    """The summary of numbers by their draws.

    The standard error is that of means of batches, which each are some √n successive draws of a chain: so draws that hang
    together, or chains that stay apart, make it larger. Raises InvalidParameter.

    values (..., n_draws) float64: draws of the first chain, then of the second, and so on.
    level: posterior probability of the interval, between 0 and 1.
    References: Flegal, Jones (2010), "Batch means and spectral variance estimators in Markov chain Monte Carlo",
    section 2.
    """
    if not 0 < level < 1:
        raise InvalidParameter("interval", level, "the probability of the interval, above 0 and below 1")
    mean = values.mean(axis=-1)
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=-1)
    return Summary(mean, _standard_error(values, n_chains), low, high)


def _standard_error(values: Floats, n_chains: int) -> Floats:
    per_chain = values.shape[-1] // n_chains
    size = max(1, math.isqrt(per_chain))
    n_batches = per_chain // size
    if n_chains * n_batches < 2:
        return np.full(values.shape[:-1], np.nan)
    chains = values[..., : n_chains * per_chain].reshape(*values.shape[:-1], n_chains, per_chain)
    batches = chains[..., : n_batches * size].reshape(*values.shape[:-1], n_chains * n_batches, size).mean(axis=-1)
    return batches.std(axis=-1, ddof=1) / math.sqrt(n_chains * n_batches)


def log_mean(logs: Floats) -> Floats:
    """Logarithm of the mean over the last axis of what has these logarithms; log 0 is -inf."""
    most = logs.max(axis=-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(most > -np.inf, np.exp(logs - most), 0.0)
        return np.log(shares.mean(axis=-1)) + most[..., 0]
