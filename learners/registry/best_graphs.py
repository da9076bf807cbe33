"""The best graph of a posterior over structures as a network that answers every query."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from learners.circuits.mixtures.mixture import GaussianMixture
from learners.circuits.mixtures.model import GaussianModel
from learners.circuits.model import CircuitModel
from learners.circuits.structures.from_network import MAX_EDGES, tables_circuit
from learners.orders.model import OrderModel
from learners.orders.queries.network import NoTables, mean_gaussian


def best_network(model: OrderModel, max_edges: int = MAX_EDGES) -> CircuitModel:
    """The most probable graph of a posterior with its expected parameters: of nominal columns a circuit, of numbers a Gaussian.

    Raises
    ------
    NoTables
        If the tables were too large to be kept.
    NetworkTooLarge
    """
    bge = model.posterior.bge
    if bge is None:
        if not model.conditional_tables:
            raise NoTables
        sizes = [table.shape[1] for table in model.conditional_tables]
        families = zip(model.conditional_tables, model.best.parents, strict=True)
        tables = [table.reshape(*(sizes[parent] for parent in own), -1) for table, own in families]
        return CircuitModel(model.schema, tables_circuit(model.best.parents, tables, max_edges), model.facts)
    center, spread = model.posterior.standard
    mean, covariance = mean_gaussian(model.best.parents, bge)
    mixture = GaussianMixture(
        np.zeros(1),
        (center + spread * mean)[np.newaxis],
        (covariance * np.outer(spread, spread))[np.newaxis],
        np.empty((1, 0)),
        np.zeros(bge.d, np.int64),
    )
    attributes = tuple(replace(attribute, distribution="gaussian") for attribute in model.schema.attributes)
    return GaussianModel(replace(model.schema, attributes=attributes), mixture, model.facts)
