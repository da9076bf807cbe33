"""Mapping of schema columns to circuit variables: names, codes and their values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from learners.circuits.circuit import Circuit
from learners.circuits.errors import InvalidEvidence
from learners.errors import UnknownColumn, known_values_text
from learners.kernels.arrays import Array, Floats, Integers
from learners.models.evidence import RawValue
from learners.schema import Chunk, Schema
from learners.schema.encoding.json_records import json_number_reader, json_value_encoders, short_value_text
from learners.schema.schema import OTHER


class Columns:
    """Mapping of a schema's columns to the variables of a circuit.

    Variable i is attribute i, the variable after them the class, if the circuit has one more than there are
    attributes. The size of its domain determines the coding of an attribute: as in a chunk; or without the code
    for missing values, which are summed out; or 0 for the column's own numbers (in a chunk only if the attribute
    has a distribution). Raises InvalidEvidence if the circuit does not match the schema.
    """

    def __init__(self, circuit: Circuit, schema: Schema) -> None:
        n_attributes = schema.n_attributes
        has_class = schema.target is not None and circuit.n_variables == n_attributes + 1
        if circuit.n_variables != n_attributes + has_class:
            raise InvalidEvidence(
                f"The circuit has {circuit.n_variables} variables, the schema {n_attributes} columns: they do not match."
            )
        self.circuit, self.schema = circuit, schema
        self.class_variable = n_attributes if has_class else None
        self.names = [attribute.name for attribute in schema.attributes]
        self.n_values = circuit.n_values.tolist()
        self._encoders = [code for _, code, _ in json_value_encoders(schema)]
        # Where a chunk has an attribute's numbers.
        self._numbers = {v: row for row, v in enumerate(schema.continuous)}
        known = set(circuit.scope(circuit.root))
        self._is_known = [v in known for v in range(circuit.n_variables)]
        # What is taken off a chunk's code to get the variable's.
        self.offsets = np.zeros(circuit.n_variables, np.int64)
        self._labels: list[list[str]] = []
        self._values: list[list[RawValue]] = []
        for v, attribute in enumerate(schema.attributes):
            size = self.n_values[v]
            if size not in (0, attribute.n_values, attribute.n_values - attribute.first_code):
                raise InvalidEvidence(
                    f"Variable {v} of the circuit has {size} values, column {attribute.name!r} {attribute.n_values}: they do not match."
                )
            self.offsets[v] = attribute.n_values - size if size else 0
            labels = attribute.unique_labels()
            values: list[RawValue] = list(attribute.values) if attribute.kind == "nominal" else list(labels)
            if attribute.kind == "nominal":
                values = [None] * attribute.first_code + values + [OTHER] * (attribute.n_folded > 0)
            elif attribute.has_missing:
                values[0] = None
            self._labels.append(labels[self.offsets[v] :] if size else [])
            self._values.append(values[self.offsets[v] :] if size else [])
        if has_class and schema.target is not None:
            if self.n_values[-1] != schema.n_classes:
                raise InvalidEvidence(
                    f"The last variable of the circuit has {self.n_values[-1]} values, the class {schema.target!r} "
                    f"{schema.n_classes}: they do not match."
                )
            self.names.append(schema.target)
            self._labels.append(list(schema.classes))
            self._values.append(list(schema.class_values()))
        self.number = {name: v for v, name in enumerate(self.names)}

    def variables(self, names: Iterable[str]) -> list[int]:
        """Return the variables of columns. Raises UnknownColumn."""
        return [self._variable(name) for name in names]

    def _variable(self, name: str) -> int:
        if name not in self.number:
            check_column_not_left_out(self.schema, name)
            raise UnknownColumn(name, self.names)
        return self.number[name]

    def check_known(self, variable: int) -> None:
        """Refuse queries about a column that feature selection removed. Raises InvalidEvidence."""
        if not self._is_known[variable]:
            name = self.names[variable]
            raise InvalidEvidence(
                f"Feature selection removed column {name!r}, so the model cannot answer about it. Query other columns; as evidence it has no effect."
            )

    def unused(self, names: Iterable[str]) -> list[str]:
        """Return the columns that feature selection removed. Raises UnknownColumn."""
        return [name for name in names if not self._is_known[self._variable(name)]]

    def labels(self, variable: int) -> list[str]:
        """Return a readable label for each code of a discrete variable."""
        return self._labels[variable]

    def value(self, variable: int, code: float) -> RawValue:
        """Return the raw value of a code: None for missing, text for intervals and times; numbers are unchanged."""
        if self.n_values[variable]:
            return self._values[variable][int(code)]
        return self.schema.attributes[variable].number_in_words(float(code))

    def code(self, variable: int, value: object) -> float:
        """Return the code of a raw value, or its number; NaN for None. The texts in `labels` are accepted, too.

        Raises InvalidEvidence if training never saw the value in the column; SchemaError if its type does not fit.
        """
        if value is None or (isinstance(value, float) and np.isnan(value)):
            return np.nan
        name = self.names[variable]
        if not self.n_values[variable]:
            return json_number_reader(self.schema.attributes[variable])(value)
        labels = self._labels[variable]
        if variable == self.class_variable:
            code = labels.index(str(value)) if str(value) in labels else -1
        elif isinstance(value, str) and value in labels:
            code = labels.index(value)
        elif isinstance(value, bool | int) and self._has_words(variable, word := json.dumps(value)):
            code = labels.index(word)
        else:
            code = self._encoders[variable](value) - int(self.offsets[variable])
        if not 0 <= code < self.n_values[variable]:
            raise unknown_value_error(name, value, labels)
        return float(code)

    def _has_words(self, variable: int, word: str) -> bool:
        """Return whether a word is a value of a text column, although a command line or form would parse it as a number
        or boolean.
        """
        attribute = self.schema.attributes[variable]
        return attribute.kind == "nominal" and word in attribute.values

    def rows(self, evidence: Sequence[Mapping[str, object]]) -> Floats:
        """Convert raw records to rows, (n_variables, n_rows) float64; NaN for absent values.

        Raises UnknownColumn, InvalidEvidence, SchemaError.
        """
        x = np.full((len(self.names), len(evidence)), np.nan)
        for row, record in enumerate(evidence):
            for name, value in record.items():
                v = self._variable(name)
                x[v, row] = self.code(v, value)
        return x

    def rows_of_chunk(self, chunk: Chunk, with_class: bool = True) -> Array:
        """Convert an encoded chunk to rows, (n_variables, n_rows) int16 or int32, -1 where missing; float64 with NaN if
        there are numbers.

        Raises InvalidEvidence if a variable is numeric, but the chunk lacks its numbers.

        with_class: whether the chunk's class counts as observed.
        """
        numeric = [v for v, size in enumerate(self.n_values) if size == 0]
        own = np.empty((0, chunk.n_rows)) if chunk.numbers is None else chunk.numbers
        for v in numeric:
            if self._numbers.get(v, own.shape[0]) >= own.shape[0]:
                raise InvalidEvidence(
                    f"Column {self.names[v]!r} is numeric in the circuit, but the chunk has codes. Pass rows of numbers."
                )
        narrow = np.int16 if chunk.x.dtype == np.uint8 else np.int32
        x = np.full((len(self.names), chunk.n_rows), -1, np.float64 if numeric else narrow)
        n = self.schema.n_attributes
        np.subtract(chunk.x, self.offsets[:n, np.newaxis], out=x[:n], casting="unsafe")
        sizes = np.asarray(self.n_values[:n])[:, np.newaxis]
        x[:n][(x[:n] < 0) | (x[:n] >= sizes)] = -1
        for v in numeric:
            x[v] = own[self._numbers[v]]
        if with_class and self.class_variable is not None and chunk.y is not None:
            x[n] = chunk.y
        return x


def unknown_value_error(name: str, value: object, labels: Sequence[str]) -> InvalidEvidence:
    """Create the error for a value that a column never had, with similar or example values."""
    known = known_values_text(short_value_text(value).strip("'"), labels)
    return InvalidEvidence(
        f"Column {name!r} never had the value {short_value_text(value)} in training (known: {known}). Leave the column out to sum over its values."
    )


def check_column_not_left_out(schema: Schema, name: str) -> None:
    """Refuse a column that training left out, with the reason. Raises InvalidEvidence."""
    for column in schema.left_out:
        if column.name == name:
            raise InvalidEvidence(f"Column {name!r} is not in the model ({column.reason}). Leave it out of the query.")


def mask_unknown_codes(x: ArrayLike, n_values: Integers) -> Floats:
    """Copy rows, with NaN where a discrete variable has a code outside its domain, (n_variables, n_rows) float64."""
    known, sizes = np.array(x, np.float64), n_values[:, np.newaxis]
    known[(sizes > 0) & ~((known >= 0) & (known < sizes))] = np.nan
    return known


def circuit_columns(circuit: Circuit, schema: Schema) -> Columns:
    """Return the columns of a circuit, cached for the latest schema."""
    cache = vars(circuit)
    columns: Columns | None = cache.get("_columns")
    if columns is None or (columns.schema is not schema and columns.schema != schema):
        columns = cache["_columns"] = Columns(circuit, schema)
    return columns
