"""Ten kinds of drift, and windows without any, beside the default rules of Evidently and NannyML.

python -m benchmarks.drift_peers --evidently PYTHON --nannyml PYTHON --repeats 5

PYTHON is the interpreter of an environment that has the peer; without it, only fewpass is asked. All get the same windows of 20,000
rows, and the peers 20,000 rows as their reference. What was found is kept, so the command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks.monitoring import KINDS, N_SCORED, SIZES, counts_of, prepared, table_of
from learners.monitoring.drift import drift_report
from learners.monitoring.reference import training_reference

QUIET = {"NML_DISABLE_USAGE_LOGGING": "1", "DO_NOT_TRACK": "1"}  # peers that report their use
CHILD = Path(__file__).with_name("drift_peer_process.py")


def write_windows(folder: Path, repeats: int, n_rows: int) -> dict[str, dict[str, object]]:
    """Windows as files without the class; what has been changed in each, by its name."""
    folder.mkdir(parents=True, exist_ok=True)
    reference = table_of(np.random.default_rng(2), N_SCORED)
    pq.write_table(reference.drop_columns(["class"]), folder / "reference.parquet")
    truth: dict[str, dict[str, object]] = {}
    for repeat in range(repeats):
        for k, kind in enumerate((None, *KINDS)):
            for size in (0.0,) if kind is None else SIZES:
                rng = np.random.default_rng([11, k, int(size * 1000), repeat])
                name = f"window-{kind.__name__ if kind else 'none'}-{size}-{repeat}"
                path = folder / f"{name}.parquet"
                table, (cause, columns) = (
                    (table_of(rng, n_rows), (None, ())) if kind is None else kind(rng, n_rows, size)
                )
                truth[name] = {
                    "kind": kind.__name__ if kind else "none",
                    "size": size,
                    "cause": cause,
                    "columns": list(columns),
                }
                if not path.exists():
                    pq.write_table(table.drop_columns(["class"]), path)
    return truth


def by_fewpass(folder: Path, out: Path) -> None:
    """The same windows, against the counts of training."""
    watched, scored = prepared()
    reference = training_reference(watched, scored)
    known = {json.loads(line)["window"] for line in out.read_text().splitlines()} if out.exists() else set()
    for path in sorted(folder.glob("window-*.parquet")):
        if path.stem in known:
            continue
        found = drift_report(counts_of(watched, pq.read_table(path)), reference)
        first = found["causes"][0] if found["causes"] else None
        columns = {column for cause in found["causes"] for column in cause["columns"]}
        told = {
            "window": path.stem,
            "is_drifting": found["is_drifting"],
            "first": None if first is None else [first["kind"], *first["columns"]],
            "drifted": sorted(columns),
        }
        with out.open("a") as file:
            file.write(json.dumps(told) + "\n")


def named(truth: dict, told: dict) -> bool:
    """Whether what was changed is named first; a peer has no words for what is in no column."""
    if "first" in told:
        first = told["first"]
        is_kind = first is not None and (truth["cause"] is None or first[0] == truth["cause"])
        return bool(is_kind and (not truth["columns"] or set(truth["columns"]) & set(first[1:])))
    return bool(told["drifted"]) and told["drifted"][0] in truth["columns"]


def report(truth: dict, answers: dict[str, list[dict]]) -> None:
    """A line for each kind and size: found, named first, and columns that are blamed in the mean."""
    heads = " | ".join(f"{name}: found | named | columns" for name in answers)
    print(f"| drift | size | {heads} |\n| --- | --- |{' --- | --- | --- |' * len(answers)}")
    for kind, size in dict.fromkeys((one["kind"], one["size"]) for one in truth.values()):
        cells = []
        for own in answers.values():
            chosen = [
                one for one in own if (truth[one["window"]]["kind"], truth[one["window"]]["size"]) == (kind, size)
            ]
            found = np.mean([one.get("is_drifting", bool(one["drifted"])) for one in chosen])
            first = np.mean([named(truth[one["window"]], one) for one in chosen])
            blamed = np.mean([len(one["drifted"]) for one in chosen])
            cells.append(f"{found:.0%} | {'–' if kind == 'none' else f'{first:.0%}'} | {blamed:.1f}")
        print(f"| {kind} | {size or ''} | {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evidently", help="interpreter of an environment that has Evidently")
    parser.add_argument("--nannyml", help="interpreter of an environment that has NannyML")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--folder", type=Path, default=Path("build/benchmarks/drift-peers"))
    asked = parser.parse_args()
    truth = write_windows(asked.folder, asked.repeats, asked.rows)
    outs = {"fewpass": asked.folder / "fewpass.jsonl"}
    by_fewpass(asked.folder, outs["fewpass"])
    for name in ("evidently", "nannyml"):
        if python := getattr(asked, name):
            outs[name] = asked.folder / f"{name}.jsonl"
            subprocess.run(
                [python, str(CHILD), name, str(asked.folder), str(outs[name])], check=True, env=os.environ | QUIET
            )
    answers = {name: [json.loads(line) for line in out.read_text().splitlines()] for name, out in outs.items()}
    report(truth, {name: [one for one in own if one["window"] in truth] for name, own in answers.items()})


if __name__ == "__main__":
    main()
