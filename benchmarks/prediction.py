"""kDB-2 predictions against XGBoost's `inplace_predict`: a batch of encoded rows, and one row at a time.

python -m benchmarks.prediction --rows 500000
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import xgboost

from benchmarks import tables
from benchmarks.measuring import Figure, alternated, figure, machine, ratio, report
from learners.passes.learner import drive
from learners.passes.sources.source import Source
from learners.registry import recipes
from learners.schema.encoding.encode import encode
from learners.schema.encoding.records import record_classifier

TREES, DEPTH = 100, 6
SINGLE_ROWS = 2000


def p50(latencies: list[float]) -> float:
    return statistics.median(latencies)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    source = Source.open(str(tables.table(args.rows)))
    model = drive(recipes.learner("kdb", {"k": 2}, "class"), source)
    rows = pa.Table.from_batches(list(source.batches()))
    chunk = encode(rows, model.schema)
    encoded = np.ascontiguousarray(chunk.x.T)
    settings = {"max_depth": DEPTH, "tree_method": "hist", "objective": "binary:logistic", "nthread": 1}
    booster = xgboost.train(settings, xgboost.QuantileDMatrix(encoded, chunk.y), num_boost_round=TREES)
    seconds = alternated(
        args.rounds, fewpass=lambda: model.predict_proba(chunk, 1), xgboost=lambda: booster.inplace_predict(encoded)
    )
    classify = record_classifier(model)
    records = rows.drop_columns(["class"]).slice(0, SINGLE_ROWS).to_pylist()
    singles: dict[str, list[float]] = {"fewpass": [], "xgboost": []}
    for _ in range(args.rounds):
        latencies: dict[str, list[float]] = {"fewpass": [], "xgboost": []}
        for row, record in enumerate(records):
            started = time.perf_counter()
            classify(record)
            between = time.perf_counter()
            booster.inplace_predict(encoded[row : row + 1])
            latencies["fewpass"].append(between - started)
            latencies["xgboost"].append(time.perf_counter() - between)
        for name, of in latencies.items():
            singles[name].append(p50(of))
    detail = (
        f"{statistics.median(singles['xgboost']) * 1e6:.3g} µs / {statistics.median(singles['fewpass']) * 1e6:.3g} µs"
    )
    figures = [
        figure("batch, one thread: XGBoost ÷ fewpass", seconds["xgboost"], seconds["fewpass"], "1.5", "2.5"),
        Figure(
            "one raw row, p50: XGBoost ÷ fewpass", *ratio(singles["xgboost"], singles["fewpass"]), "3", "10", detail
        ),
    ]
    facts = machine() | {"seconds": seconds, "p50_s": singles}
    report(f"kDB-2 and {TREES} trees of depth {DEPTH}, {args.rows:,} rows × 40", figures, facts, args.json)


if __name__ == "__main__":
    main()
