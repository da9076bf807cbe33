"""Time and memory, measured the same way by `fewpass bench` and by the project's own benchmarks."""

import multiprocessing
import resource
import statistics
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pyarrow.parquet as pq

BATCH_ROWS = 65_536  # as a pass reads them


def ratio(over: Sequence[float], under: Sequence[float]) -> tuple[float, float, float]:
    """Median, least and greatest of over ÷ under, round by round."""
    ratios = [a / b for a, b in zip(over, under, strict=True)]
    return statistics.median(ratios), min(ratios), max(ratios)


def apart(task: Callable[..., Any], *arguments: Any) -> tuple[Any, int]:
    """The answer of a task in a fresh process, or what it raises (BrokenProcessPool if killed), and that process's peak bytes."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_measured, task, arguments).result()


def _measured(task: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Any, int]:
    return task(*arguments), peak_rss_bytes()


def peak_rss_bytes() -> int:
    """Peak resident memory of this process so far."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:  # not Linux
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    # Linux's ru_maxrss of a new process begins with what its parent held, VmHWM does not.
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def bare_scan(paths: Sequence[str | Path], threads: int, filesystem: pafs.FileSystem | None = None) -> None:
    """Decode every column of Parquet files, on the file system or this machine, on as many threads; keep nothing."""
    footers = [pq.read_metadata(path, filesystem=filesystem) for path in paths]
    groups = iter([(file, group) for file, footer in enumerate(footers) for group in range(footer.num_row_groups)])
    lock = threading.Lock()

    def read() -> None:
        while True:
            with lock:
                file, group = next(groups, (None, 0))
            if file is None:
                return
            with pq.ParquetFile(paths[file], metadata=footers[file], filesystem=filesystem) as parquet:
                for _ in parquet.iter_batches(BATCH_ROWS, row_groups=[group], use_threads=False):
                    pass

    with ThreadPoolExecutor(threads) as pool:
        for future in [pool.submit(read) for _ in range(threads)]:
            future.result()
