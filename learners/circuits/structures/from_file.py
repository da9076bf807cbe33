"""Circuits given by the user: from a file to the columns of a schema."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import cast

import numpy as np

from learners.circuits.circuit import Circuit
from learners.circuits.errors import CircuitFormatError, InvalidCircuit, InvalidEvidence
from learners.circuits.kernels import (
    CATEGORICAL,
    EXPONENTIAL,
    GAUSSIAN,
    INDICATOR,
    LOG_NORMAL,
    POISSON,
    QUANTILE,
    ROUNDED,
    STEP,
    STUDENT,
)
from learners.circuits.structures.densities import LARGEST, LEAF_KINDS
from learners.circuits.structures.text import from_json, parse_cut_points, parse_text
from learners.circuits.variables import Columns
from learners.errors import SchemaError, columns_setting
from learners.passes.sources.file_opening import read_uri_bytes
from learners.schema import Attribute, Schema
from learners.schema.schema import Distribution

# Parameters of densities, and of masses on a grid, by the kind of the leaf.
DISTRIBUTIONS = {
    kind: cast("Distribution", name) for name, kind in LEAF_KINDS.items() if not name.startswith("rounded-")
}
ON_GRID = {kind: cast("Distribution", name) for name, kind in LEAF_KINDS.items() if name.startswith("rounded-")}


def read_circuit(uri: str) -> tuple[Circuit, dict[str, tuple[float, ...]]]:
    """Read a circuit, and its cut points, from a file in JSON, if it begins with a brace, or text.

    Raises SourceError if the path, or a URI that pyarrow supports, cannot be read; CircuitFormatError if it holds
    no circuit, naming the line or the node.
    """
    try:
        text = read_uri_bytes(uri).decode("utf-8-sig")
        circuit = from_json(text, uri) if text.lstrip().startswith("{") else parse_text(text.splitlines(), uri)
        _check_sizes(circuit)
        cuts = parse_cut_points(text, uri)
    except UnicodeDecodeError as error:
        raise CircuitFormatError(uri, "not a circuit: neither text nor JSON") from error
    except InvalidCircuit as error:
        raise CircuitFormatError(uri, str(error)) from error
    return circuit, cuts


def circuit_fingerprint(circuit: Circuit) -> str:
    """Return the SHA-256 of a circuit, to detect changes of its file."""
    digest = hashlib.sha256()
    for array in circuit.arrays:
        digest.update(repr(array.shape).encode() + array.tobytes())
    return digest.hexdigest()


def _check_sizes(circuit: Circuit) -> None:
    """Refuse densities of numbers whose squares exceed double precision."""
    for kind in DISTRIBUTIONS:
        leaves = np.flatnonzero(circuit.kind == kind)
        second = np.minimum(circuit.leaf_starts[leaves] + 1, circuit.leaf_starts[leaves + 1] - 1)
        scale = circuit.leaf_parameters[second]
        largest = np.maximum(scale, np.abs(circuit.leaf_parameters[circuit.leaf_starts[leaves]]))
        wrong = (largest > LARGEST) | (scale < 1.0 / LARGEST)
        if wrong.any():
            reason = f"has a parameter above {LARGEST:g}, or a scale below {1.0 / LARGEST:g}: scale its column"
            raise InvalidCircuit(reason, int(leaves[np.argmax(wrong)]))


def schema_with_circuit_leaves(schema: Schema, circuit: Circuit, uri: str) -> Schema:
    """Assign the distributions of a circuit's leaves, read from `uri`, to the schema's numeric columns.

    Variable i of the circuit is attribute i of the schema, the one after them the class. Raises SchemaError if
    the circuit does not match these columns, naming the first mismatch.
    """
    n_columns = schema.n_attributes + (schema.target is not None)
    if circuit.n_variables != n_columns:
        message = (
            f"{uri} has {circuit.n_variables} variables, but the table {n_columns} columns; variable i is column i, and the target, if "
            "there is one, the last."
        )
        if schema.left_out:
            left_out = ", ".join(f"{each.name!r} ({each.reason})" for each in schema.left_out)
            option = columns_setting({schema.left_out[0].name: {"order": [0, 1]}})
            message += f" Columns left out: {left_out}; to keep one, give its values: {option}."
        raise SchemaError(message)
    sizes = circuit.n_values.tolist()
    kinds = _kinds_of_leaves(circuit)
    if silent := [name for v, name in enumerate(schema.columns) if v not in kinds]:
        raise SchemaError(f"{uri} has no leaf for column {silent[0]!r}.", silent[0])
    _check_one_law(circuit, uri)
    attributes = [_attribute(a, v, sizes[v], kinds[v], uri) for v, a in enumerate(schema.attributes)]
    changed = replace(schema, attributes=tuple(attributes))
    try:
        Columns(circuit, changed)
    except InvalidEvidence as error:
        raise SchemaError(f"{uri}: {error}") from error
    return changed


def _check_one_law(circuit: Circuit, uri: str) -> None:
    """Refuse a variable that mixes leaves with grid masses and densities, or masses of different grids."""
    for v in np.unique(circuit.variable[circuit.kind >= ROUNDED]).tolist():
        leaves = np.flatnonzero(circuit.variable == v)
        first = circuit.leaf_starts[leaves] + 2 + STEP
        steps = {
            float(circuit.leaf_parameters[at]) if circuit.kind[leaf] >= ROUNDED else 0.0
            for leaf, at in zip(leaves, np.minimum(first, circuit.leaf_parameters.size - 1), strict=True)
        }
        if len(steps) > 1:
            raise SchemaError(
                f"Variable {v} of {uri} has leaves of different steps, {', '.join(f'{s:g}' for s in sorted(steps))}: masses and "
                "densities cannot be mixed. Use the same step in all of its leaves."
            )


def _kinds_of_leaves(circuit: Circuit) -> dict[int, Distribution | int]:
    """Return the leaf kind of each variable; among several density kinds, the one with the widest support."""
    kinds: dict[int, Distribution | int] = {}
    for kind in (POISSON, EXPONENTIAL, LOG_NORMAL, ROUNDED, QUANTILE, STUDENT, GAUSSIAN, CATEGORICAL, INDICATOR):
        leaves = np.flatnonzero(circuit.kind == kind)
        kinds |= dict.fromkeys(circuit.variable[leaves].tolist(), DISTRIBUTIONS.get(kind, kind))
        if kind in ON_GRID:
            on_grid = leaves[circuit.leaf_parameters[circuit.leaf_starts[leaves] + 2 + STEP] > 0]
            kinds |= dict.fromkeys(circuit.variable[on_grid].tolist(), ON_GRID[kind])
    return kinds


def _attribute(attribute: Attribute, variable: int, size: int, kind: Distribution | int, uri: str) -> Attribute:
    """Return an attribute adapted to the leaves of its variable."""
    if size:
        return replace(attribute, distribution=None)
    if attribute.kind != "numeric":
        raise SchemaError(
            f"Variable {variable} of {uri} is numeric, but column {attribute.name!r} is nominal. If it contains numbers, declare it: "
            f"{columns_setting({attribute.name: 'numeric'})}.",
            attribute.name,
        )
    return replace(attribute, distribution=cast("Distribution", kind))
