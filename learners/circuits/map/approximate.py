"""Solvers that return a good assignment without proof: bt, ng, kbt, amap, beam."""

from __future__ import annotations

import numpy as np

from learners.circuits.map import argmax_kernels, beam_kernels, kbest_kernels, tree_kernels
from learners.circuits.map.errors import BeyondDoublePrecision
from learners.circuits.map.linear.reduction import MaxProblem
from learners.circuits.map.value_kernels import LANES, assignment_values, log_value
from learners.kernels.arrays import Floats, Integers

# Values below this are compared in logarithms, or not at all.
SMALLEST_VALUE = 1e-290


def log_probability(problem: MaxProblem, x: Integers) -> float:
    """Log of the value of an assignment (n_variables,) int64, hidden variables summed out and evidence included."""
    return float(log_value(problem.arrays, x, np.empty(problem.arrays.is_sum.size))) + problem.log_bound


def log_probabilities(problem: MaxProblem, assignments: Integers) -> Floats:
    """Log of the value of each assignment; assignments (n, n_variables) int64; (n,) float64."""
    arrays = problem.arrays
    values = np.empty(len(assignments))
    room = np.empty((arrays.is_sum.size, LANES))
    assignment_values(arrays, assignments, len(assignments), room, values)
    logs = np.log(values, where=values >= SMALLEST_VALUE, out=np.full(len(values), -np.inf))
    for k in np.flatnonzero(values < SMALLEST_VALUE):
        logs[k] = log_value(arrays, assignments[k], room[:, 0].copy())
    return logs + problem.log_bound


def best_tree(problem: MaxProblem) -> Integers:
    """BT: the assignment (n_variables,) int64 of the parse tree with the largest value; exact where each tree has an assignment of its own.

    References: Poon, Domingos (2011); Mei, Jiang, Tu (2018), "Existing methods".
    """
    x = np.zeros(problem.n_variables, dtype=np.int64)
    tree_kernels.best_tree(problem.arrays, _tree_scratch(problem), x)
    return x


def greedy_tree(problem: MaxProblem) -> Integers:
    """NG: from the root, the child with the largest normalised weight at every sum; (n_variables,) int64.

    References: Poon, Domingos (2011); Mei, Jiang, Tu (2018), "Existing methods".
    """
    x = np.zeros(problem.n_variables, dtype=np.int64)
    totals, heaviest, stack = _tree_scratch(problem)
    tree_kernels.total_values(problem.arrays, totals.view(np.float64), heaviest)
    tree_kernels.follow(problem.arrays, heaviest, stack, x)
    return x


def _tree_scratch(problem: MaxProblem) -> Integers:
    return np.empty((3, problem.arrays.is_sum.size + 1), dtype=np.int64)


def k_best_trees(problem: MaxProblem, k: int) -> tuple[Integers, Floats]:
    """Assignments of the k best parse trees, and the trees' values relative to the best.

    Trees are found lazily from the root, so that only subtrees that some tree asked for are ever ranked.

    Returns (n, n_variables) int64 with n <= k, best tree first, assignments may repeat; (n,) float64.
    References: Mei, Jiang, Tu (2018), algorithm 3; Huang, Chiang (2005), algorithm 3, for the lazy order.
    """
    assignments = np.empty((k, problem.n_variables), dtype=np.int64)
    scores = np.empty(k)
    n = kbest_kernels.find_trees(problem.arrays, assignments, scores)
    return assignments[:n], scores[:n]


def k_best_tree(problem: MaxProblem, k: int) -> Integers:
    """KBT: the best assignment, by its value, among those of the k best parse trees; (n_variables,) int64.

    References: Mei, Jiang, Tu (2018), algorithm 3.
    """
    x = np.zeros(problem.n_variables, dtype=np.int64)
    kbest_kernels.best_of_trees(problem.arrays, k, x, np.empty(1))
    return x


def argmax_product(problem: MaxProblem) -> Integers:
    """AMAP: every sum keeps, of its children's assignments, the one that it values most itself; (n_variables,) int64.

    Raises BeyondDoublePrecision if the best tree lies hundreds of nats below the bound.

    References: Conaty, Mauá, de Campos (2017), algorithm 1.
    """
    arrays = problem.arrays
    n_inner = arrays.is_sum.size
    choices = np.empty((n_inner, problem.n_variables), dtype=np.int64)
    x = np.zeros(problem.n_variables, dtype=np.int64)
    mark = np.empty((2, n_inner), dtype=np.int64)
    argmax_kernels.argmax_product(arrays, choices, mark, np.empty((n_inner, LANES)), x)
    if (x < 0).any():
        raise BeyondDoublePrecision("amap", problem.log_bound - log_probability(problem, best_tree(problem)))
    return x


def beam_search(problem: MaxProblem, k: int, seed: int) -> Integers:
    """BS: hill climbing from k samples of the circuit's distribution, the k best of all one-variable changes kept per round.

    Gives the best assignment met, (n_variables,) int64, the same for the same seed. Raises BeyondDoublePrecision if every
    sample's value is zero on the scale of the bound.
    References: Park (2002); Mei, Jiang, Tu (2018), "Existing methods".
    """
    x = np.zeros(problem.n_variables, dtype=np.int64)
    state = np.array([seed], dtype=np.uint64)
    if beam_kernels.beam_search(problem.arrays, k, state, x) < SMALLEST_VALUE:
        raise BeyondDoublePrecision("beam", problem.log_bound - log_probability(problem, best_tree(problem)))
    return x
