"""From a circuit and a query to MAX: a smaller circuit over the query variables alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from learners.circuits.map.reduction_kernels import MaxArrays, ReductionRoom, reduce

Ints = np.ndarray
Floats = np.ndarray


@dataclass(frozen=True)
class MaxProblem:
    """max over x of exp(log_bound) · S(x), where S is the scaled circuit in `arrays`, hence at most one.

    Attributes
    ----------
    arrays : MaxArrays
    log_bound : float
        Logarithm of an upper bound of the maximum: maxima at leaves, sums elsewhere; -inf if the evidence is impossible.
    variables : (n_variables,) int64
        Query variables, by their number in the whole circuit.

    References
    ----------
    Mei, Jiang, Tu (2018), algorithm 1; the bound replaces their sum over the remaining values of a leaf by a maximum.
    """

    arrays: MaxArrays
    log_bound: float
    variables: Ints

    @property
    def n_variables(self) -> int:
        """How many query variables there are."""
        return len(self.variables)

    @property
    def n_edges(self) -> int:
        """Edges of the reduced circuit; a leaf counts as one edge from its parent."""
        return len(self.arrays.children)


def room_for(arrays: MaxArrays) -> ReductionRoom:
    """Scratch for reducing a circuit of this size."""
    n_variables = arrays.value_starts.size - 1
    n_nodes = arrays.leaf_variable.size + arrays.is_sum.size
    most = int(np.diff(arrays.value_starts).max()) if n_variables else 0
    n_entries = arrays.leaf_value.size + arrays.is_sum.size * most
    floats = np.empty((2, n_nodes))
    ints = np.empty((4, n_nodes), dtype=np.int64)
    only_value = np.empty(n_variables, dtype=np.int64)
    return ReductionRoom(floats[0], floats[1], ints[0], ints[1], ints[2], np.empty(n_entries), ints[3], only_value)


def arrays_for(arrays: MaxArrays, n_entries: int) -> MaxArrays:
    """Uninitialised arrays, large enough for any reduction of a circuit; the values of the variables are the same."""
    n_leaves = arrays.leaf_variable.size + arrays.is_sum.size
    n_inner, n_edges = arrays.is_sum.size, arrays.children.size
    return MaxArrays(
        value_starts=arrays.value_starts,
        leaf_variable=np.empty(n_leaves, dtype=np.int64),
        leaf_starts=np.empty(n_leaves + 1, dtype=np.int64),
        leaf_value=np.empty(n_entries),
        is_sum=np.empty(n_inner, dtype=np.uint8),
        child_starts=np.empty(n_inner + 1, dtype=np.int64),
        leaf_from=np.empty(n_inner, dtype=np.int64),
        children=np.empty(n_edges, dtype=np.int64),
        weight=np.empty(n_edges),
    )


def trimmed(arrays: MaxArrays, sizes: Ints) -> MaxArrays:
    """The used part of arrays that `reduce` has filled."""
    n_leaves, n_entries, n_inner, n_edges = sizes.tolist()
    return MaxArrays(
        arrays.value_starts,
        arrays.leaf_variable[:n_leaves],
        arrays.leaf_starts[: n_leaves + 1],
        arrays.leaf_value[:n_entries],
        arrays.is_sum[:n_inner],
        arrays.child_starts[: n_inner + 1],
        arrays.leaf_from[:n_inner],
        arrays.children[:n_edges],
        arrays.weight[:n_edges],
    )


def restricted(problem: MaxProblem, allowed: Ints, hidden: Ints) -> MaxProblem:
    """The problem over the variables that are neither hidden nor left with one value.

    Parameters
    ----------
    allowed : (n_slots,) uint8
        The values that each variable may still take.
    hidden : (n_variables,) uint8
        The variables to sum out.
    """
    arrays = problem.arrays
    room = room_for(arrays)
    out = arrays_for(arrays, room.table.size)
    sizes = np.empty(4, dtype=np.int64)
    log_bound = problem.log_bound + reduce(arrays, allowed, hidden, room, out, sizes)
    keep = np.flatnonzero(room.only_value == -1)
    return MaxProblem(renumbered(trimmed(out, sizes), keep), log_bound, problem.variables[keep])


def renumbered(arrays: MaxArrays, keep: Ints) -> MaxArrays:
    """The same circuit with only the variables in `keep`, numbered in their order."""
    n_values = np.diff(arrays.value_starts)
    new_number = np.zeros(n_values.size, dtype=np.int64)
    new_number[keep] = np.arange(keep.size)
    starts = np.zeros(keep.size + 1, dtype=np.int64)
    np.cumsum(n_values[keep], out=starts[1:])
    return arrays._replace(value_starts=starts, leaf_variable=new_number[arrays.leaf_variable])


def raw_problem(
    n_values: Sequence[int] | Ints,
    leaves: tuple[Ints, Ints, Floats],
    inner: tuple[Ints, Ints, Ints, Ints, Floats],
) -> MaxProblem:
    """The MAX problem of a whole circuit from arrays that are not scaled yet: leaf_variable, leaf_starts, leaf_value; is_sum, child_starts, leaf_from, children, weight."""
    starts = np.zeros(len(n_values) + 1, dtype=np.int64)
    np.cumsum(n_values, out=starts[1:])
    raw = MaxArrays(starts, *leaves, *inner)
    n_slots = int(starts[-1])
    unscaled = MaxProblem(raw, 0.0, np.arange(len(n_values)))
    return restricted(unscaled, np.ones(n_slots, dtype=np.uint8), np.zeros(len(n_values), dtype=np.uint8))
