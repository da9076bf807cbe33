"""Networks inside models: of a classifier, of an imported file, and of any graph of a posterior over structures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from learners.circuits.circuit import Circuit
from learners.circuits.structures.from_network import MAX_EDGES, network_circuit_edges
from learners.circuits.variables import Columns
from learners.classifiers.lookup.lookup import LookupModel
from learners.errors import LearnerError
from learners.kernels.arrays import Floats
from learners.orders.lattice.graph_samples import Graph
from learners.orders.model import OrderModel
from learners.orders.queries.coefficients import (
    Coefficients,
    draw_posterior_coefficients,
    posterior_mean_coefficients,
    unstandardise_coefficients,
)
from learners.orders.queries.predictive import MOST_CELLS as MOST_GRAPH_CELLS
from learners.orders.queries.predictive import NoRows, NoTables, n_family_table_cells, posterior_dirichlet_counts
from learners.registry.networks.arc_networks import ArcNetwork, DiscreteNetwork, GaussianNetwork
from learners.registry.networks.tree_tables import Table, TablesTooLarge, TreeTable

# Probabilities of all tables together: 256 MiB.
MOST_CELLS = 1 << 25
# A row of draws that are all zero in floating point is even.
TINY = 1e-300


def network_circuit(model: LookupModel, max_edges: int = MAX_EDGES) -> Circuit:
    """Compile the joint distribution of a classifier's attributes and class to a circuit.

    Variable i is attribute i of the schema with all its codes, including missing; the last variable is the class.
    Attributes that feature selection removed have no leaf.

    Raises NetworkTooLarge.
    """
    return classifier_network(model).model(max_edges).circuit


def _families(model: LookupModel) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return for each attribute in tree order its family (class, parents and itself) and the domain sizes."""
    sizes = [*model.schema.domain_sizes.tolist(), model.schema.n_classes]
    network, target = model.network, model.schema.n_attributes
    families = [(target, *own, v) for v, own in zip(network.order, network.parents, strict=True)]
    return [(family, tuple(sizes[v] for v in family)) for family in families]


def _prior(model: LookupModel) -> Floats:
    """Return the classifier's smoothed class prior, as in `look_up_tables.smoothed_log_class_prior`."""
    return (model.class_counts + 1.0 / model.schema.n_classes) / (model.class_counts.sum() + 1.0)


class NoJointDistribution(LearnerError, ValueError):
    """Raised if the probabilities of a classifier's contexts do not sum to one."""

    def __init__(self) -> None:
        super().__init__(
            "This model was trained with back_off=cell, whose probabilities do not sum to one in each context, so it can predict but "
            "not answer queries. Train with back_off=context to query it."
        )


def classifier_network(model: LookupModel, most_cells: int | None = None) -> DiscreteNetwork:
    """Return the network of a classifier, with dense tables if it has at most `MOST_CELLS` probabilities.

    Raises NoJointDistribution, or TablesTooLarge if it has more probabilities than `most_cells`.
    """
    parameters = model.facts.get("parameters")
    if isinstance(parameters, Mapping) and parameters.get("back_off") == "cell":
        raise NoJointDistribution
    schema, families = model.schema, _families(model)
    sizes, target = schema.domain_sizes.tolist(), schema.n_attributes
    parents: list[tuple[int, ...]] = [()] * (target + 1)
    tables: list[Table] = [np.full(size, 1.0 / size) for size in sizes]
    most = sum(int(np.prod(shape, dtype=np.float64)) for _, shape in families)
    if most_cells is not None and most > most_cells:
        raise TablesTooLarge(most, most_cells)
    for (family, shape), tree, estimates in zip(families, model.trees, model.estimates, strict=True):
        parents[family[-1]] = family[:-1]
        table = TreeTable(tree, estimates, shape)
        tables[family[-1]] = np.asarray(table) if most <= MOST_CELLS else table
    return DiscreteNetwork(schema, tuple(parents), (*tables, _prior(model)), model.facts, _left_out(model))


