"""A splice-like table: 1 % positives, 140 attributes of 4 values, strong local dependencies; SkDB against XGBoost.

Every attribute depends on the three before it, as in DNA. Around the middle the dependence differs between the classes, elsewhere it
is the same. The Bayes-optimal RMSE is that of the true probabilities on the same test rows.

    python -m benchmarks.splice --rows 2000000
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measuring import Figure, apart, machine, report
from benchmarks.tables import ROW_GROUP_ROWS, scratch
from benchmarks.training import DEPTH, ROUNDS
from service.demo_data import KnownNetwork

POSITIVES, N_ATTRIBUTES, WINDOW, ORDER = 0.01, 140, 40, 3


def network(seed: int = 0) -> KnownNetwork:
    """Attribute i given the class and the three before it."""
    rng = np.random.default_rng(seed)
    parents, tables = [], []
    for i in range(N_ATTRIBUTES):
        its_parents = tuple(range(max(0, i - ORDER), i))
        shape = tuple(4 for _ in its_parents)
        common = rng.dirichlet(np.full(4, 0.5), size=shape or None)
        own = rng.dirichlet(np.full(4, 0.5), size=(2, *shape))
        weight = 0.3 if abs(i - N_ATTRIBUTES // 2) <= WINDOW // 2 else 0.0
        parents.append(its_parents)
        tables.append((1 - weight) * common + weight * own)
    return KnownNetwork(np.array([1 - POSITIVES, POSITIVES]), tuple(parents), tuple(tables))


def write(n_rows: int, part: int) -> Path:
    """The training (part 1) or test (part 2) file."""
    path = scratch() / f"splice-{n_rows}-{part}.parquet"
    if path.exists():
        return path
    rng, truth = np.random.default_rng([0, part]), network()
    names = [*(f"x{i:03d}" for i in range(N_ATTRIBUTES)), "class"]
    aside = path.with_suffix(".partial")
    with pq.ParquetWriter(aside, pa.schema([(name, pa.uint8()) for name in names])) as writer:
        for start in range(0, n_rows, ROW_GROUP_ROWS):
            x, y = truth.draw(min(ROW_GROUP_ROWS, n_rows - start), rng)
            writer.write_table(pa.table([*x, y], names=names), row_group_size=ROW_GROUP_ROWS)
    aside.rename(path)
    return path


def rmse(probability_of_positive: np.ndarray, y: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.where(y == 1, 1 - probability_of_positive, probability_of_positive) ** 2)))


def ours(train: Path, test: Path, estimator: str, iterations: int) -> dict:
    """RMSE, and seconds of every stage."""
    from learners import Source, drive, encode, learner

    stages: dict[str, float] = {}

    def on_progress(progress) -> None:
        stages[progress.stage] = max(stages.get(progress.stage, 0.0), progress.seconds)

    started = time.perf_counter()
    parameters = {"k": 5, "estimator": estimator, "iterations": iterations}
    model = drive(learner("skdb", parameters, "class"), Source.open(train), on_progress=on_progress)
    seconds = time.perf_counter() - started
    chosen = model.facts["selection"]
    parts, labels = [], []
    for batch in Source.open(test).batches():
        chunk = encode(batch, model.schema)
        parts.append(model.predict_proba(chunk)[:, 1])
        labels.append(chunk.y)
    found = {"n_attributes": chosen["n_attributes"], "k": chosen["k"], "m": model.facts.get("m")}
    return found | {"rmse": rmse(np.concatenate(parts), np.concatenate(labels)), "seconds": seconds, "stages": stages}


def xgboost_model(train: Path, test: Path, threads: int) -> dict:
    """RMSE and seconds of XGBoost from external memory."""
    import tempfile

    import xgboost

    class Groups(xgboost.DataIter):
        def __init__(self, cache: str) -> None:
            self.file, self.group = pq.ParquetFile(train), 0
            super().__init__(cache_prefix=cache)

        def next(self, input_data) -> bool:
            if self.group == self.file.num_row_groups:
                return False
            rows = self.file.read_row_group(self.group, use_threads=False)
            columns = [rows[name].to_numpy() for name in rows.column_names]
            input_data(data=np.stack(columns[:-1], axis=1).astype(np.float32), label=columns[-1])
            self.group += 1
            return True

        def reset(self) -> None:
            self.group = 0

    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as cache:
        matrix = xgboost.ExtMemQuantileDMatrix(Groups(f"{cache}/x"), nthread=threads)
        settings = {"max_depth": DEPTH, "tree_method": "hist", "objective": "binary:logistic", "nthread": threads}
        booster = xgboost.train(settings, matrix, num_boost_round=ROUNDS)
        seconds = time.perf_counter() - started
        del matrix
    parts, labels = [], []
    for batch in pq.ParquetFile(test).iter_batches(65_536):
        columns = [column.to_numpy() for column in batch.columns]
        parts.append(booster.inplace_predict(np.stack(columns[:-1], axis=1).astype(np.float32)))
        labels.append(columns[-1])
    return {"rmse": rmse(np.concatenate(parts), np.concatenate(labels)), "seconds": seconds}


def optimal(test: Path) -> float:
    truth, parts, labels = network(), [], []
    for batch in pq.ParquetFile(test).iter_batches(65_536):
        columns = np.stack([column.to_numpy() for column in batch.columns])
        parts.append(truth.posterior(columns[:-1])[:, 1])
        labels.append(columns[-1])
    return rmse(np.concatenate(parts), np.concatenate(labels))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--test-rows", type=int, default=500_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--iterations", type=int, default=2000)
    parser.add_argument("--estimators", nargs="+", default=["m", "hdp-map", "hdp"], choices=["m", "hdp-map", "hdp"])
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    train, test = write(args.rows, 1), write(args.test_rows, 2)
    runs = {f"SkDB5-{name}": apart(ours, train, test, name, args.iterations) for name in args.estimators} | {
        "XGBoost": apart(xgboost_model, train, test, args.threads)
    }
    peer, peer_rss = runs["XGBoost"]
    figures = []
    for name, (found, rss) in runs.items():
        if name == "XGBoost":
            continue
        ratio = found["rmse"] / peer["rmse"]
        detail = f"{found['rmse']:.4f} / {peer['rmse']:.4f}; {found['n_attributes']} attributes, k = {found['k']}, m = {found['m']}"
        figures.append(Figure(f"{name}: RMSE ÷ XGBoost", ratio, ratio, ratio, "1.1 (hdp)", "1", detail))
        speed = peer["seconds"] / found["seconds"]
        stages = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in found["stages"].items())
        detail = f"{peer['seconds']:.1f} s / {found['seconds']:.1f} s ({stages})"
        figures.append(Figure(f"{name}: XGBoost's time ÷ ours", speed, speed, speed, "", "", detail))
        share = rss / peer_rss
        detail = f"{rss / 2**20:.0f} / {peer_rss / 2**20:.0f} MiB"
        figures.append(Figure(f"{name}: peak RSS ÷ XGBoost", share, share, share, "", "", detail))
    title = f"{args.rows:,} rows × {N_ATTRIBUTES} attributes, 1 % positives; Bayes-optimal RMSE {optimal(test):.4f}"
    report(title, figures, machine() | {name: found for name, (found, _) in runs.items()}, args.json)


if __name__ == "__main__":
    main()
