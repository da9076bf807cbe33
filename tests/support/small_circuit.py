"""One small circuit and its schema."""

from learners.circuits.kernels import GAUSSIAN
from learners.schema import Attribute, LeftOut, Schema
from tests.naive.map import categorical, mixture

# colour: missing is summed out; size: in three intervals; weight: its own numbers; n: missing is a value of its own.
SCHEMA = Schema(
    (
        Attribute("colour", "nominal", ("red", "green"), has_missing=True, n_folded=2),
        Attribute("size", "numeric", cuts=(1.0, 2.5), arrow_type="double"),
        Attribute("weight", "numeric", arrow_type="double"),
        Attribute("n", "nominal", (3, 5), has_missing=True, arrow_type="int64"),
    ),
    "sold",
    ("False", "True"),
    "bool",
    (LeftOut("serial", "constant"),),
)


CIRCUIT = mixture(
    [
        [categorical(0.5, 0.3, 0.2), categorical(0.1, 0.2, 0.7), (GAUSSIAN, [1.0, 2.0]), categorical(0.0, 0.4, 0.6), categorical(1, 0)],
        [categorical(0.1, 0.8, 0.1), categorical(0.6, 0.2, 0.2), (GAUSSIAN, [5.0, 1.0]), categorical(0.3, 0.3, 0.4), categorical(0.2, 0.8)],
    ],
    [0.4, 0.6],
)  # fmt: skip
