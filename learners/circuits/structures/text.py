"""Text and JSON formats of circuits."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from learners.circuits.circuit import Circuit, CircuitArrays
from learners.circuits.errors import CircuitFormatError
from learners.circuits.kernels import CATEGORICAL, INDICATOR, KIND_NAMES, PRODUCT, SUM
from learners.circuits.variables import circuit_columns
from learners.schema import Schema

# In the order of the kinds.
WORDS = ("sum", "prod", "ind", "cat", "gauss", "pois", "expo", "student", "rounded", "lognormal", "quantile")
FORMAT = "fewpass circuit 1"
LARGEST = 2**31
MOST_SHOWN = 100
# A column in a comment of `to_text`: its name and its cut points, if it has some.
COLUMNS = re.compile(r'^# \d+ ("(?:[^"\\]|\\.)*") \[.*?\](?: (\[[^\[\]"]*\]))?$', re.M)


class CircuitBuilder:
    """Collects nodes, children first, and builds their circuit.

    n_values: size of each domain, 0 for variables of Gaussian, Poisson and exponential leaves.
    """

    def __init__(self, n_values: Iterable[int]) -> None:
        self.n_values = [int(n) for n in n_values]
        self.kind: list[int] = []
        self.starts, self.children, self.log_weight = [0], list[int](), list[float]()
        self.variable: list[int] = []
        self.leaf_starts, self.leaf_parameters = [0], list[float]()

    def _close(self, kind: int, variable: int) -> int:
        self.kind.append(kind)
        self.variable.append(variable)
        self.starts.append(len(self.children))
        self.leaf_starts.append(len(self.leaf_parameters))
        return len(self.kind) - 1

    def sum(self, children: Iterable[int], log_weights: Iterable[float]) -> int:
        """Add a sum; returns its number."""
        self.children.extend(children)
        self.log_weight.extend(log_weights)
        return self._close(SUM, -1)

    def product(self, children: Iterable[int]) -> int:
        """Add a product; returns its number."""
        before = len(self.children)
        self.children.extend(children)
        self.log_weight.extend([0.0] * (len(self.children) - before))
        return self._close(PRODUCT, -1)

    def leaf(self, kind: int, variable: int, parameters: Iterable[float]) -> int:
        """Add a leaf; returns its number."""
        self.leaf_parameters.extend(parameters)
        return self._close(kind, variable)

    def circuit(self) -> Circuit:
        """Build the circuit whose root is the last node. Raises InvalidCircuit."""
        integers = [self.starts, self.children, self.variable, self.leaf_starts, self.n_values]
        starts, children, variable, leaf_starts, n_values = (np.array(each, np.int64) for each in integers)
        return Circuit(
            CircuitArrays(
                np.array(self.kind, np.int8),
                starts,
                children,
                np.array(self.log_weight, np.float64),
                variable,
                leaf_starts,
                np.array(self.leaf_parameters, np.float64),
                n_values,
            )
        )


def read_text(path: str | Path) -> Circuit:
    """Read a circuit in the text format.

    Raises CircuitFormatError, naming file and line; InvalidCircuit, naming the node, by its position among the nodes.
    """
    with Path(path).open(encoding="utf-8") as lines:
        return parse_text(lines, str(path))


def parse_text(lines: Iterable[str], where: str = "text") -> Circuit:
    """Parse the circuit described by lines of text: `vars`, then one node per line, children first.

    A node is its number and `ind VAR VALUE`, `cat VAR P0 P1 …`, `gauss VAR MEAN STD`, `pois VAR RATE`,
    `expo VAR RATE`, `sum CHILD:WEIGHT …` or `prod CHILD …`; a last line `root NUMBER` is optional. Text after `#`
    is ignored. Weights are divided by their sum, because they are rounded.

    Raises CircuitFormatError, InvalidCircuit as in `read_text`.
    """
    builder: CircuitBuilder | None = None
    position: dict[int, int] = {}
    root: int | None = None
    for number, line in enumerate(lines, 1):
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        try:
            if words[0] == "vars":
                _require(builder is None, "`vars` occurs twice")
                builder = CircuitBuilder(map(_size, words[1:]))
            elif words[0] == "root":
                _require(len(words) == 2, "`root` takes one number")
                root = position[int(words[1])]
            elif builder is None:
                raise ValueError("nodes must follow the line `vars N0 N1 …`")  # noqa: TRY301
            else:
                _require(len(words) > 1, "a node needs a number, a kind and the arguments of that kind")
                node = int(words[0])
                _require(node not in position, f"node {node} is defined twice")
                position[node] = _add_node(builder, position, words[1], words[2:])
        except KeyError as error:
            raise CircuitFormatError(f"{where}, line {number}", f"node {error} is not defined yet") from error
        except (ValueError, OverflowError) as error:
            reason = f"cannot read {_in_short(line.strip())!r}: {_in_short(str(error))}"
            raise CircuitFormatError(f"{where}, line {number}", reason) from error
    if builder is None:
        raise CircuitFormatError(where, "the line `vars N0 N1 …` is missing")
    if root is not None and root != len(builder.kind) - 1:
        raise CircuitFormatError(where, "the root must be the last node")
    return builder.circuit()


def _add_node(builder: CircuitBuilder, position: dict[int, int], word: str, rest: list[str]) -> int:
    if word not in WORDS:
        raise ValueError(f"the kind is {word!r}, not one of {', '.join(WORDS)}")
    kind = WORDS.index(word)
    if kind == PRODUCT:
        return builder.product(position[int(child)] for child in rest)
    if kind == SUM:
        pairs = [child.split(":") for child in rest]
        _require(all(len(pair) == 2 for pair in pairs), "the children of a sum are written CHILD:WEIGHT")
        return builder.sum([position[int(child)] for child, _ in pairs], _log_shares([float(w) for _, w in pairs]))
    _require(len(rest) > 1, "a leaf needs a variable and parameters")
    parameters = [float(each) for each in rest[1:]]
    return builder.leaf(kind, _size(rest[0]), _log_shares(parameters) if kind == CATEGORICAL else parameters)


def _require(is_met: bool, words: str) -> None:
    if not is_met:
        raise ValueError(words)


def _size(word: str) -> int:
    """Parse the number of a variable, or the size of a domain."""
    size = int(word)
    _require(abs(size) < LARGEST, "its number is too large")
    return size


def _in_short(text: str) -> str:
    return text if len(text) <= MOST_SHOWN else text[:MOST_SHOWN] + "…"


def _log_shares(weights: list[float]) -> list[float]:
    total = math.fsum(weights)
    _require(
        all(weight >= 0 for weight in weights) and 0 < total < math.inf,
        "weights must be finite, zero or more, and not all zero",
    )
    return [math.log(weight / total) if weight > 0 else -math.inf for weight in weights]


def to_text(circuit: Circuit, schema: Schema | None = None) -> str:
    """Format a circuit as text; weights have 17 digits, so reading restores the circuit up to one rounding.

    schema: adds comments with the name of each variable, and its values in code order.
    """
    return "\n".join(_lines(circuit, schema)) + "\n"


def _lines(circuit: Circuit, schema: Schema | None) -> Iterator[str]:
    yield f"# {circuit!r}"
    for variable, column in enumerate(_column_entries(circuit, schema)):
        parts = [json.dumps(column[name]) for name in ("name", "values", "cuts") if name in column]
        yield f"# {variable} {' '.join(parts)}"
    yield " ".join(["vars", *map(str, circuit.n_values.tolist())])
    children, weights = circuit.children.tolist(), np.exp(circuit.log_weight).tolist()
    starts, leaf_starts = circuit.child_starts.tolist(), circuit.leaf_starts.tolist()
    for node, kind in enumerate(circuit.kind.tolist()):
        edges = range(starts[node], starts[node + 1])
        if kind == SUM:
            rest = [f"{children[e]}:{weights[e]!r}" for e in edges]
        elif kind == PRODUCT:
            rest = [str(children[e]) for e in edges]
        else:
            parameters = circuit.leaf_parameters[leaf_starts[node] : leaf_starts[node + 1]]
            values = (np.exp(parameters) if kind == CATEGORICAL else parameters).tolist()
            numbers = [str(int(values[0]))] if kind == INDICATOR else [repr(value) for value in values]
            rest = [str(circuit.variable[node]), *numbers]
        yield " ".join([str(node), WORDS[kind], *rest])
    yield f"root {circuit.root}"


def to_json(circuit: Circuit, schema: Schema | None = None) -> str:
    """Format a circuit as JSON, for `from_json`; log 0 is null.

    schema: adds `columns` with the name of each variable, and its values in code order.
    """
    document: dict[str, object] = {"format": FORMAT, "kinds": list(KIND_NAMES)}
    if schema is not None:
        document["columns"] = _column_entries(circuit, schema)
    for name, array in circuit.to_arrays().items():
        values = array.tolist()
        document[name] = [None if value == -math.inf else value for value in values]
    return json.dumps(document, separators=(",", ":"))


def _column_entries(circuit: Circuit, schema: Schema | None) -> list[dict[str, object]]:
    if schema is None:
        return []
    columns = circuit_columns(circuit, schema)
    entries: list[dict[str, object]] = []
    for variable, name in enumerate(columns.names):
        cuts = schema.attributes[variable].cuts if columns.n_values[variable] and variable < schema.n_attributes else ()
        entries.append({"name": name, "values": columns.labels(variable)} | ({"cuts": list(cuts)} if cuts else {}))
    return entries


def parse_cut_points(text: str, where: str) -> dict[str, tuple[float, ...]]:
    """Parse the columns that `to_text` and `to_json` wrote with their circuit, by variable, with their cut points.

    Raises CircuitFormatError if they are not ascending numbers.
    """
    try:
        if text.lstrip().startswith("{"):
            pairs = [(column["name"], column.get("cuts", ())) for column in json.loads(text).get("columns", ())]
        else:
            pairs = [(json.loads(name), json.loads(cuts or "[]")) for name, cuts in COLUMNS.findall(text)]
        by_name = {str(name): tuple(map(float, cuts)) for name, cuts in pairs}
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise CircuitFormatError(where, f"cannot read the cut points of its columns ({error})") from error
    for name, cuts in by_name.items():
        if not all(map(math.isfinite, cuts)) or tuple(sorted(set(cuts))) != cuts:
            raise CircuitFormatError(where, f"the cut points of column {name!r} must be ascending numbers")
    return by_name


def from_json(text: str, where: str = "JSON") -> Circuit:
    """Parse the output of `to_json`. Raises CircuitFormatError for other text; InvalidCircuit if the circuit is
    invalid.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CircuitFormatError(where, f"not JSON ({error})") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise CircuitFormatError(where, f"not a circuit: the field `format` is not {FORMAT!r}")
    arrays = {}
    for name in CircuitArrays._fields:
        values = document.get(name)
        if not isinstance(values, list):
            raise CircuitFormatError(where, f"the list {name!r} is missing")
        is_real = name in ("log_weight", "leaf_parameters")
        if not {type(value) for value in values} <= ({int, float, type(None)} if is_real else {int}):
            raise CircuitFormatError(
                where, f"the list {name!r} must contain only {'numbers' if is_real else 'whole numbers'}"
            )
        try:
            numbers = [-math.inf if value is None else value for value in values]
            arrays[name] = np.array(numbers, np.float64 if is_real else np.int64)
        except OverflowError as error:
            raise CircuitFormatError(where, f"the list {name!r} contains a number that is too large") from error
    return Circuit.from_arrays(arrays)
