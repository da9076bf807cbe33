"""Tables of known causes, and models of them."""

from functools import cache

import numpy as np
import pyarrow as pa

from learners import Source, drive
from learners.registry import recipes


def rows(n_rows, seed, yes=0.4):
    """A class, numbers and words that depend on it and on each other, and one column that depends on nothing."""
    rng = np.random.default_rng(seed)
    y = rng.random(n_rows) < yes
    size = rng.normal(np.where(y, 1.5, 0.0), 1.0)
    weight = rng.normal(size, 1.0)
    town = np.where(rng.random(n_rows) < 0.7, np.where(y, "bern", "kiel"), "rome")
    road = np.where(rng.random(n_rows) < 0.8, town, "none")
    columns = {
        "size": pa.array(size),
        "weight": pa.array(weight, mask=rng.random(n_rows) < 0.05),
        "town": pa.array(town),
        "road": pa.array(road),
        "other": pa.array(rng.choice(list("pqr"), n_rows)),
        "noise": pa.array(rng.integers(0, 1_000_000, n_rows)),
    }
    return pa.table(columns | {"class": np.where(y, "yes", "no")})


@cache
def model(learner="kdb", n_rows=20_000):
    parameters = {"k": 2} if learner == "kdb" else {"members": 2} if learner == "eskdb" else {}
    return drive(recipes.learner(learner, parameters, "class"), Source.of_table(rows(n_rows, 1)))
