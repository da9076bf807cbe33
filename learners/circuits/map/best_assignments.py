"""The k most probable assignments in order, each with its proof: the exact solver on what the ones before leave."""

from __future__ import annotations

import heapq
import itertools
import math
import time
from dataclasses import dataclass

import numpy as np

from learners.circuits.map.exact import Found, exact, root_bound
from learners.circuits.map.linear.reduction import MaxProblem, restricted
from learners.kernels.arrays import Uint8s

# Logarithms that differ by no more are equal.
SAME = 1e-10


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
