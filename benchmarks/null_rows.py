"""Rows with nulls as they come, against complete rows of the same table and against 100 rounds of bare XGBoost over the same codes, one thread each.

python -m benchmarks.null_rows --rows 300000
python -m benchmarks.null_rows --real ../shared/data/classification
python -m benchmarks.null_rows --data orders.parquet --target late

XGBoost sees nominal codes as numbers (`--categories` for its own categories, which it answers four times slower), nulls as missing.

The table has 40 columns, half of them with independent nulls of 1 to 30 % each, so that 19 of 20 rows have some, in
thousands of patterns (`benchmarks.real_tables`). Rows are encoded beforehand; figures are of processor time.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xgboost

from benchmarks.measuring import Figure, alternated, machine, options, ratio_median_min_max, report
from benchmarks.real_tables import MANY_NULLS, TARGET, arrow_table
from learners.classifiers.baselines.boosted import CodeTable, XGBoostParameters, xgboost_booster_parameters
from learners.kernels.arrays import read_only_array
from learners.models.model import Model
from learners.passes.learner import drive
from learners.passes.sources.source import Source
from learners.registry import recipes
from learners.schema import Chunk
from learners.schema.encoding.encode import encode

LEARNERS = {"kdb": {"k": 2}, "skdb": {"k": 5}, "eskdb": {}, "auto": {}}
WANTED = {"kdb": ("10", "50"), "skdb": ("8", "40"), "auto": ("1", "3")}
AT_MOST = {"kdb": ("≤ 25", "5"), "auto": ("≤ 10", "4")}
REAL = ("flights_nyc13", "diabetes130")
CALLS = 200


def codes(table: pa.Table, model: Model) -> Chunk:
    (batch,) = table.combine_chunks().to_batches()
    return encode(batch, model.schema)


def one_row_seconds(model: Model, chunk: Chunk) -> tuple[float, float]:
    """Median and 99 % of single rows."""
    seconds = []
    for row in range(min(CALLS, chunk.n_rows)):
        own = Chunk(read_only_array(chunk.x[:, [row]]), None)
        started = time.process_time()
        model.predict_proba(own)
        seconds.append(time.process_time() - started)
    return statistics.median(seconds), float(np.quantile(seconds, 0.99))


def bare_xgboost(train: pa.Table, target: str, categories: bool) -> Callable[[pa.Table], Callable[[], object]]:
    """The prediction of rows by a booster of 100 rounds, one thread, without a layer of ours: rows are numbers beforehand."""
    schema = drive(recipes.learner("xgboost", {"rounds": 1}, target), Source.of_table(train), threads=1).schema
    table = CodeTable(schema)
    types = table.feature_types if categories else ["q"] * schema.n_attributes
    (batch,) = train.combine_chunks().to_batches()
    rows = encode(batch, schema)
    matrix = xgboost.QuantileDMatrix(table.features(rows.x), rows.y, feature_types=types, enable_categorical=True)
    settings = xgboost_booster_parameters(XGBoostParameters(), schema.n_classes) | {"nthread": 1}
    booster = xgboost.train(settings, matrix, 100)

    def prediction(asked: pa.Table) -> Callable[[], object]:
        (batch,) = asked.combine_chunks().to_batches()
        features = table.features(encode(batch, schema).x)
        return lambda: booster.inplace_predict(features, missing=np.nan, validate_features=False)

    return prediction


def tables_of(path: Path, rows: int, asked: int) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Rows to learn from, rows as they come, and those of them without nulls, of a Parquet file."""
    table = pq.read_table(path)
    order = np.random.default_rng(0).permutation(table.num_rows)
    train, some = table.take(order[asked : asked + rows]), table.take(order[:asked])
    return train, some, some.filter(~np.any([column.is_null().to_numpy() for column in some.columns], axis=0))


