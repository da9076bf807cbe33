"""Networks that answer queries: prepared once per process, and compiled to circuits where small."""

import threading
from weakref import WeakKeyDictionary

from learners.circuits.model import CircuitModel
from learners.models.model import Model
from learners.registry.model_kinds import kind_of
from learners.registry.networks.network_answers import compile_model_circuit

_compiled: WeakKeyDictionary[Model, CircuitModel] = WeakKeyDictionary()
_compiling = threading.Lock()


def n_compiled_network_edges() -> int:
    """Count the edges of all compiled networks cached in this process."""
    with _compiling:
        return sum(network.n_edges for network in _compiled.values() if network.is_compiled)


def compiled_network(model: Model) -> CircuitModel:
    """Return the circuit that answers queries: the model itself, or a network or best graph, compiled once per process.

    Raises NoJoint if the model has no joint distribution, NoTables if the best graph was too large for its tables, TablesTooLarge.
    """
    if kind_of(model).is_circuit:
        return compile_model_circuit(model)
    with _compiling:
        if model in _compiled:
            return _compiled[model]
        _compiled[model] = compile_model_circuit(model)
        return _compiled[model]
