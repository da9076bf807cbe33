"""Condition a circuit on likelihoods of its variables: sets of values, ranges and soft evidence become weights and
leaves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from learners.circuits.circuit import Circuit
from learners.circuits.evaluation.evaluate import upward_pass_log_values
from learners.circuits.evaluation.leaf_distributions import leaf_range_log_probabilities
from learners.circuits.kernels import CATEGORICAL, INDICATOR, SUM
from learners.kernels.arrays import Floats


@dataclass(frozen=True, eq=False)
class Likelihoods:
    """Evidence about variables other than single values."""

    # Mapping of discrete variable to (n_values,) float64: logarithm of the likelihood of each value: of a set of values
    # 0 of those in it, -inf of the others.
    log_weights: Mapping[int, Floats] = field(default_factory=dict)
    ranges: Mapping[int, tuple[float, float]] = field(default_factory=dict)  # low and high of numeric variables

    def __bool__(self) -> bool:
        """Return whether there is any evidence."""
        return bool(self.log_weights or self.ranges)


NOTHING = Likelihoods()


class Reweighted(NamedTuple):
    """Conditioned circuit, with P(x) λ(x) = exp(log_scale) · circuit(x), where λ is the product of the likelihoods.

    For a numeric variable with a range, the circuit keeps its leaves and stores the range in `ranges`, to which
    moments and draws truncate them. If the evidence is impossible, log_scale is -inf, and the circuit unchanged.
    """

    circuit: Circuit
    log_scale: float


def reweight_circuit(circuit: Circuit, likelihoods: Likelihoods) -> Reweighted:
    """Return the normalized circuit conditioned on likelihoods, by one upward pass over its nodes.

    Every leaf is multiplied by its variable's likelihoods and divided by its new sum, which moves into the
    weights of the sums above and finally into the scale. So every query to the new circuit is a query to the old
    one given the likelihoods.

    References: Pearl (1988), Probabilistic Reasoning in Intelligent Systems, section 2.2.2 (virtual evidence); Darwiche
    (2003), section 3.
    """
    if not likelihoods:
        return Reweighted(circuit, 0.0)
    log_leaf, parameters = np.zeros(circuit.n_nodes), circuit.leaf_parameters.copy()
    for v, log_weight in likelihoods.log_weights.items():
        leaves = np.flatnonzero(circuit.variable == v)
        indicators = leaves[circuit.kind[leaves] == INDICATOR]
        log_leaf[indicators] = log_weight[parameters[circuit.leaf_starts[indicators]].astype(np.int64)]
        tables = leaves[circuit.kind[leaves] == CATEGORICAL]
        places = circuit.leaf_starts[tables][:, np.newaxis] + np.arange(log_weight.size)
        logs = parameters[places] + log_weight
        totals = log_leaf[tables] = np.logaddexp.reduce(logs, axis=1)
        # The table of a leaf that has become impossible is never read.
        is_left = totals > -np.inf
        parameters[places[is_left]] = logs[is_left] - totals[is_left, np.newaxis]
    for v, (low, high) in likelihoods.ranges.items():
        leaves = np.flatnonzero((circuit.variable == v) & (circuit.kind > CATEGORICAL))
        log_leaf[leaves] = leaf_range_log_probabilities(circuit, leaves, low, high)
    values = upward_pass_log_values(circuit, log_leaf)
    if values[-1] == -np.inf:
        return Reweighted(circuit, -np.inf)
    parent = np.repeat(np.arange(circuit.n_nodes), np.diff(circuit.child_starts))
    # The weights of what is impossible are never reached, and stay.
    changed = np.flatnonzero((circuit.kind[parent] == SUM) & (values[parent] > -np.inf))
    log_weight = circuit.log_weight.copy()
    log_weight[changed] += values[circuit.children[changed]] - values[parent[changed]]
    # Far ranges have logarithms of millions, whose differences have lost digits: the weights add up to one again.
    totals = np.full(circuit.n_nodes, -np.inf)
    np.logaddexp.at(totals, parent[changed], log_weight[changed])
    log_weight[changed] -= totals[parent[changed]]
    posterior = circuit.with_parameters(log_weight, parameters)
    posterior.ranges = {**circuit.ranges, **likelihoods.ranges}
    return Reweighted(posterior, float(values[-1]))
