"""The experiment of Wang, Wicker, Kwiatkowska (2022): posteriors over structures of 16 and 32 columns from 100 rows.

Each problem is one line of --log; what is there already is not done again. Gadget (sumu) runs beside where --peer-python has it.

python -m benchmarks.structures_paper --log build/structures.jsonl --peer-python peers/bin/python
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.structure_problems import (
    Array,
    Problem,
    auroc,
    auroc_of_rest,
    bge_of,
    effects_error,
    known_edges,
    linear_gaussian,
    of_sample,
    off_diagonal,
)

KNOWN = (4, 8, 16)
N_ROWS, N_DRAWS = 100, 300
PAPER = {"Gadget": (0.905, 0.888, 0.876), "TRUST-g": (0.903, 0.933, 0.957)}
METRICS = ("e_shd", "auroc", "mll", "mse_effects", *(f"auroc_{n}" for n in KNOWN), "seconds")


def ours(problem: Problem, seed: int, n_sets: int) -> dict[str, Any]:
    """All metrics of the learner's posterior; the rows are not standardised, as in the paper."""
    from learners.orders.bge import Standard
    from learners.orders.conditional import ConditionalPosteriors
    from learners.orders.draws import weighted_graphs
    from learners.orders.edges import edge_probabilities
    from learners.orders.effects import draw_effects, mean_effects
    from learners.orders.evidence import Edges, held
    from learners.orders.parameters import OrderParameters
    from learners.orders.priors import StructurePrior
    from learners.orders.recipes import posterior_of

    d = len(problem.graph)
    score, started = bge_of(problem.train), time.perf_counter()
    parameters = OrderParameters(sets=n_sets, seed=seed)
    posterior = posterior_of(score, StructurePrior(), parameters, d - 1, Standard.none(d), lambda *_: None)
    sums = posterior.prior_sums
    edges = edge_probabilities(sums)
    seconds = time.perf_counter() - started
    coverage = posterior.coverage
    found: dict[str, Any] = {"seconds": seconds, "coverage": coverage.orders.share, "is_exact": coverage.is_exact}
    found["coverage_of_graphs"] = coverage.graphs.share
    drawn = weighted_graphs(sums, N_DRAWS, seed, "order").graphs
    found |= of_sample(problem, drawn.adjacency())
    pairs = off_diagonal(d)
    found["auroc"] = auroc(problem.graph[pairs], edges[pairs])
    if coverage.is_exact:
        effects = mean_effects(sums, score)
    else:
        effects = draw_effects(weighted_graphs(sums, 1000, seed, "order").graphs, score, seed).means.mean(axis=0)
    found["mse_effects"] = effects_error(problem, effects)
    conditional = ConditionalPosteriors(posterior, parameters, [str(node) for node in range(d)], d - 1)
    for n in KNOWN:
        known = known_edges(problem, n, seed)
        evidence, started = Edges(present=frozenset(known)), time.perf_counter()
        is_candidate = held(evidence, posterior.scores) == evidence
        sums = posterior.sums(evidence) if is_candidate else None
        is_covered = sums is not None and sums.log_z > -math.inf
        if sums is None or not is_covered:
            sums = conditional.given(evidence).prior_sums
        found[f"query_s_{n}"] = time.perf_counter() - started
        found[f"auroc_{n}"], found[f"covered_{n}"] = auroc_of_rest(problem, edge_probabilities(sums), known), is_covered
    return found


def gadgets(problem: Problem, seed: int, python: str, iterations: int) -> dict[str, Any]:
    """All metrics of the graphs that sumu's Gadget draws."""
    from learners.orders.effects import draw_effects
    from learners.orders.graphs import DrawnGraphs

    settings = {"iterations": iterations, "burn_in": iterations, "samples": 10_000, "candidates": 16, "seed": seed}
    answer = peer("gadget", problem.train, settings, python)
    graphs = answer["graphs"]
    found: dict[str, Any] = {"seconds": float(answer["whole_seconds"]), "iterations": iterations}
    chosen = np.random.default_rng(seed).permutation(len(graphs))[:N_DRAWS]
    found |= of_sample(problem, graphs[chosen])
    d, edges, pairs = len(problem.graph), graphs.mean(axis=0), off_diagonal(len(problem.graph))
    found["auroc"] = auroc(problem.graph[pairs], edges[pairs])
    some = graphs[chosen]
    bits = (some.astype(np.uint64) << np.arange(d, dtype=np.uint64)[:, np.newaxis]).sum(axis=1, dtype=np.uint64)
    orders = np.stack([order_of(graph) for graph in some])
    drawn = draw_effects(DrawnGraphs(bits, orders, np.zeros(len(some))), bge_of(problem.train), seed)
    found["mse_effects"] = effects_error(problem, drawn.means.mean(axis=0))
    for n in KNOWN:
        known = known_edges(problem, n, seed)
        fits = np.all([graphs[:, a, b] for a, b in known], axis=0)
        told = graphs[fits].mean(axis=0) if fits.any() else edges
        found[f"auroc_{n}"], found[f"covered_{n}"] = auroc_of_rest(problem, told, known), bool(fits.any())
    return found


