"""Alternated measurements, their ratios and spread, and peak memory."""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from service.operations.bench import peak_rss_bytes, ratio_median_min_max, run_in_fresh_process


@dataclass(frozen=True)
class Figure:
    """One line of a benchmark: a ratio, what it should be, and what it is made of."""

    what: str
    ratio: float
    low: float
    high: float
    at_least: str = ""
    aim: str = ""
    detail: str = ""


def options(text: str, **defaults: Any) -> argparse.ArgumentParser:
    """A command line: `--json`, and an option for each default, of its type; where it is a list, of one or more of its elements."""
    parser = argparse.ArgumentParser(description=text.splitlines()[0])
    parser.add_argument("--json", type=Path, help="where to write the figures")
    for name, default in defaults.items():
        n, one = ("+", default[0]) if isinstance(default, list) else (None, default)
        parser.add_argument(
            f"--{name.replace('_', '-')}", type=type(one), nargs=n, default=default, help=f"by default {default}"
        )
    return parser


def alternated(
    rounds: int, clock: Callable[[], float] = time.perf_counter, **tasks: Callable[[], Any]
) -> dict[str, list[float]]:
    """Seconds of each task in each round by a clock, all tasks in turn; one unmeasured round warms up."""
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for number in range(rounds + 1):
        for name, task in tasks.items():
            started = clock()
            task()
            if number:
                seconds[name].append(clock() - started)
    return seconds


def figure(
    what: str, over: Sequence[float], under: Sequence[float], at_least: str, aim: str, detail: str = ""
) -> Figure:
    """The ratio over ÷ under with the medians of both."""
    text = f"{statistics.median(over):.4g} s / {statistics.median(under):.4g} s"
    return Figure(what, *ratio_median_min_max(over, under), at_least, aim, f"{text} {detail}".strip())


def median_figure(what: str, values: Sequence[float], at_least: str = "", aim: str = "", detail: str = "") -> Figure:
    """The median of the rounds with its spread."""
    return Figure(what, statistics.median(values), min(values), max(values), at_least, aim, detail)


def alternated_apart(rounds: int, **tasks: tuple[Any, ...]) -> dict[str, list[tuple[Any, int]]]:
    """Answers and peak bytes of each (task, *arguments) in each round, all in turn, each in a fresh process."""
    found: dict[str, list[tuple[Any, int]]] = {name: [] for name in tasks}
    for _ in range(rounds):
        for name, (task, *arguments) in tasks.items():
            found[name].append(run_in_fresh_process(task, *arguments))
    return found


@dataclass(frozen=True)
class CommandRun:
    """What a command took: wall and processor seconds, and its peak resident memory in bytes."""

    wall_s: float
    cpu_s: float
    peak_bytes: int


class NotDone(Exception):
    """A command took longer than it may, or failed; the text says which."""


def run_command(
    arguments: Sequence[str | Path], environment: Mapping[str, str] | None = None, timeout_s: float = 86_400
) -> CommandRun:
    """Run a command to its end, whose output is not shown; its children count too.

    A small process starts it: on Linux the peak of a new process begins with what the one held that started it.

    Raises
    ------
    NotDone
        With the end of its standard error, if it failed.
    """
    run: CommandRun = run_in_fresh_process(_run, [str(word) for word in arguments], dict(environment or {}), timeout_s)[
        0
    ]
    return run


def _run(arguments: list[str], environment: dict[str, str], timeout_s: float) -> CommandRun:
    started = time.perf_counter()
    process = subprocess.Popen(
        arguments,
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    timer = threading.Timer(max(0.0, timeout_s), os.killpg, (process.pid, signal.SIGKILL))
    timer.start()
    assert process.stderr is not None
    try:
        errors = process.stderr.read().decode(errors="replace")
        _, status, used = os.wait4(process.pid, 0)
    except KeyboardInterrupt:  # which the terminal does not send to another session
        os.killpg(process.pid, signal.SIGKILL)
        raise
    finally:
        is_late = not timer.is_alive()
        timer.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise NotDone(f"more than {timeout_s:.0f} s" if is_late else " ".join(errors.split())[-200:])
    seconds = time.perf_counter() - started
    return CommandRun(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)


def read_kept(path: Path | None, cls: type[Any]) -> list[Any]:
    """Results that a run before has kept, each a dataclass; none if there is no such file."""
    return [cls(**entry) for entry in json.loads(path.read_text())] if path is not None and path.is_file() else []


def keep(path: Path | None, results: Sequence[Any]) -> None:
    """Write results so that a run that is ended goes on from them."""
    if path is not None:
        path.write_text(json.dumps([asdict(each) for each in results], indent=1) + "\n")


def report(title: str, figures: Sequence[Figure], facts: dict[str, Any], json_path: Path | None) -> None:
    """Print the table, then JSON (to a file if asked), with the peak memory of this process unless facts tell it."""
    facts = {"peak_rss_mib": peak_rss_bytes() / 2**20} | facts
    table = Table(title=title, caption=f"peak RSS, MiB: {_rounded(facts['peak_rss_mib'])}")
    for column in ("what", "ratio", "spread", "at least", "aim", "detail"):
        table.add_column(column)
    for entry in figures:
        spread = f"{entry.low:.3g}–{entry.high:.3g}"
        table.add_row(entry.what, f"{entry.ratio:.3g}", spread, entry.at_least, entry.aim, entry.detail)
    Console(width=160).print(table)
    document = {"title": title, "figures": [asdict(entry) for entry in figures]} | facts
    text = json.dumps(document, indent=2, default=str)
    print(text)
    if json_path is not None:
        json_path.write_text(text + "\n")


def _rounded(mib: float | dict[str, float]) -> str:
    parts = mib.items() if isinstance(mib, dict) else [("", mib)]
    return ", ".join(f"{name} {value:.0f}".strip() for name, value in parts)


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    import platform

    import duckdb
    import numba
    import pyarrow
    import xgboost

    from learners.passes.threads import available_cores

    versions = {module.__name__: module.__version__ for module in (numba, pyarrow, duckdb, xgboost)}
    return {"cores": available_cores(), "python": platform.python_version(), "versions": versions}
