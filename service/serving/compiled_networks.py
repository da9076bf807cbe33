"""Networks as circuits: compiled once in a process, for queries."""

import threading
from weakref import WeakKeyDictionary

from learners.circuits.model import CircuitModel
from learners.circuits.structures.from_network import MAX_EDGES
from learners.classifiers.lookup.lookup import LookupModel
from learners.orders.model import OrderModel
from learners.registry.networks.model_networks import compile_model_circuit

_compiled: WeakKeyDictionary[LookupModel | OrderModel, CircuitModel] = WeakKeyDictionary()
_compiling = threading.Lock()


def n_compiled_network_edges() -> int:
    """The edges of all circuits of networks that this process keeps."""
    with _compiling:
        return sum(int(network.circuit.children.size) for network in _compiled.values())


def compiled_network(model: LookupModel | OrderModel, max_edges: int = MAX_EDGES) -> CircuitModel:
    """A network, or the best graph of a posterior over networks, as a circuit: compiled once per process.

    Raises NoTables if the best graph was too large for its tables; NetworkTooLarge if it is not compiled yet, and would
    have more than `max_edges` edges.
    """
    with _compiling:
        if model in _compiled:
            return _compiled[model]
        _compiled[model] = compile_model_circuit(model, max_edges)
        return _compiled[model]
