"""A Dask cluster of two processes on this machine against one process with two threads: the same passes, equal results.

python -m benchmarks.cluster --rows 20000000
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks import tables
from benchmarks.measuring import alternated, figure, machine, report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()

    from learners.counts.pairwise import PairwiseCounts
    from learners.passes.cluster import connected, grouped
    from learners.passes.engine import collect
    from learners.passes.inference import infer_schema
    from learners.passes.source import Source

    source = Source.open(str(tables.table(asked.rows)))
    schema = infer_schema(Source.open(str(tables.table(500_000))), "class")
    empty = PairwiseCounts(schema)
    found = {}
    with connected(f"local:{asked.workers}") as cluster:
        cluster.client.wait_for_workers(asked.workers)
        seconds = alternated(
            asked.rounds,
            threads=lambda: found.update(threads=collect(empty, source, threads=asked.workers)),
            cluster=lambda: found.update(cluster=cluster.collect(empty, source)),
        )
    assert found["threads"] == found["cluster"], "both count the same"
    detail = f"{len(list(grouped(source)))} tasks"
    figures = [
        figure(
            f"{asked.workers} threads ÷ {asked.workers} workers",
            seconds["threads"],
            seconds["cluster"],
            "0.6",
            "0.9",
            detail,
        )
    ]
    shipped = empty.to_arrow().nbytes
    facts = {
        "rows": asked.rows,
        "bytes_scanned": sum(file.size for file in source.files),
        "bytes_of_a_statistic": shipped,
        "seconds": seconds,
        "machine": machine(),
    }
    report("Pairwise counts on a Dask cluster", figures, facts, asked.json)


if __name__ == "__main__":
    main()
