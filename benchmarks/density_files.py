"""Scoring and imputing files by a density, beside scoring rows that are in memory already.

python -m benchmarks.density_files --rows 1000000
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measuring import alternated, figure, machine, report
from learners import recipes
from learners.circuits.model import CircuitModel
from learners.passes.learner import drive
from learners.passes.source import Source
from learners.schema.encode import encode
from service.product.imputing import Filling, write_imputed
from service.product.row_scores import write_scores

GROUP_ROWS = 1 << 17


def rows_of(n_rows: int, n_columns: int, seed: int) -> pa.Table:
    """Binary columns in a chain: each is mostly like the one before."""
    rng = np.random.default_rng(seed)
    x = np.empty((n_columns, n_rows), np.uint8)
    x[0] = rng.random(n_rows) < 0.5
    for i in range(1, n_columns):
        x[i] = x[i - 1] ^ (rng.random(n_rows) < 0.2)
    return pa.table({f"v{i}": column for i, column in enumerate(x)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--states", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        whole, holes, out = (Path(folder) / name for name in ("whole.parquet", "holes.parquet", "out.parquet"))
        table = rows_of(args.rows, args.columns, 0)
        pq.write_table(table, whole, row_group_size=GROUP_ROWS)
        middle = f"v{args.columns // 2}"
        without = table.set_column(args.columns // 2, middle, pa.nulls(args.rows, pa.uint8()))
        pq.write_table(without, holes, row_group_size=GROUP_ROWS)
        made = recipes.learner("spn", {"structure": "hclt", "states": args.states, "passes": 1}, None)
        model = drive(made, Source.of_table(table.slice(0, 20_000)), threads=1)
        assert isinstance(model, CircuitModel)
        chunk = encode(table, model.schema)
        seconds = alternated(
            args.rounds,
            memory=lambda: model.log_likelihood(chunk),
            score=lambda: write_scores(model, Source.open(str(whole)), out, replace=True),
            impute=lambda: write_imputed(model, Source.open(str(holes)), out, Filling(), replace=True),
        )
    rows = f"{args.rows:,} × {args.columns}, {args.states} states, 1 thread"
    figures = [
        figure(
            "score Parquet to Parquet ÷ in memory, rows/s", seconds["memory"], seconds["score"], "0.5 x", "0.8 x", rows
        ),
        figure("imputing one column ÷ scoring, seconds", seconds["impute"], seconds["score"], "3 x", "1.5 x", rows),
    ]
    report("rows by a density", figures, machine() | {"edges": model.circuit.n_edges}, args.json)


if __name__ == "__main__":
    main()
