"""Leaf kernels with parameters integrated out: predictives, and sufficient statistics of a leaf's rows."""

from __future__ import annotations

import math

import numpy as np

from learners.circuits.kernels import CATEGORICAL, EXPONENTIAL, GAUSSIAN, POISSON
from learners.kernels.jit import inner_kernel, kernel

# A leaf is one cache line of eight numbers, which mean by its family:
# KIND: 8 column + family.
# TOTAL, SQUARES: Gaussian Σ (x - μ0) and Σ (x - μ0)²; exponential Σ x; Poisson Σ x and Σ log x!.
# LOG: Gaussian a_n log b_n, exponential α_n log β_n, Poisson log Γ(α_n) - α_n log β_n: the part of the marginal likelihood
# that takes a logarithm, so that a predictive takes one logarithm more.
# FIRST, SECOND: Gaussian mean μ0 and b0; exponential and Poisson rate β0; categorical the first cell of its values, and their number.
# CENTRE: what exponential and Poisson leaves add to a row's number.
KIND, N, TOTAL, SQUARES, LOG, FIRST, SECOND, CENTRE = range(8)
# Rows of `hyper`: numbers that all leaves of a family have in common, then tables by the number of rows n.
# STRENGTHS: at each family its shape parameter (Gaussian a0, exponential and Poisson α, categorical pseudo-count of a value),
# at RHO the rows that the prior mean of a Gaussian stands for, at ALPHA the pseudo-count of each child of a sum.
# GAUSSIANS: log Γ(a0 + n / 2) - log(ρ0 + n) / 2 - n log(2π) / 2. EXPONENTIALS: log Γ(α + n) - log Γ(α).
# CHILDREN, SUMS: log Γ(a + n) - log Γ(a), for the pseudo-count a of a child, and of a sum's children together.
STRENGTHS, GAUSSIANS, EXPONENTIALS, CHILDREN, SUMS = range(5)
RHO, ALPHA = 7, 8
LOG_2_PI = math.log(2.0 * math.pi)

# Views of arrays and looks into tuples cost several times what a predictive does: leaves are told by their number.


@kernel
def log_rising_factorial(hyper, table, a, n):
    """Return log Γ(a + n) - log Γ(a), from its table if n is small enough."""
    if n < hyper.shape[1]:
        return hyper[table, n]
    return math.lgamma(a + n) - math.lgamma(a)


@kernel
def gaussian_log_normaliser(hyper, n):
    """Return the entry of GAUSSIANS, also beyond the table's end."""
    if n < hyper.shape[1]:
        return hyper[GAUSSIANS, n]
    return math.lgamma(hyper[0, GAUSSIAN] + 0.5 * n) - 0.5 * np.log(hyper[0, RHO] + n) - 0.5 * n * LOG_2_PI


@kernel
def gaussian_log_normaliser_step(hyper, n):
    """Return gaussian_log(n + 1) - gaussian_log(n), by Stirling's series for large n, to avoid cancellation."""
    if n + 1 < hyper.shape[1]:
        return hyper[GAUSSIANS, n + 1] - hyper[GAUSSIANS, n]
    z = hyper[0, GAUSSIAN] + 0.5 * n
    rise = 0.5 * np.log(z) - 0.125 / z + 1.0 / (192.0 * z * z * z)
    return rise - 0.5 * np.log1p(1.0 / (hyper[0, RHO] + n)) - 0.5 * LOG_2_PI


@inner_kernel
def gaussian_leaf_log_term(leaf, i, hyper, n, total, squares):
    """Return LOG of a Gaussian leaf with n rows."""
    b = leaf[i, SECOND] + 0.5 * (squares - total * total / (hyper[0, RHO] + n))
    return (hyper[0, GAUSSIAN] + 0.5 * n) * np.log(max(b, leaf[i, SECOND]))


@inner_kernel
def poisson_leaf_log_term(leaf, i, hyper, n, total):
    """Return LOG of a Poisson leaf with n rows."""
    return math.lgamma(hyper[0, POISSON] + total) - (hyper[0, POISSON] + total) * np.log(leaf[i, FIRST] + n)


@kernel
def leaf_log_predictive(leaf, i, cells, hyper, x):
    """Return the log predictive of leaf i for a row x (n_columns,) that it does not contain; 0 if the value is missing.

    References: Yokoi, Sato (2024), equation 12 and table 8; Murphy (2007), Conjugate Bayesian analysis of the Gaussian
    distribution, section 3.
    """
    kind, n = np.int64(leaf[i, KIND]), np.int64(leaf[i, N])
    family, value = kind & 7, np.float64(x[kind >> 3])
    if np.isnan(value):
        return 0.0
    if family == GAUSSIAN:
        d = value - leaf[i, FIRST]
        log = gaussian_leaf_log_term(leaf, i, hyper, n + 1, leaf[i, TOTAL] + d, leaf[i, SQUARES] + d * d)
        return gaussian_log_normaliser_step(hyper, n) - log + leaf[i, LOG]
    if family == CATEGORICAL:
        count, pseudo = cells[np.int64(leaf[i, FIRST]) + np.int64(value)], hyper[0, CATEGORICAL]
        return np.log((count + pseudo) / (n + pseudo * leaf[i, SECOND]))
    value += leaf[i, CENTRE]
    if value < 0.0:
        return -np.inf
    if family == EXPONENTIAL:
        shape = hyper[0, EXPONENTIAL]
        return np.log(shape + n) - (shape + n + 1) * np.log(leaf[i, FIRST] + leaf[i, TOTAL] + value) + leaf[i, LOG]
    value = np.rint(value)
    return (
        poisson_leaf_log_term(leaf, i, hyper, n + 1, leaf[i, TOTAL] + value) - leaf[i, LOG] - math.lgamma(value + 1.0)
    )


