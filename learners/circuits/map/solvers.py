"""The MAX problem to which a MAP query reduces, and its solvers.

Approximate solvers return one assignment by trees, products or climbing; branch and bound proves optimality.
"""

from __future__ import annotations

import heapq
import itertools
import math
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass

import numpy as np

from learners.circuits.errors import BeyondDoublePrecision
from learners.circuits.map import beam_kernels, kbest_kernels, parse_tree_kernels, search_kernels
from learners.circuits.map.reduction_kernels import reduced_circuit
from learners.circuits.map.value_kernels import (
    LANES,
    MaxArrays,
    assignment_log_value,
    assignment_values,
    look_ahead_bounds,
)
from learners.kernels.arrays import Floats, Integers, Uint8s


@dataclass(frozen=True)
class MaxProblem:
    """The problem max over x of exp(log_bound) · S(x), where S is the scaled circuit in `arrays`, hence at most one.

    References: Mei, Jiang, Tu (2018), algorithm 1; the bound replaces their sum over the remaining values of a leaf by
    a maximum.
    """

    arrays: MaxArrays
    # Logarithm of an upper bound of the maximum: maxima at leaves, sums elsewhere; -inf if the evidence is impossible.
    log_bound: float
    variables: Integers  # (n_variables,) int64: query variables, by their number in the whole circuit

    @property
    def n_variables(self) -> int:
        """Number of query variables."""
        return len(self.variables)


def restrict_max_problem(problem: MaxProblem, allowed: Uint8s, hidden: Uint8s) -> MaxProblem:
    """Restrict the problem to the variables that are neither hidden nor fixed to one value.

    allowed (n_slots,) uint8: the values that each variable may still take; hidden (n_variables,) uint8: which to
    sum out.
    """
    if not problem.arrays.leaf_variable.size:  # a constant: no variable is left that matters
        return problem
    gain = np.empty(1)
    arrays, keep = reduced_circuit(problem.arrays, allowed, hidden, gain)
    if not arrays.leaf_variable.size:
        keep = keep[:0]
    return MaxProblem(arrays, problem.log_bound + float(gain[0]), problem.variables[keep])


# Values below this are compared in logarithms, or not at all.
SMALLEST_VALUE = 1e-290


def assignment_log_probability(problem: MaxProblem, x: Integers) -> float:
    """Return the log value of an assignment (n_variables,) int64, with hidden variables summed out and evidence
    included.
    """
    return float(assignment_log_value(problem.arrays, x, np.empty(problem.arrays.is_sum.size))) + problem.log_bound


def assignment_log_probabilities(problem: MaxProblem, assignments: Integers) -> Floats:
    """Return the log value of each assignment (n, n_variables) int64, (n,) float64."""
    arrays = problem.arrays
    values = np.empty(len(assignments))
    room = np.empty((arrays.is_sum.size, LANES))
    assignment_values(arrays, assignments, len(assignments), room, values)
    logs = np.log(values, where=values >= SMALLEST_VALUE, out=np.full(len(values), -np.inf))
    for k in np.flatnonzero(values < SMALLEST_VALUE):
        logs[k] = assignment_log_value(arrays, assignments[k], room[:, 0].copy())
    return logs + problem.log_bound


def best_tree_assignment(problem: MaxProblem) -> Integers:
    """Return the assignment (n_variables,) int64 of the parse tree with the largest value (BT); exact if each tree has
    a distinct assignment.

    References: Poon, Domingos (2011); Mei, Jiang, Tu (2018), "Existing methods".
    """
    x = np.zeros(problem.n_variables, dtype=np.int64)
    parse_tree_kernels.best_parse_tree(problem.arrays, _tree_scratch(problem), x)
    return x


def greedy_tree_assignment(problem: MaxProblem) -> Integers:
    """Return the assignment of the greedy tree that takes the child with the largest normalized weight at every sum
    (NG), (n_variables,) int64.

    References: Poon, Domingos (2011); Mei, Jiang, Tu (2018), "Existing methods".
    """
    x = np.zeros(problem.n_variables, dtype=np.int64)
    totals, heaviest, stack = _tree_scratch(problem)
    parse_tree_kernels.total_node_values(problem.arrays, totals.view(np.float64), heaviest)
    parse_tree_kernels.write_parse_tree_assignment(problem.arrays, heaviest, stack, x)
    return x


def _tree_scratch(problem: MaxProblem) -> Integers:
    return np.empty((3, problem.arrays.is_sum.size + 1), dtype=np.int64)


