"""Circuits of models, drawn and exported."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from learners.circuits.model import CircuitModel
    from learners.models.model import Model

Form = Literal["text", "json", "dot", "svg", "model"]
# What a circuit is of: the columns, or the graphs of a posterior over structures.
CircuitOf = Literal["columns", "graphs"]
# What a picture of a posterior over structures shows: the probabilities of edges, or the graph.
Picture = Literal["edges", "graph"]
MEDIA_TYPES: Mapping[Form, str] = {
    "text": "text/plain",
    "json": "application/json",
    "dot": "text/vnd.graphviz",
    "svg": "image/svg+xml",
    "model": "application/octet-stream",
}
LEARNER_OF_CIRCUITS = "circuit"


def export_model_circuit(model: "Model", form: Form, of: CircuitOf = "columns") -> bytes:
    """Export the circuit of a model, the compiled circuit of a network, or the circuit over graphs of a posterior over
    structures.

    As a `model` it is a file that `import` and `fewpass.load` take. Raises NoJoint if it has no joint distribution;
    NetworkTooLarge if its network needs too large a circuit; NoCircuit if its leaves have several columns;
    PictureTooLarge if the circuit has too many regions for a picture; NoPosterior or
    TooManyParentSets of graphs.
    """
    # Here, for the command line names the forms long before it needs a circuit.
    from learners.circuits.structures import region_drawing, text
    from service.product.inference.queries import exportable_circuit, queryable_circuit

    if form == "model":
        return _exported(queryable_circuit(model) if of == "columns" else posterior_graph_circuit(model))
    writers = {"text": text.to_text, "json": text.to_json, "dot": region_drawing.to_dot, "svg": region_drawing.to_svg}
    known = exportable_circuit(model) if of == "columns" else posterior_graph_circuit(model)
    return writers[form](known.circuit, known.schema).encode()


def _exported(model: "CircuitModel") -> bytes:
    from service.product.versions.fitted_models import Fitted, save_fitted_model

    columns = tuple(attribute.name for attribute in model.schema.attributes)
    with TemporaryDirectory() as folder:
        save_fitted_model(Fitted(model, LEARNER_OF_CIRCUITS, {}, columns), path := Path(folder) / LEARNER_OF_CIRCUITS)
        return path.read_bytes()


def posterior_graph_circuit(model: "Model") -> "CircuitModel":
    """Return the circuit over the graphs of a posterior over structures (NoPosterior, TooManyParentSets)."""
    from learners.registry.model_kinds import kind_of
    from learners.registry.networks.order_circuits import order_circuit

    return order_circuit(kind_of(model).structures(model))
