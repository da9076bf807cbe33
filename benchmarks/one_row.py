"""One raw row by the public API against XGBoost's `inplace_predict` of one encoded row, and of a one-row frame.

python -m benchmarks.one_row --rows 50000
"""

from __future__ import annotations

import statistics
import time

import numpy as np
import pandas
import xgboost

from benchmarks.measuring import Figure, machine, options, ratio_median_min_max, report
from benchmarks.real_tables import TARGET, arrow_table
from fewpass import KDB

TREES, DEPTH = 100, 6
CALLS = 300


def main() -> None:
    args = options(__doc__, rows=50_000, rounds=5).parse_args()
    table = arrow_table(args.rows, np.random.default_rng(0))
    model = KDB(k=2, estimator="hdp-map").fit(table, TARGET)
    rows = table.drop_columns(TARGET).slice(0, CALLS)
    records, frame = rows.to_pylist(), rows.to_pandas()
    whole = [record for record in records if None not in record.values()]  # three of ten; the others have nulls
    frames = [frame.iloc[row : row + 1] for row in range(CALLS)]
    (chunk,) = model._chunks(table)
    codes = np.ascontiguousarray(chunk.x.T, np.float32)
    settings = {"max_depth": DEPTH, "tree_method": "hist", "objective": "multi:softprob", "num_class": 4, "nthread": 1}
    classes = np.unique(table[TARGET].to_numpy(), return_inverse=True)[1]
    booster = xgboost.train(settings, xgboost.QuantileDMatrix(codes, classes), num_boost_round=TREES)
    names = [attribute.name for attribute in model.model_.schema.attributes]
    encoded = [pandas.DataFrame(codes[row : row + 1], columns=names) for row in range(CALLS)]
    bare = xgboost.train(settings, xgboost.QuantileDMatrix(pandas.DataFrame(codes, columns=names), classes), TREES)
    classify = model.record_classifier()
    tasks = {
        "inner": lambda row: classify(records[row]),
        "dict": lambda row: model.predict_proba(records[row]),
        "whole dict": lambda row: model.predict_proba(whole[row % len(whole)]),
        "frame": lambda row: model.predict_proba(frames[row]),
        "xgboost": lambda row: booster.inplace_predict(codes[row : row + 1]),
        "xgboost frame": lambda row: bare.inplace_predict(encoded[row]),
    }
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for number in range(args.rounds + 1):
        for name, task in tasks.items():
            latencies = []
            for row in range(CALLS):
                started = time.perf_counter()
                task(row)
                latencies.append(time.perf_counter() - started)
            if number:  # the first round warms up
                seconds[name].append(statistics.median(latencies))

    def line(what: str, peer: str, ours: str, at_least: str = "", aim: str = "") -> Figure:
        detail = " / ".join(f"{statistics.median(seconds[name]) * 1e6:.3g} µs" for name in (peer, ours))
        return Figure(what, *ratio_median_min_max(seconds[peer], seconds[ours]), at_least, aim, detail)

    figures = [
        line("one dict, p50: XGBoost's encoded row ÷ predict_proba", "xgboost", "dict", "3", "8"),
        line("one dict without nulls, p50: XGBoost's encoded row ÷ predict_proba", "xgboost", "whole dict", "3", "8"),
        line("one-row DataFrame: XGBoost's encoded row ÷ predict_proba", "xgboost", "frame", "1", "2"),
        line("one-row DataFrame: XGBoost's frame of codes ÷ predict_proba", "xgboost frame", "frame"),
        line("one dict: predict_proba ÷ record_classifier()", "dict", "inner"),
    ]
    facts = machine() | {"p50_s": seconds}
    report(f"one row of {table.num_columns - 1} raw columns, kDB-2 and {TREES} trees", figures, facts, args.json)


if __name__ == "__main__":
    main()
