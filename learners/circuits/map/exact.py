"""The exact solver, anytime, with a proof of optimality or a bound: branch and bound; and the k most probable assignments by it."""

from __future__ import annotations

import heapq
import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from learners.circuits.map import approximate, search_kernels
from learners.circuits.map.bound_kernels import look_ahead
from learners.circuits.map.linear.reduction import MaxProblem, restricted
from learners.kernels.arrays import Integers, Uint8s

# Logarithms that differ by no more are equal.
SAME = 1e-10
# The look-ahead keeps a row of bounds per inner node: beyond this many numbers (512 MiB) bounds by derivatives must do.
MOST_ROW_ENTRIES = 64 << 20
# The clock is looked at about this often.
PIECE_S = 0.005
FIRST_PIECE_EDGES = 200_000
# So many edges are visited before memory for a long search is made: most problems are solved by then.
QUICK_EDGES = 50_000


@dataclass(frozen=True)
class Found:
    """What a search has found."""

    x: Integers  # (n_variables,) int64
    # log_value, log_bound: the assignment's log probability, and an upper bound of every assignment's.
    log_value: float
    log_bound: float
    is_optimal: bool  # whether nothing exceeds log_value by more than a relative 1e-10
    n_expanded: int  # nodes of the search tree whose bounds were computed


def exact(
    problem: MaxProblem, time_limit_s: float, k: int = 10, clock: Callable[[], float] = time.perf_counter
) -> Found:
    """The most probable assignment, or the best found in the time, by depth-first branch and bound.

    Starts from the best tree; when the first bounds do not prove it optimal, from the k best trees. At every node of the
    search tree one pass bounds all subspaces X = x; those that cannot exceed the best value so far are left out until
    nothing changes; then the variable with the fewest values is tried, its best value first.

    time_limit_s: looked at every few milliseconds; zero still gives the best tree and a bound.
    k: trees to start from.
    clock: what the limit is of; `time.thread_time` for comparisons on a machine with other work.
    References: Mei, Jiang, Tu (2018), algorithm 2, with forward checking and ordering.
    """
    deadline = clock() + time_limit_s
    arrays = problem.arrays
    n_slots = int(arrays.value_starts[-1])
    looks_ahead = arrays.is_sum.size * n_slots <= MOST_ROW_ENTRIES
    x = np.empty(problem.n_variables, dtype=np.int64)
    outcome = np.empty(3)
    search_kernels.solve_easy(arrays, looks_ahead, k, QUICK_EDGES if time_limit_s > 0 else 0, x, outcome)
    if outcome[1] <= outcome[0] and outcome[0] >= approximate.SMALLEST_VALUE:
        log_value = problem.log_bound + math.log(outcome[0])
        return Found(x, log_value, log_value, True, int(outcome[2]))
    return _search(problem, looks_ahead, _better(problem, x, k), deadline, clock)


def _better(problem: MaxProblem, x: Integers, k: int) -> Integers:
    """The best of the k best trees and x."""
    candidates = np.stack([x, approximate.k_best_tree(problem, k)])
    return candidates[np.argmax(approximate.log_probabilities(problem, candidates))]


def _search(problem: MaxProblem, looks_ahead: bool, x: Integers, deadline: float, clock: Callable[[], float]) -> Found:
    arrays, log_bound = problem.arrays, problem.log_bound
    frames, room, progress = search_kernels.begin_search(arrays, log_bound, looks_ahead)
    progress.best[:] = x
    progress.log_best[0] = approximate.log_probability(problem, x)
    budget = FIRST_PIECE_EDGES
    while True:
        started = clock()
        search_kernels.search(arrays, log_bound, frames, room, progress, looks_ahead, budget)
        depth = int(progress.counts[0])
        now = clock()
        if depth < 0 or now >= deadline:
            break
        budget = max(1, int(budget * min(4.0, min(PIECE_S, deadline - now) / max(now - started, 1e-6))))
    # A path's own bounds leave rounding: what is proved optimal is its own bound.
    log_value = approximate.log_probability(problem, progress.best)
    left = float(frames.log_bound[: depth + 1].max(initial=-np.inf))
    return Found(progress.best, log_value, max(log_value, min(left, log_bound)), depth < 0, int(progress.counts[1]))


def root_bound(problem: MaxProblem) -> float:
    """The look-ahead's upper bound of the maximum's logarithm, without a search."""
    arrays = problem.arrays
    n_slots = int(arrays.value_starts[-1])
    n_inner = arrays.is_sum.size
    if n_inner * n_slots > MOST_ROW_ENTRIES:
        return problem.log_bound
    slots, rows, tops = np.empty(n_slots), np.empty(n_inner * n_slots), np.empty(n_inner)
    spans, leaf_tops = np.empty((n_inner, 2), dtype=np.int64), np.empty(arrays.leaf_variable.size)
    look_ahead(arrays, np.ones(n_slots, dtype=np.uint8), rows, spans, tops, leaf_tops, slots)
    return problem.log_bound + float(np.log(np.maximum.reduceat(slots, arrays.value_starts[:-1]).min()))


