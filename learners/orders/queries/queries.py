"""Queries about structures in terms of the columns, with answers in plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from learners.errors import LearnerError
from learners.kernels.arrays import Floats
from learners.models.estimation import Average
from learners.models.query import DrawQuery, Edges, Effects, Graph, Graphs, Paths, Score, StructureQuery
from learners.orders.formats.bif import parse_bif
from learners.orders.lattice.graph_samples import Graph as ParentSets
from learners.orders.lattice.graph_samples import best_graph, bitset_nodes, graph_parent_bitsets, log_graph_order_counts
from learners.orders.lattice.lattice import Coverage, OrderPosterior, OrderSums
from learners.orders.parameters import parse_edge
from learners.orders.queries.edges import (
    MOST_EXACT,
    ConditionalPosteriors,
    ancestor_relations,
    directed_path_probabilities,
    draw_causal_effects,
    expected_hamming_distance,
    mean_causal_effects,
    mean_causal_effects_bytes,
    posterior_edge_probabilities,
)
from learners.orders.queries.graph_scores import (
    OutsideMass,
    UnscoredFamily,
    WeightedGraphs,
    draw_weighted_graphs,
    estimate_log_order_count,
    estimate_unscored_family_mass,
    family_log_marginal_likelihood,
    family_log_prior,
)
from learners.orders.queries.known_network import adjacency, expected_essential_hamming_distance
from learners.orders.scores.bdeu_bge import BDeu, BGe
from learners.orders.scores.known_edges import Edges as KnownEdges
from learners.orders.scores.known_edges import (
    ImpossibleEdges,
    check_known_edges,
    drop_noncandidate_edges,
    find_directed_cycle,
    format_directed_path,
    format_edge,
)

Answer = dict[str, Any]

# Beyond this, means of effects come from draws.
EFFECTS_BYTES = 1 << 30
# Draws by which the mass of families beyond the tables is estimated.
OUTSIDE_DRAWS = 200
# Draws by which the expected distance of essential graphs is estimated.
DISTANCE_DRAWS = 200


class NotGaussian(LearnerError, ValueError):
    """Raised if effects are requested from a posterior over networks of nominal columns."""

    def __init__(self) -> None:
        super().__init__(
            "Effects are of linear Gaussian models, and this one scores nominal columns (BDeu). Train with score='bge' on numbers."
        )


def _as_probability(odds: float, error: float, name: str = "probability") -> Answer:
    """Convert odds against the covered mass to a probability, with its standard error."""
    return {name: odds / (1.0 + odds), "standard_error": error / (1.0 + odds) ** 2}


class GraphQueries:
    """A posterior over named columns, which answers queries.

    names: of the columns.
    conditional: for known edges outside the posterior's lattice or candidates; without it such queries are
    refused.
    bdeu: for nominal columns, scores families outside the tables.
    probabilities (d, d) float64: of edges, if already known.
    """

    def __init__(
        self,
        posterior: OrderPosterior,
        names: Sequence[str],
        conditional: ConditionalPosteriors | None = None,
        bdeu: BDeu | None = None,
        probabilities: Floats | None = None,
    ) -> None:
        self._probabilities = probabilities
        self.posterior, self.names, self.conditional = posterior, list(names), conditional
        self.bdeu = bdeu
        self.score: BGe | BDeu | None = posterior.bge or bdeu

    def answer(self, query: StructureQuery, pause: Callable[[], None] | None = None) -> Answer:
        """The answer, with `kind` and `coverage`, and

        - edges: `log_evidence` and `edges`: `from`, `to`, `probability` of each pair; where the tables leave families
          out, also `outside`, an estimate of their mass, and of an edge from no candidate `is_candidate` false with an
          estimated `probability`, None if nothing is known of it;
        - graph: `edges` (`from`, `to`), `log_score` and `log_posterior` given what is known;
        - graphs: `graphs`, distinct ones with how often each was drawn as `count`;
        - paths: `paths`: `from`, `to`, `probability` of each pair, and `is_exact`;
        - effects: `effects`: `from`, `to`, `mean`, `low`, `high` of each pair, and `is_exact`, whether the means are over all graphs;
        - score: `log_score`, `log_posterior` and `log_odds` against the best graph, `expected_shd` of `edges.expected_hamming_distance`,
          `expected_essential_shd` with its standard error, of essential graphs of `DISTANCE_DRAWS` draws,
          and `is_covered`: whether the posterior's tables and orders hold the graph. If not, `log_posterior` is an upper
          bound and `notes` say why.

        Answers estimated from draws have a `standard_error`; with prior "graph", `effective_sample_size` is the
        number of equally weighted draws that they are worth. Where no order that the model covers has the known
        edges, a lattice grows around them, and `coverage` is that lattice's; `pause` is called while it grows, and
        what it raises ends the answering.

        Raises UnknownColumn, InvalidParameter; ImpossibleEdges if no graph has the known edges;
        NotGaussian; NetworkFileError.
        """
        self.check(query)
        if isinstance(query, Score):
            own = self.posterior
            return {"kind": query.kind} | self._score(query) | {"coverage": own.facts(own.coverage)}
        answers: dict[type, Callable[[Any, OrderSums], Answer]] = {
            Edges: self._edges,
            Graph: self._graph,
            Graphs: self._graphs,
            Paths: self._paths,
            Effects: self._effects,
        }
        sums, coverage = self._given(self.known(query), pause)
        return {"kind": query.kind} | answers[type(query)](query, sums) | {"coverage": self.posterior.facts(coverage)}

    @property
    def probabilities(self) -> Floats:
        """Posterior probability of each edge under the order prior, (d, d) float64."""
        if self._probabilities is None:
            self._probabilities = posterior_edge_probabilities(self.posterior.prior_sums)
        return self._probabilities

    def check(self, query: StructureQuery) -> None:
        """Refuse an invalid query without answering it.

        Raises UnknownColumn, InvalidParameter, ImpossibleEdges, NotGaussian, NetworkFileError.
        """
        if isinstance(query, Effects) and self.posterior.bge is None:
            raise NotGaussian
        if isinstance(query, Score):
            self._parents(query)
        else:
            self.known(query)

    def graphs_of(self, average: Average, pause: Callable[[], None] | None = None) -> tuple[WeightedGraphs, Coverage]:
        """Draw the graphs for an average, and return the coverage of the posterior.

        Raises UnknownColumn, InvalidParameter, ImpossibleEdges.
        """
        sums, coverage = self._given(self.known(average), pause)
        return draw_weighted_graphs(sums, average.n, average.seed, average.prior), coverage

    def known(self, query: DrawQuery | Graph | Average) -> KnownEdges:
        """Return the known edges of a query. Raises UnknownColumn, InvalidParameter, ImpossibleEdges."""
        present, absent = (
            frozenset(parse_edge(text, self.names, name) for text in getattr(query, name))
            for name in ("present", "absent")
        )
        edges = KnownEdges(present, absent)
        if edges:
            can_add = self.conditional is not None and self.conditional.can_add
            check_known_edges(edges, self.posterior.scores, self.names, can_add)
            if self.conditional is not None:
                self.conditional.check(edges)
        return edges

    def _given(self, edges: KnownEdges, pause: Callable[[], None] | None) -> tuple[OrderSums, Coverage]:
        """Return the sums given edges, from the model's lattice if it covers them, else from one grown around them."""
        own = self.posterior
        is_held = drop_noncandidate_edges(edges, own.scores) == edges
        if is_held:
            sums = own.sums(edges)
            if sums.log_z > -np.inf:
                return sums, own.coverage
        if self.conditional is not None and not (is_held and own.coverage.is_exact):
            posterior = self.conditional.given(edges, pause)
            return posterior.prior_sums, posterior.coverage
        words = ", ".join(
            [format_edge(edge, self.names) for edge in sorted(edges.present)]
            + [f"no {format_edge(edge, self.names)}" for edge in sorted(edges.absent)]
        )
        covered = "" if own.coverage.is_exact else " that the model covers"
        raise ImpossibleEdges(f"no order of the columns{covered} allows {words} together with what the prior requires")

    def _edges(self, query: Edges, sums: OrderSums) -> Answer:
        answer: Answer = {"log_evidence": sums.log_z - self.posterior.prior_sums.log_z, "prior": query.prior}
        if query.prior == "order":
            answer |= {"edges": self._pairs(probability=posterior_edge_probabilities(sums))}
        else:
            drawn = draw_weighted_graphs(sums, query.n, query.seed, query.prior)
            mean, error = drawn.mean(drawn.graphs.adjacency())
            answer |= drawn.effective_size | {"edges": self._pairs(probability=mean, standard_error=error)}
        return answer | self._outside(query, sums, answer["edges"])

    def _outside(self, query: Edges, sums: OrderSums, pairs: list[Answer]) -> Answer:
        """Estimate the mass outside the tables, if any, and the probabilities of edges from non-candidates."""
        if not self.posterior.leaves_out:
            return {}
        absent = self.known(query).absent
        prior = None if self.conditional is None else self.conditional.prior
        outside: OutsideMass | None = None
        if self.score is not None and prior is not None:
            drawn = draw_weighted_graphs(sums, OUTSIDE_DRAWS, query.seed, query.prior)
            outside = estimate_unscored_family_mass(drawn, sums.scores, self.score, prior, absent)
        place = {name: node for node, name in enumerate(self.names)}
        n_outside = 0
        for pair in pairs:
            edge = (place[pair["from"]], place[pair["to"]])
            is_excluded = edge in absent or (prior is not None and edge in prior.forbidden)
            if is_excluded or edge[0] in sums.scores.candidates[edge[1]]:
                continue
            n_outside += 1
            pair.update(is_candidate=False, probability=None)
            if outside is not None:
                pair.update(_as_probability(float(outside.odds[edge]), float(outside.errors[edge])))
        mass: Answer = {} if outside is None else _as_probability(outside.total, outside.total_error, "mass")
        words = (
            f"{n_outside} edges come from columns that are no candidate parents"
            if n_outside
            else ("the tables leave out parent sets larger than max_parents")
        )
        how = "their mass is unknown" if outside is None else f"one more parent would have the mass {mass['mass']:.3g}"
        return {"outside": mass | {"n_edges": n_outside}, "notes": [f"{words}; {how}"]}

    def _graph(self, query: Graph, sums: OrderSums) -> Answer:
        best = best_graph(sums.scores, sums.lattice)
        return {"edges": self._edges_of(best.parents)} | self._logs(best.parents, sums)

    def _graphs(self, query: Graphs, sums: OrderSums) -> Answer:
        drawn = draw_weighted_graphs(sums, query.n, query.seed, query.prior)
        distinct, first, place = np.unique(drawn.graphs.parents, axis=0, return_index=True, return_inverse=True)
        counts = np.bincount(place.ravel(), minlength=len(distinct))
        weights = np.bincount(place.ravel(), drawn.weights, len(distinct))
        n_orders = log_graph_order_counts(sums.lattice, distinct)
        graphs = []
        for row in np.lexsort((first, -weights)).tolist():
            log_score = float(drawn.graphs.log_scores[first[row]])
            entry: Answer = {
                "edges": self._edges_of(tuple(bitset_nodes(own) for own in distinct[row].tolist())),
                "count": int(counts[row]),
                "log_score": log_score,
                "log_posterior": log_score + float(n_orders[row]) - sums.log_z,
            }
            graphs.append(entry | ({"weight": float(weights[row])} if query.prior == "graph" else {}))
        return {"prior": query.prior, "n": query.n} | drawn.effective_size | {"graphs": graphs}

    def _paths(self, query: Paths, sums: OrderSums) -> Answer:
        answer: Answer = {"prior": query.prior, "is_exact": False}
        if query.prior == "order" and self.posterior.sets is None and len(self.names) <= MOST_EXACT:
            return answer | {"is_exact": True, "paths": self._pairs(probability=directed_path_probabilities(sums))}
        drawn = draw_weighted_graphs(sums, query.n, query.seed, query.prior)
        mean, error = drawn.mean(ancestor_relations(drawn.graphs))
        return answer | drawn.effective_size | {"paths": self._pairs(probability=mean, standard_error=error)}

    def _effects(self, query: Effects, sums: OrderSums) -> Answer:
        bge = self.posterior.bge
        if bge is None:
            raise NotGaussian
        drawn = draw_weighted_graphs(sums, query.n, query.seed, query.prior)
        means, draws = draw_causal_effects(drawn.graphs, bge, query.seed)
        spread = self.posterior.standard.spread
        # From the units in which the columns were scored to their own.
        units = spread[np.newaxis, :] / spread[:, np.newaxis]
        low, high = (bound * units for bound in drawn.interval(draws, query.level))
        answer: Answer = {
            "prior": query.prior,
            "level": query.level,
            "n": query.n,
            "is_exact": False,
        } | drawn.effective_size
        if query.prior == "order" and mean_causal_effects_bytes(sums) <= EFFECTS_BYTES:
            mean = mean_causal_effects(sums, bge) * units
            answer["is_exact"] = self.posterior.coverage.is_exact
            return answer | {"effects": self._pairs(mean=mean, low=low, high=high)}
        mean, error = drawn.mean(means)
        return answer | {"effects": self._pairs(mean=mean * units, low=low, high=high, standard_error=error * units)}

    def _parents(self, query: Score) -> ParentSets:
        """Return the graph of a query."""
        return self.parents_of(parse_bif(query.bif, "bif").edges if query.bif else query.edges, "edges")

    def parents_of(self, texts: Sequence[str], where: str) -> ParentSets:
        """Return the graph of some edges. Raises UnknownColumn, InvalidParameter, ImpossibleEdges."""
        edges = {parse_edge(text, self.names, where) for text in texts}
        cycle = find_directed_cycle(edges)
        if cycle:
            raise ImpossibleEdges(f"{format_directed_path(cycle, self.names)} is a cycle")
        return tuple(tuple(sorted(a for a, child in edges if child == node)) for node in range(len(self.names)))

    def _score(self, query: Score) -> Answer:
        parents = self._parents(query)
        best = best_graph(self.posterior.scores, self.posterior.lattice)
        logs = self._own_logs(parents)
        drawn = draw_weighted_graphs(self.posterior.prior_sums, DISTANCE_DRAWS, 0, "order")
        essential, error = expected_essential_hamming_distance(drawn, adjacency(parents))
        return logs | {
            "log_odds": logs["log_score"] - best.log_score,
            "best_log_score": best.log_score,
            "expected_shd": expected_hamming_distance(self.probabilities, parents),
            "expected_essential_shd": essential,
            "expected_essential_shd_error": error,
            "best_edges": self._edges_of(best.parents),
        }

    def _own_logs(self, parents: ParentSets) -> Answer:
        """Return the log score of any graph from its families, and its log posterior, an upper bound if the posterior
        lacks it.
        """
        sums, scores = self.posterior.prior_sums, self.posterior.scores
        notes, log_score = [], 0.0
        for node, own in enumerate(parents):
            index = scores.index(node, own)
            log = -np.inf if index is None else float(scores.of(node)[index])
            if log == -np.inf:
                log, note = self._beyond(node, own)
                notes.append(note)
            log_score += log
        n_orders = float(log_graph_order_counts(sums.lattice, graph_parent_bitsets(parents)[np.newaxis])[0])
        if n_orders == -np.inf:
            n_orders, error = estimate_log_order_count(graph_parent_bitsets(parents), 0)
            notes.append(
                f"no order of the lattice contains this graph; its number of orders is estimated, standard error {error:.1%}"
            )
        log_joint = log_score + n_orders
        answer: Answer = {"log_score": log_score, "log_posterior": log_joint - sums.log_z, "is_covered": not notes}
        if not notes:
            return answer
        if log_score > -np.inf:
            # The mass of this graph itself was left out of the sum: with it, the share is a bound from above.
            answer["log_posterior"] = log_joint - float(np.logaddexp(log_joint, sums.log_z))
            notes.append("the posterior does not contain this graph: this is an upper bound of its log posterior")
        return answer | {"notes": notes}

    def _beyond(self, node: int, own: tuple[int, ...]) -> tuple[float, str]:
        """Return the log score of a family outside the tables, and the reason why it is outside.

        Raises UnscoredFamily if the model stores nothing to score it.
        """
        name, above = self.names[node], ", ".join(repr(self.names[parent]) for parent in own)
        candidates = set(self.posterior.scores.candidates[node].tolist())
        others = [self.names[parent] for parent in own if parent not in candidates]
        if self.conditional is not None:
            prior = family_log_prior(self.conditional.prior, node, own, len(self.names))
            if prior == -np.inf:
                parents = above or "none"
                return prior, f"the prior forbids the parents of {name!r} ({parents}), so the graph is impossible"
            if self.score is not None:
                are = "is no candidate parent" if len(others) == 1 else "are no candidate parents"
                reason = (
                    f"{', '.join(map(repr, others))} {are} of {name!r}"
                    if others
                    else f"{name!r} has {len(own)} parents, and the tables hold at most {self.conditional.most}"
                )
                return prior + family_log_marginal_likelihood(
                    self.score, node, own
                ), f"{reason}: scored by the family itself"
        raise UnscoredFamily(name, above)

    def _logs(self, parents: ParentSets, sums: OrderSums) -> Answer:
        """Return the log score of a graph, and its log posterior under the order prior."""
        log_score = sums.scores.log_score(parents)
        n_orders = float(log_graph_order_counts(sums.lattice, graph_parent_bitsets(parents)[np.newaxis])[0])
        return {"log_score": log_score, "log_posterior": log_score + n_orders - sums.log_z}

    def _edges_of(self, parents: ParentSets) -> list[Mapping[str, str]]:
        return [
            {"from": self.names[parent], "to": self.names[node]} for node, own in enumerate(parents) for parent in own
        ]

    def _pairs(self, **values: Floats) -> list[Answer]:
        """Return an answer for every pair of different columns."""
        d = len(self.names)
        return [
            {"from": self.names[i], "to": self.names[j]} | {name: float(value[i, j]) for name, value in values.items()}
            for i in range(d)
            for j in range(d)
            if i != j
        ]


def structure_answer_size(d: int, queries: Sequence[StructureQuery]) -> int:
    """Return an upper bound of the number of values in the answers."""
    pairs = 5 * d * (d - 1)
    return sum(query.n * (d * d // 2 + 4) if isinstance(query, Graphs) else pairs for query in queries)


def n_graphs_to_draw(queries: Sequence[StructureQuery], d: int, is_exact: bool) -> int:
    """Return the number of graphs that the queries draw."""
    always = (Graphs, Effects) if is_exact and d <= MOST_EXACT else (Graphs, Effects, Paths)
    may_draw = (query for query in queries if isinstance(query, DrawQuery))
    return sum(query.n for query in may_draw if query.prior == "graph" or isinstance(query, always))
