"""Circuits: edge-updates per second of evaluation, EM, BMM and ADF, one thread, beside the authors' C++ programs.

    python -m benchmarks.circuits --json circuits.json
    python -m benchmarks.circuits --quality --seeds 5

An edge-update is one edge of the circuit for one row, whatever the kernels make of it. Rows are uint8, as chunks have them.
BMM and ADF are timed over a pass that starts at random pseudo-counts, where most nodes take part in most rows.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import numpy as np

from benchmarks.map_circuits import rows
from benchmarks.measuring import Figure, machine, report
from learners.circuits.em import ExpectedCounts, batch_em
from learners.circuits.evaluate import log_values
from learners.circuits.online import StreamingPosterior, pseudo_counts_of, random_pseudo_counts
from learners.circuits.stepwise import StepwiseEM
from learners.circuits.text import read_text

CIRCUITS = Path(__file__).resolve().parents[2] / "shared" / "data" / "circuits"
NAMES = ("nltcs", "plants", "plants_rat")
# Millions of edge-updates per second of the C++ programs of Zhao and Gordon, from issue 6.
CPP = {"evaluation": (28, 33), "EM": (12, 19), "BMM": (7, 12), "ADF": (7, 12)}
WANTED = {"evaluation": ("30", "70"), "EM": ("15", "25"), "BMM": ("8", "12"), "ADF": ("5", "8")}
# Rows per second on circuits of 2,158 edges, from issue 6: the better end.
PYTHON_PEERS = {"deeprob-kit": 16_000, "SPFlow": 29_000}
QUERY_MS = (0.1, 0.03)


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
        if what == "evaluation" and name == "nltcs":
            for peer, peer_rows in PYTHON_PEERS.items():
                ratios = sorted(x.shape[1] / each / peer_rows for each in times)
                text = f"{x.shape[1] / statistics.median(times):,.0f} rows/s; {peer} {peer_rows:,} rows/s"
                middle = statistics.median(ratios)
                figures.append(Figure(f"{name} ÷ {peer}", middle, ratios[0], ratios[-1], "20", "100", text))
    return figures


def one_query(name: str) -> Figure:
    """Milliseconds of the marginal probability of one row of which a third is observed."""
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
    middle = statistics.median(times)
    detail = f"median {middle:.4f} ms, {circuit.n_edges} edges; at most {QUERY_MS[0]}, aim {QUERY_MS[1]} ms"
    least, aim = "1", f"{QUERY_MS[0] / QUERY_MS[1]:.1f}"
    return Figure(
        f"{name} one marginal",
        QUERY_MS[0] / middle,
        QUERY_MS[0] / max(times),
        QUERY_MS[0] / min(times),
        least,
        aim,
        detail,
    )


def quality(name: str, n_seeds: int) -> dict:
    """Mean test log-likelihood of one pass of each rule, and of batch EM, from the same random starts."""
    circuit = read_text(CIRCUITS / f"{name}.spn.txt")
    train, valid, test = (columns(name, split) for split in ("train", "valid", "test"))
    found: dict[str, list[float]] = {}

    def add(label, learned):
        found.setdefault(label, []).append(float(log_values(learned, test).mean()))

    for seed in range(n_seeds):
        for projection in ("adf", "adf-closed-form", "bmm"):
            posteriors = []
            # The prior's scale is chosen on the validation set.
            for scale in (0.1, 0.5, 1.0):
                prior = random_pseudo_counts(circuit, seed, 0.5 * scale, 1.5 * scale)
                posteriors.append(StreamingPosterior(circuit, prior, projection))
                posteriors[-1].update(train)
            best = max(posteriors, key=lambda posterior: log_values(posterior.circuit(), valid).mean())
            add(f"{projection}, one pass", best.circuit())
        prior = random_pseudo_counts(circuit, seed)
        for projection in ("adf", "bmm"):
            published = StreamingPosterior(circuit, prior, projection, "zhao2017")
            for passes in range(1, 6):
                published.update(train)
                if passes in (1, 5):
                    add(f"{projection} as published, {passes} pass{'es' if passes > 1 else ''}", published.circuit())
        start = StreamingPosterior(circuit, prior).circuit()
        stepwise = StepwiseEM(start, 200, rows_hint=train.shape[1])
        stepwise.update(train)
        add("stepwise EM, one pass", stepwise.circuit())
        add("batch EM, 30 passes", batch_em(start, train, 30))
    seeded = StreamingPosterior(circuit, pseudo_counts_of(circuit, 10.0))
    seeded.update(train)
    add("adf from the structure's weights, one pass", seeded.circuit())
    add("the file's weights", circuit)
    return {label: (statistics.mean(values), min(values), max(values)) for label, values in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--circuits", nargs="+", default=list(NAMES))
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quality", action="store_true", help="test log-likelihoods instead of times")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if args.quality:
        for name in args.circuits:
            for label, (mean, low, high) in quality(name, args.seeds).items():
                print(f"{name:12} {label:45} {mean:9.3f}  ({low:.3f} to {high:.3f})", flush=True)
        return
    figures = [figure for name in args.circuits for figure in speed(name, args.rows, args.rounds)]
    if "plants" in args.circuits:
        figures.append(one_query("plants"))
    report("Circuits, one thread, ÷ the authors' C++ programs", figures, {"machine": machine()}, args.json)


if __name__ == "__main__":
    main()
