"""What each attribute adds to the log probability of the classes: the terms of a network's product, one by one."""

from __future__ import annotations

import numpy as np

from learners.classifiers.lookup.tables import Tables, log_joints, of_attribute
from learners.kernels.arrays import Floats
from learners.schema import Chunk


def log_factors(tables: Tables, chunk: Chunk) -> Floats:
    """(n_attributes, n_rows, n_classes) float64: log P(x_i | y, parents of x_i), in the order of the schema.

    Zero for an attribute that the network leaves out, is absent, or whose value training never saw: it does not enter
    the product.
    """
    factors = np.zeros((chunk.x.shape[0], chunk.n_rows, tables.log_prior.size))
    for a, attribute in enumerate(tables.attribute):
        log_joints(of_attribute(tables, a), chunk.x, 0, chunk.n_rows, factors[attribute])
    return factors
