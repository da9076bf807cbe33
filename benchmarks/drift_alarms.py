"""False drift alarms in windows without drift, and the share of planted faults that are detected.

python -m benchmarks.drift_alarms                       # 200 windows a cell; the tables of docs/results/drift.md
python -m benchmarks.drift_alarms --windows 50 --rows 20 200
python -m benchmarks.drift_alarms --labels 1            # files that hold the class column

Windows are drawn from the training distribution. If rows repeat, an alarm that says so is correct and not counted. Rows of customers
follow the training distribution one by one but depend on each other, which no test can detect; brackets count their alarms that say so.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Collection
from functools import cache

import numpy as np
import pyarrow as pa

from benchmarks.measuring import options
from learners.monitoring.count_layout import Watched
from learners.monitoring.drift_report import drift_report
from learners.monitoring.label_counts import LabelCounts, Labels, labels_to_compare
from learners.monitoring.reference import Reference, training_reference
from learners.monitoring.served_counts import ServedCounts
from learners.passes.learner import drive
from learners.passes.sources.source import Source
from learners.registry import recipes

N_TRAIN, N_SCORED = 20_000, 5_000
SHARES = {"balanced": 0.5, "rare": 0.05}
SIGNALS = {"weak": 0.25, "strong": 1.5}
COPIES = 5  # of a row in the mean, where rows repeat
ROWS = {
    "independent": "each row is drawn by itself",
    "repeated": f"each row comes 1 to {2 * COPIES - 1} times",
}
MANY, N_VALUES = (
    "3,000 values",
    3_000,
)  # each row by itself, with a column of so many values, of which training keeps 1,024
DEPENDENT = "of customers"  # of whom each has as many rows, alike but not equal
LEARNERS = {"nb": {}, "kdb": {"k": 1}}


def table_of(
    rng: np.random.Generator,
    n: int,
    yes: float,
    signal: float,
    customers: np.ndarray | None = None,
    n_values: int = 0,
) -> pa.Table:
    """Draw a table: numbers and words that depend on the class, a number and a word that depend on others, and two independent of all.

    `customers` (n,) are those of the rows, which have their class and words from the customer, and half of what their numbers
    vary; each row by itself is drawn as without. `n_values`: of a further column, the first about two thousand times as frequent
    as the last.
    """
    own = np.arange(n) if customers is None else customers
    n_drawn = int(own.max()) + 1

    def noise() -> np.ndarray:
        drawn = rng.normal(size=n_drawn)[own]
        return drawn if customers is None else (drawn + rng.normal(size=n)) / np.sqrt(2)

    y = (rng.random(n_drawn) < yes)[own]
    size = signal * y + noise()
    is_bern, other = rng.random(n_drawn)[own] < 0.3 + 0.25 * signal * y, rng.choice(["kiel", "rome"], n_drawn)[own]
    town = np.where(is_bern, "bern", other)
    columns = {
        "size": size,
        "weight": size + 0.5 * noise(),
        "age": 0.6 * signal * y + noise(),
        "town": town,
        "road": np.where(rng.random(n_drawn)[own] < 0.8, town, "none"),
        "colour": rng.choice(list("pqrs"), n_drawn)[own],
        "noise": noise(),
    }
    if n_values:
        article = (np.expm1(rng.random(n_drawn) * np.log(n_values)) % n_values).astype(np.int64)[own]
        columns["article"] = np.char.add("no ", article.astype(str))
    return pa.table(columns | {"class": np.where(y, "yes", "no")})


def window_of(rng: np.random.Generator, n: int, yes: float, signal: float, rows: str) -> pa.Table:
    """A window of n rows without drift."""
    if rows in ("independent", MANY):
        return table_of(rng, n, yes, signal, n_values=N_VALUES * (rows == MANY))
    copies = rng.integers(1, 2 * COPIES, n)
    distinct = int(np.searchsorted(np.cumsum(copies), n)) + 1
    places = rng.permutation(np.repeat(np.arange(distinct), copies[:distinct])[:n])
    if rows == DEPENDENT:
        return table_of(rng, n, yes, signal, places)
    return table_of(rng, distinct, yes, signal).take(pa.array(places))


def counts_of(watched: Watched, table: pa.Table) -> ServedCounts:
    """A window as it would have been served, without its classes."""
    counts = ServedCounts(watched, present=table.column_names)
    for batch in table.combine_chunks().to_batches():
        counts.update(batch)
    return counts


def labels_of(watched: Watched, table: pa.Table, reference: Reference) -> Labels | None:
    """The classes of a window beside those of training."""
    counts = LabelCounts(watched.schema)
    for batch in table.combine_chunks().to_batches():
        counts.update(batch)
    return labels_to_compare(counts, None, reference)


@cache
def prepared(learner: str, yes: float, signal: float, n_values: int = 0) -> tuple[Watched, Reference]:
    """A model, and its training with counts of rows that were kept back."""
    rng = np.random.default_rng(1)
    train, kept = (table_of(rng, n, yes, signal, n_values=n_values) for n in (N_TRAIN, N_SCORED))
    watched = Watched(drive(recipes.learner(learner, LEARNERS[learner], "class"), Source.of_table(train)))
    reference = training_reference(watched, counts_of(watched, kept))
    assert reference is not None
    return watched, reference


def replaced(table: pa.Table, name: str, values: np.ndarray | pa.Array) -> pa.Table:
    """The table with another column of this name."""
    return table.set_column(table.column_names.index(name), name, pa.array(values))


TIMES = {"classes ×1.2": 1.2}
FAULTS = {
    "classes ×2 or ½": ("class_mix", (), None),
    "classes ×1.2": ("class_mix", (), None),
    "road shuffled": (None, ("road",), lambda rng, t: replaced(t, "road", rng.permutation(t["road"].to_numpy(False)))),
    "age + ½ sd": (None, ("age",), lambda rng, t: replaced(t, "age", t["age"].to_numpy() + 0.5)),
    "town 10 % null": (
        "missing",
        ("town",),
        lambda rng, t: replaced(t, "town", pa.array(t["town"].to_pylist(), mask=rng.random(len(t)) < 0.1)),
    ),
    "colour 10 % new": (
        "unseen",
        ("colour",),
        lambda rng, t: replaced(t, "colour", np.where(rng.random(len(t)) < 0.1, "z", t["colour"].to_numpy(False))),
    ),
    "rows ten times": ("repeats", (), lambda rng, t: pa.concat_tables([t.slice(0, max(1, len(t) // 10))] * 10)),
}


def false_alarms(
    windows: int, sizes: list[int], with_labels: bool, kinds: Collection[str] = (*ROWS, MANY, DEPENDENT)
) -> list[dict]:
    """For each cell the number of windows that alarm, and their first causes; `kinds` of rows."""
    found = []
    for learner in LEARNERS:
        for share, yes in SHARES.items():
            for strength, signal in SIGNALS.items():
                for rows in kinds:
                    watched, reference = prepared(learner, yes, signal, N_VALUES * (rows == MANY))
                    for n in sizes:
                        alarms: list[str] = []
                        noted = 0
                        for window in range(windows):
                            rng = np.random.default_rng([11, n, window])
                            table = window_of(rng, n, yes, signal, rows)
                            labels = labels_of(watched, table, reference) if with_labels else None
                            report = drift_report(counts_of(watched, table), reference, labels=labels)
                            causes = [one for one in report["causes"] if one["kind"] != "repeats"]
                            agrees = bool(report["causes"]) == bool(report["is_drifting"])
                            if causes or not agrees:
                                alarms.append(causes[0]["kind"] if causes else "no words")
                                noted += report["rows_alike"] is not None
                        cell = {"learner": learner, "classes": share, "signal": strength, "rows": rows, "n": n}
                        found.append(
                            cell | {"windows": windows, "alarms": len(alarms), "noted": noted, "kinds": sorted(alarms)}
                        )
    return found


def power(windows: int, sizes: list[int], with_labels: bool) -> list[dict]:
    """For each planted fault how often it is found, and named by the first cause."""
    found = []
    for share, yes in SHARES.items():
        for (strength, signal), rows in itertools.product(SIGNALS.items(), (*ROWS, DEPENDENT)):
            watched, reference = prepared("kdb", yes, signal)
            for fault, (kind, columns, change) in FAULTS.items():
                for n in sizes:
                    n_found = n_named = 0
                    for window in range(windows):
                        rng = np.random.default_rng([13, n, window])
                        times = TIMES.get(fault, 0.5 if yes > 0.25 else 2.0)
                        table = window_of(rng, n, yes * times if change is None else yes, signal, rows)
                        table = table if change is None else change(rng, table)
                        labels = labels_of(watched, table, reference) if with_labels else None
                        report = drift_report(counts_of(watched, table), reference, labels=labels)
                        first = report["causes"][0] if report["causes"] else None
                        n_found += bool(report["is_drifting"])
                        n_named += bool(
                            first
                            and kind in (None, first["kind"])
                            and (not columns or set(columns) & set(first["columns"]))
                        )
                    cell = {
                        "fault": fault,
                        "classes": share,
                        "signal": strength,
                        "rows": rows,
                        "n": n,
                        "windows": windows,
                    }
                    found.append(cell | {"found": n_found / windows, "named": n_named / windows})
    return found


def show_false_alarms(found: list[dict], sizes: list[int]) -> None:
    """One line for each kind of window, one column for each number of rows."""
    print("| model | classes | signal | rows | " + " | ".join(f"{n:,}" for n in sizes) + " |")
    print("|" + " --- |" * 4 + " ---: |" * len(sizes))
    cells: dict[tuple[str, ...], list[str]] = {}
    for one in found:
        noted = f" ({one['noted']})" if one["rows"] == DEPENDENT and one["alarms"] else ""
        cell = tuple(one[k] for k in ("learner", "classes", "signal", "rows"))
        cells.setdefault(cell, []).append(f"{one['alarms']}{noted}")
    for cell, alarms in cells.items():
        print("| " + " | ".join([*cell, *alarms]) + " |")
    counted = [one for one in found if one["rows"] != DEPENDENT]
    n_alarms, n_windows = sum(one["alarms"] for one in counted), sum(one["windows"] for one in counted)
    print(f"\n{n_alarms} of {n_windows:,} windows ({n_alarms / n_windows:.2%}); most in one cell: ", end="")
    print(max(one["alarms"] for one in counted), "of", found[0]["windows"], f"(without rows {DEPENDENT})")


def show_power(found: list[dict], sizes: list[int]) -> None:
    """Found / named first, in percent."""
    print("\n| fault | classes | signal | rows | " + " | ".join(f"{n:,}" for n in sizes) + " |")
    print("|" + " --- |" * 4 + " ---: |" * len(sizes))
    cells: dict[tuple[str, ...], list[str]] = {}
    for one in found:
        cell = tuple(one[k] for k in ("fault", "classes", "signal", "rows"))
        cells.setdefault(cell, []).append(f"{100 * one['found']:.0f} / {100 * one['named']:.0f}")
    for cell, shares in cells.items():
        print("| " + " | ".join([*cell, *shares]) + " |")


def main() -> None:
    """Both tables."""
    parser = options(__doc__ or "", windows=200, power_windows=20, rows=[20, 50, 200, 1000, 5000], labels=0)
    asked = parser.parse_args()
    started = time.process_time()
    alarms = false_alarms(asked.windows, asked.rows, bool(asked.labels))
    show_false_alarms(alarms, asked.rows)
    faults = power(asked.power_windows, asked.rows, bool(asked.labels)) if asked.power_windows else []
    show_power(faults, asked.rows)
    print(f"{time.process_time() - started:.0f} CPU s")
    if asked.json is not None:
        asked.json.write_text(json.dumps({"false_alarms": alarms, "power": faults}, indent=1) + "\n")


if __name__ == "__main__":
    main()
