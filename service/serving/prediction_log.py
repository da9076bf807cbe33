"""Predictions that are kept until a label comes, or as rows."""

import secrets
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from learners.kernels.arrays import Codes, Floats, Mask

KEY_BYTES = 16
Keys = Sequence[bytes] | None


class Logged(NamedTuple):
    """Predictions that are kept: `keys` of 16 bytes, `probabilities` (n_rows, n_classes) float64, `is_counted` (n_rows,) bool.

    `codes` are (n_rows, n_attributes) if rows are kept, else None.
    """

    keys: bytes
    moment: datetime
    probabilities: Floats
    codes: Codes | None
    is_counted: Mask


def logged_rows(
    x: Codes, probabilities: Floats, keys: Keys, is_counted: Mask, moment: datetime, keeps_rows: bool
) -> Logged:
    """Those of some predictions that have a key (empty: none); or all of them, with their codes.

    `x` is (n_attributes, n_rows), `probabilities` (n_rows, n_classes) float64, `is_counted` (n_rows,) bool.
    """
    n_rows = x.shape[1]
    given = [b""] * n_rows if keys is None else list(keys)
    if not keeps_rows:
        named = np.flatnonzero([bool(key) for key in given])
        return Logged(b"".join(given), moment, probabilities[named], None, is_counted[named])
    random = secrets.token_bytes(KEY_BYTES * n_rows)
    places = range(0, KEY_BYTES * n_rows, KEY_BYTES)
    own = (key or random[place : place + KEY_BYTES] for key, place in zip(given, places, strict=True))
    joined = random if keys is None else b"".join(own)
    return Logged(joined, moment, probabilities, np.ascontiguousarray(x.T), is_counted)


def predictions_table(logged: Sequence[Logged]) -> pa.Table:
    """Key, moment, probabilities, codes, and whether the row was counted."""
    sizes = [len(one.is_counted) for one in logged]
    n_rows, p = sum(sizes), np.concatenate([one.probabilities for one in logged])
    moments = np.repeat([int(one.moment.timestamp() * 1e6) for one in logged], sizes)
    keys = pa.py_buffer(b"".join(one.keys for one in logged))
    codes: list[bytes | None] = []
    for one, size in zip(logged, sizes, strict=True):
        codes += [None] * size if one.codes is None else map(bytes, one.codes.view(np.uint8))
    return pa.table(
        {
            "key": pa.FixedSizeBinaryArray.from_buffers(pa.binary(KEY_BYTES), n_rows, [None, keys]),
            "at": pa.array(moments, pa.int64()).cast(pa.timestamp("us", tz="UTC")),
            "p": pa.ListArray.from_arrays(np.arange(n_rows + 1, dtype=np.int32) * p.shape[1], p.ravel()),
            "codes": pa.array(codes, pa.binary()),
            "is_counted": pa.array(np.concatenate([one.is_counted for one in logged])),
        }
    )
