"""Builder of circuits from blocks of similar nodes, without a Python loop over nodes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from learners.circuits.circuit import Circuit, CircuitArrays
from learners.circuits.errors import InvalidCircuit
from learners.circuits.kernels import CATEGORICAL, INDICATOR, PRODUCT, SUM
from learners.kernels.arrays import Array, Floats, Integers


class Blocks:
    """Collects blocks of nodes, children first, and builds their circuit; the last node added is the root.

    n_values: size of each domain, 0 for variables of Gaussian, Poisson and exponential leaves.
    """

    def __init__(self, n_values: ArrayLike) -> None:
        self.n_values = np.asarray(n_values, np.int64)
        self.n_nodes = 0
        # For each block: kinds, numbers of children, children, log weights, variables, numbers of parameters, parameters.
        self._blocks: list[tuple[Array, ...]] = []
        self._indicators: dict[int, Integers] = {}

    def _add(
        self, kind: int, children: Array, log_weights: ArrayLike, variables: Sequence[int] | Array, parameters: Array
    ) -> Integers:
        n = len(variables)
        self._blocks.append(
            (
                np.full(n, kind, np.int8),
                np.full(n, children.shape[1], np.int64),
                np.asarray(children, np.int64).ravel(),
                np.asarray(log_weights, np.float64).ravel(),
                np.asarray(variables, np.int64),
                np.full(n, parameters.shape[1], np.int64),
                np.asarray(parameters, np.float64).ravel(),
            )
        )
        self.n_nodes += n
        return np.arange(self.n_nodes - n, self.n_nodes)

    def sums(self, children: ArrayLike, log_weights: ArrayLike) -> Integers:
        """Add sums of children (n, m) with normalized log weights (n, m); returns their numbers (n,)."""
        children = np.asarray(children, np.int64)
        n = children.shape[0]
        log_weights = np.broadcast_to(np.asarray(log_weights), children.shape)
        return self._add(SUM, children, log_weights, np.full(n, -1), np.empty((n, 0)))

    def products(self, children: ArrayLike) -> Integers:
        """Add products of the nodes in each row of children (n, m), or nothing if m = 1; returns their numbers (n,)."""
        children = np.asarray(children, np.int64)
        n, m = children.shape
        if m == 1:
            return children[:, 0]
        return self._add(PRODUCT, children, np.zeros(children.shape), np.full(n, -1), np.empty((n, 0)))

    def leaves(self, kind: int, variables: Sequence[int] | Array, parameters: ArrayLike) -> Integers:
        """Add leaves of one kind, of variables (n,) with parameters (n, p); returns their numbers (n,)."""
        n = len(variables)
        return self._add(kind, np.empty((n, 0), np.int64), np.empty(0), variables, np.asarray(parameters))

    def indicators(self, variable: int) -> Integers:
        """Return the indicators of each value of a variable, created once, (n_values,) int64."""
        if variable not in self._indicators:
            values = np.arange(self.n_values[variable], dtype=np.float64)[:, np.newaxis]
            self._indicators[variable] = self.leaves(INDICATOR, np.full(values.size, variable), values)
        return self._indicators[variable]

    def distributions(self, variable: int, log_p: Floats) -> Integers:
        """Add categorical leaves of one discrete variable with log_p (n, n_values); returns their numbers (n,)."""
        return self.leaves(CATEGORICAL, np.full(log_p.shape[0], variable), log_p)

    def circuit(self) -> Circuit:
        """Build the circuit of all blocks. Raises InvalidCircuit without blocks."""
        if not self._blocks:
            raise InvalidCircuit("has no nodes")
        kind, n_children, children, log_weight, variable, n_parameters, parameters = (
            np.concatenate(parts) for parts in zip(*self._blocks, strict=True)
        )
        arrays = kind, _starts(n_children), children, log_weight, variable, _starts(n_parameters), parameters
        return Circuit(CircuitArrays(*arrays, self.n_values))


def _starts(sizes: Integers) -> Integers:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])


def log_normalised_weights(weights: ArrayLike) -> Floats:
    """Return the logs of weights normalized over the last axis; log 0 is -inf, a row of zeros becomes uniform."""
    weights = np.asarray(weights, np.float64)
    total = weights.sum(axis=-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(total > 0, np.log(weights / total), -np.log(weights.shape[-1]))
