"""Test log-likelihood of circuits whose numeric columns are mixtures of densities, beside Gaussians and Gaussian mixtures.

python -m benchmarks.numeric --write    # docs/results/numeric.md
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.mixture import GaussianMixture

from learners import Source, drive, encode, learner

ROOT = Path(__file__).parent.parent
SETS = ("concrete", "airfoil", "abalone", "wine_quality_white", "cpu_act", "cal_housing")
COMPONENTS = (1, 2, 4, 8, 16, 32)
BINS = (4, 8, 16, 32)
CIRCUITS: dict[str, dict[str, object]] = {
    "chow-liu, em": {"structure": "chow-liu", "learning": "em", "passes": 30},
    "hclt, em": {"structure": "hclt", "learning": "em", "passes": 30},
    "learnspn, em": {"structure": "learnspn", "learning": "em", "passes": 30},
    "chow-liu, bmm": {"structure": "chow-liu", "learning": "bmm"},
}


def rows_of(name: str, seed: int) -> np.ndarray:
    """(n_rows, n_columns) float64, standardised and shuffled: numbers recorded in steps get the rest of their step at random."""
    table = pq.read_table(ROOT.parent / "shared" / "data" / "mixed" / f"{name}.parquet")
    rng = np.random.default_rng(seed)
    columns = []
    for column in table.columns:
        if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
            continue
        x = column.to_numpy().astype(np.float64)
        values = np.unique(x)
        if values.size < 3:
            continue
        columns.append((x + rng.uniform(0, np.diff(values).min(), x.size) - x.mean()) / x.std())
    return rng.permutation(np.stack(columns, axis=1))


def best(made: list[Callable[[], Callable[[np.ndarray], float]]], valid: np.ndarray, test: np.ndarray) -> float:
    """Test mean of the one that is best on the validation rows."""
    scored = [fit() for fit in made]
    return max(((score(valid), score(test)) for score in scored), key=lambda pair: pair[0])[1]


def mixture(train: np.ndarray, n: int, seed: int) -> Callable[[], Callable[[np.ndarray], float]]:
    """Fit of scikit-learn's Gaussian mixture with full covariances."""
    return lambda: GaussianMixture(n, random_state=seed, max_iter=300).fit(train).score


def circuit(train: np.ndarray, parameters: dict[str, object]) -> Callable[[], Callable[[np.ndarray], float]]:
    """Fit of one of our circuits, by passes over the table as a user would."""

    def fit() -> Callable[[np.ndarray], float]:
        model = drive(learner("spn", parameters, None), Source.of_table(table_of(train)))
        return lambda x: float(model.log_likelihood(encode(table_of(x), model.schema)).mean())

    return fit


def table_of(x: np.ndarray) -> pa.Table:
    """Columns x0, x1, …"""
    return pa.table({f"x{i}": column for i, column in enumerate(x.T)})


def measure(name: str, seed: int) -> dict[str, float]:
    """Mean test log-likelihoods (nats per row) and seconds of each on one split of 60, 20 and 20 %."""
    x = rows_of(name, seed)
    train, valid, test = np.split(x, [int(0.6 * len(x)), int(0.8 * len(x))])
    fits = {"one Gaussian": [mixture(train, 1, seed)], "mixture": [mixture(train, n, seed) for n in COMPONENTS]}
    for title, parameters in CIRCUITS.items():
        fits[title] = [
            circuit(train, parameters | {"leaves": "gaussian", "n_bins": n, "states": n, "seed": seed}) for n in BINS
        ]
    found = {}
    for title, made in fits.items():
        started = time.perf_counter()
        found[title] = best(made, valid, test)
        found[f"{title}, seconds"] = time.perf_counter() - started
    return found


def main() -> None:
    """Print, and with --write keep, the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    titles = ["one Gaussian", "mixture", *CIRCUITS]
    rows, results = [], {}
    for name in arguments.sets:
        results[name] = runs = [measure(name, seed) for seed in range(arguments.seeds)]
        middle = {key: statistics.mean(run[key] for run in runs) for key in runs[0]}
        spread = {title: max(run[title] for run in runs) - min(run[title] for run in runs) for title in titles}
        rows.append([name, *(f"{middle[t]:.3f} ± {spread[t] / 2:.3f}" for t in titles)])
        print(rows[-1], {t: round(middle[f"{t}, seconds"], 1) for t in titles}, flush=True)
    print(json.dumps(results))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")
    if arguments.write:
        write(titles, rows, arguments.seeds)


def write(titles: list[str], rows: list[list[str]], seeds: int) -> None:
    """docs/results/numeric.md"""
    lines = ["| set | " + " | ".join(titles) + " |", "| --- |" + " ---: |" * len(titles)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    page = ROOT / "docs" / "results" / "numeric.md"
    head = page.read_text().split("\n| set |")[0] if page.exists() else "# Numeric columns"
    page.write_text(head.rstrip() + "\n\n" + "\n".join(lines) + "\n")
    print(f"{page.relative_to(ROOT)}: {seeds} splits")


if __name__ == "__main__":
    main()
