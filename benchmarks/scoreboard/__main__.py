"""What a user runs, measured: fewpass beside XGBoost, LightGBM and CatBoost.

python -m benchmarks.scoreboard            # at most 45 minutes on two cores; writes docs/results/scoreboard.md and .json
python -m benchmarks.scoreboard --quick    # four tables of at most 20,000 rows, without CatBoost: at most 4 minutes
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.scoreboard import page, tables
from benchmarks.scoreboard.measuring import FEWPASS, Entry, measured
from benchmarks.scoreboard.peers import PEERS

ROOT = Path(__file__).parents[2]
MISSING = (0.3, 0.7)
QUICK_ROWS, QUICK_TIMEOUT_S = 14_000, 30


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """The options."""
    every = [*tables.FROM_SETS, "orders", "real", "nulls", "interactions"]
    parser = argparse.ArgumentParser(prog="benchmarks.scoreboard", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small tables, no CatBoost; writes nothing by itself")
    parser.add_argument("--tables", nargs="+", choices=every)
    parser.add_argument("--learners", nargs="+", choices=[*FEWPASS, *PEERS])
    parser.add_argument("--real-rows", type=int, default=300_000, help="of the generated table, such as 5000000")
    parser.add_argument(
        "--missing", nargs="+", type=float, default=MISSING, help="shares of the columns that are not sent"
    )
    parser.add_argument("--most-rows", type=int, help="of each table to train on, and to predict")
    parser.add_argument("--timeout", type=float, help="seconds of a learner on a table: 120, or 30 with --quick")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, help="folder of the page: docs/results, or none with --quick")
    args = parser.parse_args(given)
    args.tables = args.tables or (list(tables.QUICK) if args.quick else every)
    args.learners = args.learners or [*FEWPASS, *(peer for peer in PEERS if not (args.quick and peer == "catboost"))]
    args.most_rows = args.most_rows or (QUICK_ROWS if args.quick else None)
    args.timeout = args.timeout or (QUICK_TIMEOUT_S if args.quick else 120)
    args.output = args.output or (None if args.quick else ROOT / "docs" / "results")
    return args


def entries(args: argparse.Namespace, folder: Path, absent: list[str]) -> Iterator[list[Entry]]:
    """Of each table every learner, one after the other."""
    for name, target, table in tables.tables(args.tables, args.real_rows):
        if table is None:
            absent.append(name)
            continue
        files = tables.split(name, table, target, folder / name, tuple(args.missing), args.seed, args.most_rows)
        del table
        found = []
        for learner in args.learners:
            entry = measured(learner, files, folder / name / learner, args.timeout)
            print(f"{name}, {learner}: {entry.note or entry.scores['0']}", flush=True)
            found.append(entry)
        yield found


def boards(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """What all learners do on the tables so far, and on what it was measured: after each table."""
    board: dict[str, Any] = {
        "commit": _commit(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(" ", "minutes")[:16],
        "machine": {"cores": os.cpu_count(), "processor": platform.machine(), "Python": platform.python_version()},
        "n_invalid": 0,
        "absent": [],
        "entries": [],
    }
    with tempfile.TemporaryDirectory() as folder:
        for found in entries(args, Path(folder), board["absent"]):
            board["entries"] += [asdict(entry) for entry in found]
            board["n_invalid"] += sum(entry.n_invalid for entry in found)
            yield board
    yield board


def _commit() -> str:
    command = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, check=False, capture_output=True, text=True
    )
    return command.stdout.strip() or "unknown"


def main(given: list[str] | None = None) -> None:
    """Measure, keep what is known after each table, and print it."""
    args = arguments(given)
    for board in boards(args):
        if args.output is not None:
            page.keep(board, args.output)
    print(page.markdown(board))


if __name__ == "__main__":
    main()
