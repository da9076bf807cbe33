# mypy: disallow-untyped-defs=False, check-untyped-defs=False
"""A whole MAP query by a tree: reduction, assignment, value and bound in one call, as calls cost more than small circuits."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learners.arrays import Integers, Uint8s
from learners.circuits.map.bound_kernels import look_ahead
from learners.circuits.map.copy_kernels import copy
from learners.circuits.map.reduction_kernels import reduced_circuit
from learners.circuits.map.template_kernels import filled
from learners.circuits.map.tree_kernels import best_tree, greedy_tree
from learners.circuits.map.value_kernels import assignment_value, log_value
from learners.kernels.jit import kernel


class Asked(NamedTuple):
    """What queries that ask for and are given the same variables share.

    Attributes
    ----------
    allowed : (n_slots,) uint8
        Values of the problem's variables: none of a given one yet.
    hidden : (n_variables,) uint8
        Which of them are neither asked for nor given.
    places, slots : (n,) int64
        Of the given variables that the problem has: their places among all that are given, and their first slots.
    """

    allowed: Uint8s
    hidden: Uint8s
    places: Integers
    slots: Integers


@kernel
def tree_answer(arrays, asked, given, is_greedy, limits, x, found):
    """The assignment of the best, or greedy, tree; OUT x (n_variables,) int64: values of the variables that stay, others unchanged.

    given (n_given,) float64 are codes. limits: entries that the look-ahead may keep, and the smallest value that doubles tell. OUT found (4,) float64: logarithms of
    the reduction's bound, of the assignment's value and of an upper bound, relative to the first, and how many variables stay.
    """
    allowed = asked.allowed.copy()
    for i in range(asked.places.size):
        allowed[asked.slots[i] + np.int64(given[asked.places[i]])] = 1
    gain = np.empty(1)
    small, keep = reduced_circuit(arrays, allowed, asked.hidden, gain)
    answer_of(small, keep, gain[0], is_greedy, limits, x, found)


@kernel
def answer_again(arrays, template, circuit, given, domains, options, x, found):
    """As `tree_answer`, of a pattern whose template is known; OUT found[0] is NaN where the template does not tell.

    domains: the variable of each given value in the problem, -1 if it has none, and how many values it has, (n_given,) int64 each.
    options: whether the tree is greedy, and the limits.
    """
    variables, sizes = domains
    is_greedy, limits = options
    only, gain = template.only.copy(), np.empty(1)
    found[0] = np.nan
    for i in range(variables.size):
        if not 0.0 <= given[i] < sizes[i] or given[i] != np.floor(given[i]):
            return
        if variables[i] >= 0:
            only[variables[i]] = np.int64(given[i])
    small = filled(arrays, template, circuit, only, gain)
    if not np.isnan(gain[0]):
        answer_of(small, template.keep, gain[0], is_greedy, limits, x, found)


@kernel
def answer_of(small, keep, gain, is_greedy, limits, x, found):
    """The answer of a reduced circuit, over the variables `keep`, as `tree_answer` tells it."""
    found[0], found[1], found[2], found[3] = gain, 0.0, 0.0, 0.0
    if not small.leaf_variable.size:
        return
    n_inner, n_slots = small.is_sum.size, small.value_starts[-1]
    own = np.zeros(keep.size, np.int64)
    scratch = np.empty((3, n_inner + 1), np.int64)
    if is_greedy:
        greedy_tree(small, scratch, own)
    else:
        best_tree(small, scratch, own)
    for i in range(keep.size):
        x[keep[i]] = own[i]
    room, value = np.empty(max(n_inner, 1)), np.empty(1)
    assignment_value(small, own, room, value)
    found[1] = np.log(value[0]) if value[0] >= limits[1] else log_value(small, own, room)
    found[3] = keep.size
    if n_inner * n_slots <= limits[0]:
        slots, rows, tops = np.empty(n_slots), np.empty(n_inner * n_slots), np.empty(n_inner)
        spans = np.empty((n_inner, 2), np.int64)
        if n_inner:
            look_ahead(small, np.empty(0, np.uint8), rows, spans, tops, np.empty(0), slots)
        else:
            copy(small.leaf_value, slots)
        least = np.inf
        for v in range(keep.size):
            most = 0.0
            for s in range(small.value_starts[v], small.value_starts[v + 1]):
                most = max(most, slots[s])
            least = min(least, most)
        found[2] = np.log(least)
