"""The first minute on a machine: a first model, a server and all kernels from an empty kernel cache; and with a full one.

python -m benchmarks.first_minute
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks.measuring import CommandRun, machine, median_figure, options, report, run_command
from benchmarks.real_tables import TARGET, arrow_table
from benchmarks.serving import free_port, running

ROWS = 20_000


def command(*arguments: str | Path, cache: Path, workspace: Path) -> CommandRun:
    """One of our commands with a kernel cache of its own."""
    environment = {"NUMBA_CACHE_DIR": str(cache), "FEWPASS_WORKSPACE": str(workspace)}
    return run_command([sys.executable, "-m", "service.cli", *arguments], environment)


def first_model(table: Path, cache: Path, workspace: Path) -> CommandRun:
    """`fewpass train`: kDB-2 with `hdp-map` of 20,000 rows of the real table."""
    options = ["--target", TARGET, "--name", "first", "--learner", "kdb", "--k", "2"]
    return command("train", table, *options, cache=cache, workspace=workspace)


def seconds_to_ready(cache: Path, workspace: Path) -> float:
    """From the start of `fewpass serve` until `/readyz` answers 200."""
    port = free_port()
    environment = {"NUMBA_CACHE_DIR": str(cache), "FEWPASS_WORKSPACE": str(workspace), "FEWPASS_LOG_LEVEL": "warning"}
    started = time.perf_counter()
    with running([sys.executable, "-m", "service.cli", "serve", "--port", str(port)], port, "/readyz", environment):
        return time.perf_counter() - started


def main() -> None:
    args = options(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        pq.write_table(arrow_table(ROWS, np.random.default_rng(0)), root / "table.parquet")
        cold = first_model(root / "table.parquet", root / "of-the-model", root / "workspace")
        warm = first_model(root / "table.parquet", root / "of-the-model", root / "workspace")
        ready_cold = seconds_to_ready(root / "of-the-server", root / "workspace")
        all_kernels = command("precompile", cache=root / "of-all", workspace=root / "workspace")
        ready_warm = [seconds_to_ready(root / "of-all", root / "workspace") for _ in range(3)]
        full = {"cache": root / "of-all", "workspace": root / "workspace"}
        listed = [command("models", "list", **full).wall_s for _ in range(5)]
        size = sum(path.stat().st_size for path in (root / "of-all").rglob("*") if path.is_file()) / 2**20
    by_the_clock = f"{all_kernels.wall_s:.0f} s by the clock, {size:.0f} MiB"
    figures = [
        median_figure(
            "first model, empty kernel cache, CPU s", [cold.cpu_s], "12", "5", f"{cold.wall_s:.1f} s by the clock"
        ),
        median_figure("the same again, CPU s", [warm.cpu_s], detail=f"{warm.wall_s:.1f} s by the clock"),
        median_figure("all kernels (`fewpass precompile`), CPU s", [all_kernels.cpu_s], "120", "60", by_the_clock),
        median_figure("serve to /readyz, empty kernel cache, s", [ready_cold], "60", "20"),
        median_figure("serve to /readyz, s", ready_warm, "3", "1.5"),
        median_figure("models list, s", listed, "0.8", "0.4"),
    ]
    report("the first minute", figures, machine(), args.json)


if __name__ == "__main__":
    main()
