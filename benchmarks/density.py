"""Test log-likelihood of circuits on the binary density sets: every structure with every learner.

python -m benchmarks.density --sets nltcs plants --write    # docs/results/density.md
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from learners.circuits.answers import log_likelihood
from learners.circuits.circuit import Circuit
from learners.circuits.em import batch_em
from learners.circuits.online import StreamingPosterior, pseudo_counts_of
from learners.circuits.structures import chow_liu, describe_variables, hclt, independent, learnspn, random_regions
from learners.counts.pairwise import PairwiseCounts
from learners.schema import Attribute, Chunk, Schema

ROOT = Path(__file__).parent.parent
COMPLETE = ("nltcs", "plants", "baudio", "jester", "accidents", "pumsb_star", "bbc")
LAPLACE = (0.1, 1.0)
STRENGTHS = (1.0, 10.0)
# The stream is written row by row; large circuits take minutes, as one thread must see the rows in order.
MOST_STREAMED = 60_000


@dataclass(frozen=True)
class Result:
    """One circuit on one set, the pseudo-count (or strength of the prior) chosen on validation rows."""

    name: str
    structure: str
    learner: str
    n_edges: int
    setting: float | None
    valid: float
    test: float
    seconds: float


def rows_of(name: str, split: str) -> np.ndarray:
    """(n_variables, n_rows) uint8."""
    table = pq.read_table(ROOT.parent / "shared" / "data" / "density" / f"{name}.{split}.parquet")
    return np.ascontiguousarray(np.stack([column.to_numpy() for column in table.columns]).astype(np.uint8))


def counts_of(x: np.ndarray) -> PairwiseCounts:
    """Pairwise counts of binary rows."""
    attributes = tuple(Attribute(f"v{i}", "nominal", ("0", "1")) for i in range(x.shape[0]))
    pairs = PairwiseCounts(Schema(attributes, None, ("",)))
    pairs.update(Chunk(x.copy(), np.zeros(x.shape[1], np.uint8)))
    return pairs


def mean(circuit: Circuit, x: np.ndarray) -> float:
    return float(log_likelihood(circuit, x).mean())


def structures(x: np.ndarray, states: int, seed: int) -> dict[str, Callable[[], Circuit]]:
    """Makes the circuit of every structure."""
    pairs = counts_of(x)
    variables = describe_variables(x, [2] * x.shape[0])
    return {
        "independent": lambda: independent(variables),
        "chow-liu": lambda: chow_liu(pairs),
        "learnspn": lambda: learnspn(x, [2] * x.shape[0], seed=seed),
        "random": lambda: random_regions(variables, depth=4, sums=4, replicas=4, seed=seed),
        f"hclt {states}": lambda: hclt(pairs, states, seed),
    }


def em(start: Circuit, train: np.ndarray, valid: np.ndarray, passes: int) -> tuple[Circuit, float, float]:
    """Batch EM from the pseudo-count that is best after ten passes, ended where the validation rows are best."""
    tried = [(batch_em(start, train, min(10, passes), laplace), laplace) for laplace in LAPLACE]
    best, best_valid, laplace = max(
        ((circuit, mean(circuit, valid), laplace) for circuit, laplace in tried), key=lambda each: each[1]
    )
    circuit = best
    for _ in range(10, passes, 5):
        circuit = batch_em(circuit, train, 5, laplace)
        now = mean(circuit, valid)
        if now < best_valid:
            break
        best, best_valid = circuit, now
    return best, best_valid, laplace


def streamed(
    start: Circuit, train: np.ndarray, valid: np.ndarray, strength: float, projection: str
) -> tuple[Circuit, float]:
    """One pass of ADF or BMM in file order, from the structure's own weights."""
    posterior = StreamingPosterior(start, pseudo_counts_of(start, strength), projection)
    posterior.update(train)
    circuit = posterior.circuit()
    return circuit, mean(circuit, valid)


