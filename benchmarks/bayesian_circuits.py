"""Samplers of Bayesian circuits: effective samples per second, seconds a sweep, growth with the rows, queries of many draws.

Seconds are those of the processor: the samplers run on one thread, and other work on the machine does not count.

    python -m benchmarks.bayesian_circuits                       # everything; the reference sampler of Ailerons takes an hour
    python -m benchmarks.bayesian_circuits --quick               # few sweeps
    python -m benchmarks.bayesian_circuits sweeps growth query   # parts
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.bayesian_problems import problem_of, table_of
from benchmarks.measuring import Figure, apart, machine, report
from learners.circuits.bayesian.sampler.priors import Prior
from learners.circuits.bayesian.sampler.sampler import InMemory, Moves, RowBlocks, SamplingAlgorithm, State, lazy
from learners.circuits.bayesian.sampler.store import FileStore
from tests.naive.reference_sampler import reference

Make = Callable[[Prior, RowBlocks], SamplingAlgorithm]
SAMPLERS: dict[str, Make] = {
    "lazy": lambda prior, rows: lazy(prior, rows, Moves(1, 4)),
    "lazy, whole trees alone": lambda prior, rows: lazy(prior, rows, Moves(1, 0)),
    "reference": reference,
}
# Set, children, sweeps of the lazy and the paper's sampler after a burn-in by the lazy one.
RUNS = {
    "effective": [
        ("abalone", 2, 2000, 1000),
        ("abalone", 4, 2000, 500),
        ("cpu_act", 4, 1000, 200),
        ("ailerons", 4, 500, 60),
    ],
    "quick": [("abalone", 2, 200, 100), ("abalone", 4, 200, 50)],
}
GOALS = {
    ("abalone", 4, "reference"): ("5", "10"),
    ("cpu_act", 4, "reference"): ("10", "30"),
    ("ailerons", 4, "reference"): ("20", "100"),
}
BURN_IN = {"abalone": 500, "cpu_act": 300, "ailerons": 150}


def swept(make: Make, prior: Prior, rows: RowBlocks, state: State, n: int) -> tuple[np.ndarray, float]:
    """The log joint of n sweeps from a state, and the processor seconds of one."""
    sampler, random = make(prior, rows), np.random.default_rng(1)
    if make is reference:  # which needs a child at every sum of every row
        begun = sampler.init(np.random.default_rng(2))
        state = _at_all_sums(prior, state, begun)
    state, _ = sampler.step(random, state)  # compiles, and fills caches
    logs, started = [], time.process_time()
    for _ in range(n):
        state, _ = sampler.step(random, state)
        logs.append(state.log_joint)
    return np.array(logs), (time.process_time() - started) / n


def _at_all_sums(prior: Prior, state: State, begun: State) -> State:
    """The reached sums as they are, the others at random."""
    states, sums = begun.states, np.zeros(state.choices.shape, np.int64)
    row = np.arange(len(state.choices))
    for p in range(prior.shape.n_positions):
        states[row, sums[:, p]] = state.choices[:, p]
        size, right, stride, right_sum = prior.shape.place[p, :4].tolist()
        if size > 1:
            sums[:, p + 1] = sums[:, p] + 1 + state.choices[:, p].astype(np.int64) * stride
            sums[:, right] = sums[:, p + 1] + right_sum
    return begun._replace(**state._asdict(), states=states)


def effective(logs: np.ndarray) -> float:
    """Effective sample size of the log joint; at least one."""
    from arviz_stats.base.array import array_stats

    return max(1.0, float(array_stats.ess(logs[np.newaxis], method="bulk")))


def effective_samples(name: str, children: int, sweeps: dict[str, int]) -> list[Figure]:
    """Effective samples per second of the lazy sampler over those of the others, all from one burned-in state."""
    problem = problem_of(table_of(name))
    prior, rows = problem.prior(children), InMemory(problem.x)
    state, random = lazy(prior, rows).init(np.random.default_rng(0)), np.random.default_rng(0)
    step = SAMPLERS["lazy"](prior, rows).step
    for _ in range(min(BURN_IN[name], 2 * sweeps["lazy"])):
        state, _ = step(random, state)
    found = {}
    for kind, n in sweeps.items():
        if n:
            logs, seconds = swept(SAMPLERS[kind], prior, rows, state, n)
            found[kind] = effective(logs) / n, seconds
            print(
                f"{name}, C_s = {children}, {kind}: {found[kind][0]:.3g} effective a sweep, {seconds:.4g} s a sweep",
                flush=True,
            )
    per_second = {kind: share / seconds for kind, (share, seconds) in found.items()}
    figures = []
    for kind in ("reference",):
        if kind in found:
            ratio = per_second["lazy"] / per_second[kind]
            at_least, aim = GOALS.get((name, children, kind), ("", ""))
            detail = "; ".join(f"{k} {s:.3g} a sweep of {t:.4g} s" for k, (s, t) in found.items())
            figures.append(
                Figure(
                    f"effective samples per second, lazy ÷ {kind}: {name}, C_s = {children}",
                    ratio,
                    ratio,
                    ratio,
                    at_least,
                    aim,
                    detail,
                )
            )
    return figures


def sweep_seconds(n: int) -> list[Figure]:
    """Milliseconds of a sweep by the default sampler."""
    figures = []
    for name, at_least, aim in (("abalone", "15", "6"), ("ailerons", "500", "150")):
        problem = problem_of(table_of(name))
        prior, rows = problem.prior(4), InMemory(problem.x)
        for kind in ("lazy, whole trees alone", "lazy"):
            state = SAMPLERS[kind](prior, rows).init(np.random.default_rng(0))
            seconds = [1000 * swept(SAMPLERS[kind], prior, rows, state, 5)[1] for _ in range(n)]
            middle = float(np.median(seconds))
            figures.append(
                Figure(
                    f"milliseconds a sweep, {kind}: {name}, C_s = 4",
                    middle,
                    min(seconds),
                    max(seconds),
                    at_least,
                    aim,
                    f"{len(problem.x):,} rows",
                )
            )
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
    problem = problem_of(mixed_rows(10_000))
    with tempfile.TemporaryDirectory() as folder:
        blocks = (problem.rows(mixed_rows(min(50_000, n_rows - at), at), at) for at in range(0, n_rows, 50_000))
        store = FileStore.written(Path(folder) / "run", blocks, 20)
        prior, rows = problem.prior(2), store.rows(0)
        sampler, random = lazy(prior, rows), np.random.default_rng(0)
        state = sampler.init(random)
        state, _ = sampler.step(random, state)
        started = time.process_time()
        for _ in range(n_sweeps):
            state, _ = sampler.step(random, state)
        return (time.process_time() - started) / n_sweeps


def growth(n_sweeps: int, n_large: int) -> list[Figure]:
    """Seconds a row at many rows over those at few, and the peak beyond the state file."""
    (small, base), (large, peak) = apart(file_sweeps, 10_000, 5 * n_sweeps), apart(file_sweeps, n_large, n_sweeps)
    ratio = (large / n_large) / (small / 10_000)
    detail = f"{1e6 * large / n_large:.3g} µs / {1e6 * small / 10_000:.3g} µs"
    state_bytes = 2 * n_large * 39
    beyond = (peak - state_bytes) / 2**20
    return [
        Figure(f"seconds a row and sweep, {n_large:,} rows × 20 ÷ 10,000", ratio, ratio, ratio, "1.5", "1.1", detail),
        Figure(
            f"MiB of peak memory beyond the two state files of {n_large:,} rows × 20",
            beyond, beyond, beyond, "400", "200", f"peak {peak / 2**20:.0f} MiB, of 10,000 rows {base / 2**20:.0f} MiB",
        ),
    ]  # fmt: skip


def queries(rounds: int) -> list[Figure]:
    """One row over a hundred draws against one circuit."""
    from learners.circuits.evaluation.evaluate import log_values
    from learners.passes.learner import drive
    from learners.passes.sources.source import Source
    from learners.registry import recipes

    settings = {"learning": "gibbs", "iterations": 20, "draws": 100, "children": 4}
    model = drive(recipes.learner("spn", settings, None), Source.of_table(table_of("abalone")), threads=1)
    x = np.full((model.circuit.n_variables, 1), np.nan)
    x[1:5, 0] = [0.5, 0.4, 0.1, 0.8]
    seconds: dict[str, list[float]] = {"draws": [], "one": []}
    asks = {"draws": lambda: model.draws.log_likelihoods(x), "one": lambda: log_values(model.circuit, x)}
    for number in range(rounds + 1):
        for name, ask in asks.items():
            started = time.process_time()
            for _ in range(50):
                ask()
            if number:
                seconds[name].append((time.process_time() - started) / 50)
    ratios = np.array(seconds["draws"]) / np.array(seconds["one"])
    detail = f"{1000 * np.median(seconds['draws']):.3g} ms / {1000 * np.median(seconds['one']):.3g} ms"
    return [
        Figure(
            "one row over 100 draws ÷ over one circuit: abalone, C_s = 4",
            float(np.median(ratios)),
            ratios.min(),
            ratios.max(),
            "40",
            "15",
            detail,
        )
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=["effective", "sweeps", "growth", "query"])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path, default=None)
    args = parser.parse_args()
    figures: list[Figure] = []
    if "sweeps" in args.parts:
        figures += sweep_seconds(3 if args.quick else 15)
    if "query" in args.parts:
        figures += queries(5 if args.quick else 21)
    if "growth" in args.parts:
        figures += growth(1 if args.quick else 5, 200_000 if args.quick else 1_000_000)
    if "effective" in args.parts:
        for name, children, *sweeps in RUNS["quick" if args.quick else "effective"]:
            of_kind = dict(zip(("lazy", "reference"), sweeps, strict=True))
            figures += effective_samples(name, children, of_kind)
    report("Bayesian circuits", figures, machine(), args.json)


if __name__ == "__main__":
    main()
