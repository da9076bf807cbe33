"""`fewpass drift` of a large file ÷ a bare scan of the same columns, and its memory.

python -m benchmarks.drift_scan                       # 10 M rows x 100 columns: numbers, words and whole numbers
python -m benchmarks.drift_scan --rows 1000000 --rounds 1

A bare scan decodes all columns with pyarrow and does nothing with them: on one thread, and on as many as drift uses. Times are of the verb, in turn, in one process; memory is the peak of a process of its own that runs the command.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measuring import alternated, figure, machine, report, run_command
from learners.passes.engine import available_cores
from service import product
from service.operations.measuring import bare_scan
from service.predictor import map_version
from service.requests import TrainRequest
from service.settings import Settings
from service.workspace import Workspace

PART = 200_000
WORDS = np.array([f"word {k:02d}" for k in range(40)])


def part_of(rng: np.random.Generator, n: int, n_columns: int) -> pa.Table:
    """Half numbers with missing values here and there, a quarter words, a quarter whole numbers; all tell of the class."""
    y = rng.random(n) < 0.4
    columns: dict[str, pa.Array] = {}
    for j in range(n_columns):
        kind = j % 4
        if kind < 2:
            mask = rng.random(n) < 0.02 if j % 20 == 0 else None
            columns[f"c{j}"] = pa.array(rng.normal(0.3 * y, 1.0), mask=mask)
        else:
            codes = np.minimum(rng.geometric(0.12 + 0.04 * y, n), len(WORDS)) - 1
            columns[f"c{j}"] = (
                pa.DictionaryArray.from_arrays(codes.astype(np.int8), WORDS) if kind == 2 else pa.array(codes)
            )
    return pa.table(columns | {"class": np.where(y, "yes", "no")})


def write(path: Path, n_rows: int, n_columns: int) -> None:
    """Rows in row groups of 200,000."""
    rng, writer = np.random.default_rng(1), None
    for start in range(0, n_rows, PART):
        table = part_of(rng, min(PART, n_rows - start), n_columns)
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where the file is made, and left; a temporary one unless given")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as temporary:
        path = (args.folder or Path(temporary)) / f"drift-{args.rows}x{args.columns}.parquet"
        if not path.exists():
            write(path, args.rows, args.columns)
        train = Path(temporary) / "train.parquet"
        pq.write_table(part_of(np.random.default_rng(2), 100_000, args.columns), train)
        workspace = Path(temporary) / "workspace"
        with Workspace(Settings(workspace=workspace, job_workers=0)) as opened:
            request = TrainRequest(uris=[str(train)], target="class", learner="kdb", parameters={"k": 1}, model="m")
            product.train(opened, request)
            attributes = map_version(product.find_version(opened, "m")).model.schema.attributes
            threads = available_cores()
            seconds = alternated(
                args.rounds,
                one=lambda: bare_scan([path], 1),
                all=lambda: bare_scan([path], threads),
                drift=lambda: product.drift(opened, "m", [str(path)]),
            )
        command = [sys.executable, "-m", "service.cli", "drift", "m", path, "--workspace", workspace]
        run = run_command(command)
    what = f"{args.rows:,} rows x {len(attributes)} columns, drift ÷ a bare scan on"
    mib = run.peak_bytes / 2**20
    figures = [
        figure(f"{what} one thread", seconds["drift"], seconds["one"], "4 or less", "2"),
        figure(f"{what} {threads} threads", seconds["drift"], seconds["all"], "4 or less", "2"),
    ]
    facts = {"command": vars(run) | {"peak_mib": mib, "limit_mb": 600, "aim_mb": 400}, "machine": machine()}
    report("fewpass drift", figures, facts, args.json)
    print(f"peak memory of the command: {mib:,.0f} MiB, limit 572 (600 MB), aim 381 (400 MB)")


if __name__ == "__main__":
    main()
