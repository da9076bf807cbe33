"""Forgetting one customer of a generated table, in processor seconds, against the training that learned the rows.

python -m benchmarks.forget --rows 500000
python -m benchmarks.forget --rows 500000 --learners kdb auto --effort normal low
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks import tables
from benchmarks.measuring import machine, median_figure, options, report, run_command

FEWEST, MOST = 25, 29  # rows of a customer
GROUP_ROWS = 65_536


def customers(n_rows: int, *, is_sorted: bool, seed: int = 0) -> Path:
    """Sales of customers with 25 to 29 rows each: texts, small and large whole numbers, amounts; `late` follows from some.

    Sorted, the rows of a customer stand together; else they are scattered over the file.
    """
    path = tables.scratch() / f"customers-{n_rows}-{'sorted' if is_sorted else 'scattered'}-{seed}.parquet"
    if path.exists():
        return path
    random = np.random.default_rng(seed)
    sizes = random.integers(FEWEST, MOST + 1, n_rows // FEWEST + 1)
    customer = np.repeat(np.arange(sizes.size), sizes)[:n_rows]
    if not is_sorted:
        random.shuffle(customer)
    region, channel, product = (random.integers(0, n, n_rows) for n in (12, 4, 40))
    age = random.integers(18, 90, n_rows)
    amount = np.round(random.lognormal(3.0, 1.0, n_rows), 2)
    weight = np.round(random.gamma(2.0, 3.0, n_rows), 1)
    distance = random.integers(1, 2_000, n_rows)
    hour, items = random.integers(0, 24, n_rows), random.integers(1, 9, n_rows)
    score = 0.002 * distance - 0.5 * (channel == 2) + 0.3 * (region % 3 == 0) * (hour > 17) + 0.02 * weight - 2.2
    late = random.random(n_rows) < 1 / (1 + np.exp(-score))
    table = pa.table(
        {
            "customer": customer,
            "region": pc.take(pa.array([f"region {i}" for i in range(12)]), region),
            "channel": pc.take(pa.array(["web", "shop", "phone", "app"]), channel),
            "product": pc.take(pa.array([f"product {i}" for i in range(40)]), product),
            "age": age,
            "amount": amount,
            "weight": weight,
            "distance": distance,
            "hour": hour,
            "items": items,
            "late": pc.if_else(late, "yes", "no"),
        }
    )
    aside = path.with_suffix(".partial")
    pq.write_table(table, aside, row_group_size=GROUP_ROWS)
    aside.rename(path)
    return path


def main() -> None:
    """Measure the commands in turn, each in a process of its own."""
    parser = options(
        __doc__, rows=500_000, rounds=1, learners=["kdb", "skdb", "auto-low", "auto"], customer=7_777, order="scattered"
    )
    asked = parser.parse_args()
    data = customers(asked.rows, is_sorted=asked.order == "sorted")
    fewpass = [sys.executable, "-m", "service.cli"]
    figures = []
    facts = {"rows": asked.rows, "machine": machine(), "seconds": {}}
    for name in asked.learners:
        learner, _, effort = name.partition("-")
        settings = ["--effort", effort] if effort else []
        seconds: dict[str, list[float]] = {}
        for number in range(asked.rounds):
            with tempfile.TemporaryDirectory() as folder:
                here = ["--workspace", folder]
                columns = ["--columns", json.dumps({"customer": "drop"})]
                names = ["--target", "late", "--name", "late", "--learner", learner]
                where = ["--where", f"customer = {asked.customer + number}"]
                steps = {
                    "train": ["train", data, *names, *settings, *columns, "--update"],
                    "bare command": ["models", "list"],
                    "forget": ["forget", "late", *where, "--no-prove"],
                    "proof": ["forget", "late", *where],
                    # Last, as the rule stays: what the command needs to start, to look and to find nobody.
                    "forget nobody": ["forget", "late", "--where", "customer = -1", "--no-prove"],
                }
                for step, words in steps.items():
                    seconds.setdefault(step, []).append(run_command([*fewpass, *words, *here]).cpu_s)
        facts["seconds"][name] = seconds
        figures += [median_figure(f"{name}: CPU s, {step}", values) for step, values in seconds.items()]
        for start in ("bare command", "forget nobody"):
            ratio = [
                (forget - bare) / (train - bare)
                for forget, train, bare in zip(seconds["forget"], seconds["train"], seconds[start], strict=True)
            ]
            figures.append(median_figure(f"{name}: forget ÷ train, each less {start}", ratio, aim="0.2"))
    report(f"Forget one customer of {asked.rows:,} rows ({asked.order})", figures, facts, asked.json)


if __name__ == "__main__":
    main()
