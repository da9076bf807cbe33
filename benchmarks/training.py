"""kDB-2 against XGBoost from external memory, on the same Parquet table: seconds and peak memory.

python -m benchmarks.training --rows 5000000
python -m benchmarks.training --rows 20000000 --no-peer     # memory only

Both begin with a file of which nothing is known: our schema pass counts, as XGBoost's pass for its quantiles does. A second figure
leaves our schema pass out, for tables whose schema is stored. Both have trained on a small table in the same process before.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

from benchmarks import tables
from benchmarks.measuring import Figure, alternated_apart, figure, machine, ratio, report

GOALS = {"kdb": ("8", "15"), "skdb": ("3", "")}  # speed-up at least, and aim
WARM_ROWS = 100_000


def train_ours(path: Path, warm: Path, threads: int, learner: str, parameters: dict[str, Any]) -> tuple[float, float]:
    """Seconds of the schema pass, and of all passes after it."""
    from learners.passes.inference import infer_schema
    from learners.passes.learner import drive
    from learners.passes.sources.source import Source
    from learners.registry import recipes

    def learn(place: Path) -> tuple[float, float]:
        source = Source.open(str(place))
        started = time.perf_counter()
        schema = infer_schema(source, "class", threads=threads)
        inferred = time.perf_counter()
        drive(recipes.learner(learner, parameters, "class", schema), source, threads=threads)
        return inferred - started, time.perf_counter() - inferred

    learn(warm)
    return learn(path)


def train_xgboost(path: Path, warm: Path, threads: int) -> float:
    """Seconds of building the external-memory matrix and of the boosting rounds."""
    from benchmarks.boosting import boosted

    boosted(warm, threads)
    started = time.perf_counter()
    boosted(path, threads)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--learner", default="kdb")
    parser.add_argument("--parameter", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    path, warm = tables.table(args.rows), tables.table(WARM_ROWS)
    parameters: dict[str, Any] = dict(entry.split("=", 1) for entry in args.parameter or ["k=2"])
    tasks: dict[str, tuple[Any, ...]] = {"fewpass": (train_ours, path, warm, args.threads, args.learner, parameters)}
    if not args.no_peer:
        tasks["xgboost"] = (train_xgboost, path, warm, args.threads)
    runs = alternated_apart(args.rounds, **tasks)
    given = [passes for (_, passes), _ in runs["fewpass"]]
    whole = [schema + passes for (schema, passes), _ in runs["fewpass"]]
    peaks = {name: [peak / 2**20 for _, peak in of] for name, of in runs.items()}
    seconds = {"fewpass": whole, "fewpass, schema given": given}
    name = f"{args.learner} {parameters}"
    if args.no_peer:
        of = [mib / 1024 for mib in peaks["fewpass"]]
        middle = f"{statistics.median(whole):.3g} s"
        figures = [Figure(f"{name}: peak RSS in GiB", statistics.median(of), min(of), max(of), "1", "", middle)]
    else:
        seconds["xgboost"] = theirs = [wall_s for wall_s, _ in runs["xgboost"]]
        goals = GOALS.get(args.learner, ("", ""))
        memory = " / ".join(f"{statistics.median(peaks[of]):.0f} MiB" for of in ("fewpass", "xgboost"))
        figures = [
            figure(f"XGBoost external memory ÷ {name}: time", theirs, whole, *goals),
            figure("the same, our schema given", theirs, given, *goals),
            Figure(f"{name} ÷ XGBoost: peak RSS", *ratio(peaks["fewpass"], peaks["xgboost"]), "", "", memory),
        ]
    facts = machine() | {
        "seconds": seconds,
        "peak_rss_mib": {name: statistics.median(of) for name, of in peaks.items()},
    }
    report(f"{args.rows:,} rows × 40 attributes × 4 values, {args.threads} threads", figures, facts, args.json)


if __name__ == "__main__":
    main()
