"""`auto` beside the best of 22 tuned learners that TabZilla published; what recalibration would gain; and small tables.

python -m benchmarks.published_learners published ../shared/data/classification ../shared/review/tz_best.csv --log folds.jsonl
python -m benchmarks.published_learners small ../shared/data/classification --log small.jsonl

Each trial is a line of the log, so that a run resumes. `--output` writes the tables of the log as a page.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from learners.kernels.arrays import Floats, Integers
from learners.passes.learner import drive
from learners.passes.sources.source import Source
from learners.registry import recipes
from learners.schema.encoding.encode import encode

TARGET = "class"
# TabZilla's learners saw eight tenths of the rows; those of this project's other pages see half.
N_FOLDS = {"eight tenths": 5, "half": 2}
LEAST = 1e-12
SMALL_SIZES = (50, 100, 200, 500, 1000, 2000)
SEEDS = 3


def predicted(learner: str, train: pa.Table, test: pa.Table) -> tuple[Floats, Integers, Floats]:
    """Probabilities (n, n_classes) of the test rows, the place of each row's class (-1: not learned), and the class shares."""
    model = drive(recipes.learner(learner, {}, TARGET), Source.of_table(train), threads=1)
    places = {label: place for place, label in enumerate(model.schema.classes)}
    y = np.array([places.get(label, -1) for label in test[TARGET].to_pylist()])
    shares = np.bincount([places[label] for label in train[TARGET].to_pylist()], minlength=len(places)) / len(train)
    return model.predict_proba(encode(test.drop_columns([TARGET]), model.schema)), y, shares


def log_loss(p: Floats, y: Integers) -> float:
    """Mean log loss in nats; a class that was not learned has the least probability."""
    own = np.where(y >= 0, p[np.arange(y.size), np.maximum(y, 0)], 0.0)
    return float(-np.log(np.maximum(own, LEAST)).mean())


def by_temperature(p: Floats, y: Integers) -> Callable[[Floats], Floats]:
    """The best power of the probabilities of a grid."""
    powers = np.exp(np.linspace(-1.5, 1.5, 61))
    best = powers[np.argmin([log_loss(normalised(p**power), y) for power in powers])]
    return lambda other: normalised(other**best)


def by_platt(p: Floats, y: Integers) -> Callable[[Floats], Floats]:
    """Logistic regression on the log probabilities."""
    if np.unique(y).size < 2:
        return lambda other: other
    fitted = LogisticRegression(max_iter=1000).fit(np.log(np.maximum(p, LEAST)), y)

    def answer(other: Floats) -> Floats:
        out = np.full(other.shape, LEAST)
        out[:, fitted.classes_] = fitted.predict_proba(np.log(np.maximum(other, LEAST)))
        return normalised(out)

    return answer


def by_isotonic(p: Floats, y: Integers) -> Callable[[Floats], Floats]:
    """Isotonic regression of each class against the others, kept from 0 by half a row."""
    bound = 0.5 / y.size
    curves = [
        IsotonicRegression(y_min=bound, y_max=1 - bound, out_of_bounds="clip").fit(p[:, k], y == k)
        for k in range(p.shape[1])
    ]
    return lambda other: normalised(np.stack([curve.predict(other[:, k]) for k, curve in enumerate(curves)], axis=1))


def by_histogram(p: Floats, y: Integers) -> Callable[[Floats], Floats]:
    """Shares in ten bins of each class's probability, with one row of the bin's mean probability."""
    edges = np.linspace(0, 1, 11)[1:-1]

    def curve(k: int) -> Floats:
        bins = np.digitize(p[:, k], edges)
        n = np.bincount(bins, minlength=10)
        means = np.where(n > 0, np.bincount(bins, p[:, k], 10) / np.maximum(n, 1), (np.arange(10) + 0.5) / 10)
        return np.asarray((np.bincount(bins, y == k, 10) + means) / (n + 1))

    curves = [curve(k) for k in range(p.shape[1])]
    return lambda other: normalised(
        np.stack([own[np.digitize(other[:, k], edges)] for k, own in enumerate(curves)], axis=1)
    )


RECALIBRATIONS = {"temperature": by_temperature, "Platt": by_platt, "isotonic": by_isotonic, "histogram": by_histogram}


def normalised(p: Floats) -> Floats:
    """Rows that sum to 1."""
    p = np.maximum(p, LEAST)
    return np.asarray(p / p.sum(axis=1, keepdims=True))


