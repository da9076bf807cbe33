"""Mixtures of Gaussians from their definitions, one row and one component at a time."""

import numpy as np
from scipy.stats import multivariate_normal


def log_joint(mixture, row):
    """(n_components,): log weight, log density of the numbers of a row and log shares of its codes, NaN left out."""
    numeric = np.flatnonzero(mixture.n_values == 0)
    found = []
    for k in range(mixture.log_weight.size):
        log = mixture.log_weight[k]
        at = 0
        for v, size in enumerate(mixture.n_values):
            if size and row[v] >= 0 and row[v] < size:
                log += mixture.log_share[k, at + int(row[v])]
            at += size
        own = [i for i, v in enumerate(numeric) if not np.isnan(row[v])]
        if own:
            block = mixture.covariance[k][np.ix_(own, own)]
            # In standard deviations: scipy calls a covariance of unlike units singular.
            unit = np.sqrt(np.diag(block))
            standard = multivariate_normal(mixture.mean[k, own] / unit, block / np.outer(unit, unit))
            log += standard.logpdf(row[numeric[own]] / unit) - np.log(unit).sum()
        found.append(log)
    return np.array(found)


def log_density(mixture, row):
    """Log density of a row."""
    return np.logaddexp.reduce(log_joint(mixture, row))


def shares(mixture, row):
    """(n_components,): probabilities of the components given a row."""
    logs = log_joint(mixture, row)
    return np.exp(logs - np.logaddexp.reduce(logs))


def completed(mixture, row, k):
    """Mean (d,) and covariance (d, d) of a row's numbers in a component: those observed are certain."""
    numeric = np.flatnonzero(mixture.n_values == 0)
    x, mean, covariance = row[numeric], mixture.mean[k], mixture.covariance[k]
    own, others = np.flatnonzero(~np.isnan(x)), np.flatnonzero(np.isnan(x))
    filled, left = x.copy(), np.zeros_like(covariance)
    if own.size:
        slope = np.linalg.solve(covariance[np.ix_(own, own)], covariance[np.ix_(own, others)]).T
    else:
        slope = np.zeros((others.size, 0))
    filled[others] = mean[others] + slope @ (x[own] - mean[own])
    left[np.ix_(others, others)] = covariance[np.ix_(others, others)] - slope @ covariance[np.ix_(own, others)]
    return filled, left


def maximised(mixture, rows):
    """Weights, means and covariances of one step of EM, without any prior."""
    n, k, d = len(rows), mixture.log_weight.size, mixture.mean.shape[1]
    r = np.array([shares(mixture, row) for row in rows])
    means, covariances = np.zeros((k, d)), np.zeros((k, d, d))
    for c in range(k):
        parts = [completed(mixture, row, c) for row in rows]
        means[c] = sum(r[i, c] * parts[i][0] for i in range(n)) / r[:, c].sum()
        for i in range(n):
            off = parts[i][0] - means[c]
            covariances[c] += r[i, c] * (np.outer(off, off) + parts[i][1])
        covariances[c] /= r[:, c].sum()
    return r.sum(axis=0), means, covariances