@inner_kernel
def leave_one_out_log_predictive(leaf, i, cells, hyper, x):
    """Return the log predictive of leaf i for a row x (n_columns,) that it contains, given its other rows; 0 if
    missing.
    """
    kind, n = np.int64(leaf[i, KIND]), np.int64(leaf[i, N])
    family, value = kind & 7, np.float64(x[kind >> 3])
    if np.isnan(value):
        return 0.0
    if family == GAUSSIAN:
        d = value - leaf[i, FIRST]
        total, squares = leaf[i, TOTAL] - d, leaf[i, SQUARES] - d * d
        if n == 1:
            total = squares = 0.0
        return (
            gaussian_log_normaliser_step(hyper, n - 1)
            - leaf[i, LOG]
            + gaussian_leaf_log_term(leaf, i, hyper, n - 1, total, squares)
        )
    if family == CATEGORICAL:
        count, pseudo = cells[np.int64(leaf[i, FIRST]) + np.int64(value)], hyper[0, CATEGORICAL]
        return np.log((count - 1 + pseudo) / (n - 1 + pseudo * leaf[i, SECOND]))
    value += leaf[i, CENTRE]
    if family == EXPONENTIAL:
        shape, total = hyper[0, EXPONENTIAL], leaf[i, TOTAL] - value if n > 1 else 0.0
        return np.log(shape + n - 1) - leaf[i, LOG] + (shape + n - 1) * np.log(leaf[i, FIRST] + total)
    value = np.rint(value)
    total = leaf[i, TOTAL] - value if n > 1 else 0.0
    return leaf[i, LOG] - poisson_leaf_log_term(leaf, i, hyper, n - 1, total) - math.lgamma(value + 1.0)


@kernel
def update_leaf_statistics(leaf, i, cells, x, by):
    """Add the row x to leaf i (by = 1), or remove it (by = -1), except LOG."""
    kind = np.int64(leaf[i, KIND])
    family, value = kind & 7, np.float64(x[kind >> 3])
    if np.isnan(value):
        return
    leaf[i, N] += by
    if family == CATEGORICAL:
        cells[np.int64(leaf[i, FIRST]) + np.int64(value)] += by
    elif family == GAUSSIAN:
        d = value - leaf[i, FIRST]
        leaf[i, TOTAL] += by * d
        leaf[i, SQUARES] += by * d * d
    elif family == EXPONENTIAL:
        leaf[i, TOTAL] += by * (value + leaf[i, CENTRE])
    else:
        value = np.rint(value + leaf[i, CENTRE])
        leaf[i, TOTAL] += by * value
        leaf[i, SQUARES] += by * math.lgamma(value + 1.0)
    if leaf[i, N] == 0.0:
        leaf[i, TOTAL] = leaf[i, SQUARES] = 0.0


@kernel
def update_leaf_log_term(leaf, i, hyper):
    """Recompute LOG of leaf i from its statistics."""
    family, n = np.int64(leaf[i, KIND]) & 7, np.int64(leaf[i, N])
    if family == GAUSSIAN:
        leaf[i, LOG] = gaussian_leaf_log_term(leaf, i, hyper, n, leaf[i, TOTAL], leaf[i, SQUARES])
    elif family == EXPONENTIAL:
        leaf[i, LOG] = (hyper[0, EXPONENTIAL] + n) * np.log(leaf[i, FIRST] + leaf[i, TOTAL])
    elif family == POISSON:
        leaf[i, LOG] = poisson_leaf_log_term(leaf, i, hyper, n, leaf[i, TOTAL])


@inner_kernel
def leaf_log_marginal_likelihood(leaf, i, cells, hyper):
    """Return the log marginal likelihood of the rows of leaf i; 0 without rows."""
    family, n = np.int64(leaf[i, KIND]) & 7, np.int64(leaf[i, N])
    shape, first, second, log = hyper[0, family], leaf[i, FIRST], leaf[i, SECOND], leaf[i, LOG]
    if family == GAUSSIAN:
        return gaussian_log_normaliser(hyper, n) - hyper[GAUSSIANS, 0] + shape * np.log(second) - log
    if family == EXPONENTIAL:
        return log_rising_factorial(hyper, EXPONENTIALS, shape, n) + shape * np.log(first) - log
    if family == POISSON:
        return log - math.lgamma(shape) + shape * np.log(first) - leaf[i, SQUARES]
    total = math.lgamma(shape * second) - math.lgamma(shape * second + n)
    for cell in range(np.int64(first), np.int64(first + second)):
        if cells[cell]:
            total += math.lgamma(shape + cells[cell]) - math.lgamma(shape)
    return total
