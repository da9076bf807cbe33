"""Coefficients of linear Gaussian families: posterior means and draws."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learners.kernels.arrays import Floats
from learners.orders.lattice.graph_samples import Graph
from learners.orders.scores.bdeu_bge import BGe, Standard


class Coefficients(NamedTuple):
    """Coefficients of a linear Gaussian network in the units in which the columns were scored."""

    intercepts: Floats  # (d,) float64
    weights: Floats  # (d, d) float64: [i, j] the coefficient of j in i
    variances: Floats  # (d,) float64: of the noise


def posterior_mean_coefficients(parents: Graph, bge: BGe) -> Coefficients:
    """Return the expected coefficients and variances of a graph.

    References: Geiger, Heckerman (2002): of a node with k parents, 1 / variance is gamma distributed with (N + alpha_w
    - d + k + 1) / 2.
    """
    weights, rest = _regressions(parents, bge)
    variances = rest / (bge.degrees + np.array([len(own) for own in parents]) - 1)
    mean = _posterior_mean(bge)
    return Coefficients(mean - weights @ mean, weights, variances)


def draw_posterior_coefficients(parents: Graph, bge: BGe, rng: np.random.Generator) -> Coefficients:
    """Draw coefficients, intercepts and variances of a graph from their posterior.

    References: Geiger, Heckerman (2002), sections 4 and 5: the regressions of nodes on their parents under a
    normal-Wishart distribution are independent; given its variance, a coefficient vector has the covariance variance *
    R[parents, parents]^-1.
    """
    d, r = bge.d, bge.scale
    weights, rest = _regressions(parents, bge)
    variances = rest / rng.chisquare(bge.degrees + np.array([len(own) for own in parents]) + 1.0)
    for node, own in enumerate(parents):
        above = list(own)
        if above:
            factor = np.linalg.cholesky(r[np.ix_(above, above)])
            noise = np.linalg.solve(factor.T, rng.standard_normal(len(above)))
            weights[node, above] += np.sqrt(variances[node]) * noise
    mean = _posterior_mean(bge)
    spread = np.sqrt(variances / (bge.n_rows + bge.prior.alpha_mu))
    return Coefficients(mean - weights @ mean + spread * rng.standard_normal(d), weights, variances)


def _regressions(parents: Graph, bge: BGe) -> tuple[Floats, Floats]:
    """Return the mean coefficients (d, d), and the residual of each node in the scale matrix (d,)."""
    d, r = bge.d, bge.scale
    weights, rest = np.zeros((d, d)), np.empty(d)
    for node, own in enumerate(parents):
        above = list(own)
        weights[node, above] = np.linalg.solve(r[np.ix_(above, above)], r[above, node])
        rest[node] = r[node, node] - r[node, above] @ weights[node, above]
    return weights, rest


def _posterior_mean(bge: BGe) -> Floats:
    return bge.n_rows / (bge.n_rows + bge.prior.alpha_mu) * bge.mean


def unstandardise_coefficients(standard: Standard, found: Coefficients) -> Coefficients:
    """Convert coefficients from scored units to the columns' units."""
    center, spread = standard
    weights = found.weights * spread[:, np.newaxis] / spread
    return Coefficients(center + spread * found.intercepts - weights @ center, weights, found.variances * spread**2)
