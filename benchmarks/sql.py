"""Models as SQL: the greatest difference from `predict_proba` on three engines, and rows a second in DuckDB beside `fewpass predict`.

python -m benchmarks.sql                                # both tables
python -m benchmarks.sql --models 0                     # the speed alone
PostgreSQL runs where initdb and postgres are on the PATH.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import fewpass
from benchmarks.measuring import Figure, alternated, figure, machine, median_figure, options, report
from fewpass import ESKDB, KDB, NB, SKDB, TAN, FewPassClassifier
from learners.registry.sql.script import sql_script
from learners.schema.encoding.encode import encode

LEARNERS = {
    "nb": NB,
    "tan": TAN,
    "kdb": lambda: KDB(k=2),
    "skdb": lambda: SKDB(k=3),
    "hdp": lambda: KDB(k=1, estimator="hdp"),
    "eskdb": ESKDB,
    "auto": FewPassClassifier,
}
MEASURED = {"kdb, k=2": lambda: KDB(k=2), "eskdb": ESKDB, "auto": FewPassClassifier}


def table_of(seed: int, n_rows: int, nulls: float = 0.1) -> pa.Table:
    """Eight columns of words, numbers and truth values, which depend on each other, and three classes."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n_rows)
    columns: dict[str, pa.Array] = {}

    def add(name: str, values: np.ndarray) -> None:
        columns[name] = pa.array(values, mask=rng.random(n_rows) < nulls)

    size, level = rng.normal(y, 1.5), rng.integers(0, 4, n_rows) + y
    other = np.where(rng.random(n_rows) < 0.2, rng.integers(0, 3, n_rows), (level + 2 * (size > 0)) % 3)
    add("size", size)
    add("level", level)
    add("word", np.array(["it's", "b", "ü", "d e"])[(y + rng.integers(0, 3, n_rows)) % 4])
    add("is_large", size + rng.normal(size=n_rows) > 1)
    add("part", rng.normal(level, 1.0))
    add("other", np.array(["p", "q", "r"])[other])
    add("last", np.array(["s", "t", "u"])[(other + level + (rng.random(n_rows) < 0.3)) % 3])
    add("noise", rng.normal(size=n_rows).round(1))
    return pa.table(columns | {"class": np.array(["no", "perhaps", "yes"])[(y + (rng.random(n_rows) < 0.2)) % 3]})


def differences(n_models: int, n_rows: int) -> list[Figure]:
    """The greatest over all models and rows, engine by engine."""
    from tests.registry import test_sql as engines

    server = postgres_server()
    if server is not None:
        engines.ENGINES["postgres"] = partial(engines.in_postgres, next(server))
    greatest = dict.fromkeys(engines.ENGINES, 0.0)
    for seed in range(n_models):
        learner = list(LEARNERS)[seed % len(LEARNERS)]
        model = LEARNERS[learner]().fit(table_of(seed, 3000), "class").model_
        rows = table_of(1000 + seed, n_rows, nulls=0.05 * (seed % 5)).drop_columns(["class", *["other"][: seed % 2]])
        expected = model.predict_proba(encode(rows, model.schema, with_class=False))
        absent = ["other"] if seed % 2 and "other" in {each.name for each in model.schema.attributes} else []
        differences = []
        for engine in greatest:
            started = time.perf_counter()
            _, found = engines.answers_of(model, rows, engine, absent)
            difference = float(np.abs(found - expected).max())
            greatest[engine] = max(greatest[engine], difference)
            differences.append(f"{engine} {difference:.1e} ({time.perf_counter() - started:.1f} s)")
        print(f"{seed + 1:3} {learner:6} {', '.join(differences)}", flush=True)
    if server is not None:
        server.close()
    what = f"greatest difference over {n_models} models of {n_rows:,} rows"
    return [median_figure(f"{engine}: {what}", [value]) for engine, value in greatest.items()]


def postgres_server():
    from tests.conftest import postgres

    return postgres.__wrapped__() if shutil.which("initdb") and shutil.which("postgres") else None


def speed(n_rows: int, rounds: int) -> list[Figure]:
    """From a Parquet file to a Parquet file, as the command does it; and `predict_proba` of the rows in memory."""
    figures = []
    for name, make in MEASURED.items():
        for nulls in (0.0, 0.1):
            estimator = make().fit(table_of(0, 20_000, nulls), "class")
            rows = table_of(1, n_rows if name != "auto" else n_rows // 5, nulls).drop_columns("class")
            with tempfile.TemporaryDirectory() as folder, duckdb.connect(config={"threads": 2}) as database:
                place = Path(folder)
                pq.write_table(rows, place / "rows.parquet")
                fewpass.publish(estimator, "measured", workspace=place / "workspace")
                database.execute(f"CREATE VIEW people AS FROM '{place}/rows.parquet'")
                database.execute(sql_script(estimator.model_, name="answers", table="people", key=["size"]))
                copy = f"COPY (FROM answers) TO '{place}/sql.parquet'"
                predict = [
                    sys.executable,
                    "-m",
                    "service.cli",
                    "predict",
                    "measured",
                    str(place / "rows.parquet"),
                    "--force",
                ]
                predict += ["-o", str(place / "command.parquet"), "-w", str(place / "workspace")]
                seconds = alternated(
                    rounds,
                    sql=partial(database.execute, copy),
                    command=partial(subprocess.run, predict, check=True, capture_output=True),
                    memory=partial(estimator.predict_proba, rows),
                )
            per_s = {task: f"{rows.num_rows / min(own):,.0f}" for task, own in seconds.items()}
            detail = (
                f"rows/s: DuckDB {per_s['sql']}, fewpass predict {per_s['command']}, predict_proba {per_s['memory']}"
            )
            what = f"{name}, nulls {nulls:.0%}: fewpass predict ÷ DuckDB"
            figures.append(figure(what, seconds["command"], seconds["sql"], "", "", detail))
    return figures


def main() -> None:
    given = options(__doc__, models=30, rows=10_000, speed_rows=500_000, rounds=3).parse_args()
    warnings.simplefilter("ignore")
    figures = differences(given.models, given.rows) if given.models else []
    figures += speed(given.speed_rows, given.rounds) if given.rounds else []
    report("Models as SQL", figures, machine(), given.json)


if __name__ == "__main__":
    main()
