"""`fewpass bench`: how fast learners are on this machine and this table, against a bare scan of the same files."""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from learners.errors import InvalidParameter, LearnerError
from learners.evaluation.specs import LearnerSpec
from learners.models.model import Model
from learners.passes.learner import drive
from learners.passes.sources.files import format_of
from learners.passes.sources.opening import filesystem_of
from learners.passes.sources.source import Source
from learners.registry import recipes
from learners.schema.encoding.encode import encode
from learners.schema.encoding.json_records import record_classifier
from service.operations.demo_data import TARGET, write_synthetic
from service.operations.measuring import apart, bare_scan, ratio
from service.requests.problems import InvalidRequest

N_RECORDS = 1000


@dataclass(frozen=True)
class Figures:
    """What was measured of one learner, in a process of its own.

    Parameters
    ----------
    scan_s, train_s, predict_s : seconds of each round: a bare scan, training with all passes, scoring every row
    row_us : microseconds of one row that comes as a dictionary, the median of many
    peak_rss_mib : most resident memory of the process, libraries included
    """

    learner: str
    n_rows: int
    scan_s: tuple[float, ...]
    train_s: tuple[float, ...]
    predict_s: tuple[float, ...]
    row_us: float
    peak_rss_mib: float = 0.0

    def over_scan(self) -> tuple[float, float, float]:
        """Training ÷ scan, round by round: median, least and greatest."""
        return ratio(self.train_s, self.scan_s)


def bench(uris: Sequence[str], target: str, learners: Sequence[str], *, threads: int, rounds: int) -> Iterator[Figures]:
    """Measure learners such as "nb" or "kdb:k=3", each in a fresh process, its training alternately with a bare scan.

    `threads` are those of the scan and of the passes. There are `rounds` of each measurement, and one more, on few rows,
    warms up. Raises InvalidParameter if a learner is none of ours; InvalidRequest if the data cannot be read, or not be
    learned from.
    """
    specs = [LearnerSpec.parse(text) for text in learners]
    for spec in specs:
        if spec.is_peer:
            raise InvalidParameter("learner", spec.name, f"use one of {', '.join(recipes.LEARNERS)}")
    for spec in specs:
        figures, peak_bytes = apart(_measured, list(uris), target, spec, threads, rounds)
        yield replace(figures, peak_rss_mib=peak_bytes / 2**20)


def bench_known_network(n_rows: int, learners: Sequence[str], *, threads: int, rounds: int) -> Iterator[Figures]:
    """`bench` on a table that is drawn from a known network of 20 attributes with 4 values each."""
    with tempfile.TemporaryDirectory(prefix="fewpass-bench-") as folder:
        path = Path(folder) / "train.parquet"
        write_synthetic(path, n_rows, seed=0)
        yield from bench([str(path)], TARGET, learners, threads=threads, rounds=rounds)


def _measured(uris: list[str], target: str, spec: LearnerSpec, threads: int, rounds: int) -> Figures:
    """`_figures` in a process of its own, whose errors have to find their way into another."""
    try:
        return _figures(uris, target, spec, threads, rounds)
    except LearnerError as error:
        raise InvalidRequest(str(error)) from None


def _figures(uris: list[str], target: str, spec: LearnerSpec, threads: int, rounds: int) -> Figures:
    source, (filesystem, _) = Source.open(uris), filesystem_of(uris[0])
    paths = [file.path for file in source.files]
    for path in paths:
        if format_of(path) not in (None, "Parquet"):
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
        scan_s.append(_seconds(bare_scan, paths, threads, filesystem)[0])
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
