"""A table as people have them (`benchmarks.real_tables`): passes, quality, size, predictions and commands beside XGBoost.

python -m benchmarks.real_table --rows 300000
python -m benchmarks.real_table --rows 5000000 --parts passes training memory
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import real_tables
from benchmarks.measuring import (
    CommandRun,
    Figure,
    alternated,
    alternated_apart,
    figure,
    machine,
    ratio,
    report,
    run_command,
)

LEARNERS = {"kDB-2": ("kdb", 2), "SkDB5": ("skdb", 5)}
ESTIMATOR = "hdp-map"
WARM_ROWS, TEST_ROWS, PREDICT_ROWS = 20_000, 100_000, 1_000_000
TARGET = real_tables.TARGET


def scan(paths: Sequence[Path]) -> None:
    """Decode every column on one thread, texts as dictionaries, and keep nothing."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = [field.name for field in pq.read_schema(paths[0]) if pa.types.is_string(field.type)]
    for path in paths:
        with pq.ParquetFile(path, read_dictionary=texts) as parquet:
            for _ in parquet.iter_batches(65_536, use_threads=False):
                pass


def time_passes(paths: Sequence[Path], rounds: int) -> dict[str, list[float]]:
    """Seconds of a scan, and of every pass of NB and kDB-2, on one thread."""
    import pyarrow as pa

    from learners.classifiers.structure import k_dependence, naive_structure
    from learners.counts.families.family_counts import FamilyCounts
    from learners.counts.pairs.pairwise import PairwiseCounts
    from learners.counts.samples.holdout import HoldOut
    from learners.passes.combined import Together
    from learners.passes.engine import collect
    from learners.passes.inference import infer_schema
    from learners.passes.memory import allocate_frugally
    from learners.passes.sources.source import Source

    pa.set_cpu_count(1)
    allocate_frugally()  # as `fewpass train` and its jobs do; the scan, too
    source = Source.open(paths)
    schema = infer_schema(source, TARGET, threads=1)
    pairs = collect(PairwiseCounts(schema), source, threads=1)
    naive, families = naive_structure(schema.n_attributes).families(), k_dependence(pairs, 2).families()
    del pairs
    empty = {
        "NB pass": Together(FamilyCounts(schema, naive), HoldOut(schema)),
        "structure pass": Together(PairwiseCounts(schema), HoldOut(schema)),
        "family pass": FamilyCounts(schema, families),
    }
    tasks: dict[str, Callable[[], Any]] = {
        "scan": lambda: scan(paths),
        "schema pass": lambda: infer_schema(source, TARGET, threads=1),
    }
    for name, statistic in empty.items():
        tasks[name] = lambda statistic=statistic: collect(statistic, source, threads=1)

    def in_order() -> None:
        counted = collect(empty["family pass"], source, threads=1)
        for index in range(len(families)):
            for _ in counted.blocks(index):
                pass

    tasks[IN_ORDER] = in_order
    return alternated(rounds, **tasks)


IN_ORDER = "family pass, and all cells in order"  # which sorts the keys that still wait

PASSES = {
    "schema pass": ("3", "1.5"),
    "NB pass": ("2", "1.4"),
    "structure pass": ("3", "1.8"),
    "family pass": ("2", "1.3"),
    IN_ORDER: ("", ""),
}


def passes(args: argparse.Namespace, paths: Sequence[Path]) -> list[Figure]:
    """Every pass ÷ a scan that keeps dictionaries."""
    ((seconds, _),) = alternated_apart(1, passes=(time_passes, paths, args.rounds))["passes"]
    return [figure(f"{name} ÷ scan", seconds[name], seconds["scan"], *goals) for name, goals in PASSES.items()]


def learned(paths: Sequence[Path], name: str, test: Sequence[Path], rounds: int) -> dict[str, Any]:
    """Test RMSE and log loss of a model, and seconds of predictions of encoded rows on one thread."""
    from learners.evaluation.metrics import evaluate
    from learners.passes.learner import drive
    from learners.passes.sources.source import Source
    from learners.registry import recipes
    from learners.schema.encoding.encode import encode

    learner, k = LEARNERS[name]
    parameters = {"k": k, "estimator": ESTIMATOR}
    model = drive(recipes.learner(learner, parameters, TARGET), Source.open(paths), threads=2)
    chunks = [encode(batch, model.schema) for batch in Source.open(test).batches()]
    metrics = evaluate(
        np.concatenate([model.predict_proba(chunk, 1) for chunk in chunks]), np.concatenate([c.y for c in chunks])
    )
    seconds = alternated(rounds, fewpass=lambda: [model.predict_proba(chunk, 1) for chunk in chunks])["fewpass"]
    found = {"rmse": metrics.rmse, "log_loss": metrics.log_loss, "predict_s": seconds}
    chosen = model.facts.get("selection", {})
    return found | {name: chosen[name] for name in ("n_attributes", "k") if name in chosen}


