"""The posterior given edges that a model's lattice of orders, or its candidate parents, do not hold."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from learners.kernels.arrays import Integers
from learners.orders.lattice.coverage import covered_posterior
from learners.orders.lattice.posterior import OrderPosterior
from learners.orders.parameters import OrderParameters
from learners.orders.scores.bge import BGe
from learners.orders.scores.edge_constraints import Edge, Edges, ImpossibleEdges, arrow, cycle_of, path_of, with_edges
from learners.orders.scores.priors import StructurePrior, table_with_prior
from learners.orders.scores.scores import FamilyScores

# The lattice of a question: known edges leave fewer orders, and somebody waits.
MOST_SETS = 100_000
KEPT = 4


class ConditionalPosteriors:
    """Posteriors given known edges, each with a lattice of its own that grows around these edges; the latest are kept.

    parameters: with which it was learned.
    most: parents that a node may have.
    """

    def __init__(self, posterior: OrderPosterior, parameters: OrderParameters, names: Sequence[str], most: int) -> None:
        self.posterior, self.names, self.most = posterior, list(names), most
        self.parameters = replace(parameters, sets=min(parameters.sets, MOST_SETS))
        self.prior = parameters.structure_prior(names)
        self._kept: OrderedDict[Edges, OrderPosterior] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def can_add(self) -> bool:
        """Whether parents that are no candidates can be scored: moments are kept, distinct rows are not."""
        return self.posterior.bge is not None

    def check(self, edges: Edges) -> None:
        """Refuse what no graph that the prior allows has. Raises ImpossibleEdges, naming the edges at fault."""
        for edge in sorted(edges.present & self.prior.forbidden):
            raise ImpossibleEdges(f"the prior forbids {arrow(edge, self.names)}")
        together = edges.present | self.prior.required
        cycle = cycle_of(together)
        if cycle:
            path = path_of(cycle, self.names)
            raise ImpossibleEdges(f"{path} is a cycle, together with the edges that the prior requires")
        for node, name in enumerate(self.names):
            n_parents = sum(child == node for _, child in together)
            if n_parents > self.most:
                raise ImpossibleEdges(f"{name!r} would have {n_parents} parents, and may have {self.most}")

    def given(self, edges: Edges, pause: Callable[[], None] | None = None) -> OrderPosterior:
        """The posterior whose scores hold edges that `check` and `check_edges` let pass.

        `pause` is called often; what it raises ends the search.
        """
        with self._lock:
            found = self._kept.get(edges)
            if found is not None:
                self._kept.move_to_end(edges)
                return found
        posterior = self._posterior_given(edges, pause)
        with self._lock:
            self._kept[edges] = posterior
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return posterior

    def _posterior_given(self, edges: Edges, pause: Callable[[], None] | None) -> OrderPosterior:
        own = self.posterior
        scores = own.scores
        if own.bge is not None:
            scores = with_candidates(scores, own.bge, self.prior, edges.present, self.most)
        scores = with_edges(scores, edges)
        if own.sets is None:
            return OrderPosterior(scores, None, own.coverage, own.bge, own.standard)
        return covered_posterior(
            scores, self.parameters, own.bge, own.standard, None if pause is None else lambda *_: pause()
        )


def with_candidates(
    scores: FamilyScores, bge: BGe, prior: StructurePrior, present: frozenset[Edge], most: int
) -> FamilyScores:
    """The scores with the parents of present edges among the candidates; other nodes keep their tables."""
    candidates: list[Integers] = list(scores.candidates)
    tables = [scores.of(node) for node in range(scores.d)]
    for node, own in enumerate(scores.candidates):
        wider = np.union1d(own, np.array([parent for parent, child in present if child == node], np.int64))
        if wider.size > own.size:
            candidates[node] = wider
            tables[node] = table_with_prior(bge.family_scores(node, wider, most), node, wider, scores.d, prior)
    return FamilyScores(tuple(candidates), np.concatenate(tables))
