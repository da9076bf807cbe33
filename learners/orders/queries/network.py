"""The most probable graph as a network: the parameters of its nodes, and its tables."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from learners.errors import LearnerError
from learners.kernels.arrays import Floats
from learners.orders.formats.network_tables import Network
from learners.orders.lattice.graphs import Graph
from learners.orders.scores.bdeu import BDeu
from learners.orders.scores.bge import BGe
from learners.schema import Schema
from learners.schema.labels import labels_of

# Of all nodes together.
MOST_CELLS = 1 << 20


class NoTables(LearnerError, ValueError):
    """The tables of a network are too large to be kept with its posterior."""

    def __init__(self) -> None:
        super().__init__(
            f"The tables of the most probable graph have more than {MOST_CELLS:,} probabilities, so they were not kept. Train with a "
            "smaller max_parents or max_values."
        )


def conditional_tables(score: BDeu, parents: Graph) -> list[Floats]:
    """Of each node, (q, r) float64: the mean probability of its r values given the q combinations of its parents' values.

    The first parent's value varies slowest. Empty if all tables together have more than `MOST_CELLS` cells.

    References
    ----------
    Heckerman, Geiger, Chickering (1995), equation (23), with the prior of section 5.
    """
    sizes = score.sizes
    shapes = [(int(np.prod(sizes[list(own)], dtype=np.float64)), int(sizes[i])) for i, own in enumerate(parents)]
    if sum(float(q) * r for q, r in shapes) > MOST_CELLS:
        return []
    counts = [np.full(q * r, score.ess / (q * r)) for q, r in shapes]
    for x, weights in score.rows.blocks():
        for node, own in enumerate(parents):
            cell = np.zeros(weights.size, np.int64)
            for column in (*own, node):
                cell = cell * sizes[column] + x[column]
            counts[node] += np.bincount(cell, weights, counts[node].size)
    tables = [of_node.reshape(shape) for of_node, shape in zip(counts, shapes, strict=True)]
    return [table / table.sum(axis=1, keepdims=True) for table in tables]


def mean_gaussian(parents: Graph, bge: BGe) -> tuple[Floats, Floats]:
    """Mean (d,) and covariance (d, d) of a graph's linear Gaussian network with its expected coefficients and variances.

    In the units in which the columns were scored.

    References
    ----------
    Geiger, Heckerman (2002): of a node with k parents, 1 / variance is gamma distributed with (N + alpha_w - d + k + 1) / 2.
    """
    d, r = bge.d, bge.scale
    weights, variances = np.zeros((d, d)), np.empty(d)
    for node, own in enumerate(parents):
        above = list(own)
        weights[node, above] = np.linalg.solve(r[np.ix_(above, above)], r[above, node])
        rest = float(r[node, node] - r[node, above] @ weights[node, above])
        variances[node] = rest / (bge.degrees + len(above) - 1)
    through = np.linalg.inv(np.eye(d) - weights)
    return bge.n_rows / (bge.n_rows + bge.prior.alpha_mu) * bge.mean, (through * variances) @ through.T


def nominal_network(schema: Schema, parents: Graph, tables: Sequence[Floats]) -> Network:
    """A network of nominal columns.

    Raises
    ------
    NoTables
        If there are no tables.
    """
    if not tables:
        raise NoTables
    names = [attribute.name for attribute in schema.attributes]
    values = {attribute.name: tuple(labels_of(attribute)) for attribute in schema.attributes}

    def rows(node: int) -> Iterator[tuple[tuple[str, ...], tuple[float, ...]]]:
        combinations = itertools.product(*(values[names[parent]] for parent in parents[node]))
        yield from zip(combinations, map(tuple, tables[node].tolist()), strict=True)

    above = {names[node]: tuple(names[parent] for parent in own) for node, own in enumerate(parents)}
    return Network(values, above, {names[node]: dict(rows(node)) for node in range(len(names))})


def gaussian_network(schema: Schema, parents: Graph, bge: BGe, spread: Floats) -> Network:
    """A linear Gaussian network: its mean coefficients in the columns' own units, as properties.

    Only the Bayesian Interchange Format has continuous variables; a column without parents has no coefficients.
    """
    names = [attribute.name for attribute in schema.attributes]
    properties = {}
    for node, own in enumerate(parents):
        r, above = bge.scale, list(own)
        weights = np.linalg.solve(r[np.ix_(above, above)], r[above, node]) * spread[node] / spread[above]
        properties[names[node]] = {"coefficients": ", ".join(f"{weight:.10g}" for weight in weights)}
    edges = {names[node]: tuple(names[parent] for parent in own) for node, own in enumerate(parents)}
    return Network(dict.fromkeys(names, ()), edges, {}, properties)
