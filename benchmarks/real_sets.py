"""Four public tables with wide or skewed columns: errors, published size and prediction of NB, kDB-2 and SkDB5 beside XGBoost.

Two folds; the figures are means over both. Published bytes are those of both files of the version learned on the first half.

python -m benchmarks.real_sets
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from benchmarks.measuring import Figure, alternated, alternated_apart, machine, report
from benchmarks.tables import scratch

DATA = Path(__file__).parent.parent.parent / "shared" / "data" / "classification"
SETS = ("diabetes130", "flights_nyc13", "adult", "covtype_50k")
LEARNERS: dict[str, tuple[str, dict[str, Any]]] = {
    "NB": ("nb", {}),
    "kDB-2": ("kdb", {"k": 2}),
    "SkDB5": ("skdb", {"k": 5}),
}
TARGET = "class"


def halves(name: str, seed: int = 0) -> tuple[Path, Path]:
    """Two halves of a set, each with about the same share of every class."""
    from learners.evaluation.folds import stratified_folds

    paths = tuple(scratch() / f"{name}-half-{seed}-{half}.parquet" for half in range(2))
    if not all(path.exists() for path in paths):
        table = pq.read_table(DATA / f"{name}.parquet")
        codes = table[TARGET].combine_chunks().dictionary_encode().indices.to_numpy()
        for path, (_, rows) in zip(paths, stratified_folds(codes, 2, seed), strict=True):
            pq.write_table(table.take(rows), path)
    return paths[0], paths[1]


def learned(train: Path, test: Path, name: str, estimator: str, rounds: int) -> dict[str, Any]:
    """Errors on the test half, seconds of predictions of encoded rows on one thread, and published bytes."""
    from learners import recipes
    from learners.evaluation.metrics import evaluate
    from learners.passes.learner import drive
    from learners.passes.source import Source
    from learners.schema.encode import encode
    from storage.model_file import write_model

    learner, parameters = LEARNERS[name]
    model = drive(recipes.learner(learner, parameters | {"estimator": estimator}, TARGET), Source.open(train))
    chunks = [encode(batch, model.schema) for batch in Source.open(test).batches()]
    found = np.concatenate([model.predict_proba(chunk, 1) for chunk in chunks])
    metrics = evaluate(found, np.concatenate([chunk.y for chunk in chunks]))
    seconds = alternated(rounds, it=lambda: [model.predict_proba(chunk, 1) for chunk in chunks])["it"]
    with tempfile.TemporaryDirectory() as folder:
        n_bytes = write_model(folder, name.lower(), 1, *model.to_arrays(), model.tables()).n_bytes
    return {"rmse": metrics.rmse, "log_loss": metrics.log_loss, "predict_s": min(seconds), "n_bytes": n_bytes}


def boosted(train: Path, test: Path, is_categorical: bool, rounds: int) -> dict[str, Any]:
    """The same of XGBoost."""
    from benchmarks import real_peers
    from learners.evaluation.metrics import evaluate

    booster = real_peers.train([train], TARGET, is_categorical, 2)
    rows, y = real_peers.rows_for(booster, [test])
    metrics = evaluate(real_peers.probabilities(booster, rows).astype(np.float64), y)
    booster.set_param({"nthread": 1})
    matrix = rows if is_categorical else np.ascontiguousarray(rows.to_numpy(np.float32))
    seconds = alternated(rounds, it=lambda: booster.inplace_predict(matrix))["it"]
    n_bytes = len(booster.save_raw())
    return {"rmse": metrics.rmse, "log_loss": metrics.log_loss, "predict_s": min(seconds), "n_bytes": n_bytes}


def measured(name: str, estimator: str, rounds: int) -> dict[str, dict[str, float]]:
    """Of every learner the means over both folds."""
    first, second = halves(name)
    folds = []
    for train, test in ((first, second), (second, first)):
        tasks: dict[str, tuple[Any, ...]] = {own: (learned, train, test, own, estimator, rounds) for own in LEARNERS}
        tasks["XGBoost, codes"] = (boosted, train, test, False, rounds)
        tasks["XGBoost, categories"] = (boosted, train, test, True, rounds)
        folds.append({own: runs[0][0] for own, runs in alternated_apart(1, **tasks).items()})
    return {
        own: {what: statistics.mean(fold[own][what] for fold in folds) for what in folds[0][own]} for own in folds[0]
    }


def figures_of(name: str, found: dict[str, dict[str, float]]) -> list[Figure]:
    """SkDB5 beside the better of kDB-2 and NB, and beside XGBoost."""
    ours, peer = found["SkDB5"], found["XGBoost, codes"]
    best = min(found["kDB-2"]["log_loss"], found["NB"]["log_loss"])
    figures = []
    for what, value, wanted in (
        ("log loss, SkDB5 ÷ the better of kDB-2 and NB", ours["log_loss"] / best, ("1.01", "0.98")),
        ("prediction of encoded rows, XGBoost ÷ SkDB5", peer["predict_s"] / ours["predict_s"], ("", "")),
        ("the same ÷ kDB-2", peer["predict_s"] / found["kDB-2"]["predict_s"], ("", "")),
    ):
        figures.append(Figure(f"{name}: {what}", value, value, value, *wanted, ""))
    for own, of in found.items():
        detail = f"RMSE {of['rmse']:.4f}, log loss {of['log_loss']:.4f}, {of['n_bytes'] / 2**20:.2f} MiB"
        value = of["rmse"] / min(each["rmse"] for label, each in found.items() if label.startswith("XGB"))
        figures.append(Figure(f"{name}: RMSE, {own} ÷ XGBoost (the better)", value, value, value, "", "", detail))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--estimator", default="hdp-map")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if not DATA.is_dir():
        raise SystemExit(f"There is no folder {DATA}: the public tables lie beside the project, in shared/data.")
    found = {name: measured(name, args.estimator, args.rounds) for name in args.sets}
    figures = [one for name, of in found.items() for one in figures_of(name, of)]
    report(f"Public tables, two folds, {args.estimator}", figures, machine() | {"found": found}, args.json)


if __name__ == "__main__":
    main()
