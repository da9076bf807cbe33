"""The boosting libraries, each in processes of its own: one learns from a Parquet file, others predict.

python -m benchmarks.scoreboard.peers train xgboost train.parquet class model.pickle
python -m benchmarks.scoreboard.peers predict test.parquet model.pickle answers.parquet
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import cloudpickle
import numpy as np
import pandas
import pyarrow as pa
import pyarrow.parquet as pq

from learners.evaluation.peers import Predict as PredictRows
from learners.evaluation.peers import RawColumns
from learners.kernels.arrays import Floats, Integers

PEERS = ("xgboost", "lightgbm", "catboost")
ROUNDS, DEPTH, CATBOOST_ROUNDS = 100, 6, 300
THREADS, SEED = 2, 1

Predict = Callable[[Floats], Floats]


def fit_xgboost(x: Floats, y: Integers, nominal: list[int], seed: int = SEED, threads: int = THREADS) -> Predict:
    """XGBoost, 100 rounds of depth 6, with its own categories."""
    import xgboost

    n_classes = int(y.max()) + 1
    objective = {"objective": "binary:logistic"}
    if n_classes > 2:  # from the class shares, its default, boosting diverges where classes are rare
        objective = {"objective": "multi:softprob", "num_class": n_classes, "base_score": 0.5}
    kinds = ["c" if i in nominal else "q" for i in range(x.shape[1])]
    matrix = xgboost.QuantileDMatrix(x, y, feature_types=kinds, enable_categorical=True, nthread=threads)
    settings = objective | {"max_depth": DEPTH, "nthread": threads, "seed": seed}
    booster = xgboost.train(settings, matrix, num_boost_round=ROUNDS)

    def predict(rows: Floats) -> Floats:
        of_class = np.asarray(booster.inplace_predict(rows), np.float64)
        return np.stack([1 - of_class, of_class], axis=1) if n_classes == 2 else of_class

    return predict


def fit_lightgbm(x: Floats, y: Integers, nominal: list[int], seed: int = SEED, threads: int = THREADS) -> Predict:
    """LightGBM as it comes."""
    import lightgbm

    model = lightgbm.LGBMClassifier(random_state=seed, n_jobs=threads, verbose=-1)
    model.fit(x, y, categorical_feature=nominal)
    return lambda rows: np.asarray(model.predict_proba(rows), np.float64)


def fit_catboost(
    x: Floats, y: Integers, nominal: list[int], seed: int = SEED, threads: int = THREADS, rounds: int = CATBOOST_ROUNDS
) -> Predict:
    """CatBoost as it comes, but of 300 rounds."""
    import catboost

    def frame(rows: Floats) -> pandas.DataFrame:
        """Nominal columns as text."""
        texts = {i: np.nan_to_num(rows[:, i], nan=-1).astype(np.int64).astype(str) for i in nominal}
        return pandas.DataFrame({str(i): texts.get(i, rows[:, i]) for i in range(rows.shape[1])})

    model = catboost.CatBoostClassifier(
        iterations=rounds,
        random_seed=seed,
        thread_count=threads,
        verbose=False,
        allow_writing_files=False,
        loss_function="MultiClass" if y.max() > 1 else "Logloss",
    )
    model.fit(frame(x), y, cat_features=[str(i) for i in nominal])
    return lambda rows: np.asarray(model.predict_proba(frame(rows)), np.float64)


FITS = {"xgboost": fit_xgboost, "lightgbm": fit_lightgbm, "catboost": fit_catboost}


def fit(peer: str, table: pa.Table, y: Integers, **settings: int) -> PredictRows:
    """A function from rows to probabilities, learned from raw columns."""
    raw = RawColumns(table)
    nominal = [i for i, name in enumerate(raw.names) if name in raw.values]
    predict = FITS[peer](raw.numbers_of(table), y.astype(np.int64), nominal, **settings)
    return lambda rows: predict(raw.numbers_of(rows))


def train(peer: str, path: str, target: str, output: str) -> None:
    """Learn, and write what predicts."""
    table = pq.read_table(path)
    classes, y = np.unique(np.array([str(label) for label in table[target].to_pylist()]), return_inverse=True)
    rows = table.drop_columns(target)
    types = dict(zip(rows.schema.names, rows.schema.types, strict=True))
    predict = fit(peer, rows, y)
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    Path(output).write_bytes(cloudpickle.dumps((types, classes.tolist(), predict)))


def answer(path: str, model: str, output: str) -> None:
    """Predict, absent columns as nulls, and write a column of probabilities for each class."""
    types, classes, predict = cloudpickle.loads(Path(model).read_bytes())
    table = pq.read_table(path)
    for name, kind in types.items():
        if name not in table.column_names:
            table = table.append_column(name, pa.nulls(table.num_rows, kind))
    found = predict(table)
    pq.write_table(pa.table({f"probability_{name}": found[:, k] for k, name in enumerate(classes)}), output)


if __name__ == "__main__":
    task, *arguments = sys.argv[1:]
    {"train": train, "predict": answer}[task](*arguments)
