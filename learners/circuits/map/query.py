"""MAP queries on a circuit: the public face of the solvers."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from learners.arrays import Integers, frozen
from learners.circuits.circuit import Circuit
from learners.circuits.map import approximate
from learners.circuits.map.call_kernels import answer_again, tree_answer
from learners.circuits.map.errors import ContinuousQuery, ImpossibleEvidence, InvalidQuery
from learners.circuits.map.exact import BOUNDS, MOST_ROW_ENTRIES, exact, root_bound
from learners.circuits.map.reduction import MaxProblem
from learners.circuits.map.whole import Pattern, WholeCircuit, whole_circuit
from learners.query import MAX_TREES

SOLVERS = ("bt", "ng", "amap", "beam", "kbt", "exact")
TREE_SOLVERS = ("bt", "kbt")
BY_ONE_TREE = ("bt", "ng")
# Logarithms that differ by no more are equal.
SAME = 1e-10
LIMITS = frozen(np.array([float(MOST_ROW_ENTRIES), approximate.SMALLEST_VALUE]))


@dataclass(frozen=True)
class MapAnswer:
    """The answer to a MAP query.

    Attributes
    ----------
    assignment : dict of variable to value
        A code for a variable with a finite domain; for another the mode of a leaf.
    log_probability : float
        log S(q, e) of assignment and evidence together, hidden variables summed out; a density where variables are
        continuous. Subtract the evidence's log probability for the conditional one.
    upper_bound : float
        No assignment's log probability is larger.
    is_optimal : bool
        Whether the two are equal (to a relative 1e-10 of the probability), which is a proof of optimality.
    n_expanded : int
        Nodes of the search tree; 0 for solvers that do not search.
    seconds : float
        Of the whole query, reduction included.
    """

    assignment: dict[int, float]
    log_probability: float
    upper_bound: float
    is_optimal: bool
    n_expanded: int
    seconds: float


def map_query(
    circuit: Circuit,
    query: Sequence[int],
    evidence: Mapping[int, float] | None = None,
    solver: str = "exact",
    *,
    time_limit_s: float = 10.0,
    k: int = 10,
    seed: int = 0,
    bound: str = "look-ahead",
) -> MapAnswer:
    """The most probable values of the query variables given evidence, every other variable summed out.

    Parameters
    ----------
    circuit : Circuit
    query : variables, by number
    evidence : values of other variables
        Codes of finite domains, numbers for continuous variables.
    solver : 'bt', 'ng', 'amap', 'beam', 'kbt' or 'exact'
        Only `exact` proves optimality by search; it starts from `kbt` and returns the best so far when time is up. The
        others answer in one go, and are called optimal if the bound happens to prove it.
    time_limit_s : float
        For `exact`.
    k : int
        Trees of `kbt` and `exact`, samples of `beam`.
    seed : int
        Of the samples of `beam`; the other solvers draw nothing.
    bound : 'sum', 'leaf-maximum' or 'look-ahead'
        Bound of `exact`; the first is the paper's, for comparison.

    Raises
    ------
    InvalidQuery
        A variable or value that the circuit does not have, or a variable both asked for and given.
    ImpossibleEvidence
        The evidence has probability zero.
    ContinuousQuery
        A variable without a finite domain is asked for by a solver other than bt and kbt.

    References
    ----------
    Mei, Jiang, Tu (2018).
    """
    started = time.perf_counter()
    _check_options(solver, k, seed, time_limit_s, bound)
    whole = whole_circuit(circuit)
    if solver in BY_ONE_TREE:
        known = _again(whole, query, evidence or {}, solver == "ng")
        if known is not None:
            return MapAnswer(*known, 0, time.perf_counter() - started)
    asked, given = _checked(whole, query, evidence or {})
    continuous = [v for v in asked if whole.n_values[v] == 0]
    if continuous and solver not in TREE_SOLVERS:
        raise ContinuousQuery(solver, continuous)
    if solver in BY_ONE_TREE and whole.finite is not None:
        at_once = _by_tree(whole, asked, given, solver == "ng")
        if at_once is not None:
            return MapAnswer(*at_once, 0, time.perf_counter() - started)
    problem = whole.reduced(asked, given)
    if problem.log_bound == -math.inf:
        raise ImpossibleEvidence(given)
    n_expanded, bound_now, is_optimal = 0, math.inf, False
    if solver == "exact" and problem.n_variables:
        found = exact(problem, time_limit_s, k, bound)
        x, value, bound_now = found.x, found.log_value, found.log_bound
        is_optimal, n_expanded = found.is_optimal, found.n_expanded
    else:
        x = _approximate(problem, solver, k, seed)
        value = problem.log_bound
    assignment = _assignment(whole, problem, asked, x)
    if continuous:
        value = whole.reduced([], given | assignment).log_bound
        bound_now = max(value, whole.reduced(asked, given, hide_continuous=True).log_bound)
    elif solver != "exact" and problem.n_variables:
        value = approximate.log_probability(problem, x)
        bound_now = max(value, root_bound(problem))
        is_optimal = bound_now - value <= SAME
    elif not problem.n_variables:
        bound_now, is_optimal = value, True
    seconds = time.perf_counter() - started
    return MapAnswer(assignment, float(value), float(bound_now), bool(is_optimal), int(n_expanded), seconds)


Told = tuple[dict[int, float], float, float, bool]


def _again(whole: WholeCircuit, query: Sequence[int], evidence: Mapping[int, float], is_greedy: bool) -> Told | None:
    """As `_by_tree`, of variables that were asked for and given before; None if they were not, or a value is none of theirs.

    Raises
    ------
    ImpossibleEvidence
    """
    pattern = whole.patterns.get((tuple(query), tuple(evidence)))
    if pattern is None or pattern.known is None:
        return None
    known, problem = pattern.known, pattern.problem
    x, found = np.zeros(problem.n_variables, np.int64), np.empty(4)
    given = np.array([*evidence.values(), 0.0], np.float64)
    options = (is_greedy, LIMITS)
    answer_again(problem.arrays, known.template, known.circuit, given, known.domains, options, x, found)
    told = found.tolist()
    return None if math.isnan(told[0]) else _told(pattern, evidence, x, told)


def _by_tree(whole: WholeCircuit, asked: Sequence[int], given: Mapping[int, float], is_greedy: bool) -> Told | None:
    """Assignment, its log value, an upper bound and whether they are equal, by one call of a kernel; None where no variable is left that matters.

    Raises
    ------
    ImpossibleEvidence
    """
    pattern = whole.pattern(tuple(asked), tuple(given))
    problem = pattern.problem
    if problem.log_bound == -math.inf or not problem.arrays.leaf_variable.size:
        return None
    if pattern.has_come and pattern.known is None:
        pattern.learn([int(whole.n_values[v]) for v in given])
    pattern.has_come = True
    x, found = np.zeros(problem.n_variables, np.int64), np.empty(4)
    tree_answer(problem.arrays, pattern.shared, np.array([*given.values(), 0.0]), is_greedy, LIMITS, x, found)
    return _told(pattern, given, x, found.tolist())


def _told(pattern: Pattern, given: Mapping[int, float], x: Integers, found: Sequence[float]) -> Told:
    gain, value, bound, n_left = found
    log_bound = pattern.problem.log_bound + gain
    if log_bound == -math.inf:
        raise ImpossibleEvidence(dict(given))
    # The place -1, of a variable that does not matter, is the zero at the end.
    codes = [*x.tolist(), 0]
    assignment: dict[int, float] = dict(zip(pattern.asked, map(codes.__getitem__, pattern.places), strict=True))
    if not n_left:
        return assignment, log_bound, log_bound, True
    value, bound = log_bound + value, log_bound + max(value, bound)
    return assignment, value, bound, bound - value <= SAME


def _check_options(solver: str, k: int, seed: int, time_limit_s: float, bound: str) -> None:
    if solver not in SOLVERS:
        raise InvalidQuery(f"Solver {solver!r} is not known: choose one of {', '.join(SOLVERS)}.")
    if bound not in BOUNDS:
        raise InvalidQuery(f"Bound {bound!r} is not known: choose one of {', '.join(BOUNDS)}.")
    if not 1 <= k <= MAX_TREES:
        raise InvalidQuery(f"k={k} trees or samples: use 1 to {MAX_TREES:,}.")
    if not 0 <= seed < 1 << 64:
        raise InvalidQuery(f"seed={seed}: use a whole number from 0 to 2^64 - 1.")
    if not time_limit_s >= 0:
        raise InvalidQuery(f"time_limit_s={time_limit_s} is not a time: use zero or more seconds.")


def _checked(
    whole: WholeCircuit, query: Sequence[int], evidence: Mapping[int, float]
) -> tuple[list[int], dict[int, float]]:
    """Query and evidence as plain numbers, once they fit the circuit."""
    n = len(whole.n_values)
    asked = [int(v) for v in query]
    given = {int(v): float(value) for v, value in evidence.items()}
    if not asked:
        raise InvalidQuery("The query names no variable: name at least one.")
    for v in [*asked, *given]:
        if not 0 <= v < n:
            raise InvalidQuery(f"Variable {v} is not in the circuit, which has variables 0 to {n - 1}.")
    if len(set(asked)) < len(asked):
        twice = next(v for v in asked if asked.count(v) > 1)
        raise InvalidQuery(f"Variable {twice} is in the query twice.")
    both = set(asked) & set(given)
    if both:
        raise InvalidQuery(f"Variable {min(both)} is in the query and in the evidence: leave it out of one of them.")
    for v, value in given.items():
        domain = int(whole.n_values[v])
        if domain and not (value.is_integer() and 0 <= value < domain):
            raise InvalidQuery(
                f"Variable {v} has values 0 to {domain - 1}, not {value:g}; leave it out if it is unknown."
            )
        if math.isnan(value):
            raise InvalidQuery(f"The evidence for variable {v} is not a number; leave it out if it is unknown.")
    return asked, given


def _approximate(problem: MaxProblem, solver: str, k: int, seed: int) -> Integers:
    if not problem.n_variables:
        return np.empty(0, dtype=np.int64)
    if solver == "ng":
        return approximate.greedy_tree(problem)
    if solver == "amap":
        return approximate.argmax_product(problem)
    if solver == "beam":
        return approximate.beam_search(problem, k, seed)
    if solver == "kbt":
        return approximate.k_best_tree(problem, k)
    return approximate.best_tree(problem)


def _assignment(whole: WholeCircuit, problem: MaxProblem, asked: Sequence[int], x: Integers) -> dict[int, float]:
    """Values of the asked variables, in their order; one that the evidence leaves only one value has that one."""
    code = dict(zip(problem.variables.tolist(), x.tolist(), strict=True))
    if whole.finite is not None:
        return {v: code.get(v, 0) for v in asked}
    return {v: whole.value(v, code.get(v, 0)) for v in asked}
