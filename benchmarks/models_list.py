"""Seconds of `fewpass models list`, from the start of the process to its end, beside a bare Python that imports SQLAlchemy.

python -m benchmarks.models_list
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.measuring import Figure, machine, report
from service.settings import Settings
from service.workspace import Workspace


def measured(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Seconds on the clock, and CPU seconds."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *command], env=environment, check=True, stdout=subprocess.DEVNULL)
    seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    commands = {
        "models list": ["-m", "service.cli", "models", "list"],
        "fewpass --help": ["-m", "service.cli", "--help"],
        "import sqlalchemy": ["-c", "import sqlalchemy"],
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    with tempfile.TemporaryDirectory() as folder:
        with Workspace(Settings(workspace=Path(folder))) as workspace:
            assert workspace.control is not None
        environment = os.environ | {"FEWPASS_WORKSPACE": folder}
        for number in range(args.rounds + 1):
            for name, command in commands.items():
                one = measured(command, environment)
                if number:
                    found[name].append(one)

    def line(what: str, name: str, part: int, at_least: str, aim: str) -> Figure:
        seconds = [one[part] for one in found[name]]
        return Figure(what, statistics.median(seconds), min(seconds), max(seconds), at_least, aim, "seconds")

    figures = [
        line("models list, clock", "models list", 0, "0.8", "0.4"),
        line("models list, CPU", "models list", 1, "", ""),
        line("--help, clock", "fewpass --help", 0, "", ""),
        line("import sqlalchemy alone, clock", "import sqlalchemy", 0, "", ""),
    ]
    report("the start of a command that lists models", figures, machine() | {"seconds": found}, args.json)


if __name__ == "__main__":
    main()