def boosted(paths: Sequence[Path], is_categorical: bool, test: Sequence[Path], rounds: int) -> dict[str, Any]:
    """The same of XGBoost, whose rows are codes or categories."""
    from benchmarks import real_peers
    from learners.evaluation.metrics import evaluate

    booster = real_peers.train(paths, TARGET, is_categorical, 2)
    rows, y = real_peers.rows_for(booster, test)
    metrics = evaluate(real_peers.probabilities(booster, rows).astype(np.float64), y)
    booster.set_param({"nthread": 1})
    matrix = rows if is_categorical else np.ascontiguousarray(rows.to_numpy(np.float32))
    seconds = alternated(rounds, xgboost=lambda: booster.inplace_predict(matrix))["xgboost"]
    return {"rmse": metrics.rmse, "log_loss": metrics.log_loss, "predict_s": seconds}


def quality(args: argparse.Namespace, paths: Sequence[Path]) -> list[Figure]:
    """Errors of SkDB5 ÷ kDB-2, and predictions of encoded rows ÷ XGBoost's."""
    test = real_tables.files(TEST_ROWS, 1)
    tasks: dict[str, tuple[Any, ...]] = {name: (learned, paths, name, test, args.rounds) for name in LEARNERS}
    tasks["XGBoost on codes"] = (boosted, paths, False, test, args.rounds)
    if args.categorical:
        tasks["XGBoost on categories"] = (boosted, paths, True, test, args.rounds)
    found = {name: runs[0][0] for name, runs in alternated_apart(1, **tasks).items()}
    args.facts["quality"] = found
    figures = []
    for metric in ("rmse", "log_loss"):
        value = found["SkDB5"][metric] / found["kDB-2"][metric]
        words = ", ".join(f"{name} {of[metric]:.4f}" for name, of in found.items())
        figures.append(Figure(f"test {metric}, SkDB5 ÷ kDB-2", value, value, value, "1", "0.9", words))
    peer, our = found["XGBoost on codes"]["predict_s"], found["kDB-2"]["predict_s"]
    detail = f"{TEST_ROWS / statistics.median(our):,.0f} rows/s"
    return [*figures, figure("batch of encoded rows, 1 thread: XGBoost ÷ kDB-2", peer, our, "2", "5", detail)]


class Bench:
    """Our commands and the peer's on files, in a workspace of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {"FEWPASS_THREADS": "2"}

    def fewpass(self, *arguments: str | Path) -> CommandRun:
        """One of our commands."""
        return run_command(
            [sys.executable, "-m", "service.cli", *arguments, "--workspace", self.folder / "workspace"],
            self.environment,
        )

    def train(self, paths: Sequence[Path], name: str) -> CommandRun:
        """`fewpass train`, process start to published version."""
        learner, k = LEARNERS[name]
        options = ["--learner", learner, "--k", str(k), "--set", f"estimator={ESTIMATOR}", "--holdout", "0"]
        return self.fewpass("train", *paths, "--target", TARGET, "--name", name.lower(), *options)

    def peer(self, verb: str, paths: Sequence[Path], *options: str | Path) -> CommandRun:
        """`benchmarks.real_peers`."""
        return run_command([sys.executable, "-m", "benchmarks.real_peers", verb, *paths, *options])

    def train_peer(self, paths: Sequence[Path], is_categorical: bool = False) -> CommandRun:
        """The peer's training; the booster stays."""
        options = ["--target", TARGET, "--out", self.booster(is_categorical)]
        return self.peer("train", paths, *options, *(["--categorical"] if is_categorical else []))

    def booster(self, is_categorical: bool) -> Path:
        """Where the peer's model is."""
        return self.folder / f"booster-{is_categorical}.ubj"

    def published_bytes(self, name: str) -> int:
        """Both files of the last version."""
        files = [*(self.folder / "workspace" / "models" / name.lower()).glob("[0-9]*-*")]
        newest = max(int(file.name.split("-")[0]) for file in files)
        return sum(f.stat().st_size for f in files if f.name.startswith(f"{newest}-") and f.suffix != ".sha256")


