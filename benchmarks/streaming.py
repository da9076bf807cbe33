"""Quality of one pass of ADF and BMM beside the published rule and EM: mean and spread over random starts.

python -m benchmarks.streaming --json docs/results/streaming.json --write    # docs/results/streaming.md
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import map_circuits
from benchmarks.density import LAPLACE, em, table, write_page
from benchmarks.measuring import keep, read_kept
from learners.circuits.circuit import Circuit
from learners.circuits.em import batch_em
from learners.circuits.evaluate import log_values
from learners.circuits.kernels import CATEGORICAL, INDICATOR, SUM
from learners.circuits.online import PseudoCounts, StreamingPosterior, pseudo_counts_of, random_pseudo_counts
from learners.circuits.stepwise import StepwiseEM

Array = np.ndarray[Any, np.dtype[Any]]
Way = tuple[str, Callable[[], tuple[Circuit, float]]]

NAMES = ("nltcs", "plants", "dna")
SCALES = (0.01, 0.03, 0.1, 0.3, 1.0)
# The published rule keeps the total of every sum as it is at the start: the larger, the smaller its steps for ever.
PUBLISHED_SCALES = (1.0, 10.0, 100.0, 1000.0)
STRENGTHS = (1.0, 10.0, 100.0)
BATCHES = (50.0, 200.0, 800.0)
WARM_ROWS, WARM_PASSES = 2000, 10
EM_PASSES = 50
RULES = ("adf", "bmm")


class Rows(NamedTuple):
    """(n_variables, n_rows) uint8 each."""

    train: Array
    valid: Array
    test: Array


@dataclass(frozen=True)
class Line:
    """Mean test log-likelihoods of a way to learn, one per seed, each with the setting that is best on validation rows."""

    circuit: str
    way: str
    test: list[float]
    settings: list[float]
    seconds: float

    @property
    def mean(self) -> float:
        return statistics.mean(self.test)


def load(name: str) -> tuple[Circuit, Rows]:
    """A circuit with its weights and the rows; that of "dna" is made by LearnSPN from 1,600 rows."""
    splits = ("train", "valid", "test") if name != "dna" else ("train", "test")
    found = [np.ascontiguousarray(map_circuits.rows(name, split).T) for split in splits]
    if name != "dna":
        return map_circuits.circuit(name), Rows(*found)
    train, test = found
    rows = Rows(np.ascontiguousarray(train[:, :1600]), np.ascontiguousarray(train[:, 1600:]), test)
    return map_circuits.learn(rows.train.T, min_rows=100, threshold=10.0), rows


def mean(circuit: Circuit, x: Array) -> float:
    return float(log_values(circuit, x).mean())


def margin_pseudo_counts(circuit: Circuit, margins: Array, seed: int, scale: float) -> PseudoCounts:
    """Random pseudo-counts, those of distributions of single variables times the variable's margins.

    Parameters
    ----------
    circuit : Circuit
    margins : (n_variables, n_values) float64
        What the first pass counts anyway.
    seed : int
    scale : float
    """
    prior = random_pseudo_counts(circuit, seed, 0.5 * scale, 1.5 * scale)
    node = np.repeat(np.arange(circuit.n_nodes), np.diff(circuit.child_starts))
    child = circuit.children
    chosen = (circuit.kind[node] == SUM) & (circuit.kind[child] == INDICATOR)
    value = circuit.leaf_parameters[circuit.leaf_starts[child[chosen]]].astype(np.int64)
    edge = prior.edge.copy()
    edge[chosen] *= margins.shape[1] * margins[circuit.variable[child[chosen]], value]
    node = np.repeat(np.arange(circuit.n_nodes), np.diff(circuit.leaf_starts))
    chosen = circuit.kind[node] == CATEGORICAL
    value = (np.arange(node.size) - circuit.leaf_starts[node])[chosen]
    parameter = prior.parameter.copy()
    parameter[chosen] *= margins.shape[1] * margins[circuit.variable[node[chosen]], value]
    return PseudoCounts(edge, parameter, prior.numeric)


def learned(
    circuit: Circuit, prior: PseudoCounts, x: Array, rule: str, moments: str = "exact", passes: int = 1
) -> Circuit:
    """The posterior means after so many passes that go on from one another."""
    posterior = StreamingPosterior(circuit, prior, rule, moments)
    for _ in range(passes):
        posterior.update(x)
    return posterior.circuit()


def repeated(circuit: Circuit, x: Array, rule: str, strength: float, passes: int) -> Circuit:
    """Further passes, each from the means of the last, which count as `strength` rows: no row counts twice."""
    for _ in range(passes):
        circuit = learned(circuit, pseudo_counts_of(circuit, strength), x, rule)
    return circuit


def best(make: Callable[[float], Circuit], settings: Sequence[float], valid: Array) -> tuple[Circuit, float]:
    """The circuit that is best on validation rows, and its setting."""
    made = [(make(setting), setting) for setting in settings]
    return max(made, key=lambda each: mean(each[0], valid))


def batch(start: Circuit, rows: Rows) -> tuple[Circuit, float]:
    found, _, laplace = em(start, rows.train, rows.valid, EM_PASSES)
    return found, laplace


def ways(circuit: Circuit, rows: Rows, seed: int) -> Iterator[Way]:
    """Names of all ways from random starts, and what learns and chooses the setting."""
    train, valid = rows.train, rows.valid
    ones = (train.sum(axis=1) + 0.5) / (train.shape[1] + 1.0)
    margins = np.stack([1 - ones, ones], axis=1)
    at_random = StreamingPosterior(circuit, random_pseudo_counts(circuit, seed)).circuit()
    sample = np.ascontiguousarray(train[:, :WARM_ROWS])

    def uniform(scale: float) -> PseudoCounts:
        return random_pseudo_counts(circuit, seed, 0.5 * scale, 1.5 * scale)

    def at_margins(scale: float) -> PseudoCounts:
        return margin_pseudo_counts(circuit, margins, seed, scale)

    def published(rule: str, passes: int) -> tuple[Circuit, float]:
        return best(lambda s: learned(circuit, uniform(s), train, rule, "zhao2017", passes), PUBLISHED_SCALES, valid)

    def one_pass(rule: str, make: Callable[[float], PseudoCounts]) -> tuple[Circuit, float]:
        return best(lambda s: learned(circuit, make(s), train, rule), SCALES, valid)

    def five_passes(rule: str) -> tuple[Circuit, float]:
        first, _ = one_pass(rule, at_margins)
        return best(lambda s: repeated(first, train, rule, s, 4), STRENGTHS, valid)

    def warmed(rule: str) -> tuple[Circuit, float]:
        start = batch_em(at_random, sample, WARM_PASSES, LAPLACE[0])
        return best(lambda s: repeated(start, train, rule, s, 1), STRENGTHS, valid)

    def stepwise(batch_rows: float) -> Circuit:
        learner = StepwiseEM(at_random, int(batch_rows), rows_hint=train.shape[1])
        learner.update(train)
        return learner.circuit()

    for rule in RULES:
        yield f"{rule}, published rule, 1 pass", partial(published, rule, 1)
        yield f"{rule}, published rule, 5 passes", partial(published, rule, 5)
    for rule in RULES:
        yield f"{rule}, 1 pass", partial(one_pass, rule, uniform)
    for rule in RULES:
        yield f"{rule}, 1 pass, leaves from the margins", partial(one_pass, rule, at_margins)
    for rule in RULES:
        yield f"{rule}, 1 pass after EM on {WARM_ROWS:,} rows", partial(warmed, rule)
    for rule in RULES:
        yield f"{rule}, 5 passes, leaves from the margins", partial(five_passes, rule)
    yield "stepwise EM, 1 pass", partial(best, stepwise, BATCHES, valid)
    yield f"batch EM, at most {EM_PASSES} passes", partial(batch, at_random, rows)


def seeded(circuit: Circuit, rows: Rows) -> Iterator[Way]:
    """Ways that start at the weights of the file or of the structure learner: no seeds."""

    def one_pass(rule: str, strength: float) -> Circuit:
        return repeated(circuit, rows.train, rule, strength, 1)

    yield "the structure's own weights", lambda: (circuit, 0.0)
    for rule in RULES:
        yield f"{rule}, 1 pass, from these weights", partial(best, partial(one_pass, rule), STRENGTHS, rows.valid)
    yield f"batch EM, at most {EM_PASSES} passes, from these weights", partial(batch, circuit, rows)


def measure(name: str, n_seeds: int) -> list[Line]:
    """All lines of a circuit."""
    circuit, rows = load(name)
    values: dict[str, tuple[list[float], list[float], list[float]]] = {}
    runs = [each for seed in range(n_seeds) for each in ways(circuit, rows, seed)] + list(seeded(circuit, rows))
    for way, run in runs:
        started = time.perf_counter()
        found, setting = run()
        test, settings, seconds = values.setdefault(way, ([], [], []))
        test.append(mean(found, rows.test))
        settings.append(setting)
        seconds.append(time.perf_counter() - started)
        print(f"{name} {way}: {test[-1]:.3f} (setting {setting:g})", flush=True)
    return [Line(name, way, *found[:2], statistics.mean(found[2])) for way, found in values.items()]


def cell(line: Line | None) -> str:
    """Mean, and least and greatest."""
    if line is None:
        return ""
    if len(line.test) == 1:
        return f"{line.mean:.3f}"
    return f"{line.mean:.3f} ({min(line.test):.3f} to {max(line.test):.3f})"


def report(lines: Sequence[Line]) -> str:
    """The table in Markdown."""
    names = list(dict.fromkeys(line.circuit for line in lines))
    found = {(line.circuit, line.way): line for line in lines}
    ways = dict.fromkeys(line.way for line in lines)
    rows = [[way, *(cell(found.get((name, way))) for name in names)] for way in ways]
    return "\n".join(table(["way to learn", *names], 1, rows)) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--circuits", nargs="+", default=list(NAMES), choices=NAMES)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="where results are kept, and read from when the run goes on")
    parser.add_argument("--write", action="store_true", help="put the table into docs/results/streaming.md")
    args = parser.parse_args()
    lines: list[Line] = read_kept(args.json, Line)
    for name in args.circuits:
        if any(line.circuit == name for line in lines):
            continue
        lines += measure(name, args.seeds)
        keep(args.json, lines)
    print(report(lines))
    if args.write:
        write_page("streaming.md", report(lines))


if __name__ == "__main__":
    main()
