"""Rows with nulls as they come, against complete rows of the same table and against 100 rounds of bare XGBoost over the same codes, one thread each.

python -m benchmarks.null_rows --rows 20000 --write            # docs/results/null-rows.md
python -m benchmarks.null_rows --rows 300000
python -m benchmarks.null_rows --data orders.parquet --target late --no-rest

XGBoost sees nominal codes as numbers (`--categories` for its own categories, which it answers four times slower), nulls as missing.

The table has 40 columns, half of them with independent nulls of 1 to 30 % each, so that 19 of 20 rows have some, in
thousands of patterns (`benchmarks.real_tables`); `auto` also answers two real tables (`--real`). Rows are encoded beforehand;
figures are of processor time. For one row alone, in process or over REST, each row counts with the median of its calls; the
median and 99 % are over rows. REST is wall time at one connection. Summed tables are the entries for contexts that end at a
missing parent.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xgboost

from benchmarks.measuring import (
    Figure,
    alternated,
    machine,
    median_figure,
    options,
    peak_rss_bytes,
    ratio_median_min_max,
    report,
)
from benchmarks.real_tables import MANY_NULLS, TARGET, arrow_table
from benchmarks.serving import serving
from learners.classifiers.baselines.boosted import CodeTable, XGBoostParameters, xgboost_booster_parameters
from learners.classifiers.lookup.kernels import LookupTables
from learners.classifiers.lookup.lookup import LookupModel
from learners.ensembles.model import EnsembleModel
from learners.kernels.arrays import Floats, Integers, read_only_array
from learners.models.model import Model
from learners.passes.learner import drive
from learners.passes.sources.source import Source
from learners.registry import recipes
from learners.schema import Chunk
from learners.schema.encoding.encode import encode
from service.product.versions.fitted_models import Fitted, publish_fitted_model
from service.settings import Settings
from service.workspace import Workspace

LEARNERS = {"kdb": {"k": 2}, "skdb": {"k": 5}, "eskdb": {}, "auto": {}}
WANTED = {"kdb": ("10", "50"), "skdb": ("8", "40"), "auto": ("1", "3")}
PAGE = Path("docs/results/null-rows.md")
AT_MOST = {"kdb": ("≤ 25", "5"), "auto": ("≤ 10", "4")}
REAL = ("flights_nyc13", "diabetes130")
ROWS, CALLS = 200, 5  # that are asked alone, and how often each


def codes(table: pa.Table, model: Model) -> Chunk:
    (batch,) = table.combine_chunks().to_batches()
    return encode(batch, model.schema)


def one_row_seconds(answer: Callable[[Any], object], rows: Sequence[Any], clock: Callable[[], float]) -> Floats:
    """Seconds of each row alone, (n,): the median of its calls."""
    seconds = np.empty((CALLS, len(rows)))
    for call in range(CALLS):
        for place, row in enumerate(rows):
            started = clock()
            answer(row)
            seconds[call, place] = clock() - started
    return np.median(seconds, axis=0)


def one_row_figures(what: str, with_nulls: Floats, complete: Floats) -> Iterator[Figure]:
    """The ratios of the median and of 99 % of single rows with three nulls and of complete ones."""
    for statistic, share in (("median", 0.5), ("99 %", 0.99)):
        ours, theirs = float(np.quantile(with_nulls, share)), float(np.quantile(complete, share))
        name = f"{what}: one row with three nulls ÷ a complete one, {statistic}"
        yield median_figure(name, [ours / theirs], "≤ 2", "1.3", f"{ours * 1e6:.3g} / {theirs * 1e6:.3g} µs")


def alone(chunk: Chunk, rows: Integers) -> list[Chunk]:
    """Some rows, each as a chunk of its own."""
    return [Chunk(read_only_array(chunk.x[:, [row]]), None) for row in rows[:ROWS]]


def with_three_nulls(chunk: Chunk, model: Model) -> Integers:
    """The rows of a chunk that have three nulls."""
    is_nullable = [attribute.has_missing for attribute in model.schema.attributes]
    return np.flatnonzero((chunk.x == 0)[is_nullable].sum(axis=0) == 3)


def networks_of(model: Model) -> Sequence[LookupModel]:
    """The networks of a model that sum out what is missing."""
    if isinstance(model, EnsembleModel):
        return model.joints.models
    return [model] if isinstance(model, LookupModel) else []


def summed_share(model: LookupModel) -> float:
    """The bytes of a network's entries for contexts that end at a missing parent, ÷ those of all its tables."""
    tables = model._tables
    summed = 0.0
    for i, parents in enumerate(model.network.parents):
        sizes = model.schema.domain_sizes[list(parents)]
        if tables.dense_starts[i] >= 0:
            ends = np.append(tables.dense_starts[tables.dense_starts > tables.dense_starts[i]], tables.dense.size)
            n_bytes = 4 * (int(ends.min()) - int(tables.dense_starts[i]))
            summed += n_bytes * (1.0 - float(np.prod(sizes / (sizes + 1.0))))
        elif parents:
            first, last = (tables.hash_starts[i], tables.hash_starts[i + 1])
            ranks = np.append(tables.hash_ranks, len(tables.vectors))[[first, last]]
            keys = tables.key_low[slice(*ranks)].astype(np.int64)
            if tables.key_high.size:
                keys += tables.key_high[slice(*ranks)].astype(np.int64) << 32
            keys_of_contexts = int(np.prod(sizes + 1)) * (int(tables.n_values[i]) + 1)
            summed += float((keys >= keys_of_contexts).sum()) * (tables.vectors[:1].nbytes + 4)
    return summed / sum(array.nbytes for array in tables)