def order_of(graph: Array) -> Array:
    """(d,) uint8: the nodes, parents first."""
    left, order = np.ones(len(graph), bool), []
    while left.any():
        free = np.flatnonzero(left & ~(graph & left[:, np.newaxis]).any(axis=0))
        order += free.tolist()
        left[free] = False
    return np.array(order, np.uint8)


def peer(
    task: str, rows: Array, settings: Mapping[str, Any], python: str, timeout: float = 3600
) -> Mapping[str, Array]:
    """What a peer answers, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "in.npz", Path(folder) / "out.npz"
        np.savez(source, rows=rows)
        command = [python, "-m", "benchmarks.structures_peer_process", task, str(source), str(target)]
        done = subprocess.run(
            [*command, json.dumps(settings)], capture_output=True, text=True, check=False, timeout=timeout
        )
        if done.returncode:
            raise RuntimeError(f"{task}: {done.stderr[-500:]}")
        with np.load(target) as found:
            return dict(found)


def has(python: str, module: str) -> bool:
    """Whether an environment has a module that can be imported."""
    return subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False).returncode == 0


def kept(log: Path | None) -> list[dict[str, Any]]:
    """What an earlier run has done."""
    return [json.loads(line) for line in log.read_text().splitlines()] if log is not None and log.is_file() else []


def table(results: list[dict[str, Any]]) -> str:
    """Means and standard errors, a row for each d and method, in Markdown."""
    lines = [
        "| d | method | seeds | E-SHD | AUROC | held-out log likelihood | MSE of effects | AUROC, 4 known | 8 | 16 | s |",
        "| --- " * 11 + "|",
    ]
    for d, method in sorted({(entry["d"], entry["method"]) for entry in results}):
        own = [entry for entry in results if (entry["d"], entry["method"]) == (d, method)]
        cells = []
        for name in METRICS:
            values = [entry[name] for entry in own if math.isfinite(entry[name])]
            error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
            digits = 1 if name in ("e_shd", "mll", "seconds") else 4 if name == "mse_effects" else 3
            cells.append(f"{statistics.mean(values):.{digits}f} ± {error:.{digits}f}" if values else "")
        lines.append(f"| {d} | {method} | {len(own)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--columns", type=int, nargs="+", default=[16, 32])
    parser.add_argument("--methods", nargs="+", choices=["fewpass", "Gadget"], default=["fewpass", "Gadget"])
    parser.add_argument("--sets", type=int, default=400_000, help="of the lattice of 32 columns")
    parser.add_argument("--iterations", type=int, default=320_000, help="of Gadget, after as many of burn-in")
    parser.add_argument("--peer-python", default=sys.executable, help="of an environment with sumu")
    parser.add_argument("--log", type=Path, help="one line a result, to go on from")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    results = kept(args.log)
    done = {(entry["d"], entry["method"], entry["seed"]) for entry in results}
    has_gadget = "Gadget" in args.methods and has(args.peer_python, "sumu")
    if "Gadget" in args.methods and not has_gadget:
        print(f"{args.peer_python} has no sumu: Gadget is left out.", file=sys.stderr)
    if "fewpass" in args.methods:
        ours(linear_gaussian(8, N_ROWS, 0), 0, args.sets)  # kernels are compiled, or loaded
    for seed in range(args.seeds):
        for d in args.columns:
            problem = linear_gaussian(d, N_ROWS, seed)
            runs = {"fewpass": lambda p=problem, s=seed: ours(p, s, args.sets)} if "fewpass" in args.methods else {}
            if has_gadget:
                runs["Gadget"] = lambda p=problem, s=seed: gadgets(p, s, args.peer_python, args.iterations)
            for method, run in runs.items():
                if (d, method, seed) in done:
                    continue
                entry = {"d": d, "method": method, "seed": seed} | run()
                results.append(entry)
                if args.log is not None:
                    with args.log.open("a") as file:
                        file.write(json.dumps(entry) + "\n")
                print(json.dumps(entry), file=sys.stderr, flush=True)
    print(table(results))
    print("\nThe paper, d = 16, AUROC at 4, 8 and 16 known edges:")
    for method, figures in PAPER.items():
        print(f"{method}: {', '.join(map(str, figures))}")
    if args.json is not None:
        args.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
