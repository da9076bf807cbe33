"""Export of trained models as networks for other programs, and import of their networks as models."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

import numpy as np

from learners.circuits.structures.from_network import MAX_EDGES
from learners.kernels.arrays import Floats
from learners.models.model import Model
from learners.orders.formats.network_files import NetworkFormat, format_network
from learners.orders.formats.network_tables import Equation, InvalidNetwork, Network
from learners.orders.lattice.graph_samples import Graph
from learners.registry.model_kinds import kind_of
from learners.registry.networks.arc_networks import DiscreteNetwork, GaussianNetwork
from learners.registry.networks.model import LinearModel, NetworkModel
from learners.schema import Attribute, Schema

# Probabilities of all tables together: a text of 20 MB.
MOST_CELLS = 1 << 20
# A row of a file may miss 1 by what rounding to a few digits costs.
SUM_TOLERANCE = 1e-4


def model_to_network_text(model: Model, name: str, form: NetworkFormat = "bif") -> str:
    """Format a model as a network file; see `model_to_network`.

    `name`: of the network.
    `form`: "bif", "xmlbif" or "xdsl".
    Raises NoNetwork, TablesTooLarge or NoTables; InvalidNetwork if a variable is continuous, which only the Bayesian
    Interchange Format can hold.
    """
    return format_network(name, model_to_network(model), form)


def model_to_network(model: Model) -> Network:
    """Convert a model to a network for other programs.

    The values of a numeric column are its intervals; missing is a value if training had missing cells. Columns
    that feature selection removed are not in the network. An imported network is returned unchanged, an ensemble
    gives its joint member, and a posterior over structures its most probable graph.

    Raises NoNetwork if it is another kind of model; TablesTooLarge or NoTables.
    """
    own = model.joint
    order = kind_of(own).network_order(own)
    network = kind_of(own).network(own, MOST_CELLS)
    if isinstance(network, GaussianNetwork):
        return _network_of_equations(network)
    return _network_of_tables(network, order)


def _network_of_tables(network: DiscreteNetwork, order: Sequence[int]) -> Network:
    columns, names = network.columns, network.columns.names
    values = {names[v]: tuple(columns.labels(v)) for v in order}
    parents = {names[v]: tuple(names[parent] for parent in network.parents[v]) for v in order}
    tables = {
        names[v]: _by_context(
            values, parents[names[v]], np.asarray(network.tables[v]).reshape(-1, len(values[names[v]]))
        )
        for v in order
    }
    return Network(values, parents, tables)


def _network_of_equations(network: GaussianNetwork) -> Network:
    names = [attribute.name for attribute in network.schema.attributes]
    numbers = zip(network.intercepts.tolist(), network.weights, np.sqrt(network.variances).tolist(), strict=True)
    parents = {name: tuple(names[parent] for parent in own) for name, own in zip(names, network.parents, strict=True)}
    equations = {
        name: Equation(intercept, tuple(weights[list(own)].tolist()), deviation)
        for name, own, (intercept, weights, deviation) in zip(names, network.parents, numbers, strict=True)
    }
    return Network(dict.fromkeys(names, ()), parents, {}, equations)


def _by_context(
    values: Mapping[str, tuple[str, ...]], parents: Sequence[str], rows: Floats
) -> dict[tuple[str, ...], tuple[float, ...]]:
    """Return the rows of a table by parent values; the last parent varies fastest."""
    return dict(zip(itertools.product(*(values[parent] for parent in parents)), map(tuple, rows.tolist()), strict=True))


def network_model(network: Network, max_edges: int = MAX_EDGES) -> NetworkModel | LinearModel:
    """Convert a network to a circuit, or a Gaussian, with the same joint distribution, which answers every query,
    including interventions.

    `network`: as `read_network` gives it.
    `max_edges`: of the circuit.
    Raises InvalidNetwork naming the variable whose values, table or equation are wrong; NetworkTooLarge or InvalidCircuit.
    """
    _check_graph(network)
    names = list(network.values)
    place = {name: i for i, name in enumerate(names)}
    parents = [tuple(place[parent] for parent in network.parents[name]) for name in names]
    facts: Mapping[str, Any] = {"learner": "network", "n_rows": 0}
    if network.equations:
        return _linear_model(network, tuple(parents), facts)
    tables = [_table(network, name) for name in names]
    attributes = tuple(Attribute(name, "nominal", values=network.values[name]) for name in names)
    schema = Schema(attributes, None, ("",))
    return NetworkModel(DiscreteNetwork(schema, tuple(parents), tuple(tables), facts), max_edges=max_edges)


def _linear_model(network: Network, parents: Graph, facts: Mapping[str, Any]) -> LinearModel:
    names, equations = list(network.values), list(map(network.equations.__getitem__, network.values))
    if len(names) ** 2 > MOST_CELLS:
        raise InvalidNetwork(names[0], f"is one of {len(names):,} numbers: their covariance is too large")
    weights = np.zeros((len(names), len(names)))
    for v, own in enumerate(parents):
        weights[v, list(own)] = equations[v].coefficients
    schema = Schema(tuple(Attribute(name, "numeric", arrow_type="double") for name in names), None, ("",))
    intercepts = np.array([equation.intercept for equation in equations])
    variances = np.array([equation.deviation for equation in equations]) ** 2
    return LinearModel(GaussianNetwork(schema, parents, intercepts, weights, variances, facts))


def _check_graph(network: Network) -> None:
    for name, values in network.values.items():
        if bool(values) == (name in network.equations):
            raise InvalidNetwork(name, "needs values or an equation (intercept, coefficients, deviation)")
        if values and network.equations:
            raise InvalidNetwork(name, "has values while other variables are numbers: use one kind for all")
        if len(set(values)) < len(values):
            raise InvalidNetwork(name, "has the same value twice")
        if len(set(network.parents[name])) < len(network.parents[name]):
            raise InvalidNetwork(name, "has the same parent twice")
    try:
        TopologicalSorter(network.parents).prepare()
    except CycleError as error:
        circle: Sequence[str] = error.args[1]
        raise InvalidNetwork(circle[0], f"is its own ancestor: {' -> '.join(reversed(circle))}") from None


def _table(network: Network, name: str) -> Floats:
    """Return p(x | parents), with one axis per parent and a last one for the variable, whose entries sum to one."""
    own, above = network.values[name], network.parents[name]
    table = network.tables.get(name, {})
    n_contexts = math.prod(len(network.values[parent]) for parent in above)
    if n_contexts * len(own) > MOST_CELLS:
        raise InvalidNetwork(name, f"has a table of more than {MOST_CELLS:,} probabilities")
    contexts = list(itertools.product(*(network.values[parent] for parent in above)))
    if () in table and above:  # a whole table
        numbers = table[()]
        if len(numbers) != n_contexts * len(own):
            raise InvalidNetwork(
                name, f"has {len(numbers):,} probabilities in its table but needs {n_contexts * len(own):,}"
            )
        rows = np.array(numbers, np.float64).reshape(-1, len(own))
    else:
        known = set(contexts)
        if unknown := [context for context in table if context not in known]:
            raise InvalidNetwork(name, f"has probabilities for {unknown[0]!r}, which are not values of its parents")
        if missing := [context for context in contexts if context not in table]:
            raise InvalidNetwork(name, f"has no probabilities{_where(missing[0])}")
        if wrong := [context for context in contexts if len(table[context]) != len(own)]:
            raise InvalidNetwork(
                name, f"has {len(table[wrong[0]])} probabilities{_where(wrong[0])} and {len(own)} values"
            )
        rows = np.array([table[context] for context in contexts], np.float64)
    sums = rows.sum(axis=1)
    is_wrong = ~((rows >= 0).all(axis=1) & (np.abs(sums - 1.0) <= SUM_TOLERANCE))
    if is_wrong.any():
        first = int(np.argmax(is_wrong))
        raise InvalidNetwork(
            name, f"has probabilities{_where(contexts[first])} that sum to {sums[first]:g}, or a negative one"
        )
    shape = (*(len(network.values[parent]) for parent in above), len(own))
    return (rows / sums[:, np.newaxis]).reshape(shape)


def _where(context: tuple[str, ...]) -> str:
    return f" for {context!r}" if context else ""
