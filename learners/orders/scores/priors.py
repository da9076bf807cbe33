"""Priors over graphs: a factor for each parent set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import scipy

from learners.kernels.arrays import Floats, Integers
from learners.orders.scores.edge_constraints import Edge
from learners.orders.scores.scores import FamilyScores, keep_sets


@dataclass(frozen=True)
class StructurePrior:
    """What is believed of a graph before the data.

    References: Eggeling, Viinikka, Vuoksenmaa, Koivisto (2019), On structure priors for learning Bayesian networks,
    section 3.
    """

    # Fair: all sizes of a parent set are equally probable, so a set of k parents has the inverse of the number of such
    # sets; uniform: all parent sets are.
    sizes: Literal["fair", "uniform"] = "fair"
    # required, forbidden: pairs of parent and child.
    required: frozenset[Edge] = frozenset()
    forbidden: frozenset[Edge] = frozenset()
    # Mapping of (parent, child) to float: added to the log prior of every graph that has the edge: the log odds of the
    # edge, all else being equal.
    log_odds: Mapping[Edge, float] = field(default_factory=dict)

    def of_sizes(self, d: int) -> Floats:
        """(d,) float64: log prior of a set of 0 to d - 1 parents, up to a constant."""
        if self.sizes == "uniform":
            return np.zeros(d)
        k = np.arange(d)
        return np.asarray(scipy.special.gammaln(k + 1) + scipy.special.gammaln(d - k) - scipy.special.gammaln(d))

    def allowed(self, node: int, d: int) -> list[int]:
        """The nodes that may be parents of one."""
        return [other for other in range(d) if other != node and (other, node) not in self.forbidden]

    def required_of(self, node: int) -> list[int]:
        """The nodes that must be parents of one, ascending."""
        return sorted(parent for parent, child in self.required if child == node)


def with_prior(tables: list[Floats], candidates: tuple[Integers, ...], prior: StructurePrior) -> FamilyScores:
    """Log scores with the log prior: required parents must be candidates, forbidden ones must not.

    The tables (2^k,) of log marginal likelihoods are not changed.
    """
    d = len(candidates)
    found = [table_with_prior(table, node, candidates[node], d, prior) for node, table in enumerate(tables)]
    return FamilyScores(candidates, np.concatenate(found))


def table_with_prior(table: Floats, node: int, candidates: Integers, d: int, prior: StructurePrior) -> Floats:
    """(2^k,) float64: the log scores of one of d nodes with the log prior; its required parents are candidates."""
    extra = np.zeros(1)
    for other in candidates.tolist():
        extra = np.concatenate([extra, extra + prior.log_odds.get((other, node), 0.0)])
    logs = table + extra + prior.of_sizes(d)[np.bitwise_count(np.arange(table.size, dtype=np.uint64))]
    position = {other: bit for bit, other in enumerate(candidates.tolist())}
    keep_sets(logs, sum(1 << position[parent] for parent in prior.required_of(node)), 0)
    return np.asarray(logs)
