"""What checking the sum of a serving file adds to mapping it: XXH3 of all its bytes, beside SHA-256 of all arrays.

python -m benchmarks.sums --mebibytes 100
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from storage import compiled


def milliseconds(function: Callable[[], object]) -> float:
    started = time.perf_counter()
    function()
    return 1e3 * (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mebibytes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    array = np.random.default_rng(0).random(args.mebibytes << 17)
    check = compiled._check_seal
    found: dict[str, list[float]] = {"mapped without a check": [], "with its sum": [], "with SHA-256 of all arrays": []}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.arrow"
        compiled.write_compiled(path, {}, {"probabilities": array})
        for _ in range(args.rounds):
            compiled._check_seal = lambda *_: None  # as before there were sums
            found["mapped without a check"].append(milliseconds(lambda: compiled.map_compiled(path)))
            compiled._check_seal = check
            found["with its sum"].append(milliseconds(lambda: compiled.map_compiled(path)))
            found["with SHA-256 of all arrays"].append(milliseconds(lambda: compiled.map_compiled(path, verify=True)))
    for name, times in found.items():
        print(f"{name:30} {statistics.median(times):8.2f} ms  ({min(times):.2f} to {max(times):.2f})")
    if args.json is not None:
        args.json.write_text(json.dumps({"mebibytes": args.mebibytes, "milliseconds": found}, indent=2))


if __name__ == "__main__":
    main()