def k_best_tree_assignments(problem: MaxProblem, k: int) -> tuple[Integers, Floats]:
    """Return the assignments of the k best parse trees, and the trees' values relative to the best.

    Trees are found lazily from the root, so that only the subtrees that a tree needs are ranked.

    Returns (n, n_variables) int64 with n <= k, best tree first, assignments may repeat; (n,) float64.
    References: Mei, Jiang, Tu (2018), algorithm 3; Huang, Chiang (2005), algorithm 3, for the lazy order.
    """
    assignments = np.empty((k, problem.n_variables), dtype=np.int64)
    scores = np.empty(k)
    n = kbest_kernels.find_k_best_trees(problem.arrays, assignments, scores)
    return assignments[:n], scores[:n]


def best_of_k_trees_assignment(problem: MaxProblem, k: int) -> Integers:
    """Return the assignment of highest value among those of the k best parse trees (KBT), (n_variables,) int64.

    References: Mei, Jiang, Tu (2018), algorithm 3.
    """
    x = np.zeros(problem.n_variables, dtype=np.int64)
    kbest_kernels.best_of_k_best_trees(problem.arrays, k, x, np.empty(1))
    return x


def argmax_product_assignment(problem: MaxProblem) -> Integers:
    """Return the argmax-product assignment (AMAP), (n_variables,) int64: every sum keeps the child assignment with the
    largest value at the sum.

    Raises BeyondDoublePrecision if the best tree lies hundreds of nats below the bound.

    References: Conaty, Mauá, de Campos (2017), algorithm 1.
    """
    arrays = problem.arrays
    n_inner = arrays.is_sum.size
    choices = np.empty((n_inner, problem.n_variables), dtype=np.int64)
    x = np.zeros(problem.n_variables, dtype=np.int64)
    mark = np.empty((2, n_inner), dtype=np.int64)
    parse_tree_kernels.argmax_product(arrays, choices, mark, np.empty((n_inner, LANES)), x)
    if (x < 0).any():
        raise BeyondDoublePrecision(
            "amap", problem.log_bound - assignment_log_probability(problem, best_tree_assignment(problem))
        )
    return x


def beam_search_assignment(problem: MaxProblem, k: int, seed: int) -> Integers:
    """Return the best assignment of a beam search (BS): hill climbing from k samples, keeping the k best one-variable
    changes per round.

    The result, (n_variables,) int64, is the best assignment found, reproducible by seed. Raises
    BeyondDoublePrecision if every sample's value is zero on the scale of the bound.
    References: Park (2002); Mei, Jiang, Tu (2018), "Existing methods".
    """
    x = np.zeros(problem.n_variables, dtype=np.int64)
    state = np.array([seed], dtype=np.uint64)
    if beam_kernels.beam_search(problem.arrays, k, state, x) < SMALLEST_VALUE:
        raise BeyondDoublePrecision(
            "beam", problem.log_bound - assignment_log_probability(problem, best_tree_assignment(problem))
        )
    return x


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
    """Result of a search."""

    x: Integers  # (n_variables,) int64
    # log_value, log_bound: the assignment's log probability, and an upper bound of every assignment's.
    log_value: float
    log_bound: float
    is_optimal: bool  # whether nothing exceeds log_value by more than a relative 1e-10
    n_expanded: int  # nodes of the search tree whose bounds were computed


# Called every few milliseconds of a search; what it raises ends the search.
look_up: ContextVar[Callable[[], object]] = ContextVar("look_up", default=lambda: None)


