"""Ensembles beside boosting, forests and other libraries on public data sets; one line of a log per trial, so that it resumes.

python -m benchmarks.ensemble_experiment ../shared/data/classification --half development --log development.jsonl
python -m benchmarks.ensemble_experiment ../shared/data/classification --half held --log held.jsonl
python -m benchmarks.ensemble_experiment ../shared/data/classification --dozen --learner auto --learner xgboost-tuned --log tuned.jsonl
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import benchmarks.boosting_peers  # noqa: F401  # its peers may be named
from learners.evaluation.comparison import Comparison, compare
from learners.evaluation.crossvalidation import OutcomeLog, TrialProgress, cross_validate
from learners.evaluation.datasets import DataSet, find_data_sets
from learners.evaluation.trial import Outcome

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


def ratios(outcomes: Sequence[Outcome]) -> Iterator[dict[str, Any]]:
    """Of ours and each peer, on all sets and on those of 1,000 rows and more: sets, wins, draws, losses, the median ratio."""
    for least_rows in (0, 1000):
        large = [one for one in outcomes if one.n_train + one.n_test >= least_rows]
        if not large:
            return
        comparison = compare(large)
        ours = [name for name in OURS if name in comparison.learners]
        pairs = [(a, b) for a in ours for b in comparison.learners if b not in ours]
        for a, b in [*pairs, *zip(ours, ours[1:], strict=False)]:
            for score in SCORES:
                found = comparison.versus(score, a, b)
                counts = {"wins": found.wins, "draws": found.draws, "losses": found.losses}
                start = {"ours": a, "peer": b, "least_rows": least_rows, "score": score, "sets": sum(counts.values())}
                yield start | counts | {"median_ratio": round(found.median_ratio, 4)}


def means(comparison: Comparison) -> Iterator[dict[str, Any]]:
    """Every mean of every learner that was run on a set."""
    for i, name in enumerate(comparison.data_sets):
        for learner in comparison.learners:
            own = {score: comparison.column(score, learner)[i] for score in (*SCORES, "train_s", "predict_s")}
            if not np.isnan(own[SCORES[0]]):
                start = {"data_set": name, "n_rows": int(comparison.n_rows[i]), "learner": learner}
                yield start | {score: f"{value:.5g}" for score, value in own.items()}


def write(path: Path, lines: Sequence[dict[str, Any]]) -> None:
    """A CSV file."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)


def show(progress: TrialProgress) -> None:
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
    asked = parser.parse_args()
    chosen = half_of(find_data_sets([asked.folder], None), asked.half)
    if asked.dozen:
        chosen = [one for one in chosen if one.name in DOZEN]
    if asked.sets:
        chosen = [one for one in chosen if one.name in asked.sets]
    if asked.most_rows:
        chosen = [one for one in chosen if one.n_rows <= asked.most_rows]
    cross_validate(
        [one.path for one in chosen],
        asked.learner or list(LEARNERS),
        log=asked.log,
        repetitions=asked.repetitions,
        threads=asked.threads,
        any_code=asked.any_code,
        on_progress=show,
    )
    names = {one.name for one in chosen}
    # All that the log has of them, from this run and from those before.
    logged = {(one.data, one.learner, one.seed, one.fold): one for one in OutcomeLog(asked.log) if one.data in names}
    folder = asked.out or asked.log.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    outcomes = list(logged.values())
    write(folder / "data-sets.csv", list(means(compare(outcomes))))
    lines = list(ratios(outcomes))
    if not lines:
        return
    write(folder / "ratios.csv", lines)
    table = Table(*lines[0], title=f"{asked.half} half, {len(chosen)} sets")
    for line in lines:
        table.add_row(*map(str, line.values()))
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
