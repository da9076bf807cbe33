"""Rows with nulls as they come, against complete rows of the same table and against 100 rounds of bare XGBoost over the same codes, one thread each.

python -m benchmarks.null_rows --rows 300000
python -m benchmarks.null_rows --real ../shared/data/classification
python -m benchmarks.null_rows --data orders.parquet --target late

XGBoost sees nominal codes as numbers (`--categories` for its own categories, which it answers four times slower), nulls as missing.

The table has 40 columns, half of them with independent nulls of 1 to 30 % each, so that 19 of 20 rows have some, in
thousands of patterns (`benchmarks.real_tables`). Rows are encoded beforehand; figures are of processor time.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measuring import Figure, alternated, machine, options, ratio_median_min_max, report
from benchmarks.real_tables import MANY_NULLS, TARGET, arrow_table
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


def main() -> None:
    parser = options(
        __doc__, rows=60_000, asked=20_000, rounds=3, learners=["kdb", "skdb", "eskdb", "auto"], target=TARGET
    )
    parser.add_argument("--data", type=Path, help="a Parquet file in place of the generated table")
    args = parser.parse_args()
    if args.data is None:
        train = arrow_table(args.rows, np.random.default_rng(0), MANY_NULLS)
        asked = arrow_table(args.asked, np.random.default_rng(1), MANY_NULLS)
        whole = arrow_table(args.asked, np.random.default_rng(2), {})
    else:
        table = pq.read_table(args.data)
        order = np.random.default_rng(0).permutation(table.num_rows)
        train, asked = table.take(order[: args.rows]), table.take(order[args.rows :][: args.asked])
        whole = asked.filter(~np.any([column.is_null().to_numpy() for column in asked.columns], axis=0))
    source = Source.of_table(train)
    peer = drive(recipes.learner("xgboost", {"rounds": 100}, args.target), source, threads=1)
    of_peer = codes(asked, peer)
    figures: list[Figure] = []
    facts: dict[str, object] = {}
    for name in args.learners:
        model = drive(recipes.learner(name, LEARNERS.get(name, {}), args.target), source, threads=1)
        rows, complete = codes(asked, model), codes(whole, model)
        tasks: dict[str, Callable[[], object]] = {
            "nulls": lambda model=model, rows=rows: model.predict_proba(rows, threads=1),
            "complete": lambda model=model, complete=complete: model.predict_proba(complete, threads=1),
            "xgboost": lambda: peer.predict_proba(of_peer, threads=1),
        }
        seconds = alternated(args.rounds, time.process_time, **tasks)
        n, n_complete = rows.n_rows, max(1, complete.n_rows)
        detail = f"{n / statistics.median(seconds['nulls']):,.0f} / {n / statistics.median(seconds['xgboost']):,.0f} rows a CPU s"
        ratio = ratio_median_min_max(seconds["xgboost"], seconds["nulls"])
        figures.append(Figure(f"{name}: rows as they come ÷ XGBoost", *ratio, *WANTED.get(name, ("", "")), detail))
        each = [[s / count for s in seconds[task]] for task, count in (("nulls", n), ("complete", n_complete))]
        detail = " / ".join(f"{statistics.median(of_one) * 1e6:.3g} µs" for of_one in each)
        ratio = ratio_median_min_max(*each)
        figures.append(Figure(f"{name}: time a row ÷ complete rows", *ratio, *AT_MOST.get(name, ("", "")), detail))
        three = np.flatnonzero((rows.x == 0)[[a.has_missing for a in model.schema.attributes]].sum(axis=0) == 3)
        one = [one_row_seconds(model, of) for of in (rows.rows(three[:CALLS]), complete.rows(slice(0, CALLS)))]
        for place, what in enumerate(("median", "99 %")):
            ours, theirs = one[0][place], one[1][place]
            detail = f"{ours * 1e6:.3g} / {theirs * 1e6:.3g} µs"
            figures.append(
                Figure(
                    f"{name}: one row with three nulls ÷ a complete one, {what}",
                    *[ours / theirs] * 3,
                    "≤ 2",
                    "1.3",
                    detail,
                )
            )
        facts[name] = seconds
    report("Rows with nulls", figures, machine() | {"seconds": facts}, args.json)


if __name__ == "__main__":
    main()
