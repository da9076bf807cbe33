"""The circuits of models, to be looked at and taken elsewhere."""

from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from learners.circuits.model import CircuitModel
    from learners.models.model import Model


class Form(StrEnum):
    """How a circuit is written."""

    TEXT = "text"
    JSON = "json"
    DOT = "dot"
    SVG = "svg"
    MODEL = "model"


class CircuitOf(StrEnum):
    """What a circuit is of: the columns, or the graphs of a posterior over structures."""

    COLUMNS = "columns"
    GRAPHS = "graphs"


MEDIA_TYPES = {
    Form.TEXT: "text/plain",
    Form.JSON: "application/json",
    Form.DOT: "text/vnd.graphviz",
    Form.SVG: "image/svg+xml",
    Form.MODEL: "application/octet-stream",
}
LEARNER_OF_CIRCUITS = "circuit"


def circuit_of(model: "Model", form: Form, of: CircuitOf = CircuitOf.COLUMNS) -> bytes:
    """The circuit of a model, of a network the one that it is compiled to; or of the graphs of a posterior over structures.

    As a `model` it is a file that `import` and `fewpass.load` take. Raises NoJoint if it has no joint distribution;
    NetworkTooLarge if its network needs too large a circuit; NoCircuit if its leaves have several columns;
    PictureTooLarge if a picture is asked for, and the circuit has too many regions for one; NoPosterior or
    TooManyParentSets of graphs.
    """
    # Here, for the command line names the forms long before it needs a circuit.
    from learners.circuits.formats import drawing, text
    from service.product.inference.queries import queryable, written

    if form == Form.MODEL:
        return _exported(queryable(model) if of == CircuitOf.COLUMNS else graphs_of(model))
    writers = {Form.TEXT: text.to_text, Form.JSON: text.to_json, Form.DOT: drawing.to_dot, Form.SVG: drawing.to_svg}
    known = written(model) if of == CircuitOf.COLUMNS else graphs_of(model)
    return writers[form](known.circuit, known.schema).encode()


def _exported(model: "CircuitModel") -> bytes:
    from service.product.versions.fitted import Fitted, save

    columns = tuple(attribute.name for attribute in model.schema.attributes)
    with TemporaryDirectory() as folder:
        save(Fitted(model, LEARNER_OF_CIRCUITS, {}, columns), path := Path(folder) / LEARNER_OF_CIRCUITS)
        return path.read_bytes()


def graphs_of(model: "Model") -> "CircuitModel":
    """The circuit over the graphs of a posterior over structures.

    Raises NoPosterior or TooManyParentSets.
    """
    from learners.orders.model import OrderModel
    from learners.registry.networks.order_circuits import order_circuit
    from service.product.views.structures import NoPosterior

    if not isinstance(model, OrderModel):
        raise NoPosterior(model.kind)
    return order_circuit(model)