def results(name: str, states: int, passes: int, seed: int, only: list[str], learners: list[str]) -> Iterator[Result]:
    train, valid, test = (rows_of(name, split) for split in ("train", "valid", "test"))
    for structure, make in structures(train, states, seed).items():
        if only and structure.split()[0] not in only:
            continue
        started = time.perf_counter()
        start = make()
        built = time.perf_counter() - started
        yield Result(name, structure, "as made", start.n_edges, None, mean(start, valid), mean(start, test), built)
        if structure in ("independent", "chow-liu"):
            continue
        for learner in learners:
            started = time.perf_counter()
            if learner == "em":
                tried = [em(start, train, valid, passes)]
            elif start.n_edges <= MOST_STREAMED:
                tried = [(*streamed(start, train, valid, strength, learner), strength) for strength in STRENGTHS]
            else:
                continue
            circuit, best_valid, setting = max(tried, key=lambda each: each[1])
            seconds = time.perf_counter() - started
            yield Result(name, structure, learner, start.n_edges, setting, best_valid, mean(circuit, test), seconds)


def published() -> dict[str, dict[str, float]]:
    """{column: {set: value}} of docs/results/density-published.json, if it is there."""
    path = ROOT / "docs" / "results" / "density-published.json"
    return json.loads(path.read_text()) if path.is_file() else {}


def report(found: list[Result], command: str) -> str:
    """The tables in Markdown."""
    sets = list(dict.fromkeys(result.name for result in found))
    others = published()
    best = {name: max((r for r in found if r.name == name), key=lambda r: r.valid) for name in sets}
    lines = [
        "# Density estimation on binary sets",
        "",
        f"Mean test log-likelihood in nats, made by `{command}`. Pseudo-counts of EM, its number of passes, and the strength of ADF's and "
        "BMM's prior (rows that the structure's own weights stand for) are chosen on the validation rows. ADF and BMM see each "
        "training row once. The last column takes, of each set, what is best on validation rows.",
        "",
        "| set | " + " | ".join(_columns(found)) + " | best on validation |",
        "| --- |" + " ---: |" * (len(_columns(found)) + 1),
    ]
    for name in sets:
        by_column = {f"{r.structure}, {r.learner}": r for r in found if r.name == name}
        cells = [f"{by_column[c].test:.3f}" if c in by_column else "" for c in _columns(found)]
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {best[name].test:.3f} |")
    if others:
        lines += ["", "Published:", "", "| set | " + " | ".join(others) + " |", "| --- |" + " ---: |" * len(others)]
        for name in sets:
            cells = [f"{values[name]:.3f}" if name in values else "" for values in others.values()]
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "| set | structure | learner | edges | setting | valid | test | seconds, all settings |",
        "| --- |" * 3 + " ---: |" * 5,
    ]
    for r in found:
        setting = "" if r.setting is None else f"{r.setting:g}"
        lines.append(
            f"| {r.name} | {r.structure} | {r.learner} | {r.n_edges:,} | {setting} | {r.valid:.3f} | {r.test:.3f} | {r.seconds:.1f} |"
        )
    return "\n".join(lines).replace("| --- || --- || --- |", "| --- | --- | --- |") + "\n"


def _columns(found: list[Result]) -> list[str]:
    """Structures with learners; random weights to start from say nothing by themselves."""
    shown = [r for r in found if r.learner != "as made" or r.structure.split()[0] not in ("random", "hclt")]
    return list(dict.fromkeys(f"{r.structure}, {r.learner}" for r in shown))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=list(COMPLETE))
    parser.add_argument("--structures", nargs="+", default=[], help="by default all")
    parser.add_argument("--learners", nargs="+", default=["em", "adf", "bmm"])
    parser.add_argument("--states", type=int, default=16, help="of hclt")
    parser.add_argument("--passes", type=int, default=50, help="of EM, at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="where results are kept, and read from when the run goes on")
    parser.add_argument("--write", action="store_true", help="write docs/results/density.md")
    args = parser.parse_args()
    found: list[Result] = []
    if args.json is not None and args.json.is_file():
        found = [Result(**entry) for entry in json.loads(args.json.read_text())]
    done = {result.name for result in found}
    for name in args.sets:
        if name in done:
            continue
        for result in results(name, args.states, args.passes, args.seed, args.structures, args.learners):
            found.append(result)
            print(
                f"{result.name} {result.structure}, {result.learner}: {result.n_edges:,} edges, "
                f"test {result.test:.3f}, {result.seconds:.1f} s",
                flush=True,
            )
        if args.json is not None:
            args.json.write_text(json.dumps([asdict(result) for result in found], indent=1))
    if args.write:
        learners = " ".join(args.learners)
        command = f"python -m benchmarks.density --learners {learners} --states {args.states} --passes {args.passes} --seed {args.seed}"
        (ROOT / "docs" / "results" / "density.md").write_text(report(found, command))


if __name__ == "__main__":
    main()
