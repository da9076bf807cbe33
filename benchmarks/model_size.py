"""Files of models of `auto` against XGBoost's own (UBJSON) of 100 rounds, and of as many leaves, on tables of the scoreboard.

python -m benchmarks.model_size --tables adult letter

Both learn seven tenths of the rows. The file of `auto` is the one that answers; XGBoost's of as many leaves is that of the trees in it. What loading
takes is measured in processor time, the file held by the kernel already.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import xgboost

from benchmarks.measuring import Figure, machine, options, report
from benchmarks.scoreboard.tables import FROM_SETS, TEST_SHARE, tables
from learners import load_model
from learners.classifiers.baselines.boosted import CodeTable, XGBoostParameters, xgboost_booster_parameters
from learners.passes.learner import drive
from learners.passes.sources.source import Source
from learners.registry import recipes
from learners.schema.encoding.encode import encode
from storage.models.compiled import map_compiled, write_compiled
from storage.models.model_file import MOST_PACKED

MB = 1e6


def xgboost_bytes(train: pa.Table, target: str) -> int:
    """Bytes of XGBoost's model of 100 rounds over the codes that our learner `xgboost` makes."""
    schema = drive(recipes.learner("xgboost", {"rounds": 1}, target), Source.of_table(train), threads=1).schema
    table = CodeTable(schema)
    (batch,) = train.combine_chunks().to_batches()
    rows = encode(batch, schema)
    matrix = xgboost.QuantileDMatrix(
        table.features(rows.x), rows.y, feature_types=table.feature_types, enable_categorical=True
    )
    settings = xgboost_booster_parameters(XGBoostParameters(), schema.n_classes) | {"nthread": 1}
    return len(xgboost.train(settings, matrix, 100).save_raw("ubj"))


def measured(name: str, target: str, table: pa.Table) -> list[Figure]:
    """Figures of one table."""
    order = np.random.default_rng(0).permutation(table.num_rows)
    train = table.take(order[: int((1 - TEST_SHARE) * table.num_rows)])
    model = drive(recipes.learner("auto", {}, target), Source.of_table(train), threads=1)
    header, arrays = model.to_arrays()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.arrow"
        write_compiled(path, header, arrays, most_packed=MOST_PACKED)
        n_bytes, seconds = path.stat().st_size, []
        for _ in range(3):
            started = time.process_time()
            load_model(*map_compiled(path))
            seconds.append(time.process_time() - started)
    theirs, own_trees = (
        xgboost_bytes(train, target),
        sum(arrays[key].size for key in arrays if key.startswith("booster")),
    )
    detail = f"{n_bytes / MB:.2f} MB; loaded in {min(seconds) * 1e3:.0f} ms of CPU"
    ratios = [("100 rounds", n_bytes / theirs)] + ([("as many leaves", n_bytes / own_trees)] if own_trees else [])
    return [Figure(f"{name}: model ÷ XGBoost's, {what}", *[ratio] * 3, "2", "1", detail) for what, ratio in ratios]


def main() -> None:
    parser = options(__doc__, tables=list(FROM_SETS))
    args = parser.parse_args()
    figures: list[Figure] = []
    for name, target, table in tables(args.tables, 500_000):
        if table is None:
            print(f"{name} is left out: there is no file of it.")
            continue
        figures += measured(name, target, table)
    report("Size of models", figures, machine(), args.json)


if __name__ == "__main__":
    main()
