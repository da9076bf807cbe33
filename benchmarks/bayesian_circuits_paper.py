"""Test log-likelihood of Bayesian circuits on the sets of Yokoi and Sato (2024), by their protocol, beside their table 12.

Rows are divided 8 : 1 : 1 by ten seeds. Outliers are removed first, as many as the paper removed (its table 9): the rows that are farthest from
their five nearest neighbours; and the same without removal beside it. The paper does not say how its neighbours were counted.

Everything that is finished is kept in the log, from which a run goes on:

    python -m benchmarks.bayesian_circuits_paper --log mixed.jsonl --write            # docs/results/bayesian-circuits.md
    python -m benchmarks.bayesian_circuits_paper --log mixed.jsonl --sets yacht housing --seeds 3 --trials 20
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.bayesian_problems import table_of
from learners import recipes
from learners.circuits.model import CircuitModel
from learners.passes.learner import drive
from learners.passes.source import Source
from learners.schema.encode import encode

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"
MARK = "<!-- tables -->\n"
NEIGHBOURS = 5
MIXTURE = "bayesian gaussian mixture"


@dataclass(frozen=True)
class Paper:
    """Rows that the paper kept, and its top-down test log-likelihoods for C_s = 2 and 4 (tables 9 and 12)."""

    rows: int
    two: float
    four: float


# Our copy of Computer Hardware has seven of the paper's nine columns, so its figures do not compare.
PAPER = {
    "abalone": Paper(3850, 4.47, 6.97),
    "airfoil": Paper(1398, -12.57, -6.57),
    "breast_ljubljana_277": Paper(277, -6.56, -6.45),
    "cpu_act": Paper(7486, -101.13, -99.91),
    "crx": Paper(653, -49.87, -30.33),
    "dermatology": Paper(358, 21.87, 25.92),
    "elevators": Paper(15248, 29.07, 29.34),
    "german": Paper(1000, -17.52, -15.33),
    "housing": Paper(461, -24.07, -18.40),
    "wine_quality_white": Paper(4495, -2.96, -2.57),
    "yacht": Paper(288, 2.22, 8.25),
    "ailerons": Paper(12614, 110.24, 106.95),
}


@dataclass(frozen=True)
class Result:
    """One model of one division of a set: mean log-likelihood of a test row, in nats."""

    name: str
    outliers: str
    seed: int
    model: str
    trials: int
    sweeps: int
    test: float
    seconds: float

    @property
    def key(self) -> tuple[object, ...]:
        """What it is of."""
        return self.name, self.outliers, self.seed, self.model, self.trials, self.sweeps


def without_outliers(table: pa.Table, n_kept: int) -> pa.Table:
    """The rows nearest to their neighbours: numbers standardised, words told apart; rows with missing values go first."""
    complete = np.ones(table.num_rows, bool)
    for column in table.columns:
        complete &= pc.is_valid(column).to_numpy()
    if complete.sum() >= n_kept:
        table = table.filter(pa.array(complete))
    from sklearn.neighbors import NearestNeighbors

    parts = []
    for column in table.columns:
        if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
            x = column.to_numpy().astype(float)
            x = np.where(np.isnan(x), np.nanmean(x), x)
            parts.append(((x - x.mean()) / (x.std() or 1.0))[:, np.newaxis])
        else:
            codes = column.combine_chunks().dictionary_encode().indices.fill_null(0).to_numpy(zero_copy_only=False)
            parts.append(np.eye(codes.max() + 1)[codes] / np.sqrt(2))
    x = np.concatenate(parts, axis=1)
    distance, _ = NearestNeighbors(n_neighbors=NEIGHBOURS + 1).fit(x).kneighbors(x)
    order = np.argsort(distance[:, 1:].mean(axis=1), kind="stable")
    return table.take(pa.array(np.sort(order[:n_kept])))


def divided(table: pa.Table, seed: int) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Training, validation and test rows, 8 : 1 : 1."""
    order = np.random.default_rng(seed).permutation(table.num_rows)
    n = table.num_rows // 10
    return table.take(pa.array(order[2 * n :])), table.take(pa.array(order[n : 2 * n])), table.take(pa.array(order[:n]))


