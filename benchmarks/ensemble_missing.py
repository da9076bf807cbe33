"""Log loss where cells are missing at prediction, and leave-one-out losses beside losses on new rows.

python -m benchmarks.ensemble_missing ../shared/data/classification --least-rows 1000 --most-rows 20000
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.ensemble_experiment import half_of
from benchmarks.measuring import Figure, report
from learners import recipes
from learners.evaluation.datasets import DataSet, find_data_sets, load
from learners.evaluation.folds import stratified_folds
from learners.evaluation.metrics import evaluate
from learners.evaluation.peers import PEERS
from learners.passes.learner import drive
from learners.passes.source import Source
from learners.schema.encode import encode

SHARES = (0.0, 0.1, 0.3)


def without_cells(table: pa.Table, share: float, seed: int = 0) -> pa.Table:
    """The rows with a share of their cells null."""
    if not share:
        return table
    random = np.random.default_rng([seed, round(100 * share)])
    columns = []
    for column in table.columns:
        is_gone = pa.array(random.random(table.num_rows) < share)
        columns.append(pa.compute.if_else(is_gone, pa.scalar(None, column.type), column))
    return pa.table(columns, names=table.column_names)


def measured(data_set: DataSet) -> dict[str, float]:
    """Log losses of one fold, by learner and share; and the loss of rows left out of training."""
    data = load(data_set)
    train, test = stratified_folds(data.y, 2, 0)[0]
    rows, classes = data.attributes.take(test), data.classes
    occurring, codes = np.unique(data.y[train], return_inverse=True)
    boosted = PEERS["xgboost-raw"]
    predict = boosted.fit(data.attributes.take(train), codes, boosted.parameters(), 0, 1)
    source = Source.of_table(data.train_table(data_set.target, train))
    model = drive(recipes.learner("auto", {}, data_set.target), source, threads=1)
    places = [classes.index(value) for value in model.schema.class_values()]
    found = {}
    for share in SHARES:
        asked = without_cells(rows, share)
        for name, columns, p in (
            ("auto", places, model.predict_proba(encode(asked, model.schema))),
            ("xgboost", occurring, predict(asked)),
        ):
            spread = np.zeros((test.size, len(classes)))
            spread[:, columns] = p
            found[f"{name} {share:.0%}"] = evaluate(spread, data.y[test]).log_loss
    alone = drive(recipes.learner("eskdb", {}, data_set.target), source, threads=1)
    spread = np.zeros((test.size, len(classes)))
    spread[:, places] = alone.predict_proba(encode(rows, alone.schema))
    return found | {"left out": alone.facts["left_out_loss"], "eskdb 0%": evaluate(spread, data.y[test]).log_loss}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--half", choices=("development", "held", "all"), default="all")
    parser.add_argument("--least-rows", type=int, default=1000)
    parser.add_argument("--most-rows", type=int, default=400_000)
    parser.add_argument("--kept", type=Path, help="JSON of finished sets: the run resumes from it")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    done = json.loads(asked.kept.read_text()) if asked.kept and asked.kept.is_file() else {}
    for one in half_of(find_data_sets([asked.folder], None), asked.half):
        if one.name in done or not asked.least_rows <= one.n_rows <= asked.most_rows:
            continue
        done[one.name] = measured(one)
        print(one.name, {name: round(loss, 4) for name, loss in done[one.name].items()}, flush=True)
        if asked.kept:
            asked.kept.write_text(json.dumps(done, indent=1) + "\n")
    pairs = [
        (f"auto ÷ XGBoost, {share:.0%} of cells missing", f"auto {share:.0%}", f"xgboost {share:.0%}", "1")
        for share in SHARES
    ]
    pairs.append(("leave-one-out ÷ test loss of eskdb", "left out", "eskdb 0%", "0.97 to 1.03"))
    figures = []
    for what, over, under, wanted in pairs:
        ratios = [losses[over] / losses[under] for losses in done.values() if losses[under] > 0]
        figures.append(
            Figure(what, statistics.median(ratios), min(ratios), max(ratios), wanted, "", f"{len(ratios)} sets")
        )
    report("missing cells", figures, {"sets": done}, asked.json)


if __name__ == "__main__":
    main()