def over_rest(three: pa.Table, whole: pa.Table, target: str, models: Mapping[str, Model]) -> Iterator[Figure]:
    """One row alone over REST, as JSON: with three nulls, and complete."""
    columns = tuple(three.drop_columns(target).column_names)
    with tempfile.TemporaryDirectory() as folder:
        with Workspace(Settings(workspace=Path(folder))) as workspace:
            for name, model in models.items():
                fitted = Fitted(model, name, LEARNERS.get(name, {}), columns)
                publish_fitted_model(workspace, fitted, name, aliases=["champion"])
        with serving(Path(folder)) as (_, port), httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
            for name in models:

                def answer(body: bytes, path: str = f"/v1/models/{name}/predict") -> None:
                    client.post(path, content=body, headers={"content-type": "application/json"}).raise_for_status()

                both = []
                for some in (three, whole):
                    rows = some.slice(0, ROWS).drop_columns(target).to_pylist()
                    bodies = [json.dumps({"records": [row]}, default=str).encode() for row in rows]
                    answer(bodies[0])
                    both.append(one_row_seconds(answer, bodies, time.perf_counter))
                yield from one_row_figures(f"{name}, REST", *both)


def bare_xgboost(train: pa.Table, target: str, categories: bool) -> Callable[[pa.Table], Callable[[], object]]:
    """The prediction of rows by a booster of 100 rounds, one thread, without a layer of ours: rows are numbers beforehand."""
    schema = drive(recipes.learner("xgboost", {"rounds": 1}, target), Source.of_table(train), threads=1).schema
    table = CodeTable(schema)
    types = table.feature_types if categories else ["q"] * schema.n_attributes
    (batch,) = train.combine_chunks().to_batches()
    rows = encode(batch, schema)
    matrix = xgboost.QuantileDMatrix(table.features(rows.x), rows.y, feature_types=types, enable_categorical=True)
    settings = xgboost_booster_parameters(XGBoostParameters(), schema.n_classes) | {"nthread": 1}
    booster = xgboost.train(settings, matrix, 100)

    def prediction(asked: pa.Table) -> Callable[[], object]:
        (batch,) = asked.combine_chunks().to_batches()
        features = table.features(encode(batch, schema).x)
        return lambda: booster.inplace_predict(features, missing=np.nan, validate_features=False)

    return prediction


