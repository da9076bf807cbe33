"""What each attribute adds to the log probability of the classes: the terms of a network's product, one by one."""

from __future__ import annotations

import numpy as np

from learners.arrays import Floats, freeze
from learners.classifiers.tables import Tables, log_joints
from learners.schema import Chunk

# The arrays of tables with entries for each attribute, and how many of them one attribute needs.
BY_ATTRIBUTE = {
    "attribute": 1,
    "n_values": 1,
    "parent_starts": 2,
    "value_starts": 1,
    "roots": 1,
    "dense_starts": 1,
    "hash_starts": 2,
    "hash_shifts": 1,
}


def log_factors(tables: Tables, chunk: Chunk) -> Floats:
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
        one = {
            name: getattr(tables, name)[a : a + width] for name, width in BY_ATTRIBUTE.items() if name in tables._fields
        }
        alone = tables._replace(**one, log_prior=no_prior)
        log_joints(alone, chunk.x, 0, chunk.n_rows, factors[attribute])
    return factors
