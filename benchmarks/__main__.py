"""Run all benchmarks one after another; each is a command of its own.

python -m benchmarks                  # as large as the published figures: at most two hours
python -m benchmarks --quick          # smaller tables: at most a quarter of an hour
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

FULL = {
    "passes": ["--threads", "1"],
    "one_row": [],
    "null_rows": [],
    "first_minute": [],
    "serving": [],
    "hdp_sampler": [],
    "refresh": [],
    "forget": [],
    "scale": [],
    "circuits": [],
    "map": [],
    "service": [],
    "large_bodies": [],
    "structures": [],
    "density": [],
    "bayesian_circuits": [],
    "monitoring": ["power", "--repeats", "20"],
    "sql": [],
    "clicks": [],
}
QUICK = {
    "passes": ["--rows", "1000000", "--rounds", "3"],
    "one_row": ["--rows", "10000", "--rounds", "2"],
    "null_rows": ["--rows", "20000", "--asked", "10000", "--rounds", "2"],
    "serving": ["--rounds", "2", "--seconds", "1"],
    "refresh": ["--rows", "1000000", "--rounds", "1"],
    "forget": ["--rows", "100000", "--learners", "kdb"],
    "scale": ["--rows", "500000", "1000000", "--rounds", "1"],
    "structures": ["--columns", "16", "--rounds", "2", "--rows", "500000", "--nominal-rows", "100000"],
    "service": ["--rounds", "1", "--seconds", "1", "--jobs", "300"],
    "large_bodies": ["--rounds", "1", "--rows", "50000"],
    "clicks": ["--rows", "5000", "--clicks", "40", "--rounds", "1"],
    "monitoring": ["power", "--repeats", "1"],
    "sql": ["--models", "7", "--rows", "500", "--speed-rows", "20000", "--rounds", "1"],
    "bayesian_circuits": ["--quick", "sweeps", "growth", "query"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="smaller tables")
    parser.add_argument("--out", type=Path, help="folder for the JSON files")
    args = parser.parse_args()
    if args.out is not None:
        args.out.mkdir(parents=True, exist_ok=True)
    failed = []
    for name, options in (QUICK if args.quick else FULL).items():
        print(f"== python -m benchmarks.{name} {' '.join(options)}", flush=True)
        written = [] if args.out is None else ["--json", str(args.out / f"{name}.json")]
        if subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *options, *written], check=False).returncode:
            failed.append(name)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
