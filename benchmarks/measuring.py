"""Alternated measurements, their ratios and spread, and peak memory."""

from __future__ import annotations

import json
import multiprocessing
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Figure:
    """One line of a benchmark: a ratio, what it should be, and what it is made of."""

    what: str
    ratio: float
    low: float
    high: float
    at_least: str
    aim: str
    detail: str


def alternated(rounds: int, **tasks: Callable[[], Any]) -> dict[str, list[float]]:
    """Seconds of each task in each round, all tasks in turn; one unmeasured round warms up."""
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for number in range(rounds + 1):
        for name, task in tasks.items():
            started = time.perf_counter()
            task()
            if number:
                seconds[name].append(time.perf_counter() - started)
    return seconds


def ratio(ours: Sequence[float], peer: Sequence[float]) -> tuple[float, float, float]:
    """Median, least and greatest of ours ÷ peer, round by round."""
    ratios = [a / b for a, b in zip(ours, peer, strict=True)]
    return statistics.median(ratios), min(ratios), max(ratios)


def figure(
    what: str, over: Sequence[float], under: Sequence[float], at_least: str, aim: str, detail: str = ""
) -> Figure:
    """The ratio over ÷ under with the medians of both."""
    text = f"{statistics.median(over):.4g} s / {statistics.median(under):.4g} s"
    return Figure(what, *ratio(over, under), at_least, aim, f"{text} {detail}".strip())


def _child(queue: Any, task: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    answer = task(*arguments)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    queue.put((answer, peak))


def apart(task: Callable[..., Any], *arguments: Any) -> tuple[Any, int]:
    """The answer of a task run in a fresh process, and that process's peak resident memory in bytes."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_child, args=(queue, task, arguments))
    process.start()
    answer = queue.get()
    process.join()
    return answer


def read_kept(path: Path | None, cls: type[Any]) -> list[Any]:
    """Results that a run before has kept, each a dataclass; none if there is no such file."""
    return [cls(**entry) for entry in json.loads(path.read_text())] if path is not None and path.is_file() else []


def keep(path: Path | None, results: Sequence[Any]) -> None:
    """Write results so that a run that is ended goes on from them."""
    if path is not None:
        path.write_text(json.dumps([asdict(each) for each in results], indent=1) + "\n")


def report(title: str, figures: Sequence[Figure], facts: dict[str, Any], json_path: Path | None) -> None:
    """Print the table, then JSON (to a file if asked)."""
    table = Table(title=title)
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


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    import platform

    import duckdb
    import numba
    import pyarrow
    import xgboost

    from learners.passes.engine import available_cores

    versions = {module.__name__: module.__version__ for module in (numba, pyarrow, duckdb, xgboost)}
    return {"cores": available_cores(), "python": platform.python_version(), "versions": versions}


def peak_rss_mib() -> float:
    """Peak resident memory of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
