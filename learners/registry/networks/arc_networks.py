"""Networks with arcs and parameters that support interventions: discrete and linear Gaussian."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from graphlib import TopologicalSorter

import numpy as np

from learners.circuits.mixtures.mixture import GaussianMixture
from learners.circuits.mixtures.model import GaussianModel
from learners.circuits.model import CircuitModel
from learners.circuits.structures.from_network import (
    MAX_EDGES,
    NetworkTooLarge,
    circuit_from_network_tables,
    network_circuit_edges,
)
from learners.circuits.variables import Columns
from learners.kernels.arrays import Floats
from learners.orders.lattice.graph_samples import Graph
from learners.registry.networks.tree_tables import Table
from learners.schema import Schema

# The variance of a number that is set: its density at its mean is one, so it adds nothing to the evidence's.
SET_VARIANCE = 1.0 / (2.0 * np.pi)


def _without_parents(parents: Graph, codes: Mapping[int, float]) -> Graph:
    return tuple(() if v in codes else own for v, own in enumerate(parents))


@dataclass(frozen=True, eq=False)
class DiscreteNetwork:
    """A Bayesian network of discrete variables."""

    schema: Schema  # variable i is attribute i; the last is the class, if there is one
    parents: Graph  # of each variable
    # p(x | parents): one axis for each parent in order, the last for the variable; float64 arrays, or read from trees.
    tables: tuple[Table, ...]
    facts: Mapping[str, object] = field(default_factory=dict)
    left_out: frozenset[int] = frozenset()  # variables that the network does not have

    @cached_property
    def columns(self) -> Columns:
        """Mapping of columns to variables, available without compiling the network."""
        shares = [np.full(table.shape[-1], 1.0 / table.shape[-1]) for table in self.tables]
        alone: Graph = ((),) * len(shares)
        return Columns(circuit_from_network_tables(alone, shares, left_out=self.left_out), self.schema)

    def after(self, codes: Mapping[int, float]) -> DiscreteNetwork:
        """Return the network after setting some variables to a value.

        References
        ----------
        Pearl (2009), Causality, section 3.2.3: the truncated factorisation.
        """
        tables = list(self.tables)
        for v, code in codes.items():
            tables[v] = (np.arange(self.tables[v].shape[-1]) == int(code)).astype(np.float64)
        return replace(self, parents=_without_parents(self.parents, codes), tables=tuple(tables))

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Variables of the network, parents first."""
        return tuple(
            TopologicalSorter({v: own for v, own in enumerate(self.parents) if v not in self.left_out}).static_order()
        )

    def ancestors(self, variables: Iterable[int]) -> list[int]:
        """Return some variables and their ancestors, ascending, without variables that the network lacks."""
        found, queue = set[int](), [v for v in variables if v not in self.left_out]
        while queue:
            v = queue.pop()
            if v not in found:
                found.add(v)
                queue += self.parents[v]
        return sorted(found)

    def dense_tables(self) -> list[Floats]:
        """Return all tables as arrays."""
        return [np.asarray(table) for table in self.tables]

    def n_circuit_edges(self) -> int:
        """Return the number of edges of the network's circuit."""
        return network_circuit_edges(self.parents, [table.shape[-1] for table in self.tables], self.left_out)

    def model(self, max_edges: int = MAX_EDGES) -> CircuitModel:
        """Compile the network to a circuit. Raises NetworkTooLarge."""
        if (n_edges := self.n_circuit_edges()) > max_edges:  # before a table is expanded
            raise NetworkTooLarge(n_edges, max_edges)
        circuit = circuit_from_network_tables(self.parents, self.dense_tables(), max_edges, self.left_out)
        return CircuitModel(self.schema, circuit, self.facts)


@dataclass(frozen=True, eq=False)
class GaussianNetwork:
    """A linear Gaussian network: each variable is an intercept, a weighted sum of its parents, and noise."""

    schema: Schema
    parents: Graph
    intercepts: Floats  # (d,) float64
    weights: Floats  # (d, d) float64: [i, j] the coefficient of j in i
    variances: Floats  # (d,) float64: of the noise
    facts: Mapping[str, object] = field(default_factory=dict)

    @cached_property
    def columns(self) -> Columns:
        """Mapping of columns to variables."""
        return self.model().columns

    def after(self, codes: Mapping[int, float]) -> GaussianNetwork:
        """Return the network after setting some variables to a fixed mean."""
        intercepts, weights, variances = self.intercepts.copy(), self.weights.copy(), self.variances.copy()
        for v, number in codes.items():
            intercepts[v], weights[v], variances[v] = number, 0.0, SET_VARIANCE
        parents = _without_parents(self.parents, codes)
        return replace(self, parents=parents, intercepts=intercepts, weights=weights, variances=variances)

    def model(self, max_edges: int = MAX_EDGES) -> GaussianModel:
        """Return the joint Gaussian distribution."""
        d = self.intercepts.size
        through = np.linalg.inv(np.eye(d) - self.weights)
        with np.errstate(over="ignore", invalid="ignore"):  # which the mixture refuses
            covariance = (through * self.variances) @ through.T
        mixture = GaussianMixture(
            np.zeros(1),
            (through @ self.intercepts)[np.newaxis],
            covariance[np.newaxis],
            np.empty((1, 0)),
            np.zeros(d, np.int64),
        )
        attributes = tuple(replace(attribute, distribution="gaussian") for attribute in self.schema.attributes)
        return GaussianModel(replace(self.schema, attributes=attributes), mixture, self.facts)


ArcNetwork = DiscreteNetwork | GaussianNetwork