def circuit(settings: dict[str, object], rows: pa.Table, seed: int) -> CircuitModel:
    """A circuit of training and validation rows; tuning keeps a tenth of them back itself."""
    model = drive(recipes.learner("spn", settings | {"seed": seed}, None), Source.of_table(rows), threads=1)
    assert isinstance(model, CircuitModel)
    return model


def log_likelihood(model: CircuitModel, rows: pa.Table, noise: bool) -> float:
    """Mean of the rows; with the noise of a model that has learned from rows with noise."""
    chunk = encode(rows, model.schema)
    sampled = getattr(model, "sampled", None)
    if noise and sampled is not None:
        from learners.circuits.gibbs.learning import sampling_of
        from learners.circuits.gibbs.tuning import uncoded
        from learners.circuits.recipes import CircuitParameters

        coding = sampling_of(model, CircuitParameters(**model.facts["parameters"])).coding
        x = uncoded(coding, coding.rows(model.schema, chunk, 10_000_000))
        return float(model.row_logs(x).mean())
    return float(model.log_likelihood(chunk).mean())


def numbers_of(table: pa.Table) -> np.ndarray | None:
    """(n_rows, n_columns) if all columns are numbers."""
    if not all(pa.types.is_floating(c.type) or pa.types.is_integer(c.type) for c in table.columns):
        return None
    return np.stack([column.to_numpy().astype(float) for column in table.columns], axis=1)


def of_mixture(train: pa.Table, valid: pa.Table, test: pa.Table, seed: int) -> float | None:
    """scikit-learn's BayesianGaussianMixture on standardised numbers, components chosen on validation rows."""
    from sklearn.mixture import BayesianGaussianMixture

    parts = [numbers_of(table) for table in (train, valid, test)]
    if parts[0] is None:
        return None
    mean, spread = parts[0].mean(axis=0), parts[0].std(axis=0)
    spread[spread == 0] = 1.0
    own, check, rows = ((part - mean) / spread for part in parts)
    best = max(
        (
            BayesianGaussianMixture(n_components=n, max_iter=300, random_state=seed, reg_covar=1e-6).fit(own)
            for n in (2, 5, 10, 20)
            if n < len(own)
        ),
        key=lambda mixture: mixture.score(check),
    )
    return float(best.score(rows) - np.log(spread).sum())


def models(trials: int, sweeps: int) -> dict[str, dict[str, object]]:
    """Settings of the circuits."""
    gibbs = {"learning": "gibbs", "iterations": sweeps, "trials": trials, "trial_sweeps": 40, "draws": 100}
    return {
        "gibbs, C_s = 2, leaves of the paper": gibbs | {"children": 2, "leaves": "paper"},
        "gibbs, C_s = 4, leaves of the paper": gibbs | {"children": 4, "leaves": "paper"},
        "gibbs, C_s = 2": gibbs | {"children": 2},
        "gibbs, C_s = 4": gibbs | {"children": 4},
        "em": {"structure": "hclt", "leaves": "gaussian", "passes": 50},
    }


def measured(name: str, outliers: str, seed: int, model: str, trials: int, sweeps: int) -> Result | None:
    """One model of one division."""
    table = table_of(name)
    if outliers == "removed":
        table = without_outliers(table, PAPER[name].rows)
    train, valid, test = divided(table, seed)
    started = time.process_time()
    if model == MIXTURE:
        found = of_mixture(train, valid, test, seed)
        if found is None:
            return None
    elif model == "independent":
        found = independent(train, valid, test)
    else:
        learned = circuit(models(trials, sweeps)[model], pa.concat_tables([train, valid]), seed)
        found = log_likelihood(learned, test, "paper" not in model)
    return Result(name, outliers, seed, model, trials, sweeps, found, time.process_time() - started)


