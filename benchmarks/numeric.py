"""Test log-likelihood of circuits and of mixtures of Gaussians on numeric columns, beside scikit-learn's mixtures.

python -m benchmarks.numeric --write    # docs/results/numeric.md; about ten minutes on two threads
python -m benchmarks.numeric --sets abalone --seeds 1    # one set, without writing
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture

from learners import Source, drive, encode, learner

ROOT = Path(__file__).parent.parent
SETS = ("abalone", "ailerons", "airfoil", "auto_mpg", "cal_housing", "computer_hardware")
SETS += ("concrete", "cpu_act", "elevators", "housing", "wine_quality_white", "yacht")
COMPONENTS = (1, 2, 4, 8, 16, 32)
BINS = (8, 16, 32)
# Of hidden trees: intervals and states.
HIDDEN = ((8, 8), (16, 8), (16, 16), (32, 8), (32, 32))
PASSES = 20
PEERS = ("mixture", "Bayesian mixture")
GAUSSIAN, CHOSEN, BLOCKS = "Gaussian leaves", "chosen leaves", "Gaussians of all columns"
OURS = "ours"
# A number is impossible to a mixture that was fitted to others: as far as that, a row is scored.
LEAST = -1e3


# Results by set, one for each seed.
Known = dict[str, list[dict[str, float]]]


class Fitted(NamedTuple):
    """Mean log-likelihood of rows by a fitted model."""

    score: Callable[[np.ndarray], float]


def columns_of(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Numeric columns (n_rows, n_columns) of three values and more, without rows that miss one; and the least steps (n_columns,)."""
    table = pq.read_table(ROOT.parent / "shared" / "data" / "mixed" / f"{name}.parquet").drop_null()
    kinds = [
        column for column in table.columns if pa.types.is_floating(column.type) or pa.types.is_integer(column.type)
    ]
    x = np.stack([column.to_numpy().astype(np.float64) for column in kinds], axis=1)
    x = x[~np.isnan(x).any(axis=1)]
    values = [np.unique(column) for column in x.T]
    kept = [place for place, own in enumerate(values) if own.size >= 3]
    return x[:, kept], np.array([np.diff(values[place]).min() for place in kept])


def best(made: list[Callable[[], Fitted]], valid: np.ndarray, test: np.ndarray) -> tuple[float, float]:
    """Means of the validation and of the test rows by the one that is best on the validation rows."""
    scored = [fit() for fit in made]
    return max(((each.score(valid), each.score(test)) for each in scored), key=lambda pair: pair[0])


