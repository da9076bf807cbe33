"""Trained models as networks for other programs, and networks of such programs as models."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

import numpy as np

from learners.circuits.structures.from_network import MAX_EDGES
from learners.classifiers.estimates.context_tree import context_probabilities
from learners.classifiers.lookup.lookup import LookupModel
from learners.ensembles.model import EnsembleModel
from learners.errors import LearnerError
from learners.kernels.arrays import Floats
from learners.models.model import Model
from learners.orders.formats.network_files import NetworkFormat, write_network
from learners.orders.formats.network_tables import InvalidNetwork, Network
from learners.orders.model import OrderModel
from learners.registry.networks.arc_networks import DiscreteNetwork
from learners.registry.networks.model import NetworkModel
from learners.schema import Attribute, Schema
from learners.schema.labels import labels_of

# Probabilities of all tables together: a text of 20 MB.
MOST_CELLS = 1 << 20
# A row of a file may miss 1 by what rounding to a few digits costs.
SUM_TOLERANCE = 1e-4


class NoNetwork(LearnerError, ValueError):
    """A model is no network, so there is none to write."""

    def __init__(self, kind: str) -> None:
        super().__init__(
            f"A model of kind {kind!r} is no Bayesian network, so it cannot be written as one. Networks (nb, tan, kdb, skdb, "
            "and imported ones), posteriors over structures (orders), and ensembles by their joint member can."
        )


class TooManyCells(LearnerError, ValueError):
    """The tables of a network are too large to be written out."""

    def __init__(self, n_cells: int) -> None:
        super().__init__(
            f"The tables of the network have {n_cells:,} probabilities, more than {MOST_CELLS:,} that a file may have. Train "
            "with fewer parents (a smaller k), or fold rare values (max_values)."
        )


def network_text(model: Model, name: str, form: NetworkFormat = "bif") -> str:
    """A model as the text of a network file; see `network_of`.

    Parameters
    ----------
    name : str
        Of the network.
    form : str
        "bif", "xmlbif" or "xdsl".

    Raises
    ------
    NoNetwork, TooManyCells, NoTables
    InvalidNetwork
        If a variable is continuous, which only the Bayesian Interchange Format can hold.
    """
    return write_network(name, network_of(model), form)


def network_of(model: Model) -> Network:
    """A model as a network for other programs.

    The values of a numeric column are its intervals; a missing value is a value where training saw one. Columns that the
    model selected away are not in the network. An imported network is itself. Of an ensemble it is the joint member; of a posterior over structures
    the most probable graph.

    Raises
    ------
    NoNetwork
        If it is another kind of model.
    TooManyCells, NoTables
    """
    if isinstance(model, OrderModel):
        return model.network()
    if isinstance(model, NetworkModel):
        return _network_of_tables(model.network)
    if isinstance(model, EnsembleModel):
        model = model.joint
    if not isinstance(model, LookupModel) or model.schema.target is None:
        raise NoNetwork(model.kind)
    return _network_of(model, model.schema.target)


def _network_of(model: LookupModel, target: str) -> Network:
    schema, network = model.schema, model.network
    sizes = schema.domain_sizes
    shapes = [
        (schema.n_classes, *(int(sizes[parent]) for parent in own), int(sizes[attribute]))
        for attribute, own in zip(network.order, network.parents, strict=True)
    ]
    n_cells = sum(int(np.prod(shape, dtype=np.float64)) for shape in shapes)
    if n_cells > MOST_CELLS:
        raise TooManyCells(n_cells)
    names = [attribute.name for attribute in schema.attributes]
    values = {target: tuple(schema.classes)}
    values |= {names[i]: tuple(labels_of(schema.attributes[i])) for i in network.order}
    parents: dict[str, tuple[str, ...]] = {target: ()}
    prior = (model.class_counts + 1.0 / schema.n_classes) / (model.class_counts.sum() + 1.0)  # as in the look-up tables
    tables: dict[str, dict[tuple[str, ...], tuple[float, ...]]] = {target: {(): tuple(prior.tolist())}}
    families = zip(network.order, network.parents, shapes, model.trees, model.estimates, strict=True)
    for attribute, own, shape, tree, estimates in families:
        child = names[attribute]
        parents[child] = (target, *(names[parent] for parent in own))
        rows = context_probabilities(tree, estimates, shape).reshape(-1, shape[-1])
        rows = rows / rows.sum(axis=1, keepdims=True)
        tables[child] = _by_context(values, parents[child], rows)
    return Network(values, parents, tables)


def _network_of_tables(network: DiscreteNetwork) -> Network:
    attributes = network.schema.attributes
    values = {attribute.name: tuple(labels_of(attribute)) for attribute in attributes}
    parents = {
        attribute.name: tuple(attributes[parent].name for parent in own)
        for attribute, own in zip(attributes, network.parents, strict=True)
    }
    tables = {
        name: _by_context(values, parents[name], table.reshape(-1, len(values[name])))
        for name, table in zip(values, network.tables, strict=True)
    }
    return Network(values, parents, tables)


def _by_context(
    values: Mapping[str, tuple[str, ...]], parents: Sequence[str], rows: Floats
) -> dict[tuple[str, ...], tuple[float, ...]]:
    """The rows of a table by the values of its parents, of which the last one varies fastest."""
    contexts = itertools.product(*(values[parent] for parent in parents))
    return dict(zip(contexts, map(tuple, rows.tolist()), strict=True))


def network_model(network: Network, max_edges: int = MAX_EDGES) -> NetworkModel:
    """A network as a circuit of the same joint distribution, which answers every query, after interventions, too.

    Parameters
    ----------
    network : Network
        As `read_network` gives it.
    max_edges : int
        Of the circuit.

    Raises
    ------
    InvalidNetwork
        Naming the variable whose values or table are wrong.
    NetworkTooLarge
    """
    _check_graph(network)
    names = list(network.values)
    place = {name: i for i, name in enumerate(names)}
    parents = [tuple(place[parent] for parent in network.parents[name]) for name in names]
    tables = [_table(network, name) for name in names]
    attributes = tuple(Attribute(name, "nominal", values=network.values[name]) for name in names)
    facts: Mapping[str, Any] = {"learner": "network", "n_rows": 0}
    schema = Schema(attributes, None, ("",))
    return NetworkModel(DiscreteNetwork(schema, tuple(parents), tuple(tables), facts), max_edges=max_edges)


def _check_graph(network: Network) -> None:
    for name, values in network.values.items():
        if not values:
            raise InvalidNetwork(name, "has no values: only networks of discrete variables can be imported")
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
    """p(x | parents), one axis for each parent and the variable's own, each row summing to one."""
    own, above = network.values[name], network.parents[name]
    given = network.tables.get(name, {})
    n_contexts = int(np.prod([len(network.values[parent]) for parent in above], dtype=np.float64))
    if n_contexts * len(own) > MOST_CELLS:
        raise InvalidNetwork(name, f"has a table of {n_contexts * len(own):,} probabilities, more than {MOST_CELLS:,}")
    contexts = list(itertools.product(*(network.values[parent] for parent in above)))
    if () in given and above:  # a whole table
        numbers = given[()]
        if len(numbers) != n_contexts * len(own):
            raise InvalidNetwork(
                name, f"has {len(numbers):,} probabilities in its table and needs {n_contexts * len(own):,}"
            )
        rows = np.array(numbers, np.float64).reshape(-1, len(own))
    else:
        known = set(contexts)
        if unknown := [context for context in given if context not in known]:
            raise InvalidNetwork(name, f"has probabilities for {unknown[0]!r}, which are no values of its parents")
        if missing := [context for context in contexts if context not in given]:
            raise InvalidNetwork(name, f"has no probabilities{_where(missing[0])}")
        if wrong := [context for context in contexts if len(given[context]) != len(own)]:
            raise InvalidNetwork(
                name, f"has {len(given[wrong[0]])} probabilities{_where(wrong[0])} and {len(own)} values"
            )
        rows = np.array([given[context] for context in contexts], np.float64)
    sums = rows.sum(axis=1)
    is_wrong = ~((rows >= 0).all(axis=1) & (np.abs(sums - 1.0) <= SUM_TOLERANCE))
    if is_wrong.any():
        first = int(np.argmax(is_wrong))
        raise InvalidNetwork(
            name, f"has probabilities{_where(contexts[first])} that sum to {sums[first]:g}, or a negative one"
        )
    shape = (*(len(network.values[parent]) for parent in above), len(own))
    table: Floats = (rows / sums[:, np.newaxis]).reshape(shape)
    return table


def _where(context: tuple[str, ...]) -> str:
    return f" for {context!r}" if context else ""
