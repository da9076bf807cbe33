"""The HDP sampler on kDB-5 trees of public data: cell-samples per second, two threads, and the deterministic estimate.

A cell is a (node, value) pair below the root with n > 1; a cell-sample is one full draw of its pseudo-count t. The peer figures are
those that the authors' Java program reached on one thread of such a machine (issue 3).

    python -m benchmarks.hdp_sampler
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks.measuring import machine, median_figure, options, report, run_in_fresh_process

DATA = Path(__file__).resolve().parents[1] / "../shared/data/classification"
SETS = {"nursery": (6480, 2.1e6), "adult": (24_421, 1.26e6), "letter": (10_000, 1.07e6)}
SWEEPS = 300
PAPER_SWEEPS = 50_000


def trees_of(name: str, n_rows: int, k: int = 5) -> list:
    """The kDB-k context trees of a random part of a set."""
    from learners import Source, collect, infer_schema
    from learners.classifiers import recipes
    from learners.classifiers.structure import k_dependence_structure
    from learners.counts.family_counts import FamilyCounts
    from learners.counts.pairwise import PairwiseCounts

    table = pq.read_table(DATA / f"{name}.parquet")
    rows = np.sort(np.random.default_rng(0).permutation(table.num_rows)[:n_rows])
    source = Source.of_table(table.take(rows))
    schema = infer_schema(source, "class")
    structure = k_dependence_structure(collect(PairwiseCounts(schema), source), k)
    return recipes.build_context_trees(collect(FamilyCounts(schema, structure.families()), source))


def measure(name: str, n_rows: int, rounds: int) -> dict:
    """Seconds and sizes of one set."""
    from learners.classifiers.estimates.hdp import HDPParameters, hdp_map_estimates
    from learners.classifiers.estimates.hdp_sampler import hdp_gibbs_estimates

    trees = trees_of(name, n_rows)
    n_cells = sum(int((tree.cell_count[tree.cell_starts[1] :] > 1).sum()) for tree in trees)
    parameters = HDPParameters(iterations=SWEEPS)
    hdp_gibbs_estimates(trees, HDPParameters(iterations=10))
    hdp_map_estimates(trees, parameters)
    seconds: dict[str, list[float]] = {"one": [], "two": [], "map": []}
    for _ in range(rounds):
        for kind, threads in (("one", 1), ("two", 2)):
            started = time.perf_counter()
            hdp_gibbs_estimates(trees, parameters, threads)
            seconds[kind].append(time.perf_counter() - started)
        started = time.perf_counter()
        hdp_map_estimates(trees, parameters)
        seconds["map"].append(time.perf_counter() - started)
    return {"n_nodes": sum(tree.n_nodes for tree in trees), "n_cells": n_cells, "seconds": seconds}


def main() -> None:
    args = options(__doc__, rounds=3).parse_args()
    if not DATA.is_dir():
        raise SystemExit("The public data sets (../shared/data/classification) are not here: nothing to measure.")
    figures, facts = [], {}
    _, empty_rss = run_in_fresh_process(time.sleep, 0)
    for name, (n_rows, java) in SETS.items():
        found, rss = run_in_fresh_process(measure, name, n_rows, args.rounds)
        one, two, fixed = (found["seconds"][kind] for kind in ("one", "two", "map"))
        rates = [found["n_cells"] * SWEEPS / value for value in one]
        size = f"{found['n_nodes']:,} nodes, {found['n_cells']:,} cells"
        detail = f"{statistics.median(rates) / 1e6:.1f} M/s against {java / 1e6:.2f} M/s; {size}"
        scaling = [a / b for a, b in zip(one, two, strict=True)]
        share = [100 * a / (b / SWEEPS * PAPER_SWEEPS) for a, b in zip(fixed, one, strict=True)]
        figures += [
            median_figure(f"{name}: cell-samples/s ÷ Java", [rate / java for rate in rates], "10", "25", detail),
            median_figure(f"{name}: two threads", scaling, "1.9"),
            median_figure(f"{name}: hdp-map, % of 50,000 sweeps", share, "1", "0.1"),
            median_figure(f"{name}: peak RSS of the whole process, MiB", [rss / 2**20]),
        ]
        facts[name] = found | {"peak_rss_mib": rss / 2**20, "above_bare_process_mib": (rss - empty_rss) / 2**20}
    report("HDP sampling of kDB-5 trees", figures, machine() | facts, args.json)


if __name__ == "__main__":
    main()
