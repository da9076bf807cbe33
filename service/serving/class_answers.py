"""Answers of models as tables and JSON. Those with many classes are bounded in memory; optionally only the most probable classes
of each row.
"""

from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from learners.classifiers.lookup.look_up_tables import CELLS_AT_A_TIME
from learners.kernels.arrays import Floats, Integers
from learners.schema.schema import FEW_CLASSES, Value
from service.requests.json_values import JSONObject
from service.requests.problems import InvalidRequest

ROWS_AT_A_TIME = 10_000  # of an answer in JSON: about a hundredth of a second
MOST_CELLS = 1 << 21  # probabilities in one answer of a model with more than FEW_CLASSES classes


Probabilities = np.ndarray[Any, np.dtype[np.float64]]


class TopClasses(NamedTuple):
    """The most probable classes of each row in descending order; ties are in code order.

    `codes` is (n_rows, k) int64, `probabilities` (n_rows, k) float64.
    """

    codes: Integers
    probabilities: Floats


def predictions_batch(
    classes: list[Value], probabilities: Probabilities, intervals: tuple[Probabilities, Probabilities] | None = None
) -> pa.RecordBatch:
    """Return the answer as a table: `prediction` (a dictionary of the classes), then `probability_<class>` (float64) of
    each class.

    `probabilities` is (n_rows, n_classes) float64, and so are the low and high `intervals`, if given, which become
    `low_<class>` and `high_<class>`.
    """
    codes = pa.array(probabilities.argmax(axis=1).astype(np.int32))
    prediction = pa.DictionaryArray.from_arrays(codes, pa.array(classes))
    parts = {"probability": probabilities}
    if intervals is not None:
        parts |= {"low": intervals[0], "high": intervals[1]}
    columns = [pa.array(np.ascontiguousarray(column)) for part in parts.values() for column in part.T]
    names = [f"{part}_{name}" for part in parts for name in classes]
    return pa.RecordBatch.from_arrays([prediction, *columns], names=["prediction", *names])


def top_classes(probabilities: Floats, k: int) -> TopClasses:
    """Return the k most probable classes of each row of probabilities (n_rows, n_classes), or all if there are fewer."""
    n_rows, n_classes = probabilities.shape
    k = min(k, n_classes)
    # Whatever is as probable as the k-th is looked at, so that ties go by code.
    least = np.partition(probabilities, n_classes - k, axis=1)[:, n_classes - k]
    codes = np.empty((n_rows, k), np.int64)
    for row in range(n_rows):
        candidates = np.flatnonzero(probabilities[row] >= least[row])
        codes[row] = candidates[np.argsort(-probabilities[row, candidates], kind="stable")[:k]]
    return TopClasses(codes, np.take_along_axis(probabilities, codes, axis=1))


def top_classes_batch(classes: list[Value], top: TopClasses) -> pa.RecordBatch:
    """Return the answer as a table: `prediction` (a dictionary of the classes), `top_classes` and `top_probabilities`
    (lists).
    """
    values = pa.array(classes)
    codes, k = top.codes.astype(np.int32), top.codes.shape[1]
    return pa.RecordBatch.from_arrays(
        [
            pa.DictionaryArray.from_arrays(pa.array(np.ascontiguousarray(codes[:, 0])), values),
            _lists(values.take(pa.array(codes.ravel())), k),
            _lists(pa.array(top.probabilities.ravel()), k),
        ],
        names=["prediction", "top_classes", "top_probabilities"],
    )


def _lists(values: pa.Array, size: int) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(np.arange(0, len(values) + 1, size, dtype=np.int32)), values)


def check_class_columns(n_classes: int, top_k: int | None) -> None:
    """Refuse a table with one column for each of many classes (InvalidRequest)."""
    if top_k is None and n_classes > FEW_CLASSES:
        raise InvalidRequest(
            f"The model has {n_classes:,} classes, and each would be a column. Say how many of the most probable ones each row "
            "shall have, such as --top-k 5 (over REST ?top_k=5).",
            n_classes=n_classes,
        )


def check_top_k(top_k: int | None, interval: float | None) -> None:
    """Refuse a top_k below 1, or one combined with intervals (InvalidRequest)."""
    if top_k is not None and top_k < 1:
        raise InvalidRequest(f"top_k={top_k}: ask for at least one class of each row.", parameter="top_k")
    if top_k is not None and interval is not None:
        raise InvalidRequest("Intervals cover all classes: request them without top_k.", parameter="top_k")


def check_class_answer_size(n_rows: int, n_classes: int, top_k: int | None = None) -> None:
    """Refuse an answer that many classes make too large; InvalidRequest with the number of rows that may be sent at
    once.
    """
    if n_classes <= FEW_CLASSES:
        return
    most = max(1, (MOST_CELLS if top_k is None else CELLS_AT_A_TIME) // n_classes)
    if n_rows > most:
        fewer = " or ask for the most probable classes only, such as ?top_k=5" if top_k is None else ""
        raise InvalidRequest(
            f"{n_rows:,} rows of {n_classes:,} classes are {8 * n_rows * n_classes / 2**20:,.0f} MiB of probabilities. Send at "
            f"most {most:,} rows at once{fewer}.",
            max_rows=most,
        )


def check_class_answer(n_rows: int, n_classes: int, top_k: int | None, interval: float | None) -> None:
    """Refuse options that cannot be combined, and an answer that would be too large (InvalidRequest)."""
    check_top_k(top_k, interval)
    check_class_answer_size(n_rows, n_classes, top_k)


def class_answer_json(classes: list[Value], probabilities: Floats, top_k: int | None = None) -> JSONObject:
    """Return predictions and probabilities, of all classes or of the most probable ones of each row."""
    if top_k is None:
        predictions = [classes[code] for code in probabilities.argmax(axis=1)]
        return {"classes": classes, "predictions": predictions, "probabilities": encode_json_rows(probabilities)}
    top = top_classes(probabilities, top_k)
    words = [[classes[code] for code in codes] for codes in top.codes.tolist()]
    return {
        "predictions": [row[0] for row in words],
        "probabilities": encode_json_rows(top.probabilities),
        "top_classes": words,
    }


def encode_json_rows(rows: Floats | list[Any]) -> msgspec.Raw:
    """Encode (n_rows, …) numbers or records as a JSON list, piece by piece so that other threads can run in between."""
    pieces = []
    for first in range(0, len(rows), ROWS_AT_A_TIME):
        some = rows[first : first + ROWS_AT_A_TIME]
        pieces.append(msgspec.json.encode(some if isinstance(some, list) else some.tolist())[1:-1])
    return msgspec.Raw(b"[%b]" % b",".join(pieces))