def mixture(train: np.ndarray, n: int, seed: int, is_bayesian: bool) -> Callable[[], Fitted]:
    """Fit of scikit-learn's mixture of Gaussians with full covariances, columns standardised by the training rows."""

    def fit() -> Fitted:
        centre, spread = train.mean(axis=0), train.std(axis=0)
        kind = BayesianGaussianMixture if is_bayesian else GaussianMixture
        model = kind(n_components=min(n, len(train) // 2), random_state=seed, max_iter=300).fit(
            (train - centre) / spread
        )
        shift = float(np.log(spread).sum())
        return Fitted(lambda x: float(np.maximum(model.score_samples((x - centre) / spread) - shift, LEAST).mean()))

    return fit


def circuit(train: np.ndarray, parameters: dict[str, object]) -> Callable[[], Fitted]:
    """Fit of one of our circuits, by passes over the table as a user would; masses are divided by the steps of their columns."""

    def fit() -> Fitted:
        model = drive(learner("spn", parameters, None), Source.of_table(table_of(train)))
        told = model.facts.get("leaves", {})
        shift = sum(math.log(own["step"]) for own in told.values() if own["step"])

        def score(x: np.ndarray) -> float:
            logs = model.log_likelihood(encode(table_of(x), model.schema)) - shift
            return float(np.maximum(logs, LEAST).mean())

        return Fitted(score)

    return fit


def table_of(x: np.ndarray) -> pa.Table:
    """Columns x0, x1, …"""
    return pa.table({f"x{i}": column for i, column in enumerate(x.T)})


def fits_of(train: np.ndarray, seed: int, titles: list[str]) -> dict[str, list[Callable[[], Fitted]]]:
    """What is fitted, by title; of each the one that is best on the validation rows counts."""
    every = {
        "mixture": [mixture(train, n, seed, is_bayesian=False) for n in COMPONENTS],
        "Bayesian mixture": [mixture(train, n, seed, is_bayesian=True) for n in COMPONENTS],
        GAUSSIAN: circuits(train, seed, "gaussian"),
        CHOSEN: circuits(train, seed, "auto"),
        BLOCKS: [circuit(train, {"structure": "gaussian-mixture", "seed": seed})],
    }
    return {title: every[title] for title in titles}


def titles_of(is_recorded: bool) -> list[str]:
    """What is compared; Gaussian leaves only on columns with noise."""
    return [*PEERS, CHOSEN] if is_recorded else [*PEERS, GAUSSIAN, CHOSEN, BLOCKS]


def circuits(train: np.ndarray, seed: int, leaves: str) -> list[Callable[[], Fitted]]:
    """Chow-Liu trees and hidden trees of several numbers of intervals and states."""
    shared: dict[str, object] = {"leaves": leaves, "passes": PASSES, "seed": seed}
    trees = [{"structure": "chow-liu", "n_bins": n} for n in BINS]
    hidden = [{"structure": "hclt", "n_bins": n, "states": states} for n, states in HIDDEN]
    return [circuit(train, shared | own) for own in (*trees, *hidden)]


def measure(name: str, seed: int, is_recorded: bool, titles: list[str]) -> dict[str, float]:
    """Mean test log-likelihoods (nats per row of standardised columns) and seconds of each on one split of 60, 20 and 20 %.

    Ours is the one of chosen leaves and of Gaussians of all columns that is better on the validation rows.
    """
    x, steps = columns_of(name)
    rng = np.random.default_rng(seed)
    shift = float(np.log(x.std(axis=0)).sum())
    if not is_recorded:
        x = x + rng.uniform(0, steps, x.shape)
    x = rng.permutation(x)
    train, valid, test = np.split(x, [int(0.6 * len(x)), int(0.8 * len(x))])
    found = {}
    for title, made in fits_of(train, seed, titles).items():
        started = time.perf_counter()
        found[f"{title}, valid"], found[title] = (mean + shift for mean in best(made, valid, test))
        found[f"{title}, seconds"] = time.perf_counter() - started
    ours = [title for title in (CHOSEN, BLOCKS) if title in titles]
    if ours:
        found[OURS] = found[max(ours, key=lambda title: found[f"{title}, valid"])]
    return found


def table(
    sets: list[str], n_seeds: int, is_recorded: bool, titles: list[str], known: Known
) -> tuple[list[str], dict[str, list[dict[str, float]]]]:
    """Lines of the table, and all results; what is known from an earlier run with the same seeds is not measured again."""
    lines = ["| set | " + " | ".join(titles) + " | ours - best peer |", "| --- |" + " ---: |" * (len(titles) + 1)]
    results = {}
    n_level = 0
    for name in sets:
        runs = known.get(name) or [measure(name, seed, is_recorded, titles) for seed in range(n_seeds)]
        results[name] = runs
        middle = {key: statistics.mean(run[key] for run in runs) for key in runs[0]}
        ahead = middle.get(OURS, math.nan) - max(middle.get(peer, math.nan) for peer in PEERS)
        n_level += ahead >= 0
        lines.append(f"| {name} | " + " | ".join(f"{middle[t]:.3f}" for t in titles) + f" | {ahead:+.3f} |")
        print(lines[-1], {t: round(middle[f"{t}, seconds"], 1) for t in titles}, flush=True)
    return [*lines, "", f"At least level with the better peer on {n_level} of {len(sets)} sets."], results


def main() -> None:
    """Print, and with --write keep, the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    parser.add_argument(
        "--json", type=Path, help="results, kept after each run; those that it has are not measured again"
    )
    parser.add_argument("--only", nargs="+", choices=[*PEERS, GAUSSIAN, CHOSEN, BLOCKS])
    parser.add_argument("--with-noise-only", action="store_true")
    arguments = parser.parse_args()
    known = json.loads(arguments.json.read_text()) if arguments.json is not None and arguments.json.exists() else {}
    tables = []
    for about, is_recorded in (("with noise", False), ("as recorded", True))[: 2 - arguments.with_noise_only]:
        titles = arguments.only or titles_of(is_recorded)
        own = known.setdefault(about, {})
        for name in arguments.sets:
            _, results = table([name], arguments.seeds, is_recorded, titles, own)
            own |= results
            if arguments.json is not None:
                arguments.json.write_text(json.dumps(known, indent=2) + "\n")
        tables.append(table(arguments.sets, arguments.seeds, is_recorded, titles, own)[0])
    if arguments.write:
        write(*tables)


def write(with_noise: list[str], as_recorded: list[str]) -> None:
    """docs/results/numeric.md"""
    page = ROOT / "docs" / "results" / "numeric.md"
    head = page.read_text().split("\n## With noise")[0].rstrip()
    parts = [
        head,
        "## With noise of one recorded step",
        "\n".join(with_noise),
        "## As recorded",
        "\n".join(as_recorded),
    ]
    page.write_text("\n\n".join(parts) + "\n")
    print(page.relative_to(ROOT))


if __name__ == "__main__":
    main()
