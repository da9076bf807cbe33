"""`fewpass bench`: speed of learners on this machine and table, relative to a plain scan of the same files.

Tables of any size are drawn from a known Bayesian network; time and memory are measured as by the benchmarks of the project.
"""

import multiprocessing
import resource
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from learners.errors import InvalidParameter, LearnerError
from learners.evaluation.learner_specs import LearnerSpec
from learners.models.model import Model
from learners.models.record_classifier import record_classifier
from learners.passes.learner import drive
from learners.passes.sources.file_formats import file_format_by_extension
from learners.passes.sources.file_opening import uri_filesystem
from learners.passes.sources.source import Source
from learners.registry import recipes
from learners.schema.encoding.encode import encode
from service.requests.problems import InvalidRequest

N_RECORDS = 1000
BATCH_ROWS = 65_536  # as a pass reads them
Codes = np.ndarray[Any, np.dtype[np.uint8]]
Floats = np.ndarray[Any, np.dtype[np.float64]]
TARGET = "class"
CHUNK_ROWS = 500_000


@dataclass(frozen=True)
class Figures:
    """Measurements of one learner, made in a separate process."""

    learner: str
    n_rows: int
    scan_s: tuple[float, ...]  # seconds of each round: a bare scan, training with all passes, scoring every row
    train_s: tuple[float, ...]
    predict_s: tuple[float, ...]
    row_us: float  # microseconds of one row that comes as a dictionary, the median of many
    peak_rss_mib: float = 0.0  # most resident memory of the process, libraries included

    def over_scan(self) -> tuple[float, float, float]:
        """Ratio of training to scan time over the rounds: median, minimum and maximum."""
        return ratio_median_min_max(self.train_s, self.scan_s)


def bench_learners(
    uris: Sequence[str], target: str, learners: Sequence[str], *, threads: int, rounds: int
) -> Iterator[Figures]:
    """Measure learners such as "nb" or "kdb:k=3", each in a fresh process that alternates training with a plain scan.

    `threads` are those of the scan and of the passes. There are `rounds` of each measurement, and one more, on few rows,
    warms up. Raises InvalidParameter if a learner is unknown; InvalidRequest if the data cannot be read, or not be
    learned from.
    """
    specs = [LearnerSpec.parse(text) for text in learners]
    for spec in specs:
        if spec.is_peer:
            raise InvalidParameter("learner", spec.name, f"one of {', '.join(recipes.LEARNERS)}")
    for spec in specs:
        figures, peak_bytes = run_in_fresh_process(_measured, list(uris), target, spec, threads, rounds)
        yield replace(figures, peak_rss_mib=peak_bytes / 2**20)


def bench_known_network(n_rows: int, learners: Sequence[str], *, threads: int, rounds: int) -> Iterator[Figures]:
    """Run `bench_learners` on a table drawn from a known network of 20 attributes with 4 values each."""
    with tempfile.TemporaryDirectory(prefix="fewpass-bench-") as folder:
        path = Path(folder) / "train.parquet"
        write_synthetic_parquet(path, n_rows, seed=0)
        yield from bench_learners([str(path)], TARGET, learners, threads=threads, rounds=rounds)


def _measured(uris: list[str], target: str, spec: LearnerSpec, threads: int, rounds: int) -> Figures:
    """Run `_figures` in a separate process, with errors that can be pickled."""
    try:
        return _figures(uris, target, spec, threads, rounds)
    except LearnerError as error:
        raise InvalidRequest(str(error)) from None


def _figures(uris: list[str], target: str, spec: LearnerSpec, threads: int, rounds: int) -> Figures:
    source, (filesystem, _) = Source.open(uris), uri_filesystem(uris[0])
    paths = [file.path for file in source.files]
    for path in paths:
        if file_format_by_extension(path) not in (None, "Parquet"):
            raise InvalidRequest(f"{path} is not a Parquet file; bench compares with a bare scan of Parquet only.")
    parameters = dict(spec.parameters)

    def train(rows: Source) -> Model:
        return drive(recipes.learner(spec.name, parameters, target), rows, threads=threads)

    def predict(model: Model, rows: Source) -> None:
        for batch in rows.batches():
            model.predict_proba(encode(batch, model.schema, with_class=False))

    few = source.thinned(1)
    predict(train(few), few)
    scan_s, train_s, predict_s = list[float](), list[float](), list[float]()
    for _ in range(rounds):
        scan_s.append(_seconds(scan_parquet_files, paths, threads, filesystem)[0])
        seconds, model = _seconds(train, source)
        train_s.append(seconds)
        predict_s.append(_seconds(predict, model, source)[0])
    row_us = _row_us(model, source)
    return Figures(spec.text, source.n_rows, tuple(scan_s), tuple(train_s), tuple(predict_s), row_us)