def _left_out(model: LookupModel) -> frozenset[int]:
    """Return the attributes that feature selection removed."""
    return frozenset(range(model.schema.n_attributes)) - set(model.network.order)


def classifier_circuit_edges(model: LookupModel) -> int:
    """Return the number of edges of a classifier's circuit, without computing its tables."""
    sizes, target = [*model.schema.domain_sizes.tolist(), model.schema.n_classes], model.schema.n_attributes
    parents: list[tuple[int, ...]] = [()] * (target + 1)
    for family, _ in _families(model):
        parents[family[-1]] = family[:-1]
    return network_circuit_edges(parents, sizes, _left_out(model))


def classifier_network_columns(model: LookupModel) -> Columns:
    """Return the columns of a classifier's network, without computing its tables."""
    sizes = [*model.schema.domain_sizes.tolist(), model.schema.n_classes]
    tables = tuple(np.full(size, 1.0 / size) for size in sizes)
    return DiscreteNetwork(model.schema, ((),) * len(sizes), tables, {}, _left_out(model)).columns


def best_graph_network(model: OrderModel) -> ArcNetwork:
    """Return the most probable graph of a posterior with its expected parameters. Raises NoTables if these were too
    large to store.
    """
    if model.posterior.bge is not None:
        return GraphParameters(model).mean(model.best.parents)
    if not model.conditional_tables:
        raise NoTables
    return _of_tables(model, model.best.parents, model.conditional_tables)


class GraphParameters:
    """Parameters of any graph of a posterior; the counts of each family are computed once."""

    def __init__(self, model: OrderModel) -> None:
        self.model = model
        self._counts: dict[tuple[int, tuple[int, ...]], Floats] = {}

    def mean(self, parents: Graph) -> ArcNetwork:
        """Return a graph with its expected parameters.

        Raises NoRows if the model stores no rows to count; NoTables if the tables are too large.
        """
        bge = self.model.posterior.bge
        if bge is not None:
            return _gaussian(self.model, parents, posterior_mean_coefficients(parents, bge))
        return _of_tables(self.model, parents, [_shares(counts) for counts in self._counts_of(parents)])

    def drawn(self, parents: Graph, rng: np.random.Generator) -> ArcNetwork:
        """Return a graph with parameters drawn from their posterior. Raises NoRows or NoTables."""
        bge = self.model.posterior.bge
        if bge is not None:
            return _gaussian(self.model, parents, draw_posterior_coefficients(parents, bge, rng))
        tables = [_shares(rng.standard_gamma(counts) + TINY) for counts in self._counts_of(parents)]
        return _of_tables(self.model, parents, tables)

    def _counts_of(self, parents: Graph) -> list[Floats]:
        score = self.model.graph_queries.bdeu
        if score is None:
            raise NoRows
        families = list(enumerate(parents))
        if n_family_table_cells(score, families) > MOST_GRAPH_CELLS:
            raise NoTables
        new = [family for family in families if family not in self._counts]
        self._counts.update(zip(new, posterior_dirichlet_counts(score, new), strict=True))
        return [self._counts[family] for family in families]


def _shares(counts: Floats) -> Floats:
    return counts / counts.sum(axis=1, keepdims=True)


def _of_tables(model: OrderModel, parents: Graph, tables: Sequence[Floats]) -> DiscreteNetwork:
    sizes = [table.shape[1] for table in tables]
    shaped = tuple(
        table.reshape(*(sizes[parent] for parent in own), -1) for table, own in zip(tables, parents, strict=True)
    )
    return DiscreteNetwork(model.schema, parents, shaped, model.facts)


def _gaussian(model: OrderModel, parents: Graph, scored: Coefficients) -> GaussianNetwork:
    """Convert coefficients from standardized to original units, as a network."""
    return GaussianNetwork(
        model.schema, parents, *unstandardise_coefficients(model.posterior.standard, scored), model.facts
    )
