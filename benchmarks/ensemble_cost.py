"""What an ensemble costs beside one SkDB and XGBoost, on the table as people have them (`benchmarks.real_tables`).

python -m benchmarks.ensemble_cost --rows 300000
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import xgboost

from benchmarks import real_tables
from benchmarks.measuring import alternated, figure, machine, report
from learners import recipes
from learners.baselines.boosted import CodeTable
from learners.model import Model
from learners.passes.learner import drive
from learners.passes.source import Source
from learners.schema.encode import encode
from learners.schema.records import record_classifier

PREDICTED = 100_000


def trained(learner: str, paths: list[Path], **parameters: Any) -> tuple[Model, dict[str, float]]:
    """A model, and the seconds of each stage of its training on one thread."""
    seconds: dict[str, float] = {}
    source = Source.open([str(path) for path in paths])
    model = drive(
        recipes.learner(learner, parameters, real_tables.TARGET),
        source,
        threads=1,
        on_progress=lambda progress: seconds.__setitem__(progress.stage, progress.seconds),
    )
    return model, seconds


def passes_of(seconds: dict[str, float]) -> float:
    """Seconds of the passes after the schema."""
    stages = ("counting pairs", "counting families", "measuring prefixes", "drawing rows")
    return sum(spent for stage, spent in seconds.items() if stage in stages)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    trained("auto", real_tables.files(20_000), members=1)  # compiles
    trained("skdb", real_tables.files(20_000), estimator="hdp-map")
    paths = real_tables.files(asked.rows)
    models, stages = {}, {}
    for name, learner, parameters in (
        ("auto", "auto", {}),
        ("eskdb", "eskdb", {}),
        ("skdb", "skdb", {"estimator": "hdp-map"}),
    ):
        models[name], stages[name] = trained(learner, paths, **parameters)
    figures = [
        figure(
            "passes of 8 members ÷ those of SkDB5",
            [passes_of(stages["eskdb"])],
            [passes_of(stages["skdb"])],
            "≤ 3",
            "≤ 2",
        )
    ]
    table = next(Source.open([str(path) for path in paths]).batches(None)).slice(0, PREDICTED)
    schema = models["auto"].schema
    chunk = encode(table, schema)
    codes = CodeTable(schema)
    x, y = codes.features(chunk.x), np.asarray(chunk.y)
    settings = {"objective": "multi:softprob", "num_class": schema.n_classes, "max_depth": 6, "nthread": 1}
    if schema.n_classes == 2:
        settings = {"objective": "binary:logistic", "max_depth": 6, "nthread": 1}
    matrix = xgboost.QuantileDMatrix(x, y, feature_types=codes.feature_types, enable_categorical=True, nthread=1)
    booster = xgboost.train(settings, matrix, num_boost_round=100)
    booster.set_param({"nthread": 1})
    seconds = alternated(
        asked.rounds,
        xgboost=lambda: booster.inplace_predict(x),
        eskdb=lambda: models["eskdb"].predict_proba(chunk, threads=1),
        auto=lambda: models["auto"].predict_proba(chunk, threads=1),
    )
    for name, least, aim in (("eskdb", "≥ .5", "≥ 1"), ("auto", "≥ .3", "")):
        figures.append(
            figure(f"rows a second: {name} ÷ XGBoost of 100 rounds", seconds["xgboost"], seconds[name], least, aim)
        )
    record = {name: value for name, value in table.slice(0, 1).to_pylist()[0].items() if name != real_tables.TARGET}
    for name in ("eskdb", "auto"):
        classify = record_classifier(models[name])
        spent = []
        for _ in range(2000):
            started = time.perf_counter()
            classify(record)
            spent.append(time.perf_counter() - started)
        figures.append(figure(f"one row by {name} ÷ 100 µs", [float(np.median(spent))], [1e-4], "≤ 1", ""))
    sizes = {
        name: sum(array.nbytes for array in model.to_arrays()[1].values()) / 2**20 for name, model in models.items()
    }
    report("cost of an ensemble", figures, {"stages": stages, "model_mib": sizes, "machine": machine()}, asked.json)


if __name__ == "__main__":
    main()