def recalibrated(p: Floats, y: Integers, seed: int) -> dict[str, float]:
    """Log loss after each recalibration, by halves of the rows: each half by what the other one says."""
    half = np.random.default_rng(seed).permutation(y.size) % 2
    known = y >= 0
    losses = {}
    for name, recalibrate in RECALIBRATIONS.items():
        answers = p.copy()
        for own in (0, 1):
            others = (half != own) & known
            if others.any():
                answers[half == own] = recalibrate(p[others], y[others])(p[half == own])
        losses[name] = log_loss(answers, y)
    return losses


def folds(path: Path, n_folds: int) -> Iterator[tuple[int, pa.Table, pa.Table]]:
    """Number, training and test rows of each fold, drawn by class."""
    table = pq.read_table(path)
    y = np.array(table[TARGET].to_pylist())
    split = StratifiedKFold(n_folds, shuffle=True, random_state=0)
    for number, (train, test) in enumerate(split.split(y, y)):
        yield number, table.take(pa.array(train)), table.take(pa.array(test))


def published_trials(paths: Sequence[Path], part: str, done: set[str]) -> Iterator[dict[str, Any]]:
    """One line for each fold of each set."""
    for path in paths:
        for number, train, test in folds(path, N_FOLDS[part]):
            key = f"{path.stem} {part} {number}"
            if key in done:
                continue
            p, y, _ = predicted("auto", train, test)
            yield {
                "key": key,
                "set": path.stem,
                "part": part,
                "rows": test.num_rows,
                "loss": log_loss(p, y),
            } | recalibrated(p, y, number)


def small_trials(paths: Sequence[Path], done: set[str]) -> Iterator[dict[str, Any]]:
    """One line for each set, size and seed: `auto` and naive Bayes learn so many rows and answer 2,000 others."""
    for path in paths:
        table = pq.read_table(path)
        for size in SMALL_SIZES:
            for seed in range(SEEDS):
                key = f"{path.stem} {size} {seed}"
                if key in done or table.num_rows < 2 * size:
                    continue
                order = np.random.default_rng(seed).permutation(table.num_rows)
                train, test = table.take(order[:size]), table.take(order[size : size + 2000])
                if len(train[TARGET].unique()) < 2:
                    continue
                losses = {}
                for learner in ("auto", "nb"):
                    p, y, shares = predicted(learner, train, test)
                    losses[learner] = log_loss(p, y)
                smoothed = normalised(np.tile((shares * size + 1 / shares.size) / (size + 1), (y.size, 1)))
                yield {"key": key, "set": path.stem, "size": size, "shares": log_loss(smoothed, y)} | losses


def published_page(lines: Sequence[dict[str, Any]], best: dict[str, tuple[str, float]]) -> str:
    """The tables of all sets, and of what recalibration gains."""
    means: dict[str, dict[str, dict[str, float]]] = {}
    for part in N_FOLDS:
        for name in sorted({one["set"] for one in lines if one["part"] == part}):
            own = [one for one in lines if one["part"] == part and one["set"] == name]
            if len(own) == N_FOLDS[part]:
                scores = ["loss", *RECALIBRATIONS]
                rows = [one["rows"] for one in own]
                means.setdefault(part, {})[name] = {
                    score: float(np.average([one[score] for one in own], weights=rows)) for score in scores
                }
    parts = list(means)
    text = [
        PUBLISHED,
        "| rows learned | sets | log loss ÷ the best, median | `auto` is better | above 2 × (losses above .005) |",
        "| --- | ---: | ---: | ---: | --- |",
    ]
    for part in parts:
        ratio = {name: own["loss"] / max(best[name][1], LEAST) for name, own in means[part].items() if name in best}
        far = [name for name, value in ratio.items() if value > 2 and means[part][name]["loss"] > 0.005]
        text.append(
            f"| {part} | {len(ratio)} | {np.median(list(ratio.values())):.3f} | {sum(value < 1 for value in ratio.values())} | {len(far)}: {', '.join(far)} |"
        )
    text += [
        "",
        "| set | best of 22 | its log loss | " + " | ".join(f"`auto`, {part}" for part in parts) + " |",
        "| --- | --- | ---: |" + " ---: |" * len(parts),
    ]
    for name in sorted({name for part in parts for name in means[part]} & set(best)):
        own = " | ".join(f"{means[part][name]['loss']:.4f}" if name in means[part] else "" for part in parts)
        text.append(f"| {name} | {best[name][0]} | {best[name][1]:.4f} | {own} |")
    text += [
        RECALIBRATED,
        "| rows learned | sets | " + " | ".join(RECALIBRATIONS) + " |",
        "| --- | ---: |" + " --- |" * len(RECALIBRATIONS),
    ]
    for part in parts:
        gains = {name: [own[name] / own["loss"] for own in means[part].values()] for name in RECALIBRATIONS}
        text.append(
            f"| {part} | {len(means[part])} | "
            + " | ".join(f"{min(own):.3f}, {np.median(own):.4f}, {max(own):.3f}" for own in gains.values())
            + " |"
        )
    return "\n".join(text)