def _timed(what: str, over: Sequence[CommandRun], under: Sequence[CommandRun], *goals: str) -> Figure:
    """Wall seconds over ÷ under; processor seconds and peaks beside."""
    cpu = [statistics.median(run.cpu_s for run in runs) for runs in (over, under)]
    peaks = [statistics.median(run.peak_bytes for run in runs) / 2**20 for runs in (over, under)]
    detail = f"CPU {cpu[0]:.3g} / {cpu[1]:.3g} s, peak {peaks[0]:.0f} / {peaks[1]:.0f} MiB"
    return figure(what, [run.wall_s for run in over], [run.wall_s for run in under], *goals, detail)


def _memory(what: str, runs: Sequence[CommandRun], *goals: str) -> Figure:
    peaks = [run.peak_bytes / 2**20 for run in runs]
    wall = f"{statistics.median(run.wall_s for run in runs):.1f} s"
    return Figure(what, statistics.median(peaks), min(peaks), max(peaks), *goals, wall)


def training(args: argparse.Namespace, paths: Sequence[Path]) -> list[Figure]:
    """`fewpass train` beside XGBoost, and peak memory of both learners' commands."""
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        warm = real_tables.files(WARM_ROWS)
        for name in LEARNERS:  # kernels are compiled
            bench.train(warm, name)
        kdb, codes, categories = [], [], []
        for _ in range(args.command_rounds):
            kdb.append(bench.train(paths, "kDB-2"))
            codes.append(bench.train_peer(paths))
            if args.categorical:
                categories.append(bench.train_peer(paths, True))
        skdb = [bench.train(paths, "SkDB5") for _ in range(args.command_rounds)]
        better = min([codes, *([categories] if categories else [])], key=lambda runs: min(run.wall_s for run in runs))
        figures = [
            _timed("fewpass train, kDB-2: XGBoost (the faster form) ÷ fewpass", better, kdb, "3", "8"),
            _memory("peak MiB of fewpass train, kDB-2", kdb, "800", "500"),
            _memory("peak MiB of fewpass train, SkDB5", skdb, "1229", "700"),
        ]
        parquet = sum(path.stat().st_size for path in paths)
        for name, goals in (("kDB-2", ("3", "1")), ("SkDB5", ("", ""))):
            n_bytes = bench.published_bytes(name)
            detail = f"{n_bytes / 2**20:.1f} / {parquet / 2**20:.1f} MiB"
            figures.append(Figure(f"published {name} ÷ Parquet", *ratio([n_bytes], [parquet]), *goals, detail))
    return figures


def predicting(args: argparse.Namespace, paths: Sequence[Path]) -> list[Figure]:
    """`fewpass predict`, Parquet to Parquet, beside XGBoost with pandas."""
    rows = real_tables.files(PREDICT_ROWS, 2)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        bench.train(paths, "kDB-2")
        bench.train_peer(paths)
        ours, theirs = [], []
        for number in range(args.command_rounds + 1):
            out = bench.folder / "scored.parquet"
            mine = bench.fewpass("predict", "kdb-2", *rows, "--out", out, "--force")
            other = bench.peer("predict", rows, "--model", bench.booster(False), "--out", out)
            if number:  # the first finds kernels to compile
                ours.append(mine)
                theirs.append(other)
    return [_timed(f"fewpass predict, {PREDICT_ROWS:,} rows: XGBoost ÷ fewpass", theirs, ours, "3", "8")]


PARTS: dict[str, Callable[[argparse.Namespace, Sequence[Path]], list[Figure]]] = {
    "passes": passes,
    "quality": quality,
    "training": training,
    "predicting": predicting,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--command-rounds", type=int, default=3)
    parser.add_argument("--categorical", action="store_true", help="XGBoost on categories as well; four times as slow")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    args.facts = {}
    paths = real_tables.files(args.rows)
    figures = [found for part in args.parts for found in PARTS[part](args, paths)]
    report(f"{args.rows:,} rows of a real table, 40 columns, 4 classes", figures, machine() | args.facts, args.json)


if __name__ == "__main__":
    main()
