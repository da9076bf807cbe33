"""Drawn graphs with weights: under the order prior, or corrected to the prior over graphs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from learners.kernels.arrays import Array, Floats
from learners.models.estimation import GraphPrior
from learners.orders.lattice.forward_backward import OrderSums
from learners.orders.lattice.graphs import DrawnGraphs, draw_graphs, log_n_orders


@dataclass(frozen=True)
class WeightedGraphs:
    """Graphs with normalised weights."""

    graphs: DrawnGraphs
    weights: Floats  # (n,) float64: they add up to one
    is_equal: bool  # whether all are 1 / n

    @property
    def effective_size(self) -> dict[str, float]:
        """`effective_sample_size`, how many draws of equal weight these are worth: 1 / the sum of the squared weights (Kong 1992).

        Nothing where all weigh the same.
        """
        return {} if self.is_equal else {"effective_sample_size": float(1.0 / np.sum(self.weights**2))}

    def mean(self, values: Array) -> tuple[Floats, Floats]:
        """Weighted mean over graphs of values (n, ...), and its standard error."""
        mean = np.einsum("g,g...->...", self.weights, values, dtype=np.float64)
        squares = np.einsum("g,g...->...", self.weights**2, (values - mean) ** 2, dtype=np.float64)
        n = self.weights.size
        return mean, np.sqrt(squares * n / max(1, n - 1))

    def interval(self, values: Floats, level: float) -> tuple[Floats, Floats]:
        """Between which weighted quantiles of values (n, ...) a share `level` lies, as much below as above."""
        order = np.argsort(values, axis=0, kind="stable")
        below = np.cumsum(self.weights[order], axis=0)
        found = []
        for share in ((1 - level) / 2, (1 + level) / 2):
            place = np.minimum((below < share * (1 - 1e-12)).sum(axis=0), self.weights.size - 1)
            row = np.take_along_axis(order, place[np.newaxis], axis=0)
            found.append(np.take_along_axis(values, row, axis=0)[0])
        return found[0], found[1]


def weighted_graphs(sums: OrderSums, n: int, seed: int, prior: GraphPrior) -> WeightedGraphs:
    """Graphs drawn under the order prior; for the prior over graphs each weighs the inverse of its number of orders.

    The posterior over pairs of an order and a graph counts a graph once for each of its orders (in the lattice). Dividing
    by that number leaves the posterior over graphs, as far as the lattice covers it.

    References: Ellis, Wong (2008), Learning causal Bayesian network structures from experimental data, section 4.
    """
    graphs = draw_graphs(sums, n, seed)
    if prior == "order":
        return WeightedGraphs(graphs, np.full(n, 1.0 / n), True)
    logs = -log_n_orders(sums.lattice, graphs.parents)
    weights = np.exp(logs - logs.max())
    return WeightedGraphs(graphs, weights / weights.sum(), False)
