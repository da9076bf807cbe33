"""Test log-likelihood of circuits on the binary density sets: the default learner, and every structure with every learner.

python -m benchmarks.density --json docs/results/density.json --write    # docs/results/density.md
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measuring import keep, options, read_kept
from learners import Source, drive
from learners.circuits.circuit import Circuit
from learners.circuits.em.em import batch_em
from learners.circuits.evaluation.evaluate import log_values
from learners.circuits.streaming.online import StreamingPosterior, circuit_pseudo_counts
from learners.circuits.structures.chow_liu import chow_liu
from learners.circuits.structures.circuit_builder import Blocks, log_normalised_weights
from learners.circuits.structures.hidden_trees import hclt
from learners.circuits.structures.learnspn import learnspn
from learners.circuits.structures.random_regions import random_regions
from learners.counts.pairwise import PairwiseCounts
from learners.registry import recipes
from learners.schema import Attribute, Chunk, Schema

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs" / "results"
MARK = "<!-- tables -->\n"
COMPLETE = ("nltcs", "plants", "baudio", "jester", "accidents", "pumsb_star", "bbc")
LAPLACE = (0.1, 1.0, 10.0)
STRENGTHS = (1.0, 10.0, 100.0)
# The structure and learner of `spn` where nothing is set.
DEFAULT = ("auto", "default")


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
    return float(log_values(circuit, x).mean())


def independent(counts: np.ndarray) -> Circuit:
    """One product of the distribution of each variable, the floor of every comparison."""
    blocks = Blocks([2] * len(counts))
    leaves = [blocks.distributions(v, log_normalised_weights(own)[np.newaxis])[0] for v, own in enumerate(counts)]
    blocks.products(np.array([leaves]))
    return blocks.circuit()


def structures(x: np.ndarray, states: int, seed: int) -> dict[str, Callable[[], Circuit]]:
    """Makes the circuit of every structure."""
    pairs = counts_of(x)
    counts = np.stack([(x == 0).sum(axis=1), (x == 1).sum(axis=1)], axis=1) + 1.0
    shares = (counts / counts.sum(axis=1, keepdims=True)).tolist()
    return {
        "independent": lambda: independent(counts),
        "chow-liu": lambda: chow_liu(pairs),
        "learnspn": lambda: learnspn(x, [2] * x.shape[0], seed=seed),
        "random": lambda: random_regions(shares, depth=4, sums=4, replicas=4, seed=seed),
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


def default_circuit(train: np.ndarray, seed: int) -> Circuit:
    """The circuit of the learner `spn` with all defaults; it keeps rows of its own back to choose by."""
    names = [f"v{i:04}" for i in range(len(train))]  # attributes come in the order of their names
    table = pa.table({name: column.astype(str) for name, column in zip(names, train, strict=True)})
    both = {name: {"order": ["0", "1"]} for name in names}  # one column of plants is always zero
    learner = recipes.learner("spn", {"seed": seed}, None, overrides=both)
    return drive(learner, Source.of_table(table), threads=1).circuit


def streamed(
    start: Circuit, train: np.ndarray, valid: np.ndarray, strength: float, projection: str
) -> tuple[Circuit, float]:
    """One pass of ADF or BMM in file order, from the structure's own weights."""
    posterior = StreamingPosterior(start, circuit_pseudo_counts(start, strength), projection)
    posterior.update(train)
    circuit = posterior.circuit()
    return circuit, mean(circuit, valid)


def results(
    name: str, states: int, passes: int, seed: int, only: list[str], learners: list[str], done: set[tuple[str, str]]
) -> Iterator[Result]:
    """Results of a set, except those of the (structure, learner) that are done."""
    train, valid, test = (rows_of(name, split) for split in ("train", "valid", "test"))
    if DEFAULT not in done and (not only or "auto" in only):
        started = time.process_time()
        circuit = default_circuit(train, seed)
        seconds = time.process_time() - started
        yield Result(name, *DEFAULT, circuit.n_edges, None, mean(circuit, valid), mean(circuit, test), seconds)
    for structure, make in structures(train, states, seed).items():
        trained = [] if structure in ("independent", "chow-liu") else learners
        wanted = [learner for learner in ["as made", *trained] if (structure, learner) not in done]
        if not wanted or (only and structure.split()[0] not in only):
            continue
        started = time.perf_counter()
        start = make()
        built = time.perf_counter() - started
        for learner in wanted:
            if learner == "as made":
                yield Result(
                    name, structure, learner, start.n_edges, None, mean(start, valid), mean(start, test), built
                )
                continue
            started = time.perf_counter()
            if learner == "em":
                tried = [em(start, train, valid, passes)]
            else:
                tried = [(*streamed(start, train, valid, strength, learner), strength) for strength in STRENGTHS]
            circuit, best_valid, setting = max(tried, key=lambda each: each[1])
            seconds = time.perf_counter() - started
            yield Result(name, structure, learner, start.n_edges, setting, best_valid, mean(circuit, test), seconds)


