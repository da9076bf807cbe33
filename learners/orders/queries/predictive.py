"""How probable further rows are under the most probable graph, its parameters averaged out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import scipy

from learners.errors import UnknownColumn
from learners.kernels.arrays import Floats
from learners.orders.lattice.graphs import Graph
from learners.orders.scores.bge import BGe
from learners.schema import Schema
from learners.schema.encoding.encode import encode, numbers


def log_densities(bge: BGe, parents: Graph, x: Floats) -> Floats:
    """(n,) float64: log density of each row of x (n, d), given the rows that were scored, under a graph.

    References
    ----------
    Geiger, Heckerman (2002), Parameter priors for directed acyclic graphical models, section 5: the posterior predictive
    of each set of columns is a t distribution, and a family's is the ratio of two of them.
    """
    found = np.zeros(len(x))
    for node, own in enumerate(parents):
        found += _log_t(bge, [*own, node], x) - _log_t(bge, list(own), x)
    return found


def _log_t(bge: BGe, columns: list[int], x: Floats) -> Floats:
    """(n,): log density of some columns, a multivariate t distribution."""
    size = len(columns)
    if not size:
        return np.zeros(len(x))
    n, alpha_mu = bge.n_rows, bge.prior.alpha_mu
    precision = n + alpha_mu
    mean = n * bge.mean[columns] / precision  # the prior's mean is zero
    lower = np.linalg.cholesky(bge.scale[np.ix_(columns, columns)])
    deviations = np.linalg.solve(lower, (x[:, columns] - mean).T)
    degrees = bge.degrees + 1.0
    factor = precision / (precision + 1.0)
    constant = (
        scipy.special.gammaln((degrees + size) / 2)
        - scipy.special.gammaln(degrees / 2)
        + size / 2 * np.log(factor / np.pi)
        - np.log(np.diag(lower)).sum()
    )
    return np.asarray(constant - (degrees + size) / 2 * np.log1p(factor * (deviations**2).sum(axis=0)))


def numeric_rows(batch: pa.RecordBatch, schema: Schema) -> Floats:
    """(n, d) float64: the numbers of a record batch; NaN where one is missing.

    Raises
    ------
    UnknownColumn
    """
    columns = []
    for attribute in schema.attributes:
        if attribute.name not in batch.schema.names:
            raise UnknownColumn(attribute.name, batch.schema.names)
        columns.append(numbers(batch.column(attribute.name), attribute.name, attribute.arrow_type))
    return np.stack(columns, axis=1)


def log_shares(tables: Sequence[Floats], parents: Graph, batch: pa.RecordBatch, schema: Schema) -> Floats:
    """(n,) float64: log probability of each row by the tables (q, r) of a graph; NaN where a value was never seen.

    Raises
    ------
    UnknownColumn
    """
    x, sizes = encode(batch, schema).x.astype(np.int64), schema.domain_sizes
    is_known = (x < sizes[:, np.newaxis]).all(axis=0)
    found = np.where(is_known, 0.0, np.nan)
    x = np.where(is_known, x, 0)
    for node, own in enumerate(parents):
        context = np.zeros(batch.num_rows, np.int64)
        for parent in own:
            context = context * sizes[parent] + x[parent]
        found += np.log(tables[node][context, x[node]])
    return found
