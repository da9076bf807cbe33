"""MAP queries on a circuit: the public face of the solvers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from learners.circuits.circuit import Circuit
from learners.circuits.map import approximate
from learners.circuits.map.errors import ContinuousQuery, ImpossibleEvidence, InvalidQuery
from learners.circuits.map.exact import SAME, Found, best_assignments, exact, root_bound
from learners.circuits.map.linear.reduction import MaxProblem
from learners.circuits.map.prepared_circuit import WholeCircuit, whole_circuit
from learners.kernels.arrays import Integers
from learners.models.query import MAX_TREES, RANKING_SOLVERS

# Of a problem, trees or samples, and a seed: an assignment, without proof.
APPROXIMATE: dict[str, Callable[[MaxProblem, int, int], Integers]] = {
    "bt": lambda problem, k, seed: approximate.best_tree(problem),
    "ng": lambda problem, k, seed: approximate.greedy_tree(problem),
    "amap": lambda problem, k, seed: approximate.argmax_product(problem),
    "beam": approximate.beam_search,
    "kbt": lambda problem, k, seed: approximate.k_best_tree(problem, k),
}
SOLVERS = (*APPROXIMATE, "exact")
TREE_SOLVERS = ("bt", "kbt")


@dataclass(frozen=True)
class MapAnswer:
    """The answer to a MAP query."""

    assignment: dict[int, float]  # A code for a variable with a finite domain; for another the mode of a leaf
    # Log S(q, e) of assignment and evidence together, hidden variables summed out; a density where variables are
    # continuous. Subtract the evidence's log probability for the conditional one.
    log_probability: float
    upper_bound: float  # no assignment's log probability is larger
    # Whether the two are equal (to a relative 1e-10 of the probability), which is a proof of optimality.
    is_optimal: bool
    n_expanded: int  # nodes of the search tree; 0 for solvers that do not search
    seconds: float  # of the whole query, reduction included


def map_query(
    circuit: Circuit,
    query: Sequence[int],
    evidence: Mapping[int, float] | None = None,
    solver: str = "exact",
    *,
    time_limit_s: float = 10.0,
    k: int = 10,
    seed: int = 0,
) -> MapAnswer:
    """The most probable values of the query variables given evidence, every other variable summed out.

    query, evidence: variables by number, and values of others.
    solver 'bt', 'ng', 'amap', 'beam', 'kbt' or 'exact': only `exact` proves optimality by search; it starts from `kbt`
    and returns the best so far when time is up. The others answer in one go, and are called optimal if the bound
    happens to prove it.
    time_limit_s: for `exact`.
    k: trees of `kbt` and `exact`, samples of `beam`.
    seed: of the samples of `beam`; the other solvers draw nothing.
    Raises InvalidQuery of a variable or value that the circuit does not have, or a variable both asked for and given;
    ImpossibleEvidence if the evidence has probability zero; ContinuousQuery if a solver other than bt and kbt is asked
    for a variable without a finite domain.
    References: Mei, Jiang, Tu (2018).
    """
    return k_best(circuit, query, evidence, solver, time_limit_s=time_limit_s, k=k, seed=seed)[0]


def k_best(
    circuit: Circuit,
    query: Sequence[int],
    evidence: Mapping[int, float] | None = None,
    solver: str = "exact",
    best: int = 1,
    *,
    time_limit_s: float = 10.0,
    k: int = 10,
    seed: int = 0,
    ranges: Mapping[int, tuple[float, float]] | None = None,
) -> list[MapAnswer]:
    """As `map_query`, but the `best` most probable assignments, the best first, by `exact`, or by `kbt` those of its trees.

    Variables without a finite domain are searched in their `ranges` only. The upper bound of each is one of every assignment but those before it. There are fewer if no other is possible, if time is up,
    or if fewer of the k best trees differ.
    """
    started = time.perf_counter()
    _check_options(solver, k, seed, time_limit_s)
    whole = replace(whole_circuit(circuit), ranges=ranges or {})
    variables, given = _checked(whole, query, evidence or {})
    continuous = [v for v in variables if whole.n_values[v] == 0]
    if continuous and solver not in TREE_SOLVERS:
        raise ContinuousQuery(solver, continuous)
    if best > 1 and solver not in RANKING_SOLVERS:
        raise InvalidQuery(f"Solver {solver!r} tells one assignment; {' and '.join(RANKING_SOLVERS)} tell more.")
    problem = whole.reduced(variables, given)
    if problem.log_bound == -math.inf:
        raise ImpossibleEvidence(given)
    if best == 1 or not problem.n_variables:
        every = [_solved(problem, solver, time_limit_s, k, seed)]
    elif solver == "exact":
        every = best_assignments(problem, best, time_limit_s, k)
    else:
        every = _of_trees(problem, k)
    assignments = [_assignment(whole, problem, variables, found.x) for found in every]
    if continuous:
        bound = whole.reduced(variables, given, hide_continuous=True).log_bound
        values = [whole.reduced([], given | own).log_bound for own in assignments]
        every = [Found(found.x, value, max(value, bound), False, 0) for found, value in zip(every, values, strict=True)]
    seconds = time.perf_counter() - started
    # Leaves may have one mode, so different trees of numbers may have one assignment.
    answers = {
        tuple(own.values()): MapAnswer(
            own, float(found.log_value), float(found.log_bound), found.is_optimal, found.n_expanded, seconds
        )
        for own, found in zip(assignments, every, strict=True)
    }
    return sorted(answers.values(), key=lambda answer: -answer.log_probability)[:best]


def _of_trees(problem: MaxProblem, k: int) -> list[Found]:
    """The different assignments of the k best trees, each with its own value."""
    assignments = np.unique(approximate.k_best_trees(problem, k)[0], axis=0)
    logs = approximate.log_probabilities(problem, assignments).tolist()
    bound = max(root_bound(problem), *logs)
    return [Found(x, log, bound, bound - log <= SAME, 0) for x, log in zip(assignments, logs, strict=True)]


def _solved(problem: MaxProblem, solver: str, time_limit_s: float, k: int, seed: int) -> Found:
    """What a solver finds."""
    if not problem.n_variables:
        return Found(np.empty(0, np.int64), problem.log_bound, problem.log_bound, True, 0)
    if solver == "exact":
        return exact(problem, time_limit_s, k)
    x = APPROXIMATE[solver](problem, k, seed)
    value = approximate.log_probability(problem, x)
    bound = max(value, root_bound(problem))
    return Found(x, value, bound, bound - value <= SAME, 0)


def _check_options(solver: str, k: int, seed: int, time_limit_s: float) -> None:
    if solver not in SOLVERS:
        raise InvalidQuery(f"Solver {solver!r} is not known: choose one of {', '.join(SOLVERS)}.")
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
    variables = [int(v) for v in query]
    given = {int(v): float(value) for v, value in evidence.items()}
    if not variables:
        raise InvalidQuery("The query names no variable: name at least one.")
    for v in [*variables, *given]:
        if not 0 <= v < n:
            raise InvalidQuery(f"Variable {v} is not in the circuit, which has variables 0 to {n - 1}.")
    if len(set(variables)) < len(variables):
        twice = next(v for v in variables if variables.count(v) > 1)
        raise InvalidQuery(f"Variable {twice} is in the query twice.")
    both = set(variables) & set(given)
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
    return variables, given


def _assignment(whole: WholeCircuit, problem: MaxProblem, variables: Sequence[int], x: Integers) -> dict[int, float]:
    """Values of the asked variables, in their order; one that the evidence leaves only one value has that one."""
    code = dict(zip(problem.variables.tolist(), x.tolist(), strict=True))
    if whole.finite is not None:
        return {v: code.get(v, 0) for v in variables}
    return {v: whole.value(v, code.get(v, 0)) for v in variables}
