"""Bayesian networks that answer as circuits do: the best graph of a posterior, and networks of files."""

from __future__ import annotations

import itertools
from dataclasses import replace
from math import fsum, prod

import numpy as np

from learners.circuits.mixtures.mixture import GaussianMixture
from learners.circuits.mixtures.model import GaussianModel
from learners.circuits.model import CircuitModel
from learners.circuits.structures.from_network import MAX_EDGES, tables_circuit
from learners.kernels.arrays import Floats
from learners.orders.bif import BIFError, Network
from learners.orders.model import OrderModel
from learners.orders.queries.network import MOST_CELLS, NoTables, mean_gaussian
from learners.schema import Attribute, Schema

# Rows of files are rounded.
SUMS_TO_ONE = 0.01


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
        return CircuitModel(
            model.schema, tables_circuit(model.best.parents, model.conditional_tables, max_edges), model.facts
        )
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


def network_of_file(network: Network, where: str = "the network", max_edges: int = MAX_EDGES) -> CircuitModel:
    """A network that `read_bif` has read, as a circuit: it answers every query.

    Raises
    ------
    BIFError
        If a variable has no values or no complete table of probabilities, or the edges have a cycle.
    NetworkTooLarge
    """
    names = list(network.values)
    place = {name: v for v, name in enumerate(names)}
    _check_order(network, where)
    tables = [_table(network, name, where) for name in names]
    parents = [tuple(place[parent] for parent in network.parents[name]) for name in names]
    attributes = tuple(Attribute(name, "nominal", network.values[name]) for name in names)
    circuit = tables_circuit(parents, tables, max_edges)
    return CircuitModel(Schema(attributes, None, ("",)), circuit, {"learner": "file", "parameters": {}})


def _check_order(network: Network, where: str) -> None:
    left = {name: set(own) for name, own in network.parents.items()}
    while left:
        free = [name for name, own in left.items() if not own]
        if not free:
            raise BIFError(where, 1, f"the edges among {', '.join(map(repr, list(left)[:4]))} have a cycle")
        left = {name: own - set(free) for name, own in left.items() if own}


def _table(network: Network, name: str, where: str) -> Floats:
    """(q, r) of a variable, in the order of its parents' values."""
    values, own = network.values[name], network.parents[name]
    told, r = network.tables.get(name, {}), len(network.values[name])
    if not r:
        raise BIFError(where, 1, f"variable {name!r} has no values (continuous variables are not read)")
    domains = [network.values[parent] for parent in own]
    q = prod(map(len, domains))
    if q * r > MOST_CELLS:
        raise BIFError(where, 1, f"variable {name!r} has {q * r:,} probabilities, more than {MOST_CELLS:,}")
    if () in told:
        flat = told[()]
        rows = [flat[i * r : (i + 1) * r] for i in range(q)] if len(flat) == q * r else []
    else:
        rows = [told.get(key, ()) for key in itertools.product(*domains)]
    for row, key in zip(rows, itertools.product(*domains), strict=False):
        is_sound = len(row) == r and min(row) >= 0 and abs(fsum(row) - 1) < SUMS_TO_ONE
        if not is_sound:
            given = f" given ({', '.join(key)})" if key else ""
            raise BIFError(where, 1, f"{name!r} has no {len(values)} probabilities that add up to one{given}")
    if not rows:
        raise BIFError(where, 1, f"the table of {name!r} has {len(told[()])} probabilities, not {q * r}")
    table = np.array(rows, np.float64)
    return table / table.sum(axis=1, keepdims=True)
