"""The sampler of Bayesian circuits: seconds a sweep, growth with the rows, queries of many draws.

Seconds are those of the processor: the sampler runs on one thread, and other work on the machine does not count.

    python -m benchmarks.bayesian_circuits                       # everything
    python -m benchmarks.bayesian_circuits --quick               # few sweeps
    python -m benchmarks.bayesian_circuits sweeps growth query   # parts
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measuring import (
    Figure,
    alternated,
    figure,
    machine,
    median_figure,
    options,
    report,
    run_in_fresh_process,
)
from learners.circuits.bayesian.collapsed_sampler import FileStore, InMemory, LazySampler, Moves, RowBlocks
from learners.circuits.bayesian.column_families import Coding, assign_column_families
from learners.circuits.bayesian.gibbs_learning import subsample_row_blocks
from learners.circuits.bayesian.priors import Prior, complete_tree_shape
from learners.circuits.bayesian.tuning import untuned_prior_settings
from learners.circuits.parameters import GibbsParameters
from learners.kernels.arrays import Float32s
from learners.passes.column_summaries import ColumnSummaries, quantile_binned_schema
from learners.passes.engine import collect
from learners.passes.sources.source import Source
from learners.schema import Schema
from learners.schema.encoding.encode import encode

MIXED = Path(__file__).resolve().parents[1] / "../shared/data/mixed"
MOVES = {"lazy, whole trees alone": Moves(1, 0), "lazy": Moves(1, 4)}


def table_of(name: str) -> pa.Table:
    """A set of the folder `mixed`."""
    return pq.read_table(MIXED / f"{name}.parquet")


@dataclass(frozen=True)
class Problem:
    """What a sampler works on.

    Parameters
    ----------
    schema : Schema
    coding : Coding
    x : (n_rows, n_columns) float32
    """

    schema: Schema
    coding: Coding
    x: Float32s

    @classmethod
    def of(cls, table: pa.Table) -> Problem:
        """The rows of a table without a class."""
        summaries = collect(ColumnSummaries(None, {}), Source.of_table(table), threads=1)
        schema, histograms = quantile_binned_schema(summaries, 8), {n: c.histogram for n, c in summaries.found.items()}
        schema, coding = assign_column_families(schema, histograms, "by-column", seed=0)
        return cls(schema, coding, coding.rows(schema, encode(table, schema), 0))

    def prior(self, children: int) -> Prior:
        """The prior that is fitted to the rows, as a user gets it who says nothing."""
        n_columns, rows = self.x.shape[1], subsample_row_blocks(InMemory(self.x), 0).astype(np.float64)
        return untuned_prior_settings(GibbsParameters(), n_columns).prior(
            complete_tree_shape(n_columns, children, 0), self.coding, rows, 0
        )

    def rows(self, table: pa.Table, first_row: int) -> Float32s:
        """(n_rows, n_columns) float32 of other rows, coded alike."""
        return self.coding.rows(self.schema, encode(table, self.schema), first_row)


def seconds_a_sweep(prior: Prior, rows: RowBlocks, moves: Moves, n: int) -> float:
    """Processor seconds of one of n sweeps."""
    sampler, random = LazySampler(prior, rows, moves), np.random.default_rng(1)
    state, _ = sampler.step(random, sampler.init(np.random.default_rng(0)))  # compiles, and fills caches
    started = time.process_time()
    for _ in range(n):
        state, _ = sampler.step(random, state)
    return (time.process_time() - started) / n


def sweep_seconds(n: int) -> list[Figure]:
    """Milliseconds of a sweep."""
    figures = []
    for name, at_least, aim in (("abalone", "15", "6"), ("ailerons", "500", "150")):
        problem = Problem.of(table_of(name))
        prior, rows = problem.prior(4), InMemory(problem.x)
        for kind, moves in MOVES.items():
            ms = [1000 * seconds_a_sweep(prior, rows, moves, 5) for _ in range(n)]
            what = f"milliseconds a sweep, {kind}: {name}, C_s = 4"
            figures.append(median_figure(what, ms, at_least, aim, f"{len(problem.x):,} rows"))
    return figures


def mixed_rows(n: int, seed: int = 0) -> pa.Table:
    """Rows of twenty columns in eight groups, half of them numbers."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 8, n)
    numbers = {f"x{i}": rng.normal((group * (i + 1)) % 5, 1.0) for i in range(10)}
    words = {
        f"w{i}": pa.array([f"v{v}" for v in range(6)]).take(pa.array((group + i + (rng.random(n) < 0.2)) % 6))
        for i in range(10)
    }
    return pa.table(numbers | words)


