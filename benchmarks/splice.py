"""A splice-like table: 1 % positives, 140 attributes of 4 values, strong local dependencies; SkDB against XGBoost.

Every attribute depends on the three before it, as in DNA. Around the middle the dependence differs between the classes, elsewhere it
is the same. The Bayes-optimal RMSE is that of the true probabilities on the same test rows.

    python -m benchmarks.splice --rows 2000000
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measuring import Figure, alternated_apart, figure, machine, ratio, report
from benchmarks.tables import ROW_GROUP_ROWS, scratch
from service.operations.demo_data import KnownNetwork

POSITIVES, N_ATTRIBUTES, WINDOW, ORDER = 0.01, 140, 40, 3
WARM_ROWS = 20_000


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


def ours(train: Path, warm: Path, test: Path, estimator: str, iterations: int, threads: int) -> dict:
    """RMSE, and seconds of every stage, the schema's pass included."""
    from learners import Source, drive, encode, learner

    stages: dict[str, float] = {}

    def on_progress(progress) -> None:
        stages[progress.stage] = max(stages.get(progress.stage, 0.0), progress.seconds)

    def learn(path: Path, iterations: int):
        parameters = {"k": 5, "estimator": estimator, "iterations": iterations}
        source = Source.open(path)
        return drive(learner("skdb", parameters, "class"), source, threads=threads, on_progress=on_progress)

    learn(warm, 100)
    stages.clear()
    started = time.perf_counter()
    model = learn(train, iterations)
    seconds = time.perf_counter() - started
    chosen = model.facts["selection"]
    parts, labels = [], []
    for batch in Source.open(test).batches():
        chunk = encode(batch, model.schema)
        parts.append(model.predict_proba(chunk)[:, 1])
        labels.append(chunk.y)
    found = {"n_attributes": chosen["n_attributes"], "k": chosen["k"], "m": model.facts.get("m")}
    return found | {"rmse": rmse(np.concatenate(parts), np.concatenate(labels)), "seconds": seconds, "stages": stages}


def xgboost_model(train: Path, warm: Path, test: Path, threads: int) -> dict:
    """RMSE and seconds of XGBoost from external memory."""
    from benchmarks.boosting import boosted

    boosted(warm, threads)
    started = time.perf_counter()
    booster = boosted(train, threads)
    seconds = time.perf_counter() - started
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


def compared(name: str, runs: list[tuple[dict, int]], peers: list[tuple[dict, int]]) -> list[Figure]:
    """RMSE, time and peak memory of one of ours against XGBoost, round by round."""
    found, peer = runs[-1][0], peers[-1][0]
    sizes = f"{found['n_attributes']} attributes, k = {found['k']}, m = {found['m']}"
    stages = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in found["stages"].items())
    ours_s, peer_s = ([run["seconds"] for run, _ in of] for of in (runs, peers))
    ours_bytes, peer_bytes = ([peak for _, peak in of] for of in (runs, peers))
    errors = ratio([run["rmse"] for run, _ in runs], [run["rmse"] for run, _ in peers])
    detail = f"{found['rmse']:.4f} / {peer['rmse']:.4f}; {sizes}"
    memory = f"{statistics.median(ours_bytes) / 2**20:.0f} / {statistics.median(peer_bytes) / 2**20:.0f} MiB"
    return [
        Figure(f"{name}: RMSE ÷ XGBoost", *errors, "1.1 (hdp)", "1", detail),
        figure(f"{name}: XGBoost's time ÷ ours", peer_s, ours_s, "", "", f"({stages})"),
        Figure(f"{name}: peak RSS ÷ XGBoost", *ratio(ours_bytes, peer_bytes), "", "", memory),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--test-rows", type=int, default=500_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--iterations", type=int, default=2000)
    parser.add_argument("--estimators", nargs="+", default=["m", "hdp-map", "hdp"], choices=["m", "hdp-map", "hdp"])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    train, test = write(args.rows, 1), write(args.test_rows, 2)
    warm = write(WARM_ROWS, 3)
    tasks = {
        f"SkDB5-{name}": (ours, train, warm, test, name, args.iterations, args.threads) for name in args.estimators
    }
    runs = alternated_apart(args.rounds, **tasks, XGBoost=(xgboost_model, train, warm, test, args.threads))
    figures = [one for name in tasks for one in compared(name, runs[name], runs["XGBoost"])]
    title = f"{args.rows:,} rows × {N_ATTRIBUTES} attributes, 1 % positives; Bayes-optimal RMSE {optimal(test):.4f}"
    facts = {
        "peak_rss_mib": {name: statistics.median(peak for _, peak in of) / 2**20 for name, of in runs.items()},
        "runs": {name: [found for found, _ in of] for name, of in runs.items()},
    }
    report(title, figures, machine() | facts, args.json)


if __name__ == "__main__":
    main()
