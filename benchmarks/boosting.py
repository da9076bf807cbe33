"""The peer of training: XGBoost from external memory, as its documentation has it, on the table that ours reads."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

# Threads of OpenMP that spin take many times as long where other work runs, which would be no merit of ours.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
import xgboost

ROUNDS, DEPTH = 50, 6


class RowGroups(xgboost.DataIter):
    """The row groups of a Parquet file whose last column is the class of two, read on as many threads as ours."""

    def __init__(self, path: Path, cache: str, threads: int) -> None:
        self.file, self.group, self.is_threaded = pq.ParquetFile(path), 0, threads > 1
        super().__init__(cache_prefix=cache)

    def next(self, input_data: Callable[..., Any]) -> bool:
        if self.group == self.file.num_row_groups:
            return False
        rows = self.file.read_row_group(self.group, use_threads=self.is_threaded)
        columns = [rows[name].to_numpy() for name in rows.column_names]
        input_data(data=np.stack(columns[:-1], axis=1).astype(np.float32), label=columns[-1])
        self.group += 1
        return True

    def reset(self) -> None:
        self.group = 0


def boosted(path: Path, threads: int) -> xgboost.Booster:
    """The trees; both reading and binning the rows and the boosting rounds."""
    pa.set_cpu_count(threads)
    with tempfile.TemporaryDirectory() as cache:
        matrix = xgboost.ExtMemQuantileDMatrix(RowGroups(path, f"{cache}/x", threads), nthread=threads)
        settings = {"max_depth": DEPTH, "tree_method": "hist", "objective": "binary:logistic", "nthread": threads}
        booster = xgboost.train(settings, matrix, num_boost_round=ROUNDS)
        del matrix
    return booster
