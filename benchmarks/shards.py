"""ADF and BMM in shards: what is lost against one stream, and the time of shards on threads.

python -m benchmarks.shards --start 2000    # nltcs and plants, about two minutes
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.density import rows_of, table
from learners import recipes
from learners.circuits import shards
from learners.circuits.model import CircuitModel
from learners.passes.learner import drive
from learners.passes.source import Source
from learners.schema.encode import encode

LEARNINGS = ("adf", "bmm")


def frame(x: np.ndarray) -> pa.Table:
    """Columns v0, v1, …"""
    return pa.table({f"v{i}": column for i, column in enumerate(x)})


def learned(source: Source, learning: str, states: int, n_shards: int, threads: int) -> tuple[CircuitModel, float]:
    """The model of so many shards, and its seconds."""
    parameters = {"structure": "hclt", "states": states, "learning": learning, "shards": n_shards}
    started = time.perf_counter()
    model = drive(recipes.learner("spn", parameters, None), source, threads=threads)
    assert isinstance(model, CircuitModel)
    return model, time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=["nltcs", "plants"])
    parser.add_argument("--shards", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--start", type=int, default=shards.START_ROWS, help="rows of the shared start")
    parser.add_argument("--states", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    shards.START_ROWS = args.start
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for name in args.sets:
            path = Path(folder) / f"{name}.parquet"
            pq.write_table(frame(rows_of(name, "train")), path, row_group_size=500)
            source, test = Source.open(str(path)), frame(rows_of(name, "test"))
            for learning in LEARNINGS:
                found = [learned(source, learning, args.states, n, args.threads) for n in args.shards]
                scores = [float(model.log_likelihood(encode(test, model.schema)).mean()) for model, _ in found]
                lines.append([name, learning, *(f"{score:.3f}" for score in scores)])
                print(*lines[-1], [round(seconds, 1) for _, seconds in found], flush=True)
    if args.json is not None:
        args.json.write_text(json.dumps(lines, indent=1) + "\n")
    print("\n".join(table(["set", "learning", *(f"{n} shards" for n in args.shards)], 2, lines)))


if __name__ == "__main__":
    main()