def file_sweeps(n_rows: int, n_sweeps: int) -> float:
    """Processor seconds a sweep of rows in a file, with a state in mapped files."""
    problem = Problem.of(mixed_rows(10_000))
    with tempfile.TemporaryDirectory() as folder:
        blocks = (problem.rows(mixed_rows(min(50_000, n_rows - at), at), at) for at in range(0, n_rows, 50_000))
        store = FileStore.written(Path(folder) / "run", blocks, 20)
        return seconds_a_sweep(problem.prior(2), store.rows(0), MOVES["lazy"], n_sweeps)


def growth(n_sweeps: int, n_large: int) -> list[Figure]:
    """Seconds a row at many rows over those at few, and the peak beyond the state file."""
    (small, base), (large, peak) = (
        run_in_fresh_process(file_sweeps, 10_000, 5 * n_sweeps),
        run_in_fresh_process(file_sweeps, n_large, n_sweeps),
    )
    ratio = (large / n_large) / (small / 10_000)
    sizes = f"{1e6 * large / n_large:.3g} µs / {1e6 * small / 10_000:.3g} µs"
    beyond = (peak - 2 * n_large * 39) / 2**20  # the two state files
    peaks = f"peak {peak / 2**20:.0f} MiB, of 10,000 rows {base / 2**20:.0f} MiB"
    return [
        median_figure(f"seconds a row and sweep, {n_large:,} rows × 20 ÷ 10,000", [ratio], "1.5", "1.1", sizes),
        median_figure(
            f"MiB of peak memory beyond the two state files of {n_large:,} rows × 20", [beyond], "400", "200", peaks
        ),
    ]


def queries(rounds: int) -> list[Figure]:
    """One row over a hundred draws against one circuit."""
    from learners.circuits.evaluation.evaluate import log_values
    from learners.passes.learner import drive
    from learners.registry import recipes

    settings = {"iterations": 20, "draws": 100, "children": 4}
    model = drive(recipes.learner("gibbs", settings, None), Source.of_table(table_of("abalone")), threads=1)
    x = np.full((model.circuit.n_variables, 1), np.nan)
    x[1:5, 0] = [0.5, 0.4, 0.1, 0.8]
    seconds = alternated(
        rounds,
        time.process_time,
        draws=lambda: [model.draws.log_likelihoods(x) for _ in range(50)],
        one=lambda: [log_values(model.circuit, x) for _ in range(50)],
    )
    return [
        figure(
            "one row over 100 draws ÷ over one circuit: abalone, C_s = 4, 50 times",
            seconds["draws"],
            seconds["one"],
            "40",
            "15",
        )
    ]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("parts", nargs="*", default=["sweeps", "growth", "query"])
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    figures: list[Figure] = []
    if "sweeps" in asked.parts:
        figures += sweep_seconds(3 if asked.quick else 15)
    if "query" in asked.parts:
        figures += queries(5 if asked.quick else 21)
    if "growth" in asked.parts:
        figures += growth(1 if asked.quick else 5, 200_000 if asked.quick else 1_000_000)
    report("Bayesian circuits", figures, machine(), asked.json)


if __name__ == "__main__":
    main()
