"""kDB-2 with its schema given against XGBoost from external memory, on the same Parquet table; and peak memory.

python -m benchmarks.training --rows 5000000
python -m benchmarks.training --rows 20000000 --no-peer     # memory only
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from benchmarks import tables
from benchmarks.measuring import Figure, apart, machine, ratio, report

ROUNDS, DEPTH = 50, 6
WANTED = {"kdb": ("8", "15"), "skdb": ("3", "")}  # speed-up at least, and aim


def train_ours(path: Path, threads: int, learner: str, parameters: dict[str, Any]) -> float:
    """Seconds of all passes, the schema inferred beforehand."""
    from learners import recipes
    from learners.passes.inference import infer_schema
    from learners.passes.learner import drive
    from learners.passes.source import Source

    source = Source.open(str(path))
    schema = infer_schema(source, "class", threads=threads)
    started = time.perf_counter()
    drive(recipes.learner(learner, parameters, "class", schema), source, threads=threads)
    return time.perf_counter() - started


def train_xgboost(path: Path, threads: int) -> float:
    """Seconds of building the external-memory matrix and of the boosting rounds."""
    import xgboost

    class Groups(xgboost.DataIter):
        def __init__(self, cache: str) -> None:
            self.file, self.group = pq.ParquetFile(path), 0
            super().__init__(cache_prefix=cache)

        def next(self, input_data: Callable[..., Any]) -> bool:
            if self.group == self.file.num_row_groups:
                return False
            rows = self.file.read_row_group(self.group, use_threads=False)
            columns = [rows[name].to_numpy() for name in rows.column_names[:-1]]
            input_data(data=np.stack(columns, axis=1).astype(np.float32), label=rows["class"].to_numpy())
            self.group += 1
            return True

        def reset(self) -> None:
            self.group = 0

    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as cache:
        matrix = xgboost.ExtMemQuantileDMatrix(Groups(f"{cache}/x"), nthread=threads)
        settings = {"max_depth": DEPTH, "tree_method": "hist", "objective": "binary:logistic", "nthread": threads}
        xgboost.train(settings, matrix, num_boost_round=ROUNDS)
        seconds = time.perf_counter() - started
        del matrix
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--learner", default="kdb")
    parser.add_argument("--parameter", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    path = tables.table(args.rows)
    parameters: dict[str, Any] = dict(entry.split("=", 1) for entry in args.parameter or ["k=2"])
    runs: dict[str, list[tuple[float, int]]] = {"fewpass": [], "xgboost": []}
    for _ in range(args.rounds):
        runs["fewpass"].append(apart(train_ours, path, args.threads, args.learner, parameters))
        if not args.no_peer:
            runs["xgboost"].append(apart(train_xgboost, path, args.threads))
    seconds = {name: [entry[0] for entry in of] for name, of in runs.items()}
    peak = {name: statistics.median(entry[1] for entry in of) / 2**20 for name, of in runs.items() if of}
    name = f"{args.learner} {parameters}"
    figures = []
    if not args.no_peer:
        detail = f"{statistics.median(seconds['xgboost']):.3g} s / {statistics.median(seconds['fewpass']):.3g} s"
        speed_up = ratio(seconds["xgboost"], seconds["fewpass"])
        figures.append(
            Figure(f"XGBoost external memory ÷ {name}: time", *speed_up, *WANTED.get(args.learner, ("", "")), detail)
        )
        memory = [entry[1] for entry in runs["fewpass"]], [entry[1] for entry in runs["xgboost"]]
        figures.append(Figure(f"{name} ÷ XGBoost: peak RSS", *ratio(*memory), "", "", f"{peak} MiB"))
    else:
        of = [value / 1024 for _, rss in runs["fewpass"] for value in [rss / 2**20]]
        figures.append(
            Figure(
                f"{name}: peak RSS in GiB", statistics.median(of), min(of), max(of), "1", "", f"{seconds['fewpass']} s"
            )
        )
    facts = machine() | {"seconds": seconds, "peak_rss_mib": peak}
    report(f"{args.rows:,} rows × 40 attributes × 4 values, {args.threads} threads", figures, facts, args.json)


if __name__ == "__main__":
    main()
