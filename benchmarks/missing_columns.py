"""Log loss with columns missing: beside the same learner trained on just the known columns, and with nulls sent in place of nothing.

python -m benchmarks.missing_columns ../shared/data/classification --learners auto kdb
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.measuring import machine, median_figure, options, report
from learners.evaluation.datasets import DataSet, find_data_sets, load_data_set, stratified_folds
from learners.evaluation.metrics import evaluate
from learners.models.model import Model
from learners.passes.learner import drive
from learners.passes.sources.source import Source
from learners.registry import recipes
from learners.schema.encoding.encode import encode

SETS = [
    "abalone_3class", "adult", "anneal", "breast_w", "cardiotocography_10class", "crx", "electricity", "german",
    "heart_cleveland", "hypothyroid", "mushroom", "nursery", "optdigits", "page_blocks", "segment", "soybean",
    "vehicle", "vowel", "wall_following", "waveform5000",
]  # fmt: skip
MOST_ROWS = 20_000


def trained(learner: str, table: pa.Table, target: str) -> Model:
    return drive(recipes.learner(learner, {}, target), Source.of_table(table), threads=2)


def loss(model: Model, rows: pa.Table, y: np.ndarray, classes: list[object]) -> float:
    (batch,) = rows.combine_chunks().to_batches()
    spread, places = np.zeros((y.size, len(classes))), [classes.index(value) for value in model.schema.class_values()]
    spread[:, places] = model.predict_proba(encode(batch, model.schema))
    return evaluate(spread, y).log_loss


def measured(data_set: DataSet, learners: list[str], seed: int) -> dict[str, list[float]]:
    """Of each learner the log loss: columns not sent, retrained on the known ones, nulls sent, nothing missing."""
    data = load_data_set(data_set)
    train, test = stratified_folds(data.y, 2, 0)[0]
    train, test = train[: MOST_ROWS // 2], test[: MOST_ROWS // 2]
    names, random = data.attributes.schema.names, np.random.default_rng([seed, len(data.attributes.schema.names)])
    known = sorted(random.choice(names, random.integers(1, len(names)), replace=False).tolist(), key=names.index)
    rows, y = data.attributes.take(test), data.y[test]
    table = data.train_table(data_set.target, train)
    rows = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    nulls = pa.table({n: rows[n] if n in known else pa.nulls(len(y), rows.schema.field(n).type) for n in names})
    found: dict[str, list[float]] = {"known": [len(known), len(names)]}
    for learner in learners:
        whole = trained(learner, table, data_set.target)
        again = trained(learner, table.select([*known, data_set.target]), data_set.target)
        asked = ((whole, rows.select(known)), (again, rows.select(known)), (whole, nulls), (whole, rows))
        found[learner] = [loss(model, part, y, list(data.classes)) for model, part in asked]
    return found


def main() -> None:
    parser = options(__doc__, learners=["auto", "kdb"], sets=SETS, seed=0)
    parser.add_argument("folder", type=Path)
    asked = parser.parse_args()
    ratios: dict[str, list[tuple[float, float]]] = {learner: [] for learner in asked.learners}
    for data_set in find_data_sets([asked.folder]):
        if data_set.name not in asked.sets:
            continue
        found = measured(data_set, asked.learners, asked.seed)
        print(json.dumps({"set": data_set.name, **found}), flush=True)
        for learner in asked.learners:
            sent, again, nulls, _ = found[learner]
            ratios[learner].append((sent / max(again, 1e-4), nulls / max(sent, 1e-4)))
    figures = [
        median_figure(f"{learner}: {what}, {len(of)} sets", of)
        for learner, pairs in ratios.items()
        for what, of in zip(("not sent ÷ retrained", "nulls ÷ not sent"), zip(*pairs, strict=True), strict=True)
    ]
    report("Log loss with columns missing", figures, machine(), asked.json)


if __name__ == "__main__":
    main()
