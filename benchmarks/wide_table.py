"""Binary tables with thousands of columns: all of kDB-1 beside three bare reads, and its peak memory.

python -m benchmarks.wide_table
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measuring import Figure, alternated_apart, figure, machine, report
from benchmarks.tables import scratch

SHAPES = ((200_000, 1000), (50_000, 3000))
GROUP_ROWS, N_READS, REACH = 50_000, 3, 5


def table(n_rows: int, n_attributes: int) -> Path:
    """Columns of zeros and ones, each flipped now and then from one a few columns before; every tenth tells of the class."""
    path = scratch() / f"binary-{n_rows}x{n_attributes}.parquet"
    if path.exists():
        return path
    rng = np.random.default_rng(0)
    names = [*(f"x{i:04d}" for i in range(n_attributes)), "class"]
    aside = path.with_suffix(".partial")
    with pq.ParquetWriter(aside, pa.schema([(name, pa.uint8()) for name in names])) as writer:
        for start in range(0, n_rows, GROUP_ROWS):
            n = min(GROUP_ROWS, n_rows - start)
            y = (rng.random(n) < 0.3).astype(np.uint8)
            x = np.empty((n_attributes, n), np.uint8)
            for i in range(n_attributes):
                copied = x[i - 1 - (i % REACH)] if i > REACH else rng.random(n) < 0.4
                share = 0.25 + 0.1 * y * (i % 10 == 0)
                x[i] = copied ^ (rng.random(n) < share)
            writer.write_table(pa.table([*x, y], names=names))
    aside.rename(path)
    return path


def train(path: Path, warm: Path, threads: int) -> float:
    """Seconds of kDB-1 with `hdp-map` in this process, which trains as the command does; kernels are warm."""
    from learners import recipes
    from learners.memory import allocate_frugally
    from learners.passes.learner import drive
    from learners.passes.source import Source

    allocate_frugally()

    def learn(place: Path) -> float:
        started = time.perf_counter()
        drive(recipes.learner("kdb", {"k": 1, "estimator": "hdp-map"}, "class"), Source.open(place), threads=threads)
        return time.perf_counter() - started

    learn(warm)
    return learn(path)


def read(path: Path, threads: int) -> float:
    """Seconds of three bare reads."""
    from service.operations.measuring import bare_scan

    started = time.perf_counter()
    for _ in range(N_READS):
        bare_scan([path], threads)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    figures = []
    for n_rows, n_attributes in SHAPES:
        path, warm = table(n_rows, n_attributes), table(1000, 100)
        # Reading takes more memory than training, so that each has a process of its own.
        runs = alternated_apart(args.rounds, kdb=(train, path, warm, args.threads), reads=(read, path, args.threads))
        what = f"{n_rows:,} × {n_attributes:,} binary"
        whole, bare = ([seconds for seconds, _ in runs[name]] for name in ("kdb", "reads"))
        peaks = [peak / 2**20 for _, peak in runs["kdb"]]
        figures += [
            figure(f"{what}: kDB-1 ÷ three bare reads", whole, bare, "2.5", "1.5"),
            Figure(f"{what}: peak MiB", statistics.median(peaks), min(peaks), max(peaks), "1536", "819", ""),
        ]
    report(f"Wide tables, {args.threads} thread(s)", figures, machine(), args.json)


if __name__ == "__main__":
    main()