def independent(train: pa.Table, valid: pa.Table, test: pa.Table) -> float:
    """The product of columns that are each learned by themselves, as mixtures of Gaussians or shares of values."""
    rows, total = pa.concat_tables([train, valid]), 0.0
    for name in rows.column_names:
        made = recipes.learner("spn", {"structure": "chow-liu", "leaves": "gaussian", "passes": 50}, None)
        try:
            model = drive(made, Source.of_table(rows.select([name])), threads=1)
        except Exception as error:  # a column that learning leaves out, such as a constant
            print(f"{name}: {error}")
            continue
        total += float(model.log_likelihood(encode(test.select([name]), model.schema)).mean())
    return total


def all_of(
    sets: Sequence[str], removal: Sequence[str], seeds: int, trials: int, sweeps: int
) -> Iterator[tuple[object, ...]]:
    """What is to be measured, in turn."""
    for seed in range(seeds):
        for name in sets:
            for outliers in removal:
                for model in (*models(trials, sweeps), "independent", MIXTURE):
                    yield name, outliers, seed, model, trials, sweeps


def read(path: Path) -> list[Result]:
    """What is in the log; a line that was cut off ends it."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            found.append(Result(**json.loads(line)))
        except ValueError:
            break
    return found


def tables(results: Sequence[Result]) -> str:
    """The mean of the seeds, with their standard deviation, for each set and model."""
    names = list(dict.fromkeys(result.name for result in results))
    columns = list(dict.fromkeys(result.model for result in results))
    lines = []
    for outliers in ("removed", "kept"):
        if all(result.outliers != outliers for result in results):
            continue
        lines += [f"### Outliers {outliers}", ""]
        lines += ["| set | seeds | paper, C_s = 2 | paper, C_s = 4 | " + " | ".join(columns) + " |"]
        lines += ["|" + " --- |" * (4 + len(columns))]
        for name in names:
            own = [result for result in results if result.name == name and result.outliers == outliers]
            if not own:
                continue
            cells = []
            for column in columns:
                tests = [result.test for result in own if result.model == column]
                spread = f" ± {np.std(tests, ddof=1):.2f}" if len(tests) > 1 else ""
                cells.append(f"{np.mean(tests):.2f}{spread}" if tests else "")
            n_seeds = len({result.seed for result in own})
            lines.append(f"| {name} | {n_seeds} | {PAPER[name].two} | {PAPER[name].four} | " + " | ".join(cells) + " |")
        lines.append("")
    seconds = sum(result.seconds for result in results)
    settings = sorted({(result.trials, result.sweeps) for result in results})
    told = ", ".join(f"{trials} trials and {sweeps} sweeps" for trials, sweeps in settings)
    return "\n".join([*lines, f"{len(results)} models with {told}, {seconds / 60:.0f} processor minutes in all.", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", type=Path, default=Path("bayesian-circuits.jsonl"))
    parser.add_argument("--sets", nargs="*", default=list(PAPER))
    parser.add_argument("--outliers", nargs="*", default=["removed", "kept"], choices=["removed", "kept"])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--sweeps", type=int, default=2000)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    done = {result.key for result in read(asked.log)}
    for own in all_of(asked.sets, asked.outliers, asked.seeds, asked.trials, asked.sweeps):
        if own not in done:
            result = measured(*own)
            if result is not None:
                with asked.log.open("a") as file:
                    file.write(json.dumps(asdict(result)) + "\n")
                print(
                    f"{result.name} {result.outliers} {result.seed} {result.model}: {result.test:.2f} ({result.seconds:.0f} s)",
                    flush=True,
                )
    text = tables(read(asked.log))
    print(text)
    if asked.write:
        page = RESULTS / "bayesian-circuits.md"
        before = page.read_text().partition(MARK)[0]
        page.write_text(before + MARK + text)


if __name__ == "__main__":
    main()
