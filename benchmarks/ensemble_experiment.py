"""Ensembles beside boosting, forests and other libraries on public data sets; one line of a log per trial, so that it resumes.

python -m benchmarks.ensemble_experiment ../shared/data/classification --half development --log development.jsonl
python -m benchmarks.ensemble_experiment ../shared/data/classification --half held --log held.jsonl
python -m benchmarks.ensemble_experiment ../shared/data/classification --dozen --learner auto --learner xgboost-tuned --log tuned.jsonl
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import benchmarks.boosting_peers  # noqa: F401  # its peers may be named
from learners.evaluation import compare, cross_validate
from learners.evaluation.comparison import Comparison
from learners.evaluation.crossvalidation import TrialProgress
from learners.evaluation.datasets import DataSet, find_data_sets
from learners.evaluation.log import OutcomeLog

LEARNERS = ("auto", "eskdb", "xgboost-raw", "xgboost-slow", "random-forest")
OURS = ("auto", "eskdb")
SCORES = ("rmse", "log_loss", "zero_one_loss", "ece")
# Sets on which XGBoost is tuned: of all sizes, with few and many classes, with and without numbers.
DOZEN = (
    "german", "vehicle", "cmc", "yeast", "car", "segment",
    "splice", "abalone_3class", "page_blocks", "wall_following", "nursery", "sign_discretised",
)  # fmt: skip


def half_of(data_sets: list[DataSet], half: str) -> list[DataSet]:
    """Every other set in the order of (rows, name): the first, third, … are those that choices were made on."""
    ordered = sorted(data_sets, key=lambda one: (one.n_rows, one.name))
    return ordered if half == "all" else ordered[0 if half == "development" else 1 :: 2]


def ratios(comparison: Comparison, ours: str, peer: str, least_rows: int) -> list[dict[str, Any]]:
    """Of each score: sets, wins, draws, losses, and the median ratio."""
    found = []
    large = comparison.n_rows >= least_rows
    for score in SCORES:
        a, b = comparison.column(score, ours)[large], comparison.column(score, peer)[large]
        known = ~(np.isnan(a) | np.isnan(b))
        a, b = a[known], b[known]
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = float(np.nanmedian(a / b)) if a.size else float("nan")
        draws = int(np.sum(np.round(a, 4) == np.round(b, 4)))
        wins = int(np.sum(np.round(a, 4) < np.round(b, 4)))
        found.append(
            {"ours": ours, "peer": peer, "least_rows": least_rows, "score": score, "sets": int(a.size), "wins": wins,
             "draws": draws, "losses": int(a.size) - wins - draws, "median_ratio": round(ratio, 4)}
        )  # fmt: skip
    return found


def written(comparison: Comparison, folder: Path) -> list[dict[str, Any]]:
    """Tables of every mean and, if ours and peers are there, of ratios, as CSV."""
    folder.mkdir(parents=True, exist_ok=True)
    ours = [name for name in OURS if name in comparison.learners]
    peers = [name for name in comparison.learners if name not in ours]
    pairs = [(a, b) for a in ours for b in peers] + ([("auto", "eskdb")] if len(ours) == 2 else [])
    lines = [line for a, b in pairs for least in (0, 1000) for line in ratios(comparison, a, b, least)]
    if lines:
        with (folder / "ratios.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, list(lines[0]))
            writer.writeheader()
            writer.writerows(lines)
    with (folder / "data-sets.csv").open("w", newline="") as file:
        means = csv.writer(file)
        means.writerow(["data_set", "n_rows", "learner", *SCORES, "train_s", "predict_s"])
        for i, name in enumerate(comparison.data_sets):
            for learner in comparison.learners:
                scores = [comparison.column(score, learner)[i] for score in (*SCORES, "train_s", "predict_s")]
                if np.isnan(scores[0]):  # not run
                    continue
                means.writerow([name, int(comparison.n_rows[i]), learner, *(f"{value:.5g}" for value in scores)])
    return lines


def print_trial(progress: TrialProgress) -> None:
    """One line for each trial."""
    latest = progress.latest
    if latest is not None:
        scores = {name: latest.scores.get(name) for name in ("rmse", "log_loss", "train_s")}
        print(
            f"{progress.n_done}/{progress.n_total} {latest.data} {latest.learner} {latest.error or scores}", flush=True
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--half", choices=("development", "held", "all"), default="all")
    parser.add_argument("--dozen", action="store_true", help="only the dozen that XGBoost is tuned on")
    parser.add_argument("--sets", nargs="*", help="of the half, by name")
    parser.add_argument("--learner", action="append", help="instead of " + ", ".join(LEARNERS))
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--out", type=Path, help="folder for tables; by default beside the log")
    parser.add_argument("--repetitions", type=int, default=1)
    parser.add_argument("--most-rows", type=int)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--any-code", action="store_true")
    args = parser.parse_args()
    chosen = half_of(find_data_sets([args.folder], None), args.half)
    if args.dozen:
        chosen = [one for one in chosen if one.name in DOZEN]
    if args.sets:
        chosen = [one for one in chosen if one.name in args.sets]
    if args.most_rows:
        chosen = [one for one in chosen if one.n_rows <= args.most_rows]
    cross_validate(
        [one.path for one in chosen],
        args.learner or list(LEARNERS),
        log=args.log,
        repetitions=args.repetitions,
        threads=args.threads,
        any_code=args.any_code,
        on_progress=print_trial,
    )
    names = {one.name for one in chosen}
    # All that the log has of them, from this run and from those before.
    logged = {(one.data, one.learner, one.seed, one.fold): one for one in OutcomeLog(args.log) if one.data in names}
    lines = written(compare(logged.values()), args.out or args.log.with_suffix(""))
    if not lines:
        return
    table = Table(title=f"{args.half} half, {len(chosen)} sets")
    for column in lines[0]:
        table.add_column(column)
    for line in lines:
        table.add_row(*map(str, line.values()))
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
