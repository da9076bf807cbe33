"""MAP queries: prepare a circuit once, and run a solver for each query."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from learners.circuits.circuit import Circuit, cached_on_circuit
from learners.circuits.errors import ContinuousQuery, ImpossibleEvidence, InvalidQuery
from learners.circuits.evaluation.density_kernels import numeric_leaf_log_density
from learners.circuits.evaluation.leaf_distributions import leaf_mode
from learners.circuits.kernels import CATEGORICAL, INDICATOR, SUM
from learners.circuits.map import solvers
from learners.circuits.map.solvers import (
    SAME,
    Found,
    MaxProblem,
    best_assignments,
    branch_and_bound_assignment,
    look_ahead_upper_bound,
    restrict_max_problem,
)
from learners.circuits.map.value_kernels import MaxArrays
from learners.kernels.arrays import Floats, Integers, Mask, Uint8s
from learners.models.query import MAX_TREES, RANKING_SOLVERS

FINITE = (INDICATOR, CATEGORICAL)


def prepared_map_circuit(circuit: Circuit) -> WholeCircuit:
    """Return the prepared form of a circuit, cached."""
    return cached_on_circuit(circuit, WholeCircuit.of)


@dataclass(frozen=True)
class WholeCircuit:
    """A circuit with inner nodes and leaves separated."""

    # (n_variables,) int64: size of each domain; 0 for a continuous variable, and for a count without an upper end.
    n_values: Integers
    inner: tuple[Uint8s, Integers, Integers, Integers, Floats]  # as in MaxArrays, not scaled yet
    # leaf_kind, leaf_variable, leaf_rank (n_leaves,) int64: the rank counts the leaves of one variable.
    leaf_kind: Integers
    leaf_variable: Integers
    leaf_rank: Integers
    # parameter_starts, parameters (n_leaves + 1,) int64, (n,) float64
    parameter_starts: Integers
    parameters: Floats
    # The reduced circuit if all variables have a finite domain.
    finite: MaxProblem | None = field(default=None, compare=False)
    # In which a variable without a finite domain is searched.
    ranges: Mapping[int, tuple[float, float]] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, circuit: Circuit) -> WholeCircuit:
        """Separate leaves from inner nodes and, if all domains are finite, reduce the circuit once for all queries."""
        kind = np.asarray(circuit.kind)
        is_leaf = kind >= INDICATOR
        number = np.where(is_leaf, np.cumsum(is_leaf), np.cumsum(~is_leaf)) - 1
        leaves, inner = np.flatnonzero(is_leaf), np.flatnonzero(~is_leaf)
        variable = np.asarray(circuit.variable)[leaves]
        n_values = np.array(circuit.n_values, dtype=np.int64)
        n_values[variable[~np.isin(kind[leaves], FINITE)]] = 0
        order = np.argsort(variable, kind="stable")
        first = np.searchsorted(variable[order], variable[order], side="left")
        rank = np.empty(leaves.size, dtype=np.int64)
        rank[order] = np.arange(leaves.size) - first
        lengths = np.diff(circuit.leaf_starts)[leaves]
        whole = cls(
            n_values=n_values,
            inner=_inner(circuit, is_leaf, number, inner),
            leaf_kind=kind[leaves].astype(np.int64),
            leaf_variable=variable.astype(np.int64),
            leaf_rank=rank,
            parameter_starts=_starts(lengths),
            # Inner nodes have no parameters, so those of the leaves are all there are, in order.
            parameters=circuit.leaf_parameters,
        )
        if np.isin(whole.leaf_kind, FINITE).all():
            object.__setattr__(whole, "finite", whole.problem([], {}))
        return whole

    def problem(self, query: Sequence[int], evidence: Mapping[int, float]) -> MaxProblem:
        """Return the MAX problem of the whole circuit; a continuous variable has one value, or in a query one per leaf.

        The leaves of a given continuous variable hold its density, those of a hidden one 1. The i-th value of a
        queried one represents the mode of its i-th leaf, and only that leaf has it, so the best tree is the best tree
        of the densities.
        """
        if self.finite is not None:
            return self.finite
        n_leaves_of = np.bincount(self.leaf_variable, minlength=self.n_values.size)
        n_values = np.where(self.n_values > 0, self.n_values, 1)
        continuous = [v for v in query if self.n_values[v] == 0]
        n_values[continuous] = n_leaves_of[continuous]
        # What no leaf mentions may be anything: it is left at its first value.
        n_values[n_leaves_of == 0] = 1
        log_density, shift = self._log_densities(continuous, evidence)
        starts = _starts(n_values[self.leaf_variable])
        values = np.zeros(int(starts[-1]))
        is_one = (self.leaf_kind == INDICATOR) | ~np.isin(self.leaf_kind, FINITE)
        code = np.zeros(len(self.leaf_kind), dtype=np.int64)
        is_indicator = self.leaf_kind == INDICATOR
        code[is_indicator] = self.parameters[self.parameter_starts[:-1][is_indicator]]
        is_asked = np.isin(self.leaf_variable, continuous)
        code[is_asked] = self.leaf_rank[is_asked]
        values[starts[:-1][is_one] + code[is_one]] = np.exp(log_density[is_one])
        for leaf in np.flatnonzero(self.leaf_kind == CATEGORICAL):
            table = self.parameters[self.parameter_starts[leaf] : self.parameter_starts[leaf + 1]]
            values[starts[leaf] : starts[leaf] + table.size] = np.exp(table)
        # Variables in the order of their leaves, so that a node's variables are near each other.
        seen, first = np.unique(self.leaf_variable, return_index=True)
        order = np.concatenate([seen[np.argsort(first)], np.flatnonzero(n_leaves_of == 0)])
        number = np.argsort(order)
        raw = MaxArrays(_starts(n_values[order]), number[self.leaf_variable], starts, values, *self.inner)
        everything, nothing = np.ones(int(raw.value_starts[-1]), np.uint8), np.zeros(order.size, np.uint8)
        return restrict_max_problem(MaxProblem(raw, shift, order), everything, nothing)

    def _log_densities(self, query: Sequence[int], evidence: Mapping[int, float]) -> tuple[Floats, float]:
        """Return the log of each leaf's only positive value, and the shift subtracted from every tree to stay in range."""
        log_density = np.zeros(len(self.leaf_kind))
        shift = 0.0
        for v in [*query, *(v for v in evidence if self.n_values[v] == 0)]:
            at = np.flatnonzero(self.leaf_variable == v)
            logs = np.array([self._log_density(int(leaf), evidence.get(v)) for leaf in at])
            top = logs.max(initial=-math.inf)
            if math.isfinite(top):
                logs, shift = logs - top, shift + top
            log_density[at] = logs
        return log_density, shift

    def _log_density(self, leaf: int, value: float | None) -> float:
        """Return the log density of a leaf without a finite domain at a value or, for None, at its mode."""
        kind = self.leaf_kind[leaf]
        p = self.parameters[self.parameter_starts[leaf] : self.parameter_starts[leaf + 1]]
        x = self._mode(leaf) if value is None else value
        if math.isnan(x):  # no number of the leaf is in the range
            return -math.inf
        return float(numeric_leaf_log_density(float(kind), p[0], p[min(1, p.size - 1)], p, 2, float(x)))

    def _mode(self, leaf: int) -> float:
        p = self.parameters[self.parameter_starts[leaf] : self.parameter_starts[leaf + 1]]
        return leaf_mode(int(self.leaf_kind[leaf]), p, *self.ranges.get(int(self.leaf_variable[leaf]), ()))

    def value(self, variable: int, code: int) -> float:
        """Return the value of a code of the MAX problem: itself, or the mode of a leaf."""
        if self.n_values[variable]:
            return code
        return self._mode(int(np.flatnonzero(self.leaf_variable == variable)[code]))

    def reduced(
        self, query: Sequence[int], evidence: Mapping[int, float], *, hide_continuous: bool = False
    ) -> MaxProblem:
        """Return the MAX problem over the query, with evidence and hidden variables folded into the weights.

        With `hide_continuous`, continuous query variables are summed out of the problem over leaves, giving at most
        the weighted sum of their peaks, so the bound holds for densities, too.
        """
        problem = self.problem(query, evidence)
        if problem.log_bound == -math.inf:  # no leaf is possible, so none is left
            return problem
        starts = problem.arrays.value_starts
        position = np.full(self.n_values.size, -1)
        position[problem.variables] = np.arange(problem.n_variables)
        allowed, hidden = np.ones(int(starts[-1]), np.uint8), np.ones(problem.n_variables, np.uint8)
        stays = [v for v in query if not (hide_continuous and self.n_values[v] == 0)]
        # Variables with one value, such as a continuous one that is given, are folded in already.
        hidden[[p for p in position[stays].tolist() if p >= 0]] = 0
        for v, value in evidence.items():
            at = position[v]
            if at >= 0:
                hidden[at] = 0
                allowed[starts[at] : starts[at + 1]] = 0
                allowed[starts[at] + int(value)] = 1
        return restrict_max_problem(problem, allowed, hidden)


