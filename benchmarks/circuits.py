"""Circuits: edge-updates per second of evaluation, EM, BMM and ADF, one thread, beside the authors' C++ programs.

    python -m benchmarks.circuits --json circuits.json

An edge-update is one edge of the circuit for one row, whatever the kernels make of it. Rows are uint8, as chunks have them.
BMM and ADF are timed over a pass that starts at random pseudo-counts, where most nodes take part in most rows.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import numpy as np

from benchmarks.map_circuits import rows
from benchmarks.measuring import Figure, machine, median_figure, options, report
from learners.circuits.circuit import Circuit
from learners.circuits.em.em import ExpectedCounts
from learners.circuits.evaluation.evaluate import log_values
from learners.circuits.kernels import CATEGORICAL, SUM
from learners.circuits.streaming.online import PseudoCounts, StreamingPosterior
from learners.circuits.structures.text import read_text

CIRCUITS = Path(__file__).resolve().parents[2] / "shared" / "data" / "circuits"
NAMES = ["nltcs", "plants", "plants_rat"]
# Millions of edge-updates per second of the C++ programs of Zhao and Gordon, from issue 6.
CPP = {"evaluation": (28, 33), "EM": (12, 19), "BMM": (7, 12), "ADF": (7, 12)}
WANTED = {"evaluation": ("30", "70"), "EM": ("15", "25"), "BMM": ("8", "12"), "ADF": ("5", "8")}
QUERY_MS = (0.1, 0.03)


def random_pseudo_counts(circuit: Circuit, seed: int, least: float = 0.5, most: float = 1.5) -> PseudoCounts:
    """Pseudo-counts drawn uniformly; equal ones would be a fixed point of circuits with symmetries."""
    rng = np.random.default_rng(seed)
    of_sum = np.repeat(circuit.kind == SUM, np.diff(circuit.child_starts))
    of_table = np.repeat(circuit.kind == CATEGORICAL, np.diff(circuit.leaf_starts))
    edge = rng.uniform(least, most, circuit.n_edges) * of_sum
    return PseudoCounts(edge, rng.uniform(least, most, circuit.leaf_parameters.size) * of_table, (least + most) / 2)


def columns(name: str, split: str) -> np.ndarray:
    x = np.ascontiguousarray(rows(name.split("_")[0], split).T)
    x.setflags(write=False)
    return x


def seconds(task, rounds: int) -> list[float]:
    """CPU seconds of this thread in every round after an unmeasured one; what a task needs is made outside the clock."""
    found = []
    for number in range(rounds + 1):
        prepared = task()
        started = time.thread_time()
        prepared()
        if number:
            found.append(time.thread_time() - started)
    return found


def tasks(circuit, x):
    """What is measured: functions that prepare and return what is timed."""
    start = StreamingPosterior(circuit, random_pseudo_counts(circuit, 0)).circuit()

    def learning(projection):
        posterior = StreamingPosterior(circuit, random_pseudo_counts(circuit, 0), projection)
        return lambda: posterior.update(x)

    def expecting():
        counts = ExpectedCounts(start)
        return lambda: counts.update(x)

    return {
        "evaluation": lambda: lambda: log_values(circuit, x),
        "EM": expecting,
        "BMM": lambda: learning("bmm"),
        "ADF": lambda: learning("adf"),
    }


def speed(name: str, n_rows: int, rounds: int) -> list[Figure]:
    circuit = read_text(CIRCUITS / f"{name}.spn.txt")
    x = np.ascontiguousarray(columns(name, "train")[:, :n_rows])
    figures = []
    for what, task in tasks(circuit, x).items():
        times = seconds(task, rounds)
        rate = circuit.n_edges * x.shape[1] / statistics.median(times) / 1e6
        low, high = CPP[what]
        detail = f"{rate:.0f} M/s, {x.shape[1] / statistics.median(times):,.0f} rows/s; C++ {low}–{high} M/s"
        figures.append(
            Figure(f"{name} {what}", 2 * rate / (low + high), rate / high, rate / low, *WANTED[what], detail)
        )
    return figures


def one_query(name: str) -> Figure:
    """What the marginal probability of one row of which a third is observed may take ÷ what it takes."""
    circuit = read_text(CIRCUITS / f"{name}.spn.txt")
    x = columns(name, "test")[:, :200].astype(np.int64)
    x[np.random.default_rng(0).random(x.shape) < 2 / 3] = -1
    x = x.astype(np.uint8)
    single = [np.ascontiguousarray(x[:, row : row + 1]) for row in range(x.shape[1])]
    log_values(circuit, single[0])
    times = []
    for each in single * 5:
        started = time.perf_counter()
        log_values(circuit, each)
        times.append(1e3 * (time.perf_counter() - started))
    most, aim = QUERY_MS
    detail = f"median {statistics.median(times):.4f} ms, {circuit.n_edges} edges; at most {most}, aim {aim} ms"
    return median_figure(f"{name} one marginal", [most / each for each in times], "1", f"{most / aim:.1f}", detail)


def main() -> None:
    args = options(__doc__, circuits=NAMES, rows=4000, rounds=5).parse_args()
    figures = [figure for name in args.circuits for figure in speed(name, args.rows, args.rounds)]
    if "plants" in args.circuits:
        figures.append(one_query("plants"))
    report("Circuits, one thread, ÷ the authors' C++ programs", figures, {"machine": machine()}, args.json)


if __name__ == "__main__":
    main()
