"""What each attribute adds to the log probability of the classes: the terms of a network's product, one by one."""

from __future__ import annotations

import numpy as np

from learners.arrays import Floats, freeze
from learners.classifiers import kernels, many_kernels
from learners.classifiers.many_kernels import ManyClassTables
from learners.schema import Chunk


def log_factors(tables: kernels.LookupTables | ManyClassTables, chunk: Chunk) -> Floats:
    """Log P(x_i | y, parents of x_i) of every attribute, row and class.

    Parameters
    ----------
    tables : LookupTables or ManyClassTables
    chunk : Chunk

    Returns
    -------
    (n_attributes, n_rows, n_classes) float64
        In the order of the schema; zero for an attribute that the network leaves out, is absent, or whose value
        training never saw: it does not enter the product.
    """
    n_classes = tables.log_prior.size
    factors = np.zeros((chunk.x.shape[0], chunk.n_rows, n_classes))
    no_prior = np.zeros(n_classes)
    freeze(no_prior)  # as in a model, so that nothing is compiled again
    for a, attribute in enumerate(tables.attribute):
        if isinstance(tables, ManyClassTables):
            alone = tables._replace(
                attribute=tables.attribute[a : a + 1],
                n_values=tables.n_values[a : a + 1],
                parent_starts=tables.parent_starts[a : a + 2],
                value_starts=tables.value_starts[a : a + 1],
                roots=tables.roots[a : a + 1],
                log_prior=no_prior,
            )
            many_kernels.log_joints(alone, chunk.x, 0, chunk.n_rows, factors[attribute])
            continue
        one = tables._replace(
            attribute=tables.attribute[a : a + 1],
            n_values=tables.n_values[a : a + 1],
            parent_starts=tables.parent_starts[a : a + 2],
            dense_starts=tables.dense_starts[a : a + 1],
            hash_starts=tables.hash_starts[a : a + 2],
            hash_shifts=tables.hash_shifts[a : a + 1],
            log_prior=no_prior,
        )
        kernels.log_joints(one, chunk.x, 0, chunk.n_rows, factors[attribute])
    return factors
