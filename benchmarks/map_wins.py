"""The paper's tables of MAP solvers: running time, how often each finds the best answer, how many problems exact search finishes.

Made by `python -m benchmarks.map --wins`. All solvers run in turn on each problem; times are of computation on one thread.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from benchmarks.map_circuits import circuit, n_arcs, random_query
from learners.circuits.map import approximate
from learners.circuits.map.exact import exact
from learners.circuits.map.linear.reduction import MaxProblem
from learners.circuits.map.prepared_circuit import whole_circuit
from learners.kernels.arrays import Integers

# Values closer than this, in nats, are the same.
SAME = 1e-9
APPROXIMATE: dict[str, Callable[[MaxProblem, int], Integers]] = {
    "bt": lambda problem, seed: approximate.best_tree(problem),
    "ng": lambda problem, seed: approximate.greedy_tree(problem),
    "beam 1": lambda problem, seed: approximate.beam_search(problem, 1, seed),
    "beam 10": lambda problem, seed: approximate.beam_search(problem, 10, seed),
    "beam 100": lambda problem, seed: approximate.beam_search(problem, 100, seed),
    "kbt 10": lambda problem, seed: approximate.k_best_tree(problem, 10),
    "kbt 100": lambda problem, seed: approximate.k_best_tree(problem, 100),
    "amap": lambda problem, seed: approximate.argmax_product(problem),
}
SOLVERS = (*APPROXIMATE, "exact")
# Figures 4, 5 and 2 of the paper, split 3/3/4: seconds and wins of 1,000 problems in the order of SOLVERS (its FC+O+S stands
# under "exact"), and what FC+O+S finishes; ten minutes for each problem, Go, another machine.
PAPER: dict[str, tuple[Sequence[float], Sequence[int], int]] = {
    "nltcs": (
        (0.0002, 0.0004, 0.0013, 0.0085, 0.0302, 0.0149, 0.0404, 0.0587, 0.0065),
        (788, 716, 912, 1000, 1000, 1000, 1000, 1000, 1000),
        1000,
    ),
    "plants": (
        (0.0026, 0.0038, 0.0280, 0.2482, 2.6587, 0.2271, 1.6251, 7.9273, 0.6578),
        (816, 605, 423, 902, 999, 995, 1000, 956, 1000),
        1000,
    ),
    "baudio": (
        (0.0025, 0.0039, 0.0611, 0.4248, 4.7020, 0.1918, 1.3606, 5.5219, 444.08),
        (556, 290, 437, 757, 978, 737, 867, 955, 913),
        414,
    ),
    "jester": (
        (0.0039, 0.0053, 0.1062, 0.7611, 8.0272, 0.3558, 2.8065, 14.347, 529.12),
        (504, 174, 442, 736, 941, 720, 842, 888, 814),
        201,
    ),
    "accidents": (
        (0.0041, 0.0055, 0.0408, 0.2987, 2.7260, 0.2533, 1.6691, 14.452, 2.4556),
        (942, 906, 742, 982, 1000, 996, 998, 997, 1000),
        1000,
    ),
    "pumsb_star": (
        (0.0026, 0.0036, 0.0198, 0.1537, 1.5617, 0.1160, 0.7219, 3.6890, 2.8835),
        (739, 656, 681, 971, 1000, 980, 999, 985, 1000),
        1000,
    ),
    "dna": (
        (0.0016, 0.0024, 0.0356, 0.2487, 3.0984, 0.1037, 0.7071, 1.7008, 520.58),
        (613, 108, 266, 481, 712, 620, 641, 957, 533),
        160,
    ),
    "bbc": (
        (0.0238, 0.0325, 0.9577, 5.8167, 43.350, 2.5887, 25.617, 434.51, 600.00),
        (1000, 994, 946, 955, 983, 1000, 1000, 1000, 1000),
        0,
    ),
}


def outcomes(problem: MaxProblem, seed: int, limit_s: float) -> dict[str, tuple[float, float, bool]]:
    """Log value, seconds, and whether it is proved optimal, of every solver."""
    found = {}
    for name, solver in APPROXIMATE.items():
        started = time.thread_time()
        x = solver(problem, seed)
        seconds = time.thread_time() - started
        found[name] = (approximate.log_probability(problem, x), seconds, False)
    started = time.thread_time()
    answer = exact(problem, limit_s, clock=time.thread_time)
    found["exact"] = (answer.log_value, time.thread_time() - started, answer.is_optimal)
    return found


def compare(name: str, is_large: bool, n_problems: int, split: Sequence[int], limit_s: float) -> dict[str, Any]:
    """Times, wins and finishing counts of all solvers on one circuit."""
    whole_one = circuit(name, is_large)
    whole = whole_circuit(whole_one)
    n_variables = len(whole.n_values)
    problems = [whole.reduced(*random_query(name, n_variables, number, split)) for number in range(n_problems)]
    outcomes(problems[0], 0, 0.1)
    results = [outcomes(problem, number, limit_s) for number, problem in enumerate(problems)]
    wins, alone = dict.fromkeys(SOLVERS, 0), dict.fromkeys(SOLVERS, 0)
    for found in results:
        best = max(value for value, _, _ in found.values())
        winners = [solver for solver, (value, _, _) in found.items() if value >= best - SAME]
        for solver in winners:
            wins[solver] += 1
        if len(winners) == 1:
            alone[winners[0]] += 1
    return {
        "circuit": name,
        "split": list(split),
        "arcs": n_arcs(whole_one),
        "n_variables": n_variables,
        "problems": n_problems,
        "mean_ms": {s: 1e3 * statistics.mean(found[s][1] for found in results) for s in SOLVERS},
        "wins": wins,
        "best_alone": alone,
        "finished": sum(found["exact"][2] for found in results),
    }


def tables(results: Sequence[dict[str, Any]]) -> str:
    """Markdown: one table each of times, wins, sole wins and finishing counts, the paper's figures below ours."""
    head = "| circuit | " + " | ".join(SOLVERS) + " |\n| --- |" + " ---: |" * len(SOLVERS)
    times, wins, alone = [head], [head], [head]
    finished = ["| circuit | variables | arcs | finished | in the paper |\n|" + " --- |" * 5]
    for each in results:
        name, n = each["circuit"], each["problems"]
        times.append(_row(name, (_ms(each["mean_ms"][s]) for s in SOLVERS)))
        wins.append(_row(name, (_of(each["wins"][s], n) for s in SOLVERS)))
        alone.append(_row(name, (_of(each["best_alone"][s], n) for s in SOLVERS)))
        paper = PAPER.get(name) if each["split"] == [3, 3, 4] else None
        if paper:
            times.append(_row("_in the paper_", (f"_{_ms(1e3 * seconds)}_" for seconds in paper[0])))
            wins.append(_row("_in the paper_", (f"_{count / 10:.1f}%_" for count in paper[1])))
        count = f"{each['finished']} of {n}"
        theirs = f"{paper[2]} of 1000" if paper else ""
        finished.append(_row(name, (str(each["n_variables"]), f"{each['arcs']:,}", count, theirs)))
    titles = ("Mean ms of computation", "The best answer of all", "The best answer alone", "Proved optimal")
    return "\n\n".join(
        f"**{title}**\n\n" + "\n".join(rows) for title, rows in zip(titles, (times, wins, alone, finished), strict=True)
    )


def _ms(ms: float) -> str:
    return f"{ms:,.0f}" if ms >= 100 else f"{ms:.3g}"


def _of(count: int, n: int) -> str:
    return f"{100 * count / n:.1f}%"


def _row(name: str, cells: Iterable[str]) -> str:
    return f"| {name} | " + " | ".join(cells) + " |"