def small_page(lines: Sequence[dict[str, Any]]) -> str:
    """One row for each size: how `auto` stands beside the class shares and naive Bayes."""
    text = [
        SMALL,
        "| rows learned | sets | ÷ class shares: median, maximum | ÷ naive Bayes: median, maximum | more than 3 % behind naive Bayes |",
        "| ---: | ---: | --- | --- | --- |",
    ]
    for size in SMALL_SIZES:
        names = sorted({one["set"] for one in lines if one["size"] == size})
        if not names:
            continue
        own = {name: [one for one in lines if one["size"] == size and one["set"] == name] for name in names}
        loss = {
            name: {what: float(np.mean([one[what] for one in runs])) for what in ("auto", "nb", "shares")}
            for name, runs in own.items()
        }
        ratios = {what: {name: one["auto"] / one[what] for name, one in loss.items()} for what in ("shares", "nb")}
        behind = [f"{name} {value:.3f}" for name, value in ratios["nb"].items() if value > 1.03]
        spans = [
            f"{np.median(list(found.values())):.3f}, {max(found.values()):.3f} ({max(found, key=found.__getitem__)})"
            for found in ratios.values()
        ]
        text.append(f"| {size:,} | {len(names)} | {spans[0]} | {spans[1]} | {', '.join(behind) or '–'} |")
    return "\n".join(text)


PUBLISHED = """# Beside published results

`python -m benchmarks.published_learners published FOLDER BEST --log folds.jsonl --output docs/results/published.md` writes this page. TabZilla (McElfresh et al. 2023, *When do neural nets outperform boosted trees
on tabular data?*) published the log loss of 22 learners, each tuned by up to 30 settings, on ten folds of OpenML's data sets; BEST holds the best of the 22 for each set. `auto` runs with its defaults on stratified folds of
our copies of these sets, in five folds (it learns eight tenths of the rows, as TabZilla's learners did) or two. The folds are not TabZilla's. To take the best of 22 by its test loss favours it on small sets. Sets whose folds are not
all in the log are left out; smaller files come first.
"""
RECALIBRATED = """
## Recalibration
The answers for each test fold are recalibrated by halves: each half with what the other half says. Log loss after recalibration ÷ before, over all sets of the folder (minimum, median and maximum); above 1, recalibration makes the answers worse:
"""
SMALL = """# Small tables

`python -m benchmarks.published_learners small FOLDER --log small.jsonl --output docs/results/small-tables.md` writes this page: `auto` and naive Bayes learn so many rows, drawn at random, of each set that has at least twice as many,
and answer up to 2,000 others; the mean log loss of three draws. The class shares are those of the rows learned, smoothed by one row.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("task", choices=("published", "small"))
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "best", type=Path, nargs="?", help="CSV with columns our, alg_name and ll: the best learner of each set"
    )
    parser.add_argument("--parts", nargs="+", choices=list(N_FOLDS), default=list(N_FOLDS))
    parser.add_argument("--sets", nargs="*")
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--output", type=Path, help="where to write the table")
    asked = parser.parse_args()
    if not asked.folder.is_dir():
        parser.exit(
            message=f"There is no folder {asked.folder}: the data sets are not here, and nothing is measured.\n"
        )
    paths = sorted(asked.folder.glob("*.parquet"), key=lambda path: path.stat().st_size)
    if asked.sets:
        paths = [path for path in paths if path.stem in asked.sets]
    logged = [json.loads(line) for line in asked.log.read_text().splitlines()] if asked.log.exists() else []
    done = {one["key"] for one in logged}
    best: dict[str, tuple[str, float]] = {}
    if asked.task == "published":
        with asked.best.open() as file:
            best = {line["our"]: (line["alg_name"], float(line["ll"])) for line in csv.DictReader(file)}
        trials: Iterator[dict[str, Any]] = (one for part in asked.parts for one in published_trials(paths, part, done))
    else:
        trials = small_trials(paths, done)
    with asked.log.open("a") as log:
        for one in trials:
            logged.append(one)
            log.write(json.dumps(one) + "\n")
            log.flush()
            print(
                one["key"],
                {name: round(value, 4) for name, value in one.items() if isinstance(value, float)},
                flush=True,
            )
    table = published_page(logged, best) if asked.task == "published" else small_page(logged)
    print(table)
    if asked.output:
        asked.output.write_text(table + "\n")


if __name__ == "__main__":
    main()
