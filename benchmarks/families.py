"""Family counts of ten million distinct contexts within a memory limit, against DuckDB's GROUP BY with the same limit.

python -m benchmarks.families --rows 20000000
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measuring import Figure, apart, machine, ratio, report
from benchmarks.tables import scratch

VALUES = 180  # of each of three attributes: 180³ × 2 classes is 11.7 million contexts


def table(n_rows: int) -> Path:
    """Uniform rows, so that nearly every context occurs."""
    path = scratch() / f"families-{n_rows}.parquet"
    if not path.exists():
        rng = np.random.default_rng(0)
        schema = pa.schema([(name, pa.uint8()) for name in ("a", "b", "c", "class")])
        with pq.ParquetWriter(path, schema) as writer:
            for _ in range(0, n_rows, 1_000_000):
                columns = [rng.integers(0, VALUES, 1_000_000, np.uint8) for _ in range(3)]
                columns.append(rng.integers(0, 2, 1_000_000, np.uint8))
                writer.write_table(pa.table(columns, schema=schema), row_group_size=1_000_000)
    return path


def ours(path: Path, limit_bytes: int, threads: int) -> tuple[float, int]:
    """Seconds, and how many contexts with how many rows."""
    from learners.counts.family import Family, FamilyCounts
    from learners.memory import limit_memory
    from learners.passes.engine import collect
    from learners.passes.source import Source
    from learners.schema import Attribute, Schema

    with tempfile.TemporaryDirectory() as folder:
        limit_memory(limit_bytes, folder)
        names = tuple(range(VALUES))
        attributes = tuple(Attribute(name, "nominal", names, arrow_type="uint8") for name in "abc")
        schema = Schema(attributes, "class", ("0", "1"), "int64")
        empty = FamilyCounts(schema, [Family(2, (0, 1))])
        warm = Source.of_table(pq.ParquetFile(path).read_row_group(0).slice(0, 1000))
        list(collect(empty, warm, threads=1).blocks(0))
        started = time.perf_counter()
        counted = collect(empty, Source.open(path), threads=threads)
        found = [(cells.size, int(counts.sum())) for cells, counts in counted.blocks(0)]
        n_cells, n_rows = (sum(sizes) for sizes in zip(*found, strict=True))
        return time.perf_counter() - started, n_cells * 10**10 + n_rows


def theirs(path: Path, limit_bytes: int, threads: int) -> tuple[float, int]:
    """Seconds of GROUP BY into a table on disk, and the same check."""
    import duckdb

    with tempfile.TemporaryDirectory() as folder:
        connection = duckdb.connect(
            f"{folder}/groups.duckdb",
            config={"memory_limit": f"{limit_bytes >> 20}MiB", "threads": threads, "temp_directory": folder},
        )
        connection.execute("SET preserve_insertion_order = false")
        started = time.perf_counter()
        source = f"SELECT class, a, b, c, count(*) AS n FROM read_parquet('{path}') GROUP BY ALL"
        connection.execute(f"CREATE TABLE groups AS {source}")
        seconds = time.perf_counter() - started
        ((n_cells, n_rows),) = connection.execute("SELECT count(*), sum(n) FROM groups").fetchall()
        return seconds, int(n_cells) * 10**10 + int(n_rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--limit-mib", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    path = table(asked.rows)
    seconds: dict[str, list[float]] = {"ours": [], "duckdb": []}
    peaks: dict[str, list[int]] = {"ours": [], "duckdb": []}
    found = set()
    for _ in range(asked.rounds):
        for name, task in (("ours", ours), ("duckdb", theirs)):
            (taken, check), peak = apart(task, path, asked.limit_mib << 20, asked.threads)
            seconds[name].append(taken)
            peaks[name].append(peak)
            found.add(check)
    assert len(found) == 1, "both count the same"
    n_cells = found.pop() // 10**10
    rss = {name: max(peak) / 2**20 for name, peak in peaks.items()}
    median, low, high = ratio(seconds["duckdb"], seconds["ours"])
    detail = f"{sorted(seconds['ours'])[len(seconds['ours']) // 2]:.2f} s; {n_cells:,} contexts of {asked.rows:,} rows"
    figures = [
        Figure("DuckDB's GROUP BY ÷ family counts, time", median, low, high, "1", "3", detail),
        Figure("peak RSS, MiB", rss["ours"], rss["ours"], rss["ours"], "450", "", f"DuckDB: {rss['duckdb']:.0f} MiB"),
    ]
    facts = {"seconds": seconds, "peak_rss_mib": rss, "machine": machine()}
    report(f"Family counts under {asked.limit_mib} MiB", figures, facts, asked.json)


if __name__ == "__main__":
    main()
