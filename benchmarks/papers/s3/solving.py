"""The paper's solvers on random MAP problems: its own best tree and greedy tree, and the product's solvers."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.map_circuits import circuit, n_arcs, random_query
from benchmarks.papers.page import Measured, table
from learners.circuits.circuit import Circuit
from learners.circuits.kernels import INDICATOR, PRODUCT, SUM
from learners.circuits.map import solvers
from learners.circuits.map.query import prepared_map_circuit
from learners.circuits.map.solvers import MaxProblem

SAME = 1e-9  # nats
NAMES = ("paper's bt", "paper's ng", "bt", "ng", "beam 1", "beam 10", "beam 100", "kbt 10", "kbt 100", "amap", "exact")
OURS: dict[str, Callable[[MaxProblem, int], Any]] = {
    "bt": lambda problem, seed: solvers.best_tree_assignment(problem),
    "ng": lambda problem, seed: solvers.greedy_tree_assignment(problem),
    "beam 1": lambda problem, seed: solvers.beam_search_assignment(problem, 1, seed),
    "beam 10": lambda problem, seed: solvers.beam_search_assignment(problem, 10, seed),
    "beam 100": lambda problem, seed: solvers.beam_search_assignment(problem, 100, seed),
    "kbt 10": lambda problem, seed: solvers.best_of_k_trees_assignment(problem, 10),
    "kbt 100": lambda problem, seed: solvers.best_of_k_trees_assignment(problem, 100),
    "amap": lambda problem, seed: solvers.argmax_product_assignment(problem),
}
# Figures 5 and 4 at 3/3/4: wins of 1,000 problems and seconds; bt, ng, beams, kbt, amap, and FC+O+S for exact.
PAPER: dict[str, tuple[Sequence[int], Sequence[float], int]] = {
    "nltcs": ((788, 716, 912, 1000, 1000, 1000, 1000, 1000, 1000), (0.0002, 0.0004, 0.0013, 0.0085, 0.0302, 0.0149, 0.0404, 0.0587, 0.0065), 1000),
    "plants": ((816, 605, 423, 902, 999, 995, 1000, 956, 1000), (0.0026, 0.0038, 0.0280, 0.2482, 2.6587, 0.2271, 1.6251, 7.9273, 0.6578), 1000),
    "baudio": ((556, 290, 437, 757, 978, 737, 867, 955, 913), (0.0025, 0.0039, 0.0611, 0.4248, 4.7020, 0.1918, 1.3606, 5.5219, 444.08), 414),
    "accidents": ((942, 906, 742, 982, 1000, 996, 998, 997, 1000), (0.0041, 0.0055, 0.0408, 0.2987, 2.7260, 0.2533, 1.6691, 14.452, 2.4556), 1000),
}  # fmt: skip
OF_PAPER = ("bt", "ng", "beam 1", "beam 10", "beam 100", "kbt 10", "kbt 100", "amap", "exact")
SETTINGS = (
    "smaller LearnSPN circuits than the paper's on accidents and baudio; fewer problems; two seconds of computation for exact search instead of ten minutes",
    "`paper's bt` and `paper's ng` work on the original network; the product's versions first merge sums of sums, and then build the trees",
    "`exact` is the product's branch and bound with its own bound; the paper's is FC+O+S",
)


def own_tree(network: Circuit, query: Sequence[int], evidence: Mapping[int, int], is_best: bool) -> dict[int, int]:
    """BT, where sums over queried variables become maxima, or NG, where they stay; then the tree from the root down."""
    queried, kind, starts = set(query), network.kind, network.child_starts
    children, weight = network.children, np.exp(network.log_weight)
    n, values = network.n_nodes, np.zeros(network.n_nodes)
    has_query, best_value = np.zeros(n, bool), np.full(n, -1)
    for k in range(n):
        own = slice(starts[k], starts[k + 1])
        if kind[k] == PRODUCT:
            values[k], has_query[k] = values[children[own]].prod(), has_query[children[own]].any()
        elif kind[k] == SUM:
            parts = weight[own] * values[children[own]]
            has_query[k] = has_query[children[own]].any()
            values[k] = parts.max() if is_best and has_query[k] else parts.sum()
        else:
            v, leaf = (
                int(network.variable[k]),
                network.leaf_parameters[network.leaf_starts[k] : network.leaf_starts[k + 1]],
            )
            p = np.zeros(network.n_values[v])
            if kind[k] == INDICATOR:
                p[int(leaf[0])] = 1.0
            else:
                p[:] = np.exp(leaf)
            best_value[k] = int(p.argmax())
            has_query[k] = v in queried
            values[k] = p[evidence[v]] if v in evidence else (p.max() if is_best and v in queried else p.sum())
    assignment, pending = {}, [n - 1]
    while pending:
        k = pending.pop()
        if not has_query[k]:
            continue
        own = slice(starts[k], starts[k + 1])
        if kind[k] == PRODUCT:
            pending += children[own].tolist()
        elif kind[k] == SUM:
            pending.append(int(children[own][(weight[own] * values[children[own]]).argmax()]))
        else:
            assignment[int(network.variable[k])] = int(best_value[k])
    return assignment


def outcomes(
    network: Circuit, problem: MaxProblem, query: Sequence[int], evidence: Mapping[int, int], seed: int, limit_s: float
) -> dict[str, tuple[float, float, bool]]:
    """Log value, seconds, and whether it is proved, of every solver."""
    results = {}
    for name, is_best in (("paper's bt", True), ("paper's ng", False)):
        started = time.thread_time()
        assignment = own_tree(network, query, evidence, is_best)
        seconds = time.thread_time() - started
        x = np.array([assignment[int(v)] for v in problem.variables], np.int64)
        results[name] = (solvers.assignment_log_probability(problem, x), seconds, False)
    for name, solver in OURS.items():
        started = time.thread_time()
        x = solver(problem, seed)
        seconds = time.thread_time() - started
        results[name] = (solvers.assignment_log_probability(problem, x), seconds, False)
    started = time.thread_time()
    answer = solvers.branch_and_bound_assignment(problem, limit_s, clock=time.thread_time)
    seconds = time.thread_time() - started
    results["exact"] = (solvers.assignment_log_probability(problem, answer.x), seconds, answer.is_optimal)
    return results


def solved(
    name: str, n_problems: int, split: tuple[int, int, int], limit_s: float
) -> tuple[Circuit, list[dict[str, tuple[float, float, bool]]]]:
    """All solvers on the problems of one circuit."""
    network = circuit(name)
    whole = prepared_map_circuit(network)
    results = []
    for number in range(n_problems):
        query, evidence = random_query(name, network.n_variables, number, split)
        problem = whole.reduced(query, evidence)
        if not number:
            outcomes(network, problem, query, evidence, 0, 0.1)  # loads kernels
        results.append(outcomes(network, problem, query, evidence, number, limit_s))
    return network, results


def wins_page(split: tuple[int, int, int], is_quick: bool) -> Measured:
    """How often each solver finds the best value of all."""
    n_problems = 40 if is_quick else 300
    rows = []
    for name in ("nltcs", "plants") if is_quick else ("nltcs", "plants", "accidents", "baudio"):
        network, results = solved(name, n_problems, split, 2.0)
        wins = dict.fromkeys(NAMES, 0)
        for one in results:
            best = max(value for value, _, _ in one.values())
            for solver, (value, _, _) in one.items():
                wins[solver] += value >= best - SAME
        rows.append(
            [name, f"ours, {n_arcs(network):,} arcs", *(f"{wins[solver] / n_problems:.3f}" for solver in NAMES)]
        )
        if split == (3, 3, 4):
            of_paper = dict(zip(OF_PAPER, PAPER[name][0], strict=True))
            of_paper |= {"paper's bt": of_paper.pop("bt"), "paper's ng": of_paper.pop("ng")}
            rows.append([name, "paper", *(f"{of_paper[s] / 1000:.3f}" if s in of_paper else "" for s in NAMES)])
    text = (
        ""
        if split == (3, 3, 4)
        else "The paper's wins at proportions other than 3/3/4 are in its supplement, which was not available."
    )
    return Measured(
        [text, "", *table(["circuit", "whose", *NAMES], rows)],
        f"{n_problems} random problems a circuit, query/evidence/hidden {'/'.join(map(str, split))}; the paper has 1,000.",
        f"0 to {n_problems - 1}, one a problem",
        "shares of problems in which the solver's value is the best of all solvers, ties included.",
        SETTINGS,
    )


def times_page(is_quick: bool) -> Measured:
    """Mean seconds of each solver, and how many problems exact search finishes."""
    n_problems = 40 if is_quick else 300
    rows = []
    for name in ("nltcs", "plants") if is_quick else ("nltcs", "plants", "accidents", "baudio"):
        network, results = solved(name, n_problems, (3, 3, 4), 2.0)
        means = [f"{1e3 * statistics.mean(one[solver][1] for one in results):.3f}" for solver in NAMES]
        finished = sum(one["exact"][2] for one in results)
        rows.append([name, f"ours, {n_arcs(network):,} arcs", *means, f"{finished} of {n_problems}"])
        of_paper = dict(zip(OF_PAPER, PAPER[name][1], strict=True))
        of_paper |= {"paper's bt": of_paper.pop("bt"), "paper's ng": of_paper.pop("ng")}
        cells = [f"{1e3 * of_paper[s]:.1f}" if s in of_paper else "" for s in NAMES]
        rows.append([name, "paper, Go", *cells, f"{PAPER[name][2]} of 1000"])
    return Measured(
        table(["circuit", "whose", *(f"{name}, ms" for name in NAMES), "exact finishes"], rows),
        f"{n_problems} random problems a circuit, query/evidence/hidden 3/3/4; the paper has 1,000.",
        f"0 to {n_problems - 1}, one a problem",
        "mean milliseconds of computation on one thread.",
        (*SETTINGS, "`paper's bt` and `paper's ng` are Python loops here, so their times are not comparable"),
    )