def _row_us(model: Model, source: Source) -> float:
    records = next(source.batches()).slice(0, N_RECORDS).to_pylist()
    names = [attribute.name for attribute in model.schema.attributes]
    classify = record_classifier(model)
    rows = [{name: record[name] for name in names} for record in records]
    classify(rows[0])
    return statistics.median(_seconds(classify, record)[0] for record in rows) * 1e6


def _seconds(function: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    started = time.perf_counter()
    answer = function(*arguments)
    return time.perf_counter() - started, answer


def ratio_median_min_max(over: Sequence[float], under: Sequence[float]) -> tuple[float, float, float]:
    """Median, minimum and maximum of over ÷ under, round by round."""
    ratios = [a / b for a, b in zip(over, under, strict=True)]
    return statistics.median(ratios), min(ratios), max(ratios)


def run_in_fresh_process(task: Callable[..., Any], *arguments: Any) -> tuple[Any, int]:
    """Run a task in a fresh process; return its answer and the peak bytes of that process. Raises the task's error, or
    BrokenProcessPool if killed.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_with_peak, task, arguments).result()


def _with_peak(task: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Any, int]:
    return task(*arguments), peak_rss_bytes()


def peak_rss_bytes() -> int:
    """Peak resident memory of this process so far, in bytes."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:  # not Linux
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    # Linux's ru_maxrss of a new process begins with what its parent held, VmHWM does not.
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def scan_parquet_files(paths: Sequence[str | Path], threads: int, filesystem: pafs.FileSystem | None = None) -> None:
    """Decode and discard every column of Parquet files, local or on `filesystem`, on `threads` threads."""
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


@dataclass(frozen=True)
class KnownNetwork:
    """A Bayesian network classifier with known parameters."""

    prior: Floats  # (n_classes,) float64
    parents: tuple[tuple[int, ...], ...]  # per attribute, the indices of its parents, all smaller than its own
    tables: tuple[Floats, ...]  # per attribute, P(x | y, parents) as (n_classes, v of each parent, ..., v) float64

    @classmethod
    def random(cls, n_attributes: int, n_values: int, n_classes: int, n_parents: int, seed: int) -> "KnownNetwork":
        """Return a network with Dirichlet-distributed tables; few attributes are strongly related to the class."""
        rng = np.random.default_rng(seed)
        parents = tuple(
            tuple(sorted(rng.choice(i, size=min(i, n_parents), replace=False).tolist())) for i in range(n_attributes)
        )
        tables = []
        for i, its_parents in enumerate(parents):
            shape = (n_classes, *(n_values for _ in its_parents))
            common = rng.dirichlet(np.full(n_values, 1.0), size=shape[1:] or None)
            own = rng.dirichlet(np.full(n_values, 1.0), size=shape)
            weight = 0.5 if i % 4 == 0 else 0.15
            tables.append((1 - weight) * common + weight * own)
        return cls(rng.dirichlet(np.full(n_classes, 8.0)), parents, tuple(tables))

    def draw(self, n_rows: int, rng: np.random.Generator) -> tuple[Codes, Codes]:
        """Draw rows from the network: x (n_attributes, n_rows) and y (n_rows,), both uint8."""
        y = rng.choice(self.prior.size, size=n_rows, p=self.prior).astype(np.uint8)
        x = np.empty((len(self.parents), n_rows), np.uint8)
        for i, (its_parents, table) in enumerate(zip(self.parents, self.tables, strict=True)):
            cumulative = np.cumsum(table, axis=-1)
            shares = cumulative[(y, *(x[parent] for parent in its_parents))]
            x[i] = (rng.random((n_rows, 1)) > shares[:, :-1]).sum(axis=1)
        return x, y


def write_synthetic_parquet(path: Path, n_rows: int, seed: int) -> None:
    """Draw a Parquet file from a network of 20 attributes chunk by chunk, so that only the disk limits its size."""
    network = KnownNetwork.random(n_attributes=20, n_values=4, n_classes=2, n_parents=2, seed=seed)
    rng = np.random.default_rng([seed, 1])
    values = pa.array(["low", "medium", "high", "extreme"])
    labels = pa.array(["no", "yes"])
    names = [*(f"attribute_{i:02d}" for i in range(len(network.parents))), TARGET]
    schema = pa.schema([(name, pa.dictionary(pa.int8(), pa.string())) for name in names])
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, n_rows, CHUNK_ROWS):
            x, y = network.draw(min(CHUNK_ROWS, n_rows - start), rng)
            columns = [pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int8)), values) for codes in x]
            columns.append(pa.DictionaryArray.from_arrays(pa.array(y.astype(np.int8)), labels))
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
