"""How often monitoring is wrong, and what it finds.

python -m benchmarks.monitoring false-alarms --months 100     # 40 columns, hourly looks at the last day, a daily cycle of traffic and classes, bursts
python -m benchmarks.monitoring power --repeats 20            # ten kinds of drift, three sizes

Both go on where they were stopped: each month or drift is one line of a file.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.measuring import options
from learners.monitoring.count_layout import Watched
from learners.monitoring.drift_findings import run_drift_tests
from learners.monitoring.drift_report import drift_causes, drift_report
from learners.monitoring.reference import training_reference
from learners.monitoring.served_counts import ServedCounts
from learners.passes.learner import drive
from learners.passes.sources.source import Source
from learners.registry import recipes

N_COLUMNS, N_TRAIN, N_SCORED = 40, 100_000, 20_000
PERSISTENCE, LOOKS = 2, 3


def table_of(rng: np.random.Generator, n: int, yes: float | np.ndarray = 0.35) -> pa.Table:
    """40 columns: numbers, words and missing values, in chains that begin at the class."""
    y = rng.random(n) < yes
    columns: dict[str, pa.Array] = {}
    before = y.astype(float)
    for j in range(N_COLUMNS):
        if j % 8 == 0:
            before = y * 1.0
        if j % 2:
            x = rng.normal(0.9 * before, 1.0)
            before = x
            columns[f"c{j:02d}"] = pa.array(x, mask=rng.random(n) < (0.05 if j % 5 == 0 else 0.0))
        else:
            shift = np.clip(np.round(before + rng.normal(0, 0.8, n)), -1, 2).astype(int) + 1
            columns[f"c{j:02d}"] = pa.array(np.array(["a", "b", "c", "d"])[shift])
            before = shift - 1.0
    return pa.table(columns | {"class": np.where(y, "yes", "no")})


def cycle(hours: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Traffic of each hour, in shares of the mean, and the share of one class: both go up and down once a day."""
    wave = np.sin(2 * np.pi * hours / 24)
    return 1 + 0.8 * wave, 0.35 + 0.05 * np.cos(2 * np.pi * hours / 24)


def prepared(is_cyclic: bool = False) -> tuple[Watched, ServedCounts]:
    """A kDB-2 model, and counts of rows that it did not see."""
    rng, shares = np.random.default_rng(1), (0.35, 0.35)
    if is_cyclic:
        volume, yes = cycle(np.arange(24))
        shares = tuple(rng.choice(yes, n, p=volume / 24) for n in (N_TRAIN, N_SCORED))
    train = table_of(rng, N_TRAIN, shares[0])
    watched = Watched(drive(recipes.learner("kdb", {"k": 2}, "class"), Source.of_table(train)))
    return watched, counts_of(watched, table_of(np.random.default_rng(2), N_SCORED, shares[1]))


def counts_of(watched: Watched, table: pa.Table) -> ServedCounts:
    counts = ServedCounts(watched, present=table.column_names)
    for batch in table.combine_chunks().to_batches():
        counts.update(batch)
    return counts


def done(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def hours_of(rng: np.random.Generator, watched: Watched, rows_per_hour: int) -> list[ServedCounts]:
    """What is counted in the hours of one day; in one of twenty somebody sends one row again and again."""
    volume, yes = cycle(np.arange(24))
    sizes = np.maximum(rng.poisson(rows_per_hour * volume), 1)
    day, ends = table_of(rng, sizes.sum(), np.repeat(yes, sizes)), np.cumsum(sizes)
    found = []
    for size, end in zip(sizes, ends, strict=True):
        rows = day.slice(end - size, size)
        if rng.random() < 0.05:
            rows = pa.concat_tables([rows, *[rows.slice(0, 1)] * int(rng.integers(20, 200))])
        found.append(counts_of(watched, rows))
    return found


def false_alarms(months: int, days: int, rows_per_hour: int, path: Path) -> None:
    """Hourly looks at the last day, from the first whole day on; an alarm that two of three looks share is an alert.

    That rows repeat is true, and not counted; what else is said because of them is.
    """
    watched, scored = prepared(is_cyclic=True)
    reference = training_reference(watched, scored)
    for month in range(len(done(path)), months):
        rng = np.random.default_rng(5000 + month)
        started, last, alarms, open_subjects = time.process_time(), [], [], set()
        hours = hours_of(rng, watched, rows_per_hour)
        window = ServedCounts(watched, present=hours[0].present)
        for one in hours:
            window.merge(one)
        for day in range(days):
            for hour, newest in enumerate(hours_of(rng, watched, rows_per_hour)):
                window.merge(newest)
                window.subtract(hours[hour])
                hours[hour] = newest
                found = drift_causes(window, reference, *run_drift_tests(window, reference))
                seen = {" ".join([cause.kind, *cause.columns]) for cause in found if cause.kind != "repeats"}
                last = [*last, seen][-LOOKS:]
                lasting = {one for one in seen if sum(one in some for some in last) >= PERSISTENCE}
                alarms += [(24 * day + hour, one) for one in sorted(lasting - open_subjects)]
                open_subjects = (open_subjects & seen) | lasting
        line = {"month": month, "days": days, "alarms": alarms, "cpu_s": time.process_time() - started}
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(line, flush=True)
    found = done(path)
    n_months = sum(one["days"] for one in found) / 30
    n_alarms = sum(len(one["alarms"]) for one in found)
    print(f"{n_alarms} alarms in {n_months:.1f} model-months of 30 days: {n_alarms / n_months:.3f} a month")


def nudged(table: pa.Table, name: str, values) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, pa.array(values))


