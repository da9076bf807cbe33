"""Networks that answer queries: made once in a process, and where they are small, compiled to circuits."""

import threading
from weakref import WeakKeyDictionary

from learners.circuits.model import CircuitModel
from learners.classifiers.lookup.lookup import LookupModel
from learners.orders.model import OrderModel
from learners.registry.networks.model import NetworkModel
from learners.registry.networks.model_networks import compile_model_circuit

_compiled: WeakKeyDictionary[LookupModel | OrderModel, CircuitModel] = WeakKeyDictionary()
_compiling = threading.Lock()


def n_compiled_network_edges() -> int:
    """The edges of all circuits of networks that this process keeps."""
    with _compiling:
        return sum(
            network.n_edges if isinstance(network, NetworkModel) else network.circuit.n_edges
            for network in _compiled.values()
            if not isinstance(network, NetworkModel) or network.is_compiled
        )


def compiled_network(model: LookupModel | OrderModel) -> CircuitModel:
    """A network, or the best graph of a posterior over networks, as what answers queries: made once per process.

    Raises NoTables if the best graph was too large for its tables, TablesTooLarge.
    """
    with _compiling:
        if model in _compiled:
            return _compiled[model]
        _compiled[model] = compile_model_circuit(model)
        return _compiled[model]
