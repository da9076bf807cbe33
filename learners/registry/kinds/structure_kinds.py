"""The kind of posteriors over the structures of networks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from learners.circuits.model import CircuitModel
from learners.models.query import Graph, Marginal
from learners.orders.checks import check_order_posterior
from learners.orders.model import OrderModel
from learners.registry.column_graphs import posterior_column_graph
from learners.registry.kind import Kind
from learners.registry.networks.arc_networks import ArcNetwork, GaussianNetwork
from learners.registry.networks.model import NetworkModel
from learners.registry.networks.model_networks import best_graph_network


def _network(model: OrderModel, most_cells: int | None) -> ArcNetwork:
    del most_cells
    return best_graph_network(model)


def _circuit(model: OrderModel, max_edges: int, most_bytes: int | None) -> CircuitModel:
    network = best_graph_network(model)
    if isinstance(network, GaussianNetwork):
        return network.model()
    return NetworkModel(network, max_edges=max_edges, most_bytes=most_bytes)


def _trial(model: OrderModel) -> Sequence[float]:
    model.answer([Graph()])
    if model.posterior.bge is not None:
        best_graph_network(model).model().answer([Marginal({})])
    are_probabilities = bool(np.all((model.probabilities >= 0.0) & (model.probabilities <= 1.0 + 1e-9)))
    return [1.0] if are_probabilities else []


STRUCTURES = Kind(
    OrderModel,
    check_order_posterior,
    circuit=_circuit,
    log_likelihood=OrderModel.log_likelihood,
    network=_network,
    network_order=lambda model: range(model.schema.n_attributes),
    graph=posterior_column_graph,
    structures=lambda model: model,
    trial=_trial,
)
