"""Networks as circuits: compiled once in a process, for queries."""

import threading
from weakref import WeakKeyDictionary

from learners.circuits.model import CircuitModel
from learners.circuits.structures.from_network import MAX_EDGES, network_circuit
from learners.classifiers.lookup.lookup import LookupModel

_compiled: WeakKeyDictionary[LookupModel, CircuitModel] = WeakKeyDictionary()
_compiling = threading.Lock()


def n_kept_edges() -> int:
    """The edges of all circuits of networks that this process keeps."""
    with _compiling:
        return sum(int(kept.circuit.children.size) for kept in _compiled.values())


def compiled_network(model: LookupModel, max_edges: int = MAX_EDGES) -> CircuitModel:
    """A network as a circuit, compiled once per process.

    Raises
    ------
    NetworkTooLarge
        If it is not compiled yet, and would have more than `max_edges` edges.
    """
    with _compiling:
        if model not in _compiled:
            _compiled[model] = CircuitModel(model.schema, network_circuit(model, max_edges), model.facts)
        return _compiled[model]
