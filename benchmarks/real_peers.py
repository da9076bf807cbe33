"""XGBoost on a table of texts and nulls, as a person would use it with pandas: the peer of `benchmarks.real_table`.

It is a process of its own, as our commands are:

    python -m benchmarks.real_peers train FILE... --target outcome --out model.ubj [--categorical]
    python -m benchmarks.real_peers predict FILE... --model model.ubj --out scored.parquet
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# Threads of OpenMP that spin take many times as long where other work runs, which would be no merit of ours.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import xgboost

ROUNDS, DEPTH = 100, 6
CATEGORIES = "fewpass_bench_categories"


def frame_of(paths: Sequence[Path]) -> pd.DataFrame:
    """The rows of Parquet files; texts are read as dictionaries, and so are categories at once."""
    texts = [field.name for field in pq.read_schema(paths[0]) if pa.types.is_string(field.type)]
    parts = [pq.read_table(path, read_dictionary=texts) for path in paths]
    return pa.concat_tables(parts).unify_dictionaries().to_pandas(date_as_object=False)


def encoded(frame: pd.DataFrame, categories: Mapping[str, Sequence[str]], is_categorical: bool) -> pd.DataFrame:
    """Texts as categories or as their codes, times as numbers; unknown and missing ones are missing."""
    columns: dict[str, Any] = {}
    for name, column in frame.items():
        if name in categories:
            # astype would leave the order as it is: to pandas, unordered categories of the same values are equal.
            named = column.cat.set_categories(categories[name])
            codes = named.cat.codes.astype(np.float32)
            columns[name] = named if is_categorical else codes.where(codes >= 0)
        elif np.issubdtype(column.dtype, np.datetime64):
            columns[name] = column.astype(np.int64)
        else:
            columns[name] = column
    return pd.DataFrame(columns)


def categories_of(frame: pd.DataFrame) -> dict[str, list[str]]:
    """The values of every column of categories, in alphabetical order."""
    named = [name for name in frame.columns if isinstance(frame[name].dtype, pd.CategoricalDtype)]
    return {name: sorted(frame[name].cat.categories) for name in named}


def settings(n_classes: int, threads: int) -> dict[str, Any]:
    """Of the trees."""
    objective = {"objective": "multi:softprob", "num_class": n_classes} if n_classes > 2 else {}
    return {"max_depth": DEPTH, "tree_method": "hist", "objective": "binary:logistic", "nthread": threads} | objective


def train(paths: Sequence[Path], target: str, is_categorical: bool, threads: int) -> xgboost.Booster:
    """The trees, with what encodes rows for them."""
    frame = frame_of(paths)
    y = frame.pop(target).astype("category")
    categories = categories_of(frame)
    matrix = xgboost.QuantileDMatrix(
        encoded(frame, categories, is_categorical), y.cat.codes, enable_categorical=is_categorical
    )
    del frame
    booster = xgboost.train(settings(len(y.cat.categories), threads), matrix, ROUNDS)
    about = {"categories": categories, "classes": [str(name) for name in y.cat.categories], "target": target}
    booster.set_attr(**{CATEGORIES: json.dumps(about | {"is_categorical": is_categorical})})
    return booster


def rows_for(booster: xgboost.Booster, paths: Sequence[Path]) -> tuple[pd.DataFrame, np.ndarray]:
    """The encoded rows of files, and the codes of their classes."""
    about = json.loads(booster.attr(CATEGORIES))
    frame = frame_of(paths)
    y = frame.pop(about["target"]).astype(str).map(about["classes"].index).to_numpy(np.int64)
    return encoded(frame, about["categories"], about["is_categorical"]), y


def probabilities(booster: xgboost.Booster, rows: Any) -> np.ndarray:
    """(n_rows, n_classes) probabilities."""
    found = booster.inplace_predict(rows)
    return found if found.ndim == 2 else np.stack([1 - found, found], axis=1)


def predict(booster: xgboost.Booster, paths: Sequence[Path], out: Path) -> None:
    """Write the class and its probabilities of every row."""
    rows, _ = rows_for(booster, paths)
    classes = json.loads(booster.attr(CATEGORIES))["classes"]
    found = probabilities(booster, rows)
    scored = pd.DataFrame({f"probability_{name}": found[:, k] for k, name in enumerate(classes)})
    scored.insert(0, "prediction", pd.Categorical.from_codes(found.argmax(axis=1), classes))
    scored.to_parquet(out, compression="zstd")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("verb", choices=["train", "predict"])
    parser.add_argument("paths", type=Path, nargs="+")
    parser.add_argument("--target")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--categorical", action="store_true")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    pa.set_cpu_count(args.threads)
    if args.verb == "train":
        train(args.paths, args.target, args.categorical, args.threads).save_model(args.out)
        return
    booster = xgboost.Booster(model_file=args.model)
    booster.set_param({"nthread": args.threads})
    predict(booster, args.paths, args.out)


if __name__ == "__main__":
    main()
