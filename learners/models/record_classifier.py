"""Classify one record of raw values at a time, with minimal overhead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from learners.answer_checks import check_answer_distribution
from learners.kernels.arrays import Codes, Floats
from learners.schema.encoding.json_records import check_is_record, encode_json_records, json_record_encoder
from learners.schema.schema import Chunk, Schema

# The number of a record, its codes (bytes, or numbers that need 16 bits), its probabilities, the record, and no key.
Observed = tuple[int, bytes | list[int], Floats, Mapping[str, object], bytes | None]


class Classifier(Protocol):
    """Model with classes."""

    @property
    def schema(self) -> Schema:
        """Schema of the columns."""

    def predict_proba(self, chunk: Chunk) -> Floats:
        """Return the class probabilities, (n_rows, n_classes) float64."""


class Observing(Protocol):
    """Receives every record that was classified; both functions are called for each record and must be fast."""

    next_id: Callable[[], int]
    append: Callable[[Observed], None]


def record_classifier(
    model: Classifier, observing: Observing | None = None
) -> Callable[[Mapping[str, object]], Floats]:
    """Return a function that classifies one row at a time with minimal overhead.

    Parameters
    ----------
    observing : Observing, optional
        Is given each record with its codes and probabilities.

    Returns
    -------
    callable
        `classify(record)` gives the (n_classes,) float64 probabilities of a mapping from column to raw value; absent
        columns are allowed. It raises SchemaError naming a column whose value has the wrong type.
    """
    encode_record = json_record_encoder(model.schema)
    predict_proba, is_narrow = model.predict_proba, model.schema.code_dtype is np.uint8

    def classify_numbers(record: Mapping[str, object]) -> Floats:
        check_is_record(record)
        chunk = encode_json_records([record], model.schema)
        probabilities: Floats = check_answer_distribution(predict_proba(chunk)[0])
        if observing is not None:
            codes = chunk.x[:, 0]
            observing.append(
                (observing.next_id(), codes.tobytes() if is_narrow else codes.tolist(), probabilities, record, None)
            )
        return probabilities

    def classify(record: Mapping[str, object]) -> Floats:
        codes: list[int] | bytes = encode_record(record)
        if is_narrow:  # the shortest way from small numbers to an array
            codes = bytes(codes)
            x: Codes = np.frombuffer(codes, np.uint8)
        else:
            x = np.array(codes).astype(np.uint16)
        probabilities: Floats = check_answer_distribution(predict_proba(Chunk(x.reshape(-1, 1), None))[0])
        if observing is not None:
            observing.append((observing.next_id(), codes, probabilities, record, None))
        return probabilities

    return classify_numbers if model.schema.continuous else classify
