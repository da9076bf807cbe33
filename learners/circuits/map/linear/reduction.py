"""From a circuit and a query to MAX: a smaller circuit over the query variables alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from learners.circuits.map.linear.reduction_kernels import MaxArrays, reduced_circuit
from learners.kernels.arrays import Integers, Uint8s


@dataclass(frozen=True)
class MaxProblem:
    """max over x of exp(log_bound) · S(x), where S is the scaled circuit in `arrays`, hence at most one.

    References: Mei, Jiang, Tu (2018), algorithm 1; the bound replaces their sum over the remaining values of a leaf by
    a maximum.
    """

    arrays: MaxArrays
    # Logarithm of an upper bound of the maximum: maxima at leaves, sums elsewhere; -inf if the evidence is impossible.
    log_bound: float
    variables: Integers  # (n_variables,) int64: query variables, by their number in the whole circuit

    @property
    def n_variables(self) -> int:
        """How many query variables there are."""
        return len(self.variables)


def restricted(problem: MaxProblem, allowed: Uint8s, hidden: Uint8s) -> MaxProblem:
    """The problem over the variables that are neither hidden nor left with one value.

    allowed (n_slots,) uint8: the values that each variable may still take; hidden (n_variables,) uint8: which to sum
    out.
    """
    if not problem.arrays.leaf_variable.size:  # a constant: no variable is left that matters
        return problem
    gain = np.empty(1)
    arrays, keep = reduced_circuit(problem.arrays, allowed, hidden, gain)
    if not arrays.leaf_variable.size:
        keep = keep[:0]
    return MaxProblem(arrays, problem.log_bound + float(gain[0]), problem.variables[keep])
