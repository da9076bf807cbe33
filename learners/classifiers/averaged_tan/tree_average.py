"""The posterior over all tree-augmented networks, in closed form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from learners.classifiers.averaged_tan.tree_average_kernels import log_tree_sum_of_logs
from learners.counts.pairwise import PairwiseCounts
from learners.kernels.arrays import Floats, Integers

# Equivalent sample sizes from which the marginal likelihood chooses.
GRID = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)


@dataclass(frozen=True)
class TreePosterior:
    """What the class posterior averaged over all trees needs."""

    ess: float  # equivalent sample size of the prior
    log_prior: Floats  # (c,) float64: log P(y)
    alone: tuple[Floats, ...]  # tuple of (v_i, c) float64: log P(x_i | y)
    # (n, n) float64, symmetric, -inf on the diagonal: of the edges; a tree is as probable as their product.
    log_weights: Floats
    # tuple of (v_i, v_j, c) float64: P(x_i, x_j | y) / P(x_i | y) P(x_j | y) of the pairs i < j in turn.
    ratios: tuple[Floats, ...]
    log_evidence: float  # log marginal likelihood of the counts


def tree_posterior(pairs: PairwiseCounts, ess: float) -> TreePosterior:
    """The posterior over undirected trees among the attributes, the class a parent of all, and its parameters' means.

    The prior is uniform over trees and Dirichlet over the probabilities, ess / (v_i v_j c) for each cell of a pair; so
    equivalent directions of a tree have the same parameters.

    References
    ----------
    Cerquides, López de Mántaras (2005), TAN classifiers based on decomposable distributions, section 4; Meilă, Jaakkola
    (2006), Tractable Bayesian learning of tree belief networks, section 4.
    """
    n, c = pairs.sizes.size, pairs.class_counts.size
    of_class = pairs.class_counts + ess / c
    log_evidence = float(
        _evidence(pairs.class_counts, ess / c).sum()
        + scipy.special.gammaln(ess)
        - scipy.special.gammaln(ess + pairs.n_rows)
    )
    of_classes = scipy.special.gammaln(ess / c) - scipy.special.gammaln(of_class)
    alone, own_evidence = [], np.empty(n)
    for i, margin in enumerate(pairs.margins):
        prior = ess / (margin.shape[0] * c)
        alone.append(np.log((margin + prior) / of_class))
        own_evidence[i] = _evidence(margin, prior).sum() + of_classes.sum()
    log_weights, ratios = np.full((n, n), -np.inf), []
    for i in range(n):
        for j in range(i + 1, n):
            table = pairs.table(i, j)
            prior = ess / table.size
            both = _evidence(table, prior).sum() + of_classes.sum()
            log_weights[i, j] = log_weights[j, i] = both - own_evidence[i] - own_evidence[j]
            joint = (table + prior) / of_class
            ratios.append(joint / np.exp(alone[i][:, np.newaxis] + alone[j][np.newaxis]))
    # Of all n^(n - 2) trees each is as probable beforehand.
    log_trees = log_tree_sum_of_logs(log_weights) - max(0, n - 2) * np.log(max(1, n))
    log_evidence += float(own_evidence.sum() + log_trees)
    log_prior = np.log(of_class / of_class.sum())
    return TreePosterior(ess, log_prior, tuple(alone), log_weights, tuple(ratios), log_evidence)


def _evidence(counts: Integers, prior: float) -> Floats:
    return np.asarray(scipy.special.gammaln(counts + prior) - scipy.special.gammaln(prior))


def most_probable_prior(pairs: PairwiseCounts) -> TreePosterior:
    """The posterior under the equivalent sample size of `GRID` with the largest marginal likelihood."""
    return max((tree_posterior(pairs, ess) for ess in GRID), key=lambda found: found.log_evidence)


def edge_probabilities(log_weights: Floats) -> Floats:
    """(n, n) float64: how probable each edge is, in a random tree of the posterior.

    An edge's probability is its weight over the effective conductance between its ends, which is what is left between
    them once all other nodes are taken out. Of three groups of nodes, every pair is within two of them: each third goes
    out once, so that all pairs together take O(n^3).

    References
    ----------
    Kirchhoff (1847); Lyons, Peres (2016), Probability on trees and networks, section 4.2.
    """
    found = np.zeros_like(log_weights)
    _probabilities(log_weights, np.arange(len(log_weights)), log_weights, found)
    return found


def _probabilities(logs: Floats, nodes: Integers, log_weights: Floats, found: Floats) -> None:
    """Fill in the pairs of some nodes; logs (k, k): of their edges once all others are taken out."""
    k = nodes.size
    if k < 2:
        return
    if k == 2:
        i, j = nodes
        found[i, j] = found[j, i] = np.exp(min(0.0, log_weights[i, j] - logs[0, 1]))
        return
    for third in np.array_split(np.arange(k), 3):
        kept = np.setdiff1d(np.arange(k), third)
        rest = logs.copy()
        for node in third.tolist():
            edges = rest[node]
            through = edges[:, np.newaxis] + edges[np.newaxis] - np.logaddexp.reduce(edges)
            rest = np.logaddexp(rest, through)
            rest[node, :] = rest[:, node] = -np.inf
            np.fill_diagonal(rest, -np.inf)
        _probabilities(rest[np.ix_(kept, kept)], nodes[kept], log_weights, found)
