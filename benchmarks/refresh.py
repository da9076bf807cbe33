"""A refresh that adds 1 % of the files, against training from scratch.

python -m benchmarks.refresh --rows 20000000 --files 100
python -m benchmarks.refresh --rows 20000000 --files 100 --lake delta    # or iceberg: a table that is followed by its log
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import tables
from benchmarks.measuring import figure, machine, options, report
from service import product


def parts(n_rows: int, n_attributes: int, n_files: int, seed: int = 0) -> Path:
    """The benchmark's table as files of equal size."""
    folder = tables.scratch() / f"network-{n_rows}x{n_attributes}-{seed}-in-{n_files}"
    if not folder.exists():
        aside = folder.with_suffix(".partial")
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        whole = pq.ParquetFile(tables.table(n_rows, n_attributes, seed))
        size = n_rows // n_files
        rest, number = whole.schema_arrow.empty_table(), 0
        for batch in whole.iter_batches(size):
            rest = pa.concat_tables([rest, pa.Table.from_batches([batch])])
            while rest.num_rows >= size:
                pq.write_table(rest.slice(0, size), aside / f"{number:05d}.parquet", row_group_size=262_144)
                rest, number = rest.slice(size), number + 1
        aside.rename(folder)
    return folder


def lake_table(kind: str, folder: Path) -> tuple[str, list[str]]:
    """A lake table with a version for each of the files, and these versions."""
    table = folder.with_name(f"{folder.name}-{kind}")
    is_new = not table.exists()
    paths = sorted(folder.glob("*.parquet")) if is_new else []
    if kind == "delta":
        from deltalake import write_deltalake

        for path in paths:
            write_deltalake(str(table), pq.read_table(path), mode="append")
        return str(table), [str(number) for number in range(len(list(folder.glob("*.parquet"))))]
    from pyiceberg.catalog.sql import SqlCatalog

    table.mkdir(exist_ok=True)
    catalog = SqlCatalog("benchmark", uri=f"sqlite:///{table}/catalog.db", warehouse=f"file://{table}")
    if is_new:
        catalog.create_namespace("lake")
        # Iceberg has no integers of one byte, and those of four are numbers, which are cut anew from scratch.
        text = pa.schema([(name, pa.string()) for name in pq.read_schema(paths[0]).names])
        catalog.create_table("lake.rows", schema=text)
        for path in paths:
            catalog.load_table("lake.rows").append(pq.read_table(path).cast(text))
    found = catalog.load_table("lake.rows")
    ordered = sorted(found.metadata.snapshots, key=lambda one: one.sequence_number)
    return found.location().removeprefix("file://"), [str(one.snapshot_id) for one in ordered]


def import_s() -> float:
    """What every command takes before it begins: the imports of a new process."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", "from service.product import train_steps"], check=True)
    return time.perf_counter() - started


def main() -> None:
    parser = options(__doc__, rows=20_000_000, attributes=40, files=100, k=2, estimator="m", rounds=3)
    parser.add_argument("--lake", choices=("delta", "iceberg"))
    asked = parser.parse_args()

    from service.requests.requests import TrainRequest
    from service.settings import Settings
    from service.workspace import Workspace

    data = parts(asked.rows, asked.attributes, asked.files)
    paths = sorted(str(path) for path in data.glob("*.parquet"))
    request = {"target": "class", "learner": "kdb", "holdout": 0, "update": True}
    request["parameters"] = {"k": asked.k, "estimator": asked.estimator}
    seconds: dict[str, list[float]] = {"scratch": [], "refresh": []}
    equal = []
    n_new = max(1, asked.files // 100)
    old, new = {"uris": paths[:-n_new]}, {"uris": paths}
    if asked.lake is not None:
        table, versions = lake_table(asked.lake, data)
        new = {"uris": [table]}
        old = new | {"at": versions[-n_new - 1]}
    for round_number in range(asked.rounds + 1):
        with tempfile.TemporaryDirectory() as folder, Workspace(Settings(workspace=Path(folder))) as workspace:
            before = TrainRequest(**request, model="grows", **old)
            product.train_model_version(workspace, before)
            started = time.perf_counter()
            refreshed = product.train_model_version(workspace, TrainRequest(**request, model="grows", **new))
            refresh_s = time.perf_counter() - started
            started = time.perf_counter()
            fresh = product.train_model_version(workspace, TrainRequest(**request, model="fresh", **new))
            scratch_s = time.perf_counter() - started
            ours, theirs = (
                product.load_served_model(workspace, "grows").model,
                product.load_served_model(workspace, "fresh").model,
            )
            (_, a), (_, b) = ours.to_arrays(), theirs.to_arrays()
            equal.append(all(np.array_equal(a[name], b[name], equal_nan=True) for name in b))
            assert refreshed.n_rows == fresh.n_rows == asked.rows
        if round_number:
            seconds["refresh"].append(refresh_s)
            seconds["scratch"].append(scratch_s)
    what = f"scratch ÷ refresh of {n_new} in {asked.files} files"
    figures = [figure(what, seconds["scratch"], seconds["refresh"], "20", "60", f"equal models: {all(equal)}")]
    facts = {
        "rows": asked.rows,
        "rows_per_s_from_scratch": asked.rows / statistics.median(seconds["scratch"]),
        "seconds": seconds,
        "import_s": import_s(),
        "machine": machine(),
    }
    kind = {"delta": "Delta Lake", "iceberg": "Iceberg", None: "loose files"}[asked.lake]
    report(f"Refresh of {kind}, kDB-{asked.k}, {asked.attributes} attributes", figures, facts, asked.json)


if __name__ == "__main__":
    main()
