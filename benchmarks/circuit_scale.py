"""A pass of EM, BMM or ADF over a hidden tree of 8 states, on tables of growing length: time a row, peak memory, and a Dask cluster beside threads.

python -m benchmarks.circuit_scale                                          # EM, 100,000 and 1,000,000 rows x 100; five minutes
python -m benchmarks.circuit_scale --rows 1000000 10000000 --columns 40     # EM; 20 minutes
python -m benchmarks.circuit_scale --learnings bmm adf --rounds 1           # 15 minutes
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import tables
from benchmarks.measuring import Figure, alternated_apart, machine, ratio, report, seconds_once_warm

GROUP_ROWS = 1 << 16
FEW = 20_000


def table(n_rows: int, n_columns: int, seed: int = 0) -> Path:
    """A Parquet file of binary columns in a chain: each is mostly like the one before."""
    path = tables.scratch() / f"chain-{n_rows}x{n_columns}-{seed}.parquet"
    if path.exists():
        return path
    rng = np.random.default_rng(seed)
    aside = path.with_suffix(".partial")
    schema = pa.schema([(f"v{i}", pa.uint8()) for i in range(n_columns)])
    with pq.ParquetWriter(aside, schema) as writer:
        for start in range(0, n_rows, GROUP_ROWS):
            x = rng.random((n_columns, min(GROUP_ROWS, n_rows - start))) < 0.2
            x[0] = rng.random(x.shape[1]) < 0.5
            columns = np.bitwise_xor.accumulate(x.astype(np.uint8), axis=0)
            writer.write_table(pa.table(list(columns), schema=schema), row_group_size=GROUP_ROWS)
    aside.rename(path)
    return path


def one_pass(path: Path, small: Path, learning: str, states: int, threads: int, workers: int) -> float:
    """Seconds of one pass over the rows; the circuit and the kernels were made with a small table before."""
    from contextlib import nullcontext
    from functools import partial

    from learners.circuits.columns import columns_of
    from learners.circuits.em import ExpectedCounts
    from learners.circuits.online import StreamingPosterior, pseudo_counts_of
    from learners.circuits.shards import in_shards
    from learners.circuits.structures import hclt
    from learners.counts.pairwise import PairwiseCounts
    from learners.passes.cluster import connected
    from learners.passes.engine import collect, unheard
    from learners.passes.inference import infer_schema
    from learners.passes.rows import Rows
    from learners.passes.source import Source

    few = Source.open(str(small))
    schema = infer_schema(few, None)
    circuit = hclt(collect(PairwiseCounts(schema), few, threads=1), states, 0)
    rows_of = columns_of(circuit, schema).rows_of_chunk
    with nullcontext() if workers == 0 else connected(f"local:{workers}") as cluster:

        def learn(place: Path) -> None:
            source = Source.open(str(place))
            if learning == "em":
                empty = ExpectedCounts(circuit, schema, rows_of, schema.columns)
                run = partial(collect, threads=threads) if cluster is None else cluster.collect
                run(empty, source)
                return
            posterior = StreamingPosterior(circuit, pseudo_counts_of(circuit, 10.0), learning, rows_of=rows_of)
            in_shards(Rows(schema, [source], cluster), posterior, workers or threads, threads, unheard)

        return seconds_once_warm(learn, small, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--states", type=int, default=8)
    parser.add_argument("--learnings", nargs="+", default=["em"], choices=["em", "bmm", "adf"])
    parser.add_argument("--threads", type=int, default=2, help="and workers; BMM and ADF learn so many shards")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    small, paths = table(FEW, args.columns), {n: table(n, args.columns) for n in args.rows}
    first, last = args.rows[0], args.rows[-1]
    figures, facts = [], {}
    for learning in args.learnings:
        own = (learning, args.states, args.threads)
        tasks = {str(n): (one_pass, path, small, *own, 0) for n, path in paths.items()}
        tasks["workers"] = (one_pass, paths[last], small, *own, args.threads)
        runs = alternated_apart(args.rounds, **tasks)
        seconds = {name: [taken for taken, _ in found] for name, found in runs.items()}
        peaks = {name: max(peak for _, peak in found) / 2**20 for name, found in runs.items() if name != "workers"}
        per_row = ratio([s / last for s in seconds[str(last)]], [s / first for s in seconds[str(first)]])
        times = ", ".join(f"{name}: {statistics.median(taken):.1f} s" for name, taken in seconds.items())
        sizes = ", ".join(f"{name}: {peak:.0f} MiB" for name, peak in peaks.items())
        peak = peaks[str(last)] * 2**20 / 1e6
        figures += [
            Figure(f"{learning}: time a row, longest / shortest", *per_row, "1.15", "1.0", times),
            Figure(f"{learning}: peak memory of the longest, MB", peak, peak, peak, "700", "500", sizes),
            Figure(
                f"{learning}: rows/s of {args.threads} Dask workers / threads",
                *ratio(seconds[str(last)], seconds["workers"]),
                "0.6",
                "0.9",
                "",
            ),
        ]
        facts[learning] = {"seconds": seconds, "peak_mib": peaks}
    about = f"{args.columns} binary columns, hidden tree of {args.states} states, {args.threads} threads"
    report(f"one pass, {about}", figures, facts | {"machine": machine()}, args.json)


if __name__ == "__main__":
    main()
