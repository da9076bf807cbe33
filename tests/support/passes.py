"""Files of days, and models learned from them."""

import datetime
import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from learners.passes.learner import Part, drive
from learners.passes.sources.source import Condition
from learners.registry import recipes


def same(a, b):
    """Whether two models are equal bit for bit."""
    (header_a, arrays_a), (header_b, arrays_b) = a.to_arrays(), b.to_arrays()
    assert json.loads(json.dumps(header_a)) == json.loads(json.dumps(header_b))  # a file has lists for tuples
    assert arrays_a.keys() == arrays_b.keys()
    for name, array in arrays_a.items():
        assert array.dtype == arrays_b[name].dtype, name
        assert np.array_equal(array, arrays_b[name], equal_nan=array.dtype.kind == "f"), name
    return True


DAY = datetime.timedelta(days=1)
START = datetime.datetime(2026, 1, 1)


class User(Condition):
    """Rows of one user are not wanted."""

    text = "not (user = 3)"
    columns = ("user",)

    def mask(self, rows, file, fragment, offset):
        return pc.not_equal(rows.column("user"), 3).to_numpy(zero_copy_only=False)

    def implies(self, text):
        return self if text == self.text else None


def write(folder, day, values=("a", "b", "c"), n=600, nulls=False, classes=("no", "yes"), seed=None):
    rng = np.random.default_rng(day if seed is None else seed)
    y = rng.integers(0, len(classes), n)
    columns = {}
    for j in range(5):
        codes = (y * (rng.random(n) < 0.5) + rng.integers(0, len(values), n)) % len(values)
        mask = rng.random(n) < 0.1 if nulls and j % 2 else np.zeros(n, bool)
        columns[f"x{j}"] = pa.array(np.array(values)[codes], mask=mask)
    columns |= {"number": rng.normal(size=n) + y, "user": rng.integers(0, 9, n)}
    seconds = rng.integers(0, 86_400, n).tolist()
    columns["time"] = [START + day * DAY + datetime.timedelta(seconds=second) for second in seconds]
    columns["class"] = np.array(classes)[y]
    pq.write_table(pa.table(columns), folder / f"{day:02d}.parquet", row_group_size=250)


def days(folder, n_days, **how):
    """A folder with a file for each day."""
    folder.mkdir(exist_ok=True)
    for day in range(n_days):
        write(folder, day, **how)
    return folder


OVERRIDES = {"user": "drop", "time": "drop"}


def learned(name, parameters, source, kept=None, store=None, selection=None, accounts=None):
    learner = recipes.learner(name, parameters, "class", kept, OVERRIDES)
    return drive(learner, [Part(source, store, selection)], accounts=accounts)


def rows_of(source):
    table = pa.Table.from_batches(source.batches())
    return sorted(table.to_pylist(), key=str)