def tables_of(path: Path, rows: int, asked: int) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Rows to learn from, rows as they come, and those of them without nulls, of a Parquet file."""
    table = pq.read_table(path)
    order = np.random.default_rng(0).permutation(table.num_rows)
    train, some = table.take(order[asked : asked + rows]), table.take(order[:asked])
    return train, some, some.filter(~np.any([column.is_null().to_numpy() for column in some.columns], axis=0))


def measured(
    tables: tuple[pa.Table, pa.Table, pa.Table], target: str, learners: Sequence[str], args: argparse.Namespace
) -> tuple[list[Figure], dict[str, object], dict[str, Model]]:
    """Figures, seconds and the model of each learner on a table."""
    train, asked, whole = tables
    source = Source.of_table(train)
    peer = bare_xgboost(train, target, args.categories)(asked)
    figures: list[Figure] = []
    facts: dict[str, object] = {}
    models: dict[str, Model] = {}
    for name in learners:
        model = models[name] = drive(recipes.learner(name, LEARNERS.get(name, {}), target), source, threads=1)
        rows = codes(asked, model)
        tasks: dict[str, Callable[[], object]] = {
            "nulls": partial(model.predict_proba, rows, threads=1),
            "xgboost": peer,
        }
        complete = codes(whole, model) if whole.num_rows else None
        if complete is not None:
            tasks["complete"] = partial(model.predict_proba, complete, threads=1)
        facts[name] = seconds = alternated(args.rounds, time.process_time, **tasks)
        n = rows.n_rows
        detail = f"{n / statistics.median(seconds['nulls']):,.0f} / {n / statistics.median(seconds['xgboost']):,.0f} rows a CPU s"
        ratio = ratio_median_min_max(seconds["xgboost"], seconds["nulls"])
        figures.append(Figure(f"{name}: rows as they come ÷ XGBoost", *ratio, *WANTED.get(name, ("", "")), detail))
        if complete is None:
            continue
        each = [[s / count for s in seconds[task]] for task, count in (("nulls", n), ("complete", complete.n_rows))]
        detail = " / ".join(f"{statistics.median(of_one) * 1e6:.3g} µs" for of_one in each)
        ratio = ratio_median_min_max(*each)
        figures.append(Figure(f"{name}: time a row ÷ complete rows", *ratio, *AT_MOST.get(name, ("", "")), detail))
        three = with_three_nulls(rows, model)
        if three.size:
            every = np.arange(complete.n_rows)
            both = [
                one_row_seconds(model.predict_proba, alone(*some), time.process_time)
                for some in ((rows, three), (complete, every))
            ]
            figures += one_row_figures(name, *both)
        shares = [summed_share(network) for network in networks_of(model) if isinstance(network._tables, LookupTables)]
        if shares:
            figures.append(median_figure(f"{name}: bytes of summed tables ÷ all of a network", shares, "≤ 1", ".3"))
    return figures, facts, models


def three_nulls(table: pa.Table, target: str) -> pa.Table:
    """The rows of a table that have three nulls beside the target."""
    n_nulls = np.sum([column.is_null().to_numpy() for column in table.drop_columns(target).columns], axis=0)
    return table.filter(n_nulls == 3)


def all_figures(
    name: str,
    tables: tuple[pa.Table, pa.Table, pa.Table],
    target: str,
    learners: Sequence[str],
    args: argparse.Namespace,
) -> tuple[list[Figure], dict[str, object]]:
    """Figures of a table, in process and over REST, under its name."""
    figures, facts, models = measured(tables, target, learners, args)
    _, asked, whole = tables
    three = three_nulls(asked, target)
    if args.rest and three.num_rows and whole.num_rows:
        figures += over_rest(three, whole, target, models)
    return [replace(one, what=f"{name}, {one.what}") for one in figures], facts


def page(figures: Sequence[Figure], left_out: Sequence[str], args: argparse.Namespace) -> str:
    """The page of results."""
    used = machine()
    versions = ", ".join(f"{module} {version}" for module, version in used["versions"].items())
    lines = [
        "# Rows with nulls",
        "",
        f"`python -m benchmarks.null_rows --rows {args.rows}{'' if args.rest else ' --no-rest'} --write` on {date.today()}: {args.rows:,} rows to learn from, {args.asked:,} asked,"
        f" one thread each, {args.rounds} rounds in turn. {used['cores']} cores, Python {used['python']}, {versions}."
        f" Peak memory of the process: {peak_rss_bytes() / 2**20:,.0f} MiB.",
        "",
        (__doc__ or "").split("\n\n", 2)[2].strip(),
        "",
        "| what | ratio | spread | wanted | aim | made of |",
        "| --- | ---: | --- | --- | --- | --- |",
    ]
    for one in figures:
        wanted = f"≥ {one.at_least}" if one.at_least[:1].isdigit() else one.at_least
        spread = f"{one.low:.3g}–{one.high:.3g}"
        lines.append(f"| {one.what} | {one.ratio:.3g} | {spread} | {wanted} | {one.aim} | {one.detail} |")
    return "\n".join([*lines, "", *left_out]).rstrip() + "\n"


def main() -> None:
    parser = options(__doc__, rows=60_000, asked=20_000, rounds=3, learners=["kdb", "skdb", "auto"], target=TARGET)
    parser.add_argument("--data", type=Path, help="a Parquet file in place of the generated table")
    parser.add_argument(
        "--real",
        type=Path,
        default=Path("../shared/data/classification"),
        help=f"the folder of {' and '.join(f'{name}.parquet' for name in REAL)}, by default %(default)s",
    )
    parser.add_argument("--rest", action=argparse.BooleanOptionalAction, default=True, help="one row over REST, too")
    parser.add_argument("--categories", action="store_true", help="XGBoost splits nominal columns as categories")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE}")
    args = parser.parse_args()
    if args.data is None:
        tables = (
            arrow_table(args.rows, np.random.default_rng(0), MANY_NULLS),
            arrow_table(args.asked, np.random.default_rng(1), MANY_NULLS),
            arrow_table(args.asked, np.random.default_rng(2), {}),
        )
    else:
        tables = tables_of(args.data, args.rows, args.asked)
    name = "generated" if args.data is None else args.data.stem
    facts: dict[str, object] = {}
    figures, facts[name] = all_figures(name, tables, args.target, args.learners, args)
    left_out = []
    for name in REAL:
        path = args.real / f"{name}.parquet"
        if not path.is_file():
            left_out.append(f"{name} is left out: there is no {path}.")
            continue
        of_table, facts[name] = all_figures(name, tables_of(path, args.rows, args.asked), "class", ["auto"], args)
        figures += of_table
    print("\n".join(left_out))
    report("Rows with nulls", figures, machine() | {"seconds": facts}, args.json)
    if args.write:
        PAGE.write_text(page(figures, left_out, args))


if __name__ == "__main__":
    main()
