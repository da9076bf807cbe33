"""Networks that answer queries: prepared once per process, and compiled to circuits where small."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from learners.models.model import Model
from learners.registry.lazy_imports import deferred
from learners.registry.model_kinds import kind_of

if TYPE_CHECKING:
    from learners.circuits.model import CircuitModel

compile_model_circuit = deferred("learners.registry.networks.network_answers:compile_model_circuit")
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
        own: CircuitModel = compile_model_circuit(model)
        return own
    with _compiling:
        if model in _compiled:
            return _compiled[model]
        _compiled[model] = compile_model_circuit(model)
        return _compiled[model]
