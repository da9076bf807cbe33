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

from benchmarks.measuring import Figure, alternated_apart, figure, machine, report
from benchmarks.tables import scratch

VALUES = 180  # of each of three attributes: 180³ × 2 classes is 11.7 million contexts
WARM_ROWS = 1_000_000
BATCH_ROWS = 65_536


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


def ours(path: Path, warm: Path, limit_bytes: int, threads: int) -> tuple[float, int]:
    """Seconds until every context with its count has been handed over, and how many there are of how many rows."""
    from learners.counts.family import Family, FamilyCounts
    from learners.memory import limit_memory
    from learners.passes.engine import collect
    from learners.passes.source import Source
    from learners.schema import Attribute, Schema

    names = tuple(range(VALUES))
    attributes = tuple(Attribute(name, "nominal", names, arrow_type="uint8") for name in "abc")
    empty = FamilyCounts(Schema(attributes, "class", ("0", "1"), "int64"), [Family(2, (0, 1))])

    def count(place: Path) -> tuple[int, int]:
        counted = collect(empty, Source.open(place), threads=threads)
        found = [(cells.size, int(counts.sum())) for cells, counts in counted.blocks(0)]
        n_cells, n_rows = (sum(sizes) for sizes in zip(*found, strict=True))
        return n_cells, n_rows

    with tempfile.TemporaryDirectory() as folder:
        limit_memory(limit_bytes, folder)
        count(warm)
        started = time.perf_counter()
        n_cells, n_rows = count(path)
        return time.perf_counter() - started, n_cells * 10**10 + n_rows


def theirs(path: Path, warm: Path, limit_bytes: int, threads: int) -> tuple[float, int]:
    """The same of DuckDB's GROUP BY, its answer read as a stream of Arrow batches."""
    import duckdb

    def count(place: Path) -> tuple[int, int]:
        sql = f"SELECT class, a, b, c, count(*) AS n FROM read_parquet('{place}') GROUP BY ALL"
        n_cells = n_rows = 0
        for batch in connection.sql(sql).to_arrow_reader(BATCH_ROWS):
            n_cells += batch.num_rows
            n_rows += int(batch["n"].to_numpy().sum())
        return n_cells, n_rows

    with tempfile.TemporaryDirectory() as folder:
        connection = duckdb.connect(
            f"{folder}/groups.duckdb",
            config={"memory_limit": f"{limit_bytes >> 20}MiB", "threads": threads, "temp_directory": folder},
        )
        connection.execute("SET preserve_insertion_order = false")
        count(warm)
        started = time.perf_counter()
        n_cells, n_rows = count(path)
        return time.perf_counter() - started, n_cells * 10**10 + n_rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--limit-mib", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    path, warm = table(asked.rows), table(WARM_ROWS)
    arguments = (path, warm, asked.limit_mib << 20, asked.threads)
    runs = alternated_apart(asked.rounds, ours=(ours, *arguments), duckdb=(theirs, *arguments))
    seconds = {name: [taken for (taken, _), _ in of] for name, of in runs.items()}
    found = {check for of in runs.values() for (_, check), _ in of}
    assert len(found) == 1, "both count the same"
    n_cells = found.pop() // 10**10
    rss = {name: max(peak for _, peak in of) / 2**20 for name, of in runs.items()}
    detail = f"{n_cells:,} contexts of {asked.rows:,} rows"
    figures = [
        figure("DuckDB's GROUP BY ÷ family counts, time", seconds["duckdb"], seconds["ours"], "1", "3", detail),
        Figure("peak RSS, MiB", rss["ours"], rss["ours"], rss["ours"], "450", "", f"DuckDB: {rss['duckdb']:.0f} MiB"),
    ]
    facts = {"seconds": seconds, "peak_rss_mib": rss, "machine": machine()}
    report(f"Family counts under {asked.limit_mib} MiB", figures, facts, asked.json)


if __name__ == "__main__":
    main()