def _inner(
    circuit: Circuit, is_leaf: Mask, number: Integers, inner: Integers
) -> tuple[Uint8s, Integers, Integers, Integers, Floats]:
    """Return the inner nodes alone, each with its inner children before its leaves."""
    starts, children = np.asarray(circuit.child_starts), np.asarray(circuit.children)
    parent = np.repeat(np.arange(is_leaf.size), np.diff(starts))
    order = np.lexsort((is_leaf[children], parent))
    counts = np.diff(starts)[inner]
    n_leaf_children = np.bincount(parent, weights=is_leaf[children], minlength=is_leaf.size)[inner].astype(np.int64)
    child_starts = _starts(counts)
    is_sum = (np.asarray(circuit.kind)[inner] == SUM).astype(np.uint8)
    weight = np.exp(np.asarray(circuit.log_weight, dtype=np.float64)[order])
    # A product's edges carry no weight.
    weight[np.repeat(is_sum == 0, counts)] = 1.0
    leaf_from = child_starts[1:] - n_leaf_children
    return is_sum, child_starts, leaf_from, number[children[order]].astype(np.int64), weight


def _starts(lengths: Integers) -> Integers:
    """Return the start of each segment with these lengths, and the end of the last."""
    starts = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=starts[1:])
    return starts


# Each takes a problem, a number of trees or samples, and a seed, and returns an assignment without proof.
APPROXIMATE: dict[str, Callable[[MaxProblem, int, int], Integers]] = {
    "bt": lambda problem, k, seed: solvers.best_tree_assignment(problem),
    "ng": lambda problem, k, seed: solvers.greedy_tree_assignment(problem),
    "amap": lambda problem, k, seed: solvers.argmax_product_assignment(problem),
    "beam": solvers.beam_search_assignment,
    "kbt": lambda problem, k, seed: solvers.best_of_k_trees_assignment(problem, k),
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
    """Return the `best` most probable values of the query variables given evidence, best first, with all other
    variables summed out.

    The upper bound of each covers every assignment except those before it. There are fewer results if no other is
    possible, if time is up, or if fewer of the k best trees differ.
    query, evidence: variables by number, and values of others.
    solver 'bt', 'ng', 'amap', 'beam', 'kbt' or 'exact': only `exact` proves optimality by search; it starts from
    `kbt` and returns the best so far when time is up. The others answer at once, and are marked optimal if the
    bound happens to prove it. Only `exact`, and `kbt` for its trees, return several assignments.
    time_limit_s: time limit of `exact`.
    k: trees of `kbt` and `exact`, samples of `beam`.
    seed: seed of the samples of `beam`; the other solvers draw nothing.
    ranges: search ranges of variables without a finite domain.
    Raises InvalidQuery for a variable or value that the circuit does not have, or a variable both queried and
    given; ImpossibleEvidence if the evidence has probability zero; ContinuousQuery if a solver other than bt and
    kbt is used for a variable without a finite domain.
    References: Mei, Jiang, Tu (2018).
    """
    started = time.perf_counter()
    _check_options(solver, k, seed, time_limit_s)
    whole = replace(prepared_map_circuit(circuit), ranges=ranges or {})
    variables, known = _checked(whole, query, evidence or {})
    continuous = [v for v in variables if whole.n_values[v] == 0]
    if continuous and solver not in TREE_SOLVERS:
        raise ContinuousQuery(solver, continuous)
    if best > 1 and solver not in RANKING_SOLVERS:
        raise InvalidQuery(
            f"Solver {solver!r} returns one assignment only; {' and '.join(RANKING_SOLVERS)} return several."
        )
    problem = whole.reduced(variables, known)
    if problem.log_bound == -math.inf:
        raise _impossible(known)
    if best == 1 or not problem.n_variables:
        every = [_solved(problem, solver, time_limit_s, k, seed)]
    elif solver == "exact":
        every = best_assignments(problem, best, time_limit_s, k)
    else:
        every = _of_trees(problem, k)
    assignments = [_assignment(whole, problem, variables, found.x) for found in every]
    if continuous:
        bound = whole.reduced(variables, known, hide_continuous=True).log_bound
        values = [whole.reduced([], known | own).log_bound for own in assignments]
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


def _impossible(evidence: Mapping[int, float]) -> ImpossibleEvidence:
    known = ", ".join(f"variable {v} = {value}" for v, value in sorted(evidence.items())[:8])
    more = f" and {len(evidence) - 8} more" if len(evidence) > 8 else ""
    remedy = "Leave out the value that never occurs with the others, or train with a pseudo-count."
    return ImpossibleEvidence(reason=f" ({known or 'no evidence'}{more}). {remedy}")


def _of_trees(problem: MaxProblem, k: int) -> list[Found]:
    """Return the distinct assignments of the k best trees, with their values."""
    assignments = np.unique(solvers.k_best_tree_assignments(problem, k)[0], axis=0)
    logs = solvers.assignment_log_probabilities(problem, assignments).tolist()
    bound = max(look_ahead_upper_bound(problem), *logs)
    return [Found(x, log, bound, bound - log <= SAME, 0) for x, log in zip(assignments, logs, strict=True)]


def _solved(problem: MaxProblem, solver: str, time_limit_s: float, k: int, seed: int) -> Found:
    """Run a solver and return its result."""
    if not problem.n_variables:
        return Found(np.empty(0, np.int64), problem.log_bound, problem.log_bound, True, 0)
    if solver == "exact":
        return branch_and_bound_assignment(problem, time_limit_s, k)
    x = APPROXIMATE[solver](problem, k, seed)
    value = solvers.assignment_log_probability(problem, x)
    bound = max(value, look_ahead_upper_bound(problem))
    return Found(x, value, bound, bound - value <= SAME, 0)


def _check_options(solver: str, k: int, seed: int, time_limit_s: float) -> None:
    if solver not in SOLVERS:
        raise InvalidQuery(f"Solver {solver!r} is unknown: choose one of {', '.join(SOLVERS)}.")
    if not 1 <= k <= MAX_TREES:
        raise InvalidQuery(f"k={k} trees or samples: use 1 to {MAX_TREES:,}.")
    if not 0 <= seed < 1 << 64:
        raise InvalidQuery(f"seed={seed}: use a whole number from 0 to 2^64 - 1.")
    if not time_limit_s >= 0:
        raise InvalidQuery(f"time_limit_s={time_limit_s} must be zero or more seconds.")


def _checked(
    whole: WholeCircuit, query: Sequence[int], evidence: Mapping[int, float]
) -> tuple[list[int], dict[int, float]]:
    """Return query and evidence as plain numbers after validating them."""
    n = len(whole.n_values)
    variables = [int(v) for v in query]
    known = {int(v): float(value) for v, value in evidence.items()}
    if not variables:
        raise InvalidQuery("The query names no variable: name at least one.")
    for v in [*variables, *known]:
        if not 0 <= v < n:
            raise InvalidQuery(f"Variable {v} is not in the circuit, which has variables 0 to {n - 1}.")
    if len(set(variables)) < len(variables):
        twice = next(v for v in variables if variables.count(v) > 1)
        raise InvalidQuery(f"Variable {twice} is in the query twice.")
    both = set(variables) & set(known)
    if both:
        raise InvalidQuery(f"Variable {min(both)} is in the query and in the evidence: leave it out of one of them.")
    for v, value in known.items():
        domain = int(whole.n_values[v])
        if domain and not (value.is_integer() and 0 <= value < domain):
            raise InvalidQuery(
                f"Variable {v} has values 0 to {domain - 1}, not {value:g}; leave it out if it is unknown."
            )
        if math.isnan(value):
            raise InvalidQuery(f"The evidence for variable {v} is not a number; leave it out if it is unknown.")
    return variables, known


def _assignment(whole: WholeCircuit, problem: MaxProblem, variables: Sequence[int], x: Integers) -> dict[int, float]:
    """Return the values of the queried variables, in order; a variable that the evidence fixes has that value."""
    code = dict(zip(problem.variables.tolist(), x.tolist(), strict=True))
    if whole.finite is not None:
        return {v: code.get(v, 0) for v in variables}
    return {v: whole.value(v, code.get(v, 0)) for v in variables}