def branch_and_bound_assignment(
    problem: MaxProblem, time_limit_s: float, k: int = 10, clock: Callable[[], float] = time.perf_counter
) -> Found:
    """Return the most probable assignment, or the best found within the time, by depth-first branch and bound.

    The search starts from the best tree; if the first bounds do not prove it optimal, from the k best trees. At
    every node of the search tree one pass bounds all subspaces X = x; those that cannot exceed the best value so
    far are pruned until nothing changes; then the variable with the fewest values is tried, its best value first.

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
    search_kernels.solve_within_budget(arrays, looks_ahead, k, QUICK_EDGES if time_limit_s > 0 else 0, x, outcome)
    if outcome[1] <= outcome[0] and outcome[0] >= SMALLEST_VALUE:
        log_value = problem.log_bound + math.log(outcome[0])
        return Found(x, log_value, log_value, True, int(outcome[2]))
    candidates = np.stack([x, best_of_k_trees_assignment(problem, k)])
    return _search(
        problem, looks_ahead, candidates[np.argmax(assignment_log_probabilities(problem, candidates))], deadline, clock
    )


def _search(problem: MaxProblem, looks_ahead: bool, x: Integers, deadline: float, clock: Callable[[], float]) -> Found:
    arrays, log_bound = problem.arrays, problem.log_bound
    frames, room, progress = search_kernels.create_search_state(arrays, log_bound, looks_ahead)
    progress.best[:] = x
    progress.log_best[0] = assignment_log_probability(problem, x)
    budget = FIRST_PIECE_EDGES
    while True:
        started = clock()
        search_kernels.continue_branch_and_bound(arrays, log_bound, frames, room, progress, looks_ahead, budget)
        depth = int(progress.counts[0])
        look_up.get()()
        now = clock()
        if depth < 0 or now >= deadline:
            break
        budget = max(1, int(budget * min(4.0, min(PIECE_S, deadline - now) / max(now - started, 1e-6))))
    # A path's own bounds leave rounding: what is proved optimal is its own bound.
    log_value = assignment_log_probability(problem, progress.best)
    left = float(frames.log_bound[: depth + 1].max(initial=-np.inf))
    return Found(progress.best, log_value, max(log_value, min(left, log_bound)), depth < 0, int(progress.counts[1]))


def look_ahead_upper_bound(problem: MaxProblem) -> float:
    """Return the look-ahead's upper bound of the log maximum, without a search."""
    arrays = problem.arrays
    n_slots = int(arrays.value_starts[-1])
    n_inner = arrays.is_sum.size
    if n_inner * n_slots > MOST_ROW_ENTRIES:
        return problem.log_bound
    slots, rows, tops = np.empty(n_slots), np.empty(n_inner * n_slots), np.empty(n_inner)
    spans, leaf_tops = np.empty((n_inner, 2), dtype=np.int64), np.empty(arrays.leaf_variable.size)
    look_ahead_bounds(arrays, np.ones(n_slots, dtype=np.uint8), rows, spans, tops, leaf_tops, slots)
    return problem.log_bound + float(np.log(np.maximum.reduceat(slots, arrays.value_starts[:-1]).min()))


@dataclass(frozen=True)
class _Part:
    """A subset of the assignments, those of allowed (n_slots,) values, and the best of them, once searched."""

    allowed: Uint8s
    found: Found | None = None


def best_assignments(problem: MaxProblem, n: int, time_limit_s: float, k: int = 10) -> list[Found]:
    """Return the n most probable assignments, best first; fewer if no other is possible, or time is up.

    The assignments other than the best so far are divided by the first variable in which they differ from it.
    Only a part whose bound is the largest is searched, so each result is proved: its bound covers everything
    left. Unproved results at the time limit follow with the bound of all that is left.

    References: Lawler (1972), A procedure for computing the K best solutions to discrete optimization problems; Nilsson
    (1998), An efficient algorithm for finding the M most probable configurations in probabilistic expert systems.
    """
    deadline = time.perf_counter() + time_limit_s
    starts = problem.arrays.value_starts
    everything = _Part(np.ones(int(starts[-1]), np.uint8), branch_and_bound_assignment(problem, time_limit_s, k))
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
            own = restrict_max_problem(problem, rest, np.zeros(problem.n_variables, np.uint8))
            log_bound = min(found.log_value, look_ahead_upper_bound(own) if own.n_variables else own.log_bound)
            if log_bound > -math.inf:
                heapq.heappush(heap, (-log_bound, True, next(order), _Part(rest)))
    return answers + _unproved(heap, n - len(answers))


def _unproved(heap: list[tuple[float, bool, int, _Part]], n: int) -> list[Found]:
    """Return the unproved results at the time limit, with the bound of all that is left."""
    if not heap:
        return []
    log_bound = -heap[0][0]
    best = sorted((part.found for *_, part in heap if part.found is not None), key=lambda each: -each.log_value)
    return [Found(each.x, each.log_value, max(log_bound, each.log_value), False, each.n_expanded) for each in best[:n]]


def _searched(problem: MaxProblem, allowed: Uint8s, time_limit_s: float, k: int) -> Found:
    """Search for the best assignment of a part."""
    starts = problem.arrays.value_starts
    own = restrict_max_problem(problem, allowed, np.zeros(problem.n_variables, np.uint8))
    # What has one value left is not in the part's own problem.
    x = np.array([int(allowed[a:b].argmax()) for a, b in itertools.pairwise(starts.tolist())], np.int64)
    if not own.n_variables:
        return Found(x, own.log_bound, own.log_bound, True, 0)
    found = branch_and_bound_assignment(own, time_limit_s, k)
    place = {v: i for i, v in enumerate(problem.variables.tolist())}
    x[[place[v] for v in own.variables.tolist()]] = found.x
    return Found(x, found.log_value, found.log_bound, found.is_optimal, found.n_expanded)


def _others(problem: MaxProblem, allowed: Uint8s, found: Found) -> list[Uint8s]:
    """Divide a part without an assignment: each new part agrees with it in the first variables and differs in the next."""
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