def _mixed(rng, table, name, values, share):
    old = np.array(table[name].to_pylist(), object)
    return nudged(table, name, np.where(rng.random(len(old)) < share, np.array(values, object), old).tolist())


def prior(rng, n, size):
    from scipy.optimize import brentq

    q = 0.35
    p = brentq(lambda p: p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q)) - size, q + 1e-6, 0.999)
    return table_of(rng, n, p), ("class_mix", ())


def covariate(rng, n, size):
    table = table_of(rng, n)
    return _mixed(rng, table, "c01", rng.normal(2.5, 1.0, n), np.sqrt(size)), (None, ("c01",))


def mechanism(rng, n, size):
    table = table_of(rng, n)
    shuffled = rng.permutation(np.array(table["c11"].to_pylist()))
    return _mixed(rng, table, "c11", shuffled, min(1, 3 * np.sqrt(size))), (None, ("c11",))


def unseen(rng, n, size):
    return _mixed(rng, table_of(rng, n), "c04", ["z"] * n, size), ("unseen", ("c04",))


def missing(rng, n, size):
    return _mixed(rng, table_of(rng, n), "c06", [None] * n, size), ("missing", ("c06",))


def unit(rng, n, size):
    table = table_of(rng, n)
    return _mixed(rng, table, "c07", np.array(table["c07"].to_pylist()) * 100, size), (None, ("c07",))


def swapped(rng, n, size):
    table = table_of(rng, n)
    a, b = np.array(table["c03"].to_pylist()), np.array(table["c09"].to_pylist())
    share = rng.random(n) < min(1.0, 10 * size)
    return nudged(nudged(table, "c03", np.where(share, b, a)), "c09", np.where(share, a, b)), (None, ("c03", "c09"))


def truncated(rng, n, size):
    table = table_of(rng, n)
    x = np.array(table["c13"].to_pylist())
    return nudged(table, "c13", np.minimum(x, np.quantile(x, 1 - 3 * size))), (None, ("c13",))


def duplicated(rng, n, size):
    table = table_of(rng, n)
    return pa.concat_tables([table, table.slice(0, int(n * size))]), ("repeats", ())


def delayed(rng, n, size):
    table = table_of(rng, n)
    x = np.array(table["c19"].to_pylist())
    return _mixed(rng, table, "c19", np.roll(x, 1), min(1, 3 * np.sqrt(size))), (None, ("c19",))


KINDS = (prior, covariate, mechanism, unseen, missing, unit, swapped, truncated, duplicated, delayed)
SIZES = (0.01, 0.03, 0.1)


def power(repeats: int, n_rows: int, path: Path) -> None:
    watched, scored = prepared()
    reference = training_reference(watched, scored)
    known = {(one["kind"], one["size"], one["repeat"]) for one in done(path)}
    for k, kind in enumerate(KINDS):
        for size in SIZES:
            for repeat in range(repeats):
                if (kind.__name__, size, repeat) in known:
                    continue
                rng = np.random.default_rng([7, k, int(size * 1000), repeat])
                table, (cause, columns) = kind(rng, n_rows, size)
                found = drift_report(counts_of(watched, table), reference)
                first = found["causes"][0] if found["causes"] else None
                named = first is not None and cause in (None, first["kind"])
                named = named and (not columns or bool(set(columns) & set(first["columns"])))
                line = {"kind": kind.__name__, "size": size, "repeat": repeat, "found": found["is_drifting"]}
                line |= {"named": named, "first": None if first is None else [first["kind"], *first["columns"]]}
                # The default rules of others on the same codes: any column above 0.1 in PSI or in Jensen-Shannon distance.
                line |= {f"{name}_0.1": any(one[name] > 0.1 for one in found["columns"]) for name in ("psi", "js")}
                with path.open("a") as file:
                    file.write(json.dumps(line) + "\n")
    report(done(path))


def report(found: list[dict]) -> None:
    print("| drift | size | found | cause named first | any PSI > 0.1 | any JS > 0.1 |\n|" + " --- |" * 6)
    for kind in KINDS:
        for size in SIZES:
            own = [one for one in found if (one["kind"], one["size"]) == (kind.__name__, size)]
            if own:
                shares = [np.mean([one[name] for one in own]) for name in ("found", "named", "psi_0.1", "js_0.1")]
                print(f"| {kind.__name__} | {size} | " + " | ".join(f"{share:.0%}" for share in shares) + " |")


def main() -> None:
    parser = options(
        __doc__, months=1, days=30, rows_per_hour=500, repeats=2, rows=20_000, out=Path("build/benchmarks")
    )
    parser.add_argument("what", choices=["false-alarms", "power"])
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    path = asked.out / f"{asked.what}.jsonl"
    if asked.what == "false-alarms":
        false_alarms(asked.months, asked.days, asked.rows_per_hour, path)
    else:
        power(asked.repeats, asked.rows, path)
    if asked.json is not None:
        asked.json.write_text(json.dumps(done(path), indent=1) + "\n")


if __name__ == "__main__":
    main()
