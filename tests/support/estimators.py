"""Rows with times, for estimators."""

import datetime

import numpy as np
import pyarrow as pa

N = 400
START = datetime.datetime(2026, 1, 1)
WORDS = (
    "All rows are later than those the model learned from: 'when' ended at 2026-01-17T15:00:00 in training and begins at "
    "2026-01-19T20:00:00 here. Evaluate the model on rows of that time, or train it with newer rows."
)


KEEP = {"when": {"cuts": [1_768_000_000.0]}}


def table(first=0, n_rows=N):
    random = np.random.default_rng(first)
    y = random.integers(0, 2, n_rows)
    moments = [START + datetime.timedelta(hours=first + hour) for hour in range(n_rows)]
    a = np.where(random.random(n_rows) < 0.8, y, 1 - y)
    return pa.table({"when": moments, "a": a.astype(str), "y": np.array(["no", "yes"])[y]})