@dataclass(frozen=True)
class _Part:
    """Some of the assignments: those of allowed (n_slots,) values; and the best of them, once it is searched for."""

    allowed: Uint8s
    found: Found | None = None


def best_assignments(problem: MaxProblem, n: int, time_limit_s: float, k: int = 10) -> list[Found]:
    """The n most probable assignments, the best first; fewer if no other is possible, or time is up.

    The assignments but the best so far are divided by the first variable in which they differ from it. Each part has a
    bound; only a part whose bound is the largest of all is searched. So an answer is proved: none of what is left
    exceeds it, which is its bound. What was found when time was up follows with the bound of all that is left.

    References: Lawler (1972), A procedure for computing the K best solutions to discrete optimization problems; Nilsson
    (1998), An efficient algorithm for finding the M most probable configurations in probabilistic expert systems.
    """
    deadline = time.perf_counter() + time_limit_s
    starts = problem.arrays.value_starts
    everything = _Part(np.ones(int(starts[-1]), np.uint8), exact(problem, time_limit_s, k))
    # The parts by their bounds, those searched for before others of the same bound.
    order = itertools.count()
    assert everything.found is not None
    heap = [(-everything.found.log_bound, False, next(order), everything)]
    answers: list[Found] = []
    while heap and len(answers) < n:
        bound, _, _, part = heapq.heappop(heap)
        if part.found is None:
            left_s = deadline - time.perf_counter()
            if left_s <= 0.0:
                heapq.heappush(heap, (bound, True, next(order), part))
                break
            found = _searched(problem, part.allowed, left_s, k)
            if found.log_value > -math.inf:
                heapq.heappush(heap, (-min(found.log_bound, -bound), False, next(order), _Part(part.allowed, found)))
            continue
        found = part.found
        most = max(found.log_value, -heap[0][0]) if heap else found.log_value
        if not found.is_optimal or most > found.log_value + SAME:
            # Time was up within a search: its assignment may not be the next one.
            heapq.heappush(heap, (bound, False, next(order), part))
            break
        answers.append(Found(found.x, found.log_value, most, True, found.n_expanded))
        for rest in _others(problem, part.allowed, found):
            own = restricted(problem, rest, np.zeros(problem.n_variables, np.uint8))
            log_bound = min(found.log_value, root_bound(own) if own.n_variables else own.log_bound)
            if log_bound > -math.inf:
                heapq.heappush(heap, (-log_bound, True, next(order), _Part(rest)))
    return answers + _unproved(heap, n - len(answers))


def _unproved(heap: list[tuple[float, bool, int, _Part]], n: int) -> list[Found]:
    """What was found, but not proved, when time was up, with the bound of all that is left."""
    if not heap:
        return []
    log_bound = -heap[0][0]
    found = sorted((part.found for *_, part in heap if part.found is not None), key=lambda each: -each.log_value)
    return [Found(each.x, each.log_value, max(log_bound, each.log_value), False, each.n_expanded) for each in found[:n]]


def _searched(problem: MaxProblem, allowed: Uint8s, time_limit_s: float, k: int) -> Found:
    """The best assignment of a part."""
    starts = problem.arrays.value_starts
    own = restricted(problem, allowed, np.zeros(problem.n_variables, np.uint8))
    # What has one value left is not in the part's own problem.
    x = np.array([int(allowed[a:b].argmax()) for a, b in itertools.pairwise(starts.tolist())], np.int64)
    if not own.n_variables:
        return Found(x, own.log_bound, own.log_bound, True, 0)
    found = exact(own, time_limit_s, k)
    place = {v: i for i, v in enumerate(problem.variables.tolist())}
    x[[place[v] for v in own.variables.tolist()]] = found.x
    return Found(x, found.log_value, found.log_bound, found.is_optimal, found.n_expanded)


def _others(problem: MaxProblem, allowed: Uint8s, found: Found) -> list[Uint8s]:
    """The allowed values of the parts without an assignment: as it is in the first variables, and other in the next."""
    rest, parts = allowed.copy(), []
    for (first, end), code in zip(
        itertools.pairwise(problem.arrays.value_starts.tolist()), found.x.tolist(), strict=True
    ):
        if rest[first:end].sum() > 1:
            other = rest.copy()
            other[first + code] = 0
            parts.append(other)
        rest[first:end] = 0
        rest[first + code] = 1
    return parts
