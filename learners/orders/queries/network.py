"""The most probable graph as a network: the parameters of its nodes, and its tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from learners.errors import LearnerError
from learners.kernels.arrays import Array, Floats, Integers
from learners.orders.lattice.graphs import Graph
from learners.orders.scores.bdeu import BDeu
from learners.orders.scores.bge import BGe, Standard

# A node and its parents.
Family = tuple[int, tuple[int, ...]]
# Of all nodes together.
MOST_CELLS = 1 << 20


class NoTables(LearnerError, ValueError):
    """The tables of a network are too large to be kept with its posterior."""

    def __init__(self) -> None:
        super().__init__(
            f"The tables of the most probable graph have more than {MOST_CELLS:,} probabilities, so they were not kept. Train with a "
            "smaller max_parents or max_values."
        )


class NoRows(LearnerError, ValueError):
    """The parameters of a graph cannot be counted, as the model keeps no rows."""

    def __init__(self) -> None:
        super().__init__(
            "The model keeps no rows to count the parameters of this graph from, only those of its best graph. Train again, with "
            "keep_rows=true (if the distinct rows fit into 16 MiB)."
        )


def conditional_tables(score: BDeu, parents: Graph) -> list[Floats]:
    """Of each node, (q, r) float64: the mean probability of its r values given the q combinations of its parents' values.

    The first parent's value varies slowest. Empty if all tables together have more than `MOST_CELLS` cells.
    """
    families = list(enumerate(parents))
    if n_cells(score, families) > MOST_CELLS:
        return []
    counts = expected_counts(score, families)
    return [table / table.sum(axis=1, keepdims=True) for table in counts]


def n_cells(score: BDeu, families: Sequence[Family]) -> float:
    """Probabilities of the tables of some nodes with their parents."""
    return sum(float(np.prod(score.sizes[[*own, node]], dtype=np.float64)) for node, own in families)


def expected_counts(score: BDeu, families: Sequence[Family]) -> list[Floats]:
    """Of each node with its parents, (q, r) float64: the rows of each combination of values, and the prior's.

    Probabilities given a combination have a Dirichlet distribution with these numbers.

    References: Heckerman, Geiger, Chickering (1995), equation (23), with the prior of section 5.
    """
    sizes = score.sizes
    shapes = [(int(np.prod(sizes[list(own)])), int(sizes[node])) for node, own in families]
    counts = [np.full(q * r, score.ess / (q * r)) for q, r in shapes]
    for x, weights in score.rows.blocks():
        for place, (node, own) in enumerate(families):
            counts[place] += np.bincount(cells_of(node, own, x, sizes), weights, counts[place].size)
    return [of_family.reshape(shape) for of_family, shape in zip(counts, shapes, strict=True)]


def cells_of(node: int, own: tuple[int, ...], x: Array, sizes: Integers) -> Integers:
    """(n,) int64: where rows of codes x (d, n) are in the flat table (q, r) of a node and its parents."""
    cells = np.zeros(x.shape[1], np.int64)
    for column in (*own, node):
        cells = cells * sizes[column] + x[column]
    return cells


class Coefficients(NamedTuple):
    """A linear Gaussian network in the units in which the columns were scored."""

    intercepts: Floats  # (d,) float64
    weights: Floats  # (d, d) float64: [i, j] the coefficient of j in i
    variances: Floats  # (d,) float64: of the noise


def mean_coefficients(parents: Graph, bge: BGe) -> Coefficients:
    """The expected coefficients and variances of a graph.

    References: Geiger, Heckerman (2002): of a node with k parents, 1 / variance is gamma distributed with (N + alpha_w
    - d + k + 1) / 2.
    """
    weights, rest = _regressions(parents, bge)
    variances = rest / (bge.degrees + np.array([len(own) for own in parents]) - 1)
    mean = _posterior_mean(bge)
    return Coefficients(mean - weights @ mean, weights, variances)


def drawn_coefficients(parents: Graph, bge: BGe, rng: np.random.Generator) -> Coefficients:
    """Coefficients, intercepts and variances of a graph drawn from their posterior.

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
    """(d, d) mean coefficients, and (d,) what of the scale matrix they leave."""
    d, r = bge.d, bge.scale
    weights, rest = np.zeros((d, d)), np.empty(d)
    for node, own in enumerate(parents):
        above = list(own)
        weights[node, above] = np.linalg.solve(r[np.ix_(above, above)], r[above, node])
        rest[node] = r[node, node] - r[node, above] @ weights[node, above]
    return weights, rest


def _posterior_mean(bge: BGe) -> Floats:
    return bge.n_rows / (bge.n_rows + bge.prior.alpha_mu) * bge.mean


def in_own_units(standard: Standard, found: Coefficients) -> Coefficients:
    """Coefficients in the units of the columns, of those in which they were scored."""
    center, spread = standard
    weights = found.weights * spread[:, np.newaxis] / spread
    return Coefficients(center + spread * found.intercepts - weights @ center, weights, found.variances * spread**2)
