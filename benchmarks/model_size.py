"""Files of models of `auto` against XGBoost's own (UBJSON) of 100 rounds, and of as many leaves, on tables of the scoreboard.

python -m benchmarks.model_size --tables adult letter
python -m benchmarks.model_size --log sizes.jsonl --write     # all twelve, and docs/results/model-size.md

Both learn seven tenths of the rows. The file of `auto` is the one that answers. XGBoost's of as many leaves is what it writes for
the trees in ours. What loading takes is measured in processor time, the file held by the kernel already. Each table is a line of the log, so
that a run resumes.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import xgboost

from benchmarks.measuring import Figure, machine, options, report
from benchmarks.scoreboard.tables import FROM_SETS, TEST_SHARE, tables
from learners import load_model
from learners.classifiers.baselines.boosted import CodeTable, XGBoostParameters, xgboost_booster_parameters
from learners.ensembles.correction.boosting import Boosters
from learners.ensembles.model import Correction
from learners.kernels.arrays import Array
from learners.passes.learner import drive
from learners.passes.sources.source import Source
from learners.registry import recipes
from learners.schema import Schema
from learners.schema.encoding.encode import encode
from storage.models.compiled import PACKING, map_compiled, write_compiled
from storage.models.model_file import MOST_PACKED

MB = 1e6
PAGE = Path(__file__).parents[1] / "docs" / "results" / "model-size.md"
TABLES = [*FROM_SETS, "orders", "real", "interactions"]
# Parts of a model, and how the names of their arrays begin.
PARTS = {
    "terms of networks": ("packed_dense", "packed_vectors", "table_dense", "table_vectors"),
    "keys of terms": ("packed_keys", "packed_n_keys", "table_"),
    "variances": ("packed_spread", "entry_spread"),
    "trees": ("forest",),
    "joint networks": ("joint",),
}


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


@contextmanager
def xgboost_form_of_trees() -> Iterator[list[int]]:
    """Bytes that XGBoost writes for the trees of models learned meanwhile."""
    n_bytes: list[int] = []
    whole = Boosters.correction

    def counted(self: Boosters, schema: Schema) -> Correction | None:
        n_bytes.extend(len(booster.save_raw("ubj")) for booster in self.boosters)
        return whole(self, schema)

    with mock.patch.object(Boosters, "correction", counted):
        yield n_bytes


def bytes_of_parts(arrays: Mapping[str, Array], header: Mapping[str, object]) -> dict[str, int]:
    """Bytes of each part as the file has it: compressed, unless the model is too large for that."""
    codec = pa.Codec("zstd", PACKING)
    is_packed = sum(array.nbytes for array in arrays.values()) <= MOST_PACKED
    found = dict.fromkeys([*PARTS, "header and others"], 0)
    for name, array in arrays.items():
        part = next((part for part, starts in PARTS.items() if name.startswith(starts)), "header and others")
        content = np.ascontiguousarray(array).tobytes()
        found[part] += len(codec.compress(content)) if is_packed and content else len(content)
    # Arrow writes it at both ends of a file.
    found["header and others"] += 2 * len(codec.compress(json.dumps(header).encode()))
    return found


def measured(name: str, target: str, table: pa.Table) -> dict[str, Any]:
    """Sizes on one table."""
    order = np.random.default_rng(0).permutation(table.num_rows)
    train = table.take(order[: int((1 - TEST_SHARE) * table.num_rows)])
    with xgboost_form_of_trees() as of_trees:
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
    return {
        "table": name,
        "rows": train.num_rows,
        "bytes": n_bytes,
        "load_s": min(seconds),
        "xgboost": xgboost_bytes(train, target),
        "as_many_leaves": sum(of_trees),
        "parts": bytes_of_parts(arrays, header),
    }


def figures(one: Mapping[str, Any]) -> list[Figure]:
    """Ratios of one table."""
    detail = f"{one['bytes'] / MB:.2f} MB; loaded in {one['load_s'] * 1e3:.0f} ms of CPU"
    ratios = [("100 rounds", one["bytes"] / one["xgboost"])]
    if one["as_many_leaves"]:
        ratios.append(("as many leaves", one["bytes"] / one["as_many_leaves"]))
    return [
        Figure(f"{one['table']}: model ÷ XGBoost's, {what}", ratio, ratio, ratio, "2", "1", detail)
        for what, ratio in ratios
    ]


def page(lines: Sequence[Mapping[str, Any]]) -> str:
    """One row for each table: the sizes, their ratios, and the share of each part."""
    parts = list(lines[0]["parts"])
    text = [
        TEXT,
        "| table | rows learned | `auto`, MB | XGBoost, 100 rounds, MB | ÷ XGBoost, 100 rounds | ÷ XGBoost, as many leaves | loaded, CPU ms | "
        + " | ".join(f"{part}, %" for part in parts)
        + " |",
        "| --- |" + " ---: |" * (6 + len(parts)),
    ]
    for one in lines:
        total = sum(one["parts"].values())
        by_leaves = f"{one['bytes'] / one['as_many_leaves']:.2f}" if one["as_many_leaves"] else "no trees"
        shares = " | ".join(f"{100 * own / total:.0f}" for own in one["parts"].values())
        text.append(
            f"| {one['table']} | {one['rows']:,} | {one['bytes'] / MB:.2f} | {one['xgboost'] / MB:.2f} | {one['bytes'] / one['xgboost']:.2f} | "
            f"{by_leaves} | {one['load_s'] * 1e3:.0f} | {shares} |"
        )
    return "\n".join(text) + "\n"


TEXT = """# Sizes of models

`python -m benchmarks.model_size --log sizes.jsonl --write` writes this page: files of models of `auto` and XGBoost's own (UBJSON), both learned from seven tenths of the rows of the
[scoreboard](scoreboard.md)'s tables. The file of `auto` is the one that answers; the model's DuckDB file beside it is not counted. XGBoost's model of as many leaves is
what it writes for the trees in ours. Models whose arrays take more than 128 MiB are not compressed, so that processes share one mapping. The target is at most 2. Tables that were not measured are left out.
Tables of the networks are stored as differences from the contexts that they back off to, and restored when the model is loaded.
"""


def main() -> None:
    parser = options(__doc__, tables=TABLES)
    parser.add_argument("--log", type=Path, help="a line for each table; tables in it are not measured again")
    parser.add_argument("--write", action="store_true", help="write docs/results/model-size.md")
    args = parser.parse_args()
    lines = [json.loads(line) for line in args.log.read_text().splitlines()] if args.log and args.log.exists() else []
    done = {one["table"] for one in lines}
    for name, target, table in tables([name for name in args.tables if name not in done], 500_000):
        if table is None:
            print(f"{name} is left out: there is no file of it.")
            continue
        lines.append(measured(name, target, table))
        if args.log:
            with args.log.open("a") as log:
                log.write(json.dumps(lines[-1]) + "\n")
    lines.sort(key=lambda one: TABLES.index(one["table"]))
    report("Size of models", [one for line in lines for one in figures(line)], machine(), args.json)
    if args.write and lines:
        PAGE.write_text(page(lines))


if __name__ == "__main__":
    main()
