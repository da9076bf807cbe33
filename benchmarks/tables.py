"""Synthetic Parquet tables drawn from a known Bayesian network, kept in a scratch folder between benchmarks."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from service.operations.bench import KnownNetwork

ROW_GROUP_ROWS = 262_144
N_VALUES = 4


def scratch() -> Path:
    """Where tables are kept: FEWPASS_BENCH_SCRATCH, or a folder under the system's temporary one."""
    folder = Path(os.environ.get("FEWPASS_BENCH_SCRATCH", Path(tempfile.gettempdir()) / "fewpass-bench"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def table(n_rows: int, n_attributes: int = 40, seed: int = 0) -> Path:
    """A Parquet file of uint8 columns x00.. with 4 values each and a uint8 class of two, from a 2-dependence network."""
    path = scratch() / f"network-{n_rows}x{n_attributes}-{seed}.parquet"
    if path.exists():
        return path
    network = KnownNetwork.random(n_attributes, N_VALUES, 2, 2, seed)
    rng = np.random.default_rng([seed, 1])
    names = [*(f"x{i:02d}" for i in range(n_attributes)), "class"]
    aside = path.with_suffix(".partial")
    with pq.ParquetWriter(aside, pa.schema([(name, pa.uint8()) for name in names])) as writer:
        for start in range(0, n_rows, ROW_GROUP_ROWS):
            x, y = network.draw(min(ROW_GROUP_ROWS, n_rows - start), rng)
            writer.write_table(pa.table([*x, y], names=names), row_group_size=ROW_GROUP_ROWS)
    aside.rename(path)
    return path