def published() -> dict[str, dict[str, Any]]:
    """{way: {"source": text, "values": {set: value}}} of docs/results/density-published.json."""
    path = RESULTS / "density-published.json"
    return json.loads(path.read_text()) if path.is_file() else {}


def report(found: list[Result]) -> str:
    """The tables in Markdown: ours with the best of the published values, the published ones, all settings."""
    sets = list(dict.fromkeys(result.name for result in found))
    others = published()
    ours = _columns(found)
    best = {name: max((r for r in found if r.name == name), key=lambda r: r.valid) for name in sets}
    test = {(r.name, f"{r.structure}, {r.learner}"): f"{r.test:.3f}" for r in found}
    rows = [
        [
            name,
            *(test.get((name, column), "") for column in ours),
            f"{best[name].test:.3f}",
            _best_published(others, name),
        ]
        for name in sets
    ]
    lines = table(["set", *ours, "best on validation", "best published below"], 1, rows)
    rows = [[name, *(_value(each, name) for each in others.values())] for name in sets]
    lines += ["", "Published:", "", *table(["set", *others], 1, rows), ""]
    lines += [f"- {way}: {each['source']}." for way, each in others.items()] + [""]
    heads = ["set", "structure", "learner", "edges", "setting", "valid", "test", "seconds, all settings"]
    rows = [
        [
            *(r.name, r.structure, r.learner, f"{r.n_edges:,}", "" if r.setting is None else f"{r.setting:g}"),
            *(f"{r.valid:.3f}", f"{r.test:.3f}", f"{r.seconds:.1f}"),
        ]
        for r in found
    ]
    return "\n".join([*lines, *table(heads, 3, rows)]) + "\n"


def table(heads: Sequence[str], n_left: int, rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table, its first columns to the left."""
    rule = ["---"] * n_left + ["---:"] * (len(heads) - n_left)
    return [f"| {' | '.join(cells)} |" for cells in (heads, rule, *rows)]


def write_page(name: str, tables: str) -> None:
    """Put the tables between the two marks of a page in docs/results; what people wrote around them stays."""
    page = RESULTS / name
    before, _, after = page.read_text().split(MARK)
    page.write_text(f"{before}{MARK}{tables}{MARK}{after}")


def _value(each: dict[str, Any], name: str) -> str:
    return f"{each['values'][name]:.3f}" if name in each["values"] else ""


def _best_published(others: dict[str, dict[str, Any]], name: str) -> str:
    values = [each["values"][name] for each in others.values() if name in each["values"]]
    return f"{max(values):.3f}" if values else ""


def _columns(found: list[Result]) -> list[str]:
    """Structures with learners; random weights to start from say nothing by themselves."""
    shown = [r for r in found if r.learner != "as made" or r.structure.split()[0] not in ("random", "hclt")]
    return list(dict.fromkeys(f"{r.structure}, {r.learner}" for r in shown))


def main() -> None:
    parser = options(__doc__, sets=list(COMPLETE), learners=["em", "adf", "bmm"], states=16, passes=50, seed=0)
    parser.add_argument("--structures", nargs="+", default=[], help="by default all")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/results/density.md")
    args = parser.parse_args()
    found: list[Result] = read_kept(args.json, Result)
    for name in args.sets:
        done = {(result.structure, result.learner) for result in found if result.name == name}
        for result in results(name, args.states, args.passes, args.seed, args.structures, args.learners, done):
            found.append(result)
            keep(args.json, found)
            text = f"{result.n_edges:,} edges, test {result.test:.3f}, {result.seconds:.1f} s"
            print(f"{result.name} {result.structure}, {result.learner}: {text}", flush=True)
    if args.write:
        write_page("density.md", report(found))


if __name__ == "__main__":
    main()