def measured(
    tables: tuple[pa.Table, pa.Table, pa.Table], target: str, learners: Sequence[str], args: argparse.Namespace
) -> tuple[list[Figure], dict[str, object]]:
    """Figures and seconds of each learner on a table."""
    train, asked, whole = tables
    source = Source.of_table(train)
    peer = bare_xgboost(train, target, args.categories)(asked)
    figures: list[Figure] = []
    facts: dict[str, object] = {}
    for name in learners:
        model = drive(recipes.learner(name, LEARNERS.get(name, {}), target), source, threads=1)
        rows = codes(asked, model)
        tasks: dict[str, Callable[[], object]] = {
            "nulls": partial(model.predict_proba, rows, threads=1),
            "xgboost": peer,
        }
        complete = codes(whole, model) if whole.num_rows else None
        if complete is not None:
            tasks["complete"] = partial(model.predict_proba, complete, threads=1)
        facts[name] = seconds = alternated(args.rounds, time.process_time, **tasks)
        n = rows.n_rows
        detail = f"{n / statistics.median(seconds['nulls']):,.0f} / {n / statistics.median(seconds['xgboost']):,.0f} rows a CPU s"
        ratio = ratio_median_min_max(seconds["xgboost"], seconds["nulls"])
        figures.append(Figure(f"{name}: rows as they come ÷ XGBoost", *ratio, *WANTED.get(name, ("", "")), detail))
        if complete is None:
            continue
        each = [[s / count for s in seconds[task]] for task, count in (("nulls", n), ("complete", complete.n_rows))]
        detail = " / ".join(f"{statistics.median(of_one) * 1e6:.3g} µs" for of_one in each)
        ratio = ratio_median_min_max(*each)
        figures.append(Figure(f"{name}: time a row ÷ complete rows", *ratio, *AT_MOST.get(name, ("", "")), detail))
        three = np.flatnonzero((rows.x == 0)[[a.has_missing for a in model.schema.attributes]].sum(axis=0) == 3)
        if not three.size:
            continue
        one = [one_row_seconds(model, of) for of in (rows.rows(three[:CALLS]), complete.rows(slice(0, CALLS)))]
        for place, statistic in enumerate(("median", "99 %")):
            ours, theirs = one[0][place], one[1][place]
            what = f"{name}: one row with three nulls ÷ a complete one, {statistic}"
            detail = f"{ours * 1e6:.3g} / {theirs * 1e6:.3g} µs"
            figures.append(Figure(what, ours / theirs, ours / theirs, ours / theirs, "≤ 2", "1.3", detail))
    return figures, facts


def main() -> None:
    parser = options(
        __doc__, rows=60_000, asked=20_000, rounds=3, learners=["kdb", "skdb", "eskdb", "auto"], target=TARGET
    )
    parser.add_argument("--data", type=Path, help="a Parquet file in place of the generated table")
    parser.add_argument(
        "--real", type=Path, help=f"a folder with {' and '.join(REAL)} (.parquet): `auto` on these, too"
    )
    parser.add_argument("--categories", action="store_true", help="XGBoost splits nominal columns as categories")
    args = parser.parse_args()
    if args.data is None:
        tables = (
            arrow_table(args.rows, np.random.default_rng(0), MANY_NULLS),
            arrow_table(args.asked, np.random.default_rng(1), MANY_NULLS),
            arrow_table(args.asked, np.random.default_rng(2), {}),
        )
    else:
        tables = tables_of(args.data, args.rows, args.asked)
    figures, facts = measured(tables, args.target, args.learners, args)
    for name in REAL if args.real else ():
        path = args.real / f"{name}.parquet"
        if not path.is_file():
            print(f"{name} is left out: there is no {path}.")
            continue
        of_table, facts[name] = measured(tables_of(path, args.rows, args.asked), "class", ["auto"], args)
        figures += [replace(one, what=f"{name}, {one.what}") for one in of_table]
    report("Rows with nulls", figures, machine() | {"seconds": facts}, args.json)


if __name__ == "__main__":
    main()
