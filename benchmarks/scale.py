"""Learning curves: the default at each effort, our networks and three boosting libraries, on large tables of growing length.

python -m benchmarks.scale --tables flights poker --sizes 50000 1000000 --learners auto skdb xgboost --flights FOLDER
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks import real_tables
from benchmarks.measuring import machine
from benchmarks.tables import scratch
from service.operations.bench import run_in_fresh_process

RESULTS = Path(__file__).resolve().parent.parent / "docs" / "results"
SIZES = (10_000, 50_000, 200_000, 1_000_000, 0)  # 0: all rows
ALL_ROWS, TEST_ROWS = 2_000_000, 200_000
LAST_DAY = datetime(2001, 5, 25)
OURS = {
    "auto": ("auto", {}),
    "auto low": ("auto", {"effort": "low"}),
    "auto high": ("auto", {"effort": "high"}),
    "skdb": ("skdb", {}),
    "kdb": ("kdb", {"k": 2}),
    "nb": ("nb", {}),
    "eskdb": ("eskdb", {}),
}
PEERS = ("xgboost", "lightgbm", "catboost", "xgboost tuned", "lightgbm tuned")
TUNED = [(leaves, rate) for leaves in (64, 256, 1024, 2048) for rate in (0.1, 0.3)]
TUNED_ROUNDS, TUNED_PATIENCE = 300, 10


@dataclass(frozen=True)
class Cell:
    """One learner on one table of one size."""

    table: str
    rows: int
    learner: str
    log_loss: float
    error: float
    auc: float | None  # of two classes
    train_cpu_s: float
    predict_rows_a_cpu_s: float
    peak_mib: float
    model_bytes: int | None  # of ours
    note: str = ""


def poker(n: int, random: np.random.Generator) -> pa.Table:
    """Hands of five cards and what they are worth, by the rules: ten columns, ten classes."""
    cards = np.argsort(random.random((n, 52)), axis=1)[:, :5]
    suit, rank = np.divmod(cards, 13)
    counts = np.sort((rank[:, :, None] == np.arange(13)).sum(axis=1), axis=1)[:, ::-1]
    ordered = np.sort(rank, axis=1)
    is_flush = (suit == suit[:, :1]).all(axis=1)
    is_royal = (ordered == [0, 9, 10, 11, 12]).all(axis=1)  # the ace is 0
    is_straight = (np.diff(ordered, axis=1) == 1).all(axis=1) | is_royal
    worth = [is_flush & is_royal, is_flush & is_straight, counts[:, 0] == 4]
    worth += [(counts[:, 0] == 3) & (counts[:, 1] == 2), is_flush, is_straight, counts[:, 0] == 3]
    worth += [(counts[:, 0] == 2) & (counts[:, 1] == 2), counts[:, 0] == 2]
    hand = np.select(worth, range(9, 0, -1), 0)
    columns = {f"{name}{i + 1}": own[:, i] + 1 for i in range(5) for name, own in (("suit", suit), ("rank", rank))}
    return pa.table(columns | {"hand": np.char.add("h", hand.astype(str))})


def teacher(n: int, random: np.random.Generator) -> pa.Table:
    """28 numbers, and a class by a random network of two layers; `teacher_bayes_loss` is what nothing can beat."""
    x, logit = _teacher(n, random)
    y = random.random(n) < 1 / (1 + np.exp(-logit))
    return pa.table({f"x{i:02d}": x[:, i] for i in range(28)} | {"class": np.where(y, "yes", "no")})


def _teacher(n: int, random: np.random.Generator) -> tuple[Any, Any]:
    fixed = np.random.default_rng(28)
    first, second = fixed.normal(size=(28, 32)) / np.sqrt(28) * 2.5, fixed.normal(size=32)
    x = random.normal(size=(n, 28)).astype(np.float32)
    return x, 4.5 * (np.tanh(x @ first) @ second) / np.sqrt(32) * 2


def teacher_bayes_loss() -> float:
    """The log loss of the teacher itself."""
    _, logit = _teacher(TEST_ROWS, np.random.default_rng(6))
    p = 1 / (1 + np.exp(-logit))
    return float(-(p * np.log(np.maximum(p, 1e-15)) + (1 - p) * np.log(np.maximum(1 - p, 1e-15))).mean())


def orders(n: int, seed: int) -> pa.Table:
    """The orders of `fewpass demo`, those of later days included."""
    import tempfile

    from service.operations.demo_orders import write_orders

    with tempfile.TemporaryDirectory() as folder:
        made = write_orders(Path(folder), n, seed)
        return pa.concat_tables([pq.read_table(path) for path in (*made.train, made.tomorrow, made.test)])


def flights(folder: Path, is_by_time: bool) -> tuple[pa.Table, pa.Table]:
    """Real flights, split at random, or at a day."""
    train, test = (pq.read_table(folder / f"air_{part}.parquet") for part in ("train", "test"))
    if is_by_time:
        both = pa.concat_tables([train, test])
        is_later = pc.greater_equal(both["departs"], LAST_DAY)
        train, test = both.filter(pc.invert(is_later)), both.filter(is_later)
    return train, test


def split(table: pa.Table, seed: int) -> tuple[pa.Table, pa.Table]:
    """Rows to train on, and to test on, at random."""
    order = np.random.default_rng(seed).permutation(table.num_rows)
    return table.take(order[TEST_ROWS:]), table.take(order[:TEST_ROWS])


TABLES: dict[str, tuple[str, Callable[[Path], tuple[pa.Table, pa.Table]]]] = {
    "flights": ("late", lambda folder: flights(folder, False)),
    "flights by time": ("late", lambda folder: flights(folder, True)),
    "poker": ("hand", lambda _: split(poker(ALL_ROWS + TEST_ROWS, np.random.default_rng(3)), 3)),
    "teacher": ("class", lambda _: split(teacher(ALL_ROWS + TEST_ROWS, np.random.default_rng(4)), 4)),
    "orders": ("late", lambda _: split(orders(ALL_ROWS + TEST_ROWS, 5), 5)),
    "generated": (
        real_tables.TARGET,
        lambda _: split(real_tables.arrow_table(ALL_ROWS + TEST_ROWS, np.random.default_rng(7)), 7),
    ),
}


def written(name: str, rows: int, flights_folder: Path) -> tuple[Path, Path, int]:
    """Files of training and test rows, kept in the scratch folder, and how many rows there are to train on."""
    kept = scratch() / f"scale-{name.replace(' ', '-')}"
    whole, test = kept.with_suffix(".all.parquet"), kept.with_suffix(".test.parquet")
    if not test.exists():
        train, later = TABLES[name][1](flights_folder)
        random = np.random.default_rng(8)
        pq.write_table(train.take(random.permutation(train.num_rows)), whole)
        drawn = np.sort(random.permutation(later.num_rows)[:TEST_ROWS])
        pq.write_table(later.take(drawn), test)
    n = pq.read_metadata(whole).num_rows
    if not rows or rows >= n:
        return whole, test, n
    part = kept.with_suffix(f".{rows}.parquet")
    if not part.exists():
        pq.write_table(pq.read_table(whole).slice(0, rows), part)
    return part, test, rows


def measured(learner: str, train: Path, test: Path, target: str) -> dict[str, Any]:
    """Log loss, error and AUC on the test rows, CPU seconds, and the size of the model; in a fresh process."""
    table, asked = pq.read_table(train), pq.read_table(test)
    rows = asked.drop_columns([target])
    started = time.process_time()
    note, size = "", None
    if learner in OURS:
        from learners import Source
        from learners.passes.learner import drive
        from learners.registry import recipes
        from learners.schema.encoding.encode import encode

        del table
        name, parameters = OURS[learner]
        holdout_by = "auto" if "by-time" in train.name else "random"
        made = recipes.learner(name, parameters, target, holdout_by=holdout_by)
        model = drive(made, Source.open(str(train)))
        trained = time.process_time() - started
        classes = np.array(model.schema.classes)
        size = sum(array.nbytes for array in model.to_arrays()[1].values())
        facts = getattr(model, "facts", {})
        note = json.dumps({key: facts[key] for key in ("networks", "correction") if key in facts}, default=str)
        started = time.process_time()
        p = model.predict_proba(encode(rows, model.schema))
    else:
        classes, y = np.unique(np.array(table[target].to_pylist()), return_inverse=True)
        predict, note = _peer(learner, table.drop_columns([target]), y)
        trained = time.process_time() - started
        started = time.process_time()
        p = predict(rows)
    predicted = time.process_time() - started
    place = {label: k for k, label in enumerate(classes.tolist())}
    y = np.array([place.get(label, -1) for label in asked[target].to_pylist()])
    own = np.where(y >= 0, p[np.arange(y.size), y], 0.0)
    auc = None
    if classes.size == 2:
        from sklearn.metrics import roc_auc_score

        auc = float(roc_auc_score(y, p[:, 1]))
    return {
        "log_loss": float(-np.log(np.maximum(own, 1e-15)).mean()),
        "error": float((p.argmax(axis=1) != y).mean()),
        "auc": auc,
        "train_cpu_s": trained,
        "predict_rows_a_cpu_s": y.size / predicted,
        "model_bytes": size,
        "note": note,
    }


def _peer(learner: str, table: pa.Table, y: Any) -> tuple[Callable[[pa.Table], Any], str]:
    from benchmarks.scoreboard import peers

    if learner.endswith(" tuned"):
        return _tuned(TUNABLE[learner], table, y)
    # One thread: those of XGBoost wait by spinning, so that its CPU seconds would grow with the load of the machine.
    return peers.fit(learner, table, y, threads=1), ""


@dataclass(frozen=True)
class _Tried:
    """One booster, its log loss on the rows that stopped it, and its probabilities of other rows."""

    loss: float
    rounds: int
    predict: Callable[[Any], Any]


def _tuned(
    boost: Callable[..., Callable[[int, float], _Tried]], table: pa.Table, y: Any
) -> tuple[Callable[[pa.Table], Any], str]:
    """Boost with several numbers of leaves and steps, rounds stopped by a tenth of the rows; the best by these rows."""
    from learners.evaluation.peers import RawColumns

    raw = RawColumns(table)
    x, n_classes = raw.numbers_of(table), int(y.max()) + 1
    is_left_out = np.random.default_rng(9).random(y.size) < 0.1
    tried = boost(x, y, is_left_out, [name in raw.values for name in raw.names], n_classes)
    runs = {(leaves, rate): tried(leaves, rate) for leaves, rate in TUNED}
    leaves, rate = min(runs, key=lambda settings: runs[settings].loss)
    best = runs[leaves, rate]
    return (lambda rows: best.predict(raw.numbers_of(rows))), f"{leaves} leaves, step {rate}, {best.rounds} rounds"


def _tunable_xgboost(x: Any, y: Any, is_left_out: Any, nominal: list[bool], n_classes: int) -> Callable[..., _Tried]:
    import xgboost

    given: dict[str, Any] = {
        "feature_types": ["c" if own else "q" for own in nominal],
        "enable_categorical": True,
        "nthread": 1,
    }
    train = xgboost.QuantileDMatrix(x[~is_left_out], y[~is_left_out], **given)
    left_out = xgboost.QuantileDMatrix(x[is_left_out], y[is_left_out], ref=train, **given)
    objective: dict[str, Any] = {"objective": "binary:logistic"}
    if n_classes > 2:
        objective = {"objective": "multi:softprob", "num_class": n_classes, "base_score": 0.5}

    def tried(leaves: int, rate: float) -> _Tried:
        settings = objective | {"grow_policy": "lossguide", "max_leaves": leaves, "max_depth": 0, "eta": rate}
        booster = xgboost.train(
            settings | {"tree_method": "hist", "nthread": 1},
            train,
            TUNED_ROUNDS,
            evals=[(left_out, "left_out")],
            early_stopping_rounds=TUNED_PATIENCE,
            verbose_eval=False,
        )
        n_rounds = booster.best_iteration + 1

        def predict(rows: Any) -> Any:
            p = booster.inplace_predict(rows, iteration_range=(0, n_rounds))
            return np.stack([1 - p, p], axis=1) if n_classes == 2 else np.asarray(p, np.float64)

        return _Tried(booster.best_score, n_rounds, predict)

    return tried


def _tunable_lightgbm(x: Any, y: Any, is_left_out: Any, nominal: list[bool], n_classes: int) -> Callable[..., _Tried]:
    import lightgbm

    columns = [number for number, own in enumerate(nominal) if own]

    def tried(leaves: int, rate: float) -> _Tried:
        model = lightgbm.LGBMClassifier(
            n_estimators=TUNED_ROUNDS, num_leaves=leaves, learning_rate=rate, n_jobs=1, random_state=1, verbose=-1
        )
        model.fit(
            x[~is_left_out],
            y[~is_left_out],
            eval_set=[(x[is_left_out], y[is_left_out])],
            categorical_feature=columns,
            callbacks=[lightgbm.early_stopping(TUNED_PATIENCE, verbose=False)],
        )
        loss = next(iter(model.best_score_["valid_0"].values()))
        return _Tried(loss, model.best_iteration_, lambda rows: np.asarray(model.predict_proba(rows), np.float64))

    return tried


TUNABLE = {"xgboost tuned": _tunable_xgboost, "lightgbm tuned": _tunable_lightgbm}


def page(cells: Sequence[Cell], facts: dict[str, Any]) -> str:
    """The tables of the results."""
    lines = [
        "# Large tables",
        "",
        "`make scale` writes this page. Log loss on 200,000 other rows, and CPU seconds of training in brackets (reading "
        f"the file included). {facts['machine']}. {facts['note']}".strip(),
        "",
        "![For each table the log loss of every learner over the number of rows](scale.svg)",
        "",
    ]
    names = [name for name in (*OURS, *PEERS) if any(cell.learner == name for cell in cells)]
    for table in TABLES:
        own = [cell for cell in cells if cell.table == table]
        if not own:
            continue
        lines += [
            f"## {table.capitalize()}",
            "",
            "| rows | " + " | ".join(names) + " |",
            "| --- |" + " --- |" * len(names),
        ]
        for rows in sorted({cell.rows for cell in own}):
            row = {cell.learner: cell for cell in own if cell.rows == rows}
            least = min(cell.log_loss for cell in row.values())
            texts = []
            for name in names:
                cell = row.get(name)
                mark = "**" if cell and cell.log_loss == least else ""
                texts.append(f"{mark}{cell.log_loss:.4f}{mark} ({cell.train_cpu_s:.0f} s)" if cell else "")
            lines.append(f"| {rows:,} | " + " | ".join(texts) + " |")
        lines.append("")
        last = max(cell.rows for cell in own)
        lines += [
            f"At {last:,} rows:",
            "",
            "| learner | AUC | error | peak MiB | model MB | rows predicted a CPU second |",
            "| --- | --- | --- | --- | --- | --- |",
        ]
        for cell in (cell for name in names for cell in own if cell.rows == last and cell.learner == name):
            auc = f"{cell.auc:.4f}" if cell.auc is not None else ""
            size = f"{cell.model_bytes / 1e6:.1f}" if cell.model_bytes else ""
            lines.append(
                f"| {cell.learner} | {auc} | {cell.error:.4f} | {cell.peak_mib:.0f} | {size} | {cell.predict_rows_a_cpu_s:,.0f} |"
            )
        lines.append("")
    return "\n".join(lines)


def picture(cells: Sequence[Cell], path: Path) -> None:
    """The curves as an SVG: for each table log loss over rows."""
    import matplotlib
    from matplotlib.figure import Figure

    names = [name for name in (*OURS, *PEERS) if any(cell.learner == name for cell in cells)]
    tables = [table for table in TABLES if len({cell.rows for cell in cells if cell.table == table}) > 1]
    with matplotlib.rc_context({"svg.hashsalt": "scale", "svg.fonttype": "none", "font.size": 8}):
        figure = Figure(figsize=(2.6 * max(1, len(tables)), 2.7), layout="constrained")
        for axes, table in zip(figure.subplots(1, max(1, len(tables)), squeeze=False)[0], tables, strict=False):
            for number, name in enumerate(names):
                own = sorted(
                    (cell.rows, cell.log_loss) for cell in cells if (cell.table, cell.learner) == (table, name)
                )
                style = {"linewidth": 2.0 if name == "auto" else 1.0, "color": f"C{number % 10}"}
                if own:
                    axes.plot(*zip(*own, strict=True), marker=".", label=name, **style)
            axes.set(xscale="log", yscale="log", title=table, xlabel="rows")
            axes.minorticks_off()
            losses = sorted(cell.log_loss for cell in cells if cell.table == table)
            ticks = np.geomspace(losses[0], losses[-1], 4)
            axes.set_yticks(ticks, [f"{tick:.2f}" for tick in ticks])
        figure.axes[0].set_ylabel("log loss")
        figure.legend(*_legend(figure), loc="outside lower center", ncols=len(names), frameon=False)
        figure.savefig(path, format="svg", metadata={"Date": None})


def _legend(figure: Any) -> tuple[list[Any], list[str]]:
    """Each learner once, whichever tables it was run on."""
    found = {label: line for axes in figure.axes for line, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    return list(found.values()), list(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", nargs="+", default=list(TABLES), choices=list(TABLES))
    parser.add_argument("--sizes", nargs="+", type=int, default=list(SIZES), help="rows to train on; 0: all")
    parser.add_argument("--learners", nargs="+", default=[*OURS, *PEERS], choices=[*OURS, *PEERS])
    parser.add_argument("--flights", type=Path, default=Path(os.environ.get("FEWPASS_FLIGHTS", "flights")))
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--note", default="", help="a sentence for the page, such as what else the machine did")
    asked = parser.parse_args()
    kept_at = asked.output / "scale.json"
    kept = json.loads(kept_at.read_text()) if kept_at.exists() else {"cells": []}
    cells = {(cell["table"], cell["rows"], cell["learner"]): Cell(**cell) for cell in kept["cells"]}
    for name in asked.tables:
        for size in asked.sizes:
            train, test, n = written(name, size, asked.flights)
            for learner in asked.learners:
                found, peak = run_in_fresh_process(measured, learner, train, test, TABLES[name][0])
                cell = Cell(name, n, learner, peak_mib=peak / 2**20, **found)
                cells[name, n, learner] = cell
                print(json.dumps(asdict(replace(cell, note=cell.note[:400]))), flush=True)
                facts = {"machine": f"{machine()['cores']} cores", "note": asked.note}
                ordered = [cells[key] for key in sorted(cells)]
                kept_at.write_text(
                    json.dumps({"facts": facts, "cells": [asdict(one) for one in ordered]}, indent=1) + "\n"
                )
                (asked.output / "scale.md").write_text(page(ordered, facts))
    picture([Cell(**cell) for cell in json.loads(kept_at.read_text())["cells"]], asked.output / "scale.svg")


if __name__ == "__main__":
    main()
