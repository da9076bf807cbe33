"""Posteriors over structures: seconds and peak memory on one thread, the pass beside a bare scan, BDeu scores.

python -m benchmarks.structures
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

os.environ.setdefault("NUMBA_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measuring import Figure, alternated, figure, machine, median_figure, options, report
from benchmarks.tables import ROW_GROUP_ROWS, scratch
from service.operations.bench import run_in_fresh_process, scan_parquet_files

if TYPE_CHECKING:
    from learners.orders.scores.bdeu_bge import BGe

Array = np.ndarray[Any, Any]

N_ROWS = 100
# The authors' program, measured by the project: fit and all edge marginals of d = 16, and Gadget alone.
WANTED = {16: ("0.6 s, 300 MiB", "0.2 s"), 20: ("20 s, 1.5 GiB", "6 s"), 32: ("60 s, 1 GiB", "15 s")}
OF_QUERIES = {16: ("0.3 s", "0.1 s"), 20: ("", ""), 32: ("1 s", "0.3 s")}
MAX_PARENTS = 4
NOISE_VARIANCE = 0.1


class Problem(NamedTuple):
    """The graph of a linear Gaussian network, [i, j] whether i is a parent of j, and rows drawn from it."""

    graph: Array
    rows: Array


def linear_gaussian(d: int, n: int, seed: int) -> Problem:
    """An Erdős–Rényi graph of 2d expected edges, weights N(0, 1) and noise of variance 0.1 (Wang et al. 2022, appendix F)."""
    rng = np.random.default_rng([seed, d])
    order = rng.permutation(d)
    above = np.triu(rng.random((d, d)) < 4 / (d - 1), 1)
    graph = np.zeros((d, d), bool)
    graph[np.ix_(order, order)] = above
    effects = np.linalg.inv(np.eye(d) - graph * rng.normal(size=(d, d)))
    return Problem(graph, rng.normal(size=(n, d)) * np.sqrt(NOISE_VARIANCE) @ effects)


def bge_of(rows: Array) -> BGe:
    """The score of rows as they are."""
    from learners.orders.scores.bdeu_bge import BGe

    deviations = rows - rows.mean(axis=0)
    return BGe(len(rows), rows.mean(axis=0), deviations.T @ deviations)


def known_edges(problem: Problem, n: int, seed: int) -> list[tuple[int, int]]:
    """Some true edges; all, if there are fewer."""
    edges = np.argwhere(problem.graph)
    chosen = np.random.default_rng([seed, n]).permutation(len(edges))[:n]
    return [(int(a), int(b)) for a, b in edges[chosen]]


def posterior_seconds(d: int, n_sets: int, rounds: int) -> dict[str, Any]:
    """Seconds from moments to all edge marginals, and of one query with 16 known edges."""
    from learners.orders.order_learning import learn_order_posterior
    from learners.orders.parameters import OrderParameters
    from learners.orders.queries.edges import posterior_edge_probabilities
    from learners.orders.scores.bdeu_bge import Standard
    from learners.orders.scores.known_edges import Edges
    from learners.orders.scores.scores import StructurePrior

    def run(d: int, sets: int, seed: int) -> tuple[Any, float, float]:
        problem = linear_gaussian(d, N_ROWS, seed)
        score, started, cpu = bge_of(problem.rows), time.perf_counter(), time.process_time()
        parameters = OrderParameters(sets=sets, seed=seed, method="blocks" if d > 24 else "exact")
        posterior = learn_order_posterior(score, StructurePrior(), parameters, d - 1, Standard.none(d), lambda *_: None)
        posterior_edge_probabilities(posterior.prior_sums)
        return posterior, time.perf_counter() - started, time.process_time() - cpu

    run(6, 100, 0)
    run(26, 200, 0) if d > 24 else None  # every kernel has been loaded
    seconds, cpu_seconds, queries, coverage = [], [], [], {}
    for seed in range(rounds):
        posterior, taken, cpu = run(d, n_sets, seed)
        seconds.append(taken)
        cpu_seconds.append(cpu)
        coverage = posterior.coverage.facts()
        edges = known_edges(linear_gaussian(d, N_ROWS, seed), 16, seed)
        known = [edge for edge in edges if edge[0] in posterior.scores.candidates[edge[1]]]
        started = time.perf_counter()
        posterior_edge_probabilities(posterior.sums(Edges(present=frozenset(known))))
        queries.append(time.perf_counter() - started)
    return {"seconds": seconds, "cpu_seconds": cpu_seconds, "queries": queries, "coverage": coverage}


def of_posteriors(columns: Sequence[int], n_sets: int, rounds: int) -> tuple[list[Figure], dict[str, Any]]:
    """Each in a process of its own."""
    figures, facts = [], {}
    for d in columns:
        found, peak = run_in_fresh_process(posterior_seconds, d, n_sets, rounds)
        coverage, middle = found["coverage"], statistics.median(found["cpu_seconds"])
        covered = "" if coverage["is_exact"] else f", orders {coverage['orders']:.1%} covered"
        kind = "exact" if coverage["is_exact"] else f"blocks, {n_sets:,} sets"
        detail = f"{middle:.3g} s of CPU time, peak {peak / 2**20:.0f} MiB{covered}"
        wanted, of_queries = WANTED.get(d, ("", "")), OF_QUERIES.get(d, ("", ""))
        figures += [
            median_figure(f"d = {d}, {kind}: moments to all edge marginals, s", found["seconds"], *wanted, detail),
            median_figure(f"d = {d}: all edge marginals given 16 edges, s", found["queries"], *of_queries),
        ]
        facts[f"d={d}"] = found | {"peak_bytes": peak}
    return figures, facts


def numeric_table(n_rows: int, d: int) -> Path:
    """A Parquet file of doubles from a linear Gaussian network."""
    path = scratch() / f"gaussian-{n_rows}x{d}.parquet"
    if not path.exists():
        names, aside = [f"x{i:02d}" for i in range(d)], path.with_suffix(".partial")
        with pq.ParquetWriter(aside, pa.schema([(name, pa.float64()) for name in names])) as writer:
            for start in range(0, n_rows, ROW_GROUP_ROWS):
                rows = linear_gaussian(d, min(ROW_GROUP_ROWS, n_rows - start), start).rows
                writer.write_table(pa.table(list(rows.T), names=names), row_group_size=ROW_GROUP_ROWS)
        aside.rename(path)
    return path


def of_pass(n_rows: int, rounds: int) -> Figure:
    """The pass for moments against a bare scan, one thread each."""
    from learners.counts.moments import Moments, Unit
    from learners.passes.engine import collect
    from learners.passes.learner import infer_schema
    from learners.passes.sources.source import Source

    pa.set_cpu_count(1)
    path = numeric_table(n_rows, 16)
    source = Source.open(str(path))
    schema = infer_schema(source, None, threads=1)
    units = [Unit.of(attribute) for attribute in schema.attributes]
    seconds = alternated(
        rounds, scan=lambda: scan_parquet_files([path], 1), moments=lambda: collect(Moments(units), source, threads=1)
    )
    return figure(f"moments of {n_rows:,} × 16 ÷ bare scan", seconds["moments"], seconds["scan"], "3", "1.5")


def bdeu_seconds(n_rows: int, d: int) -> dict[str, Any]:
    """Seconds a family of all families of at most four parents of nominal columns, counted rows given."""
    from learners.counts.distinct_rows import DistinctRows
    from learners.orders.scores.bdeu_bge import BDeu
    from learners.orders.scores.candidates import all_candidate_parents
    from learners.orders.scores.scores import StructurePrior
    from learners.schema import Attribute, Chunk, Schema

    codes = nominal_rows(n_rows, d)
    schema = Schema(tuple(Attribute(f"x{i}", "nominal", ("a", "b", "c")) for i in range(d)), None, ("",))
    counted = DistinctRows(schema)
    started = time.perf_counter()
    counted.update(Chunk(codes, None))
    of_rows = time.perf_counter() - started
    BDeu(counted, schema.domain_sizes, 1.0).potentials(np.array([3], np.uint64))
    score, started = BDeu(counted, schema.domain_sizes, 1.0), time.perf_counter()
    tables = score.tables(all_candidate_parents(d, StructurePrior()), MAX_PARENTS)
    taken = time.perf_counter() - started
    n_families = sum(int(np.isfinite(table).sum()) for table in tables)
    return {"seconds": taken, "count_seconds": of_rows, "n_families": n_families, "n_distinct": counted.n_distinct}


def nominal_rows(n_rows: int, d: int) -> Array:
    """(d, n_rows) codes of three values; each column resembles the one before, so that rows repeat."""
    rng = np.random.default_rng(d)
    codes = rng.integers(0, 3, (d, n_rows), dtype=np.uint8)
    for i in range(1, d):
        codes[i] = np.where(rng.random(n_rows) < 0.85, codes[i - 1], codes[i])
    return codes


def of_scores(n_rows: int, d: int) -> Figure:
    """BDeu, a family."""
    found, peak = run_in_fresh_process(bdeu_seconds, n_rows, d)
    seconds = found["seconds"] + found["count_seconds"]
    detail = (
        f"{seconds / found['n_families'] * 1e6:.1f} µs for each of {found['n_families']:,}, counting {found['n_distinct']:,} "
        f"distinct rows included; peak {peak / 2**20:.0f} MiB"
    )
    what = f"BDeu of {d} nominal columns, {n_rows:,} rows, at most {MAX_PARENTS} parents, s"
    return median_figure(what, [seconds], detail=detail)


def main() -> None:
    args = options(
        __doc__,
        columns=[16, 20, 32],
        sets=400_000,
        rounds=3,
        rows=5_000_000,
        nominal_rows=1_000_000,
        nominal_columns=20,
    ).parse_args()
    figures, facts = of_posteriors(args.columns, args.sets, args.rounds)
    if args.rows:
        figures.append(of_pass(args.rows, args.rounds))
    if args.nominal_rows:
        figures.append(of_scores(args.nominal_rows, args.nominal_columns))
    report("Posteriors over structures, one thread", figures, machine() | facts, args.json)


if __name__ == "__main__":
    main()
