"""Queries about structures in the words of the columns, and their answers in plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from learners.arrays import Floats
from learners.errors import LearnerError
from learners.orders.bif import parse_bif
from learners.orders.conditional import ConditionalPosteriors
from learners.orders.draws import WeightedGraphs, weighted_graphs
from learners.orders.edges import edge_probabilities
from learners.orders.effects import draw_effects, mean_effects, mean_effects_bytes
from learners.orders.evidence import Edges as KnownEdges
from learners.orders.evidence import ImpossibleEdges, arrow, check_edges, cycle_of, held
from learners.orders.graphs import Graph as ParentSets
from learners.orders.graphs import as_sets, best_graph, log_n_orders, members
from learners.orders.parameters import edge_of
from learners.orders.paths import MOST_EXACT, ancestor_relations, path_probabilities
from learners.orders.posterior import Coverage, OrderPosterior
from learners.orders.sums import OrderSums
from learners.query import Edges, Effects, Graph, Graphs, Paths, Score, StructureQuery

Answer = dict[str, Any]

# Beyond this, means of effects come from draws.
EFFECTS_BYTES = 1 << 30


class NotGaussian(LearnerError, ValueError):
    """Effects were asked of a posterior over networks of nominal columns."""

    def __init__(self) -> None:
        super().__init__(
            "Effects are of linear Gaussian models, and this one scores nominal columns (BDeu). Train with score='bge' on numbers."
        )


class Asked:
    """A posterior over named columns, which answers queries.

    Parameters
    ----------
    posterior : OrderPosterior
    names : sequence of str
        Of the columns.
    conditional : ConditionalPosteriors, optional
        For known edges that the posterior's lattice or candidates do not hold; without it such questions are refused.
    """

    def __init__(
        self, posterior: OrderPosterior, names: Sequence[str], conditional: ConditionalPosteriors | None = None
    ) -> None:
        self.posterior, self.names, self.conditional = posterior, list(names), conditional

    def answer(self, query: StructureQuery, pause: Callable[[], None] | None = None) -> Answer:
        """The answer, with `kind` and `coverage`, and

        - edges: `log_evidence` and `edges`: `from`, `to`, `probability` of each pair;
        - graph: `edges` (`from`, `to`), `log_score` and `log_posterior` given what is known;
        - graphs: `graphs`, distinct ones with how often each was drawn as `count`;
        - paths: `paths`: `from`, `to`, `probability` of each pair, and `is_exact`;
        - effects: `effects`: `from`, `to`, `mean`, `low`, `high` of each pair, and `is_exact` of the means;
        - score: `log_score`, `log_posterior` and `log_odds` against the best graph.

        What comes from draws has a `standard_error`; with prior "graph", `effective_sample_size` tells how many draws of
        equal weight they are worth. Where no order that the model covers has the known edges, a lattice grows around
        them, and `coverage` is that lattice's; `pause` is called while it grows, and what it raises ends the answering.

        Raises
        ------
        UnknownColumn, InvalidParameter
        ImpossibleEdges
            If no graph has the edges that are said to be known.
        NotGaussian
        BIFError
        """
        self.check(query)
        if isinstance(query, Score):
            return {"kind": query.kind} | self._score(query) | {"coverage": self.posterior.coverage.told()}
        answers: dict[type, Callable[[Any, OrderSums], Answer]] = {
            Edges: self._edges,
            Graph: self._graph,
            Graphs: self._graphs,
            Paths: self._paths,
            Effects: self._effects,
        }
        sums, coverage = self._given(self.known(query), pause)
        return {"kind": query.kind} | answers[type(query)](query, sums) | {"coverage": coverage.told()}

    def check(self, query: StructureQuery) -> None:
        """Refuse a query that names what is not there, without answering it.

        Raises
        ------
        UnknownColumn, InvalidParameter, ImpossibleEdges, NotGaussian, BIFError
        """
        if isinstance(query, Effects) and self.posterior.bge is None:
            raise NotGaussian
        if isinstance(query, Score):
            self._parents(query)
        else:
            self.known(query)

    def known(self, query: StructureQuery) -> KnownEdges:
        """The known edges of a query.

        Raises
        ------
        UnknownColumn, InvalidParameter, ImpossibleEdges
        """
        if isinstance(query, Score):
            return KnownEdges()
        present, absent = (
            frozenset(edge_of(text, self.names, name) for text in getattr(query, name))
            for name in ("present", "absent")
        )
        edges = KnownEdges(present, absent)
        if edges:
            check_edges(edges, self.posterior.scores, self.names, self._can_add)
            if self.conditional is not None:
                self.conditional.check(edges)
        return edges

    @property
    def _can_add(self) -> bool:
        return self.conditional is not None and self.conditional.can_add

    def _given(self, edges: KnownEdges, pause: Callable[[], None] | None) -> tuple[OrderSums, Coverage]:
        """The sums given edges: from the model's own lattice if it holds them, or from one that grows around them."""
        own = self.posterior
        is_held = held(edges, own.scores) == edges
        if is_held:
            sums = own.sums(edges)
            if sums.log_z > -np.inf:
                return sums, own.coverage
        if self.conditional is not None and not (is_held and own.coverage.is_exact):
            posterior = self.conditional.given(edges, pause)
            return posterior.prior_sums, posterior.coverage
        words = ", ".join(
            [arrow(edge, self.names) for edge in sorted(edges.present)]
            + [f"no {arrow(edge, self.names)}" for edge in sorted(edges.absent)]
        )
        covered = "" if own.coverage.is_exact else " that the model covers"
        raise ImpossibleEdges(f"no order of the columns{covered} allows {words} together with what the prior requires")

    def _drawn(self, query: Edges | Graphs | Paths | Effects, sums: OrderSums) -> WeightedGraphs:
        return weighted_graphs(sums, query.n, query.seed, query.prior)

    def _edges(self, query: Edges, sums: OrderSums) -> Answer:
        told: Answer = {"log_evidence": sums.log_z - self.posterior.prior_sums.log_z, "prior": query.prior}
        if query.prior == "order":
            return told | {"edges": self._pairs(probability=edge_probabilities(sums))}
        drawn = self._drawn(query, sums)
        mean, error = drawn.mean(drawn.graphs.adjacency())
        return told | self._size(drawn) | {"edges": self._pairs(probability=mean, standard_error=error)}

    def _graph(self, query: Graph, sums: OrderSums) -> Answer:
        best = best_graph(sums.scores, sums.lattice)
        return {"edges": self._edges_of(best.parents)} | self._logs(best.parents, sums)

    def _graphs(self, query: Graphs, sums: OrderSums) -> Answer:
        drawn = self._drawn(query, sums)
        distinct, first, place = np.unique(drawn.graphs.parents, axis=0, return_index=True, return_inverse=True)
        counts = np.bincount(place.ravel(), minlength=len(distinct))
        weights = np.bincount(place.ravel(), drawn.weights, len(distinct))
        n_orders = log_n_orders(sums.lattice, distinct)
        told = []
        for row in np.lexsort((first, -weights)).tolist():
            log_score = float(drawn.graphs.log_scores[first[row]])
            entry: Answer = {
                "edges": self._edges_of(tuple(members(own) for own in distinct[row].tolist())),
                "count": int(counts[row]),
                "log_score": log_score,
                "log_posterior": log_score + float(n_orders[row]) - sums.log_z,
            }
            told.append(entry | ({"weight": float(weights[row])} if query.prior == "graph" else {}))
        return {"prior": query.prior, "n": query.n} | self._size(drawn) | {"graphs": told}

    def _paths(self, query: Paths, sums: OrderSums) -> Answer:
        told: Answer = {"prior": query.prior, "is_exact": False}
        if query.prior == "order" and self.posterior.sets is None and len(self.names) <= MOST_EXACT:
            return told | {"is_exact": True, "paths": self._pairs(probability=path_probabilities(sums))}
        drawn = self._drawn(query, sums)
        mean, error = drawn.mean(ancestor_relations(drawn.graphs))
        return told | self._size(drawn) | {"paths": self._pairs(probability=mean, standard_error=error)}

    def _effects(self, query: Effects, sums: OrderSums) -> Answer:
        bge = self.posterior.bge
        if bge is None:
            raise NotGaussian
        drawn = self._drawn(query, sums)
        effects = draw_effects(drawn.graphs, bge, query.seed)
        spread = self.posterior.standard.spread
        # From the units in which the columns were scored to their own.
        units = spread[np.newaxis, :] / spread[:, np.newaxis]
        low, high = (bound * units for bound in drawn.interval(effects.draws, query.level))
        told: Answer = {"prior": query.prior, "level": query.level, "n": query.n, "is_exact": False} | self._size(drawn)
        if query.prior == "order" and mean_effects_bytes(sums) <= EFFECTS_BYTES:
            mean = mean_effects(sums, bge) * units
            return told | {"is_exact": True, "effects": self._pairs(mean=mean, low=low, high=high)}
        mean, error = drawn.mean(effects.means)
        pairs = self._pairs(mean=mean * units, low=low, high=high, standard_error=error * units)
        return told | {"effects": pairs}

    def _parents(self, query: Score) -> ParentSets:
        """The graph of a query."""
        texts = parse_bif(query.bif, "bif").edges if query.bif else query.edges
        edges = {edge_of(text, self.names, "edges") for text in texts}
        cycle = cycle_of(edges)
        if cycle:
            raise ImpossibleEdges(f"{'->'.join(self.names[node] for node in cycle)} is a cycle")
        return tuple(tuple(sorted(a for a, child in edges if child == node)) for node in range(len(self.names)))

    def _score(self, query: Score) -> Answer:
        parents = self._parents(query)
        best = best_graph(self.posterior.scores, self.posterior.lattice)
        logs = self._logs(parents, self.posterior.prior_sums)
        return logs | {
            "log_odds": logs["log_score"] - best.log_score,
            "best_log_score": best.log_score,
            "best_edges": self._edges_of(best.parents),
        }

    def _logs(self, parents: ParentSets, sums: OrderSums) -> Answer:
        """The log score of a graph, and its log posterior under the order prior."""
        log_score = sums.scores.log_score(parents)
        n_orders = float(log_n_orders(sums.lattice, as_sets(parents)[np.newaxis])[0])
        return {"log_score": log_score, "log_posterior": log_score + n_orders - sums.log_z}

    def _size(self, drawn: WeightedGraphs) -> Answer:
        return {} if drawn.is_equal else {"effective_sample_size": drawn.effective_sample_size}

    def _edges_of(self, parents: ParentSets) -> list[Mapping[str, str]]:
        return [
            {"from": self.names[parent], "to": self.names[node]} for node, own in enumerate(parents) for parent in own
        ]

    def _pairs(self, **values: Floats) -> list[Answer]:
        """Of every pair of different columns."""
        d = len(self.names)
        return [
            {"from": self.names[i], "to": self.names[j]} | {name: float(value[i, j]) for name, value in values.items()}
            for i in range(d)
            for j in range(d)
            if i != j
        ]


def answer_size(d: int, queries: Sequence[StructureQuery]) -> int:
    """How many values the answers have at most."""
    pairs = 5 * d * (d - 1)
    return sum(query.n * (d * d // 2 + 4) if isinstance(query, Graphs) else pairs for query in queries)


def n_draws(queries: Sequence[StructureQuery], d: int, is_exact: bool) -> int:
    """How many graphs the queries draw."""
    total = 0
    for query in queries:
        if isinstance(query, Graphs | Effects):
            total += query.n
        elif isinstance(query, Edges):
            total += query.n if query.prior == "graph" else 0
        elif isinstance(query, Paths):
            needs = query.prior == "graph" or not is_exact or d > MOST_EXACT
            total += query.n if needs else 0
    return total
