"""Processor seconds of a pass of ADF and of BMM over nltcs, and beside an older checkout of this repository.

    python -m benchmarks.circuits_online
    git worktree add ../former COMMIT && python -m benchmarks.circuits_online --against ../former

Each measurement is a process of its own, ours and the former in turn; kernels are compiled before the clock runs.
"""
# mypy: disallow-untyped-defs=False, check-untyped-defs=False

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
CIRCUIT = ROOT.parent / "shared" / "data" / "circuits" / "nltcs.spn.txt"
RULES = ("bmm", "adf")
# Of the random pseudo-counts to begin with, around a tenth of a row an edge.
LEAST, MOST = 0.05, 0.15


def passes(circuit_path: str, rows_path: str) -> None:
    """Print the seconds of the fastest of three passes of each rule; imports what PYTHONPATH says."""
    from learners.circuits.online import StreamingPosterior, random_pseudo_counts
    from learners.circuits.text import read_text

    circuit, x = read_text(Path(circuit_path)), np.load(rows_path)
    seconds = {rule: [] for rule in RULES}
    for number in range(4):
        for rule in RULES:
            posterior = StreamingPosterior(circuit, random_pseudo_counts(circuit, 0, LEAST, MOST), rule)
            started = time.process_time()
            posterior.update(x)
            if number:
                seconds[rule].append(time.process_time() - started)
    print(json.dumps({rule: min(each) for rule, each in seconds.items()}))


def seconds_of(checkout: Path, rows: Path) -> dict[str, float]:
    """What `passes` prints of a checkout's code."""
    environment = os.environ | {"PYTHONPATH": str(checkout)}
    command = [sys.executable, __file__, "--passes", str(CIRCUIT), str(rows)]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    seconds: dict[str, float] = json.loads(found.stdout)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[2000, 16181])
    parser.add_argument("--against", type=Path, help="a checkout of older code")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--passes", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.passes:
        passes(*args.passes)
        return
    from benchmarks.circuits import columns
    from benchmarks.measuring import figure, machine, report

    figures = []
    with tempfile.TemporaryDirectory() as folder:
        for n_rows in args.rows:
            rows = Path(folder) / "rows.npy"
            np.save(rows, np.ascontiguousarray(columns("nltcs", "train")[:, :n_rows]))
            ours, former = [], []
            for _ in range(args.rounds):
                ours.append(seconds_of(ROOT, rows))
                if args.against is not None:
                    former.append(seconds_of(args.against.resolve(), rows))
            bmm, adf = ([each[rule] for each in ours] for rule in RULES)
            figures.append(figure(f"ADF ÷ BMM, {n_rows:,} rows of nltcs", adf, bmm, "at most 1.5 x", "1.5 x"))
            if former:
                for rule, own in zip(RULES, (bmm, adf), strict=True):
                    before = [each[rule] for each in former]
                    figures.append(figure(f"former {rule} ÷ {rule}, {n_rows:,} rows", before, own, "1.5 x", "2.5 x"))
    report("ADF and BMM of a circuit", figures, machine(), args.json)


if __name__ == "__main__":
    main()
