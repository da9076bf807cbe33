"""A learned posterior over structures with its schema, for storage, serving and queries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar, NotRequired, Self, cast

import numpy as np
import pyarrow as pa

from learners.errors import NoClass
from learners.kernels.arrays import Arrays, Floats, freeze_arrays
from learners.models.model import Header, ModelDefaults
from learners.models.query import Graphs, StructureQuery
from learners.orders.lattice.graph_samples import BestGraph, Graph, best_graph, bitset_nodes, graph_parent_bitsets
from learners.orders.lattice.lattice import Coverage, OrderPosterior, Share
from learners.orders.parameters import OrderParameters
from learners.orders.queries.edges import ConditionalPosteriors, posterior_edge_probabilities
from learners.orders.queries.predictive import (
    NoTables,
    predictive_log_densities,
    predictive_log_probabilities,
    record_batch_matrix,
)
from learners.orders.queries.queries import Answer, GraphQueries
from learners.orders.scores.bdeu_bge import BDeu, BGe, BGePrior, KeptRows, Standard
from learners.orders.scores.scores import FamilyScores
from learners.schema import Chunk, Schema
from learners.schema.encoding.encode import encode

# Drawn for the table of graphs, which tells of the most probable of them.
N_GRAPHS = 1000
TOP_GRAPHS = 20


class OrderHeader(Header):
    """The header of a stored `OrderModel`."""

    coverage: Mapping[str, Any]  # a `Coverage`
    bge: NotRequired[Mapping[str, Any]]  # a `BGe` score without its arrays: `n_rows` and its prior


class OrderModel(ModelDefaults):
    """A posterior over Bayesian network structures of a table's columns.

    schema: node i is attribute i.
    facts: how it was learned.
    probabilities (d, d) float64: [i, j] the probability of the edge from i to j, if already known.
    best: the most probable graph, if already known.
    tables: for nominal columns (q, r) float64, the probabilities of each node of the most probable graph; empty
    if too large.
    rows: for nominal columns, the distinct rows, from which any family can be scored.
    """

    kind: ClassVar[str] = "orders"

    def __init__(
        self,
        schema: Schema,
        posterior: OrderPosterior,
        facts: Mapping[str, object],
        probabilities: Floats | None = None,
        best: BestGraph | None = None,
        tables: Sequence[Floats] = (),
        rows: KeptRows | None = None,
    ) -> None:
        self.schema, self.posterior, self.facts = schema, posterior, dict(facts)
        self.names = [attribute.name for attribute in schema.attributes]
        if probabilities is None:
            probabilities = posterior_edge_probabilities(posterior.prior_sums)
        freeze_arrays(probabilities)
        self.probabilities = probabilities
        self.best = best or best_graph(posterior.scores, posterior.lattice)
        self.conditional_tables = list(tables)
        self.rows = rows
        conditional, bdeu = None, None
        # A model that was put together by hand says not with which parameters.
        if isinstance(parameters := self.facts.get("parameters"), Mapping):
            own = OrderParameters(**parameters)
            if isinstance(most := self.facts.get("max_parents"), int):
                conditional = ConditionalPosteriors(posterior, own, self.names, most)
            if rows is not None:
                bdeu = BDeu(rows, schema.domain_sizes, own.ess)
        self.graph_queries = GraphQueries(posterior, self.names, conditional, bdeu, self.probabilities)

    def predict_proba(self, chunk: Chunk) -> Floats:
        """Raise NoClass: the model has no class."""
        raise NoClass

    def log_likelihood(self, batch: pa.RecordBatch) -> Floats:
        """Return the log density of each row under the most probable graph, with its parameters integrated out, (n,)
        float64.

        In the columns' own units. NaN for a row with a missing number or, for nominal columns, an unseen value.

        Raises UnknownColumn; NoTables if the tables were too large to store.
        """
        bge = self.posterior.bge
        if bge is None:
            if not self.conditional_tables:
                raise NoTables
            codes = self.rows_of(batch).astype(np.int64)
            return predictive_log_probabilities(
                self.conditional_tables, self.best.parents, codes, self.schema.domain_sizes
            )
        center, spread = self.posterior.standard
        x = (self.rows_of(batch).T - center) / spread
        return predictive_log_densities(bge, self.best.parents, x) - float(np.log(spread).sum())

    def rows_of(self, batch: pa.RecordBatch) -> Floats:
        """Convert a record batch to numbers, or codes of nominal columns, (d, n) float64. Raises UnknownColumn."""
        if self.posterior.bge is not None:
            return record_batch_matrix(batch, self.schema)
        return encode(batch, self.schema).x.astype(np.float64)

    def answer(self, queries: Sequence[StructureQuery], pause: Callable[[], None] | None = None) -> list[Answer]:
        """Answer queries as `queries.GraphQueries.answer` does; `pause` is called before each, and may raise to stop."""
        answers = []
        for query in queries:
            if pause is not None:
                pause()
            answers.append(self.graph_queries.answer(query, pause))
        return answers

    def best_edges(self) -> list[tuple[str, str, float]]:
        """Return the edges of the most probable graph: names of parent and child, and the probability."""
        return [
            (self.names[parent], self.names[node], float(self.probabilities[parent, node]))
            for node, own in enumerate(self.best.parents)
            for parent in own
        ]

    def warnings(self) -> list[str]:
        """Return warnings to read before using or sharing the model."""
        warnings = []
        kinds = self.facts.get("taken_as")
        if isinstance(kinds, Mapping) and len({how.partition(" ")[0] == "numbers" for how in kinds.values()}) > 1:
            listed = ", ".join(f"{name}: {how}" for name, how in kinds.items() if how.startswith("numbers"))
            warnings.append(
                f"The table has columns of states and of numbers, so all are nominal ({listed}). To see numeric columns as "
                "numbers, drop the others and use score=bge."
            )
        at_limit = self.facts.get("columns_at_limit")
        if isinstance(at_limit, Sequence) and at_limit:
            warnings.append(
                f"{', '.join(map(repr, at_limit))} reach the limit max_parents={self.facts['max_parents']}: raise it to allow more parents."
            )
        if self.rows is not None:
            warnings.append(
                f"The model keeps the {self.rows.n_distinct:,} distinct rows of its table, to score any graph: everyone who may download "
                "the model can read them. Set keep_rows=false to leave them out."
            )
        return warnings

    def structure(self) -> dict[str, object]:
        """Return the columns, the edges of the most probable graph with probabilities, and how the model was learned."""
        edges = [{"from": parent, "to": child, "probability": p} for parent, child, p in self.best_edges()]
        nodes = [{"name": name, "role": "attribute"} for name in self.names]
        facts = {name: fact for name, fact in self.facts.items() if name not in ("learner", "parameters")}
        return {
            "nodes": nodes,
            "edges": edges,
            "coverage": self.posterior.facts(self.posterior.coverage),
            "facts": facts,
        }

    def to_arrays(self) -> tuple[OrderHeader, dict[str, np.ndarray]]:
        """Return a header and named arrays for `from_arrays`."""
        posterior, scores = self.posterior, self.posterior.scores
        header: OrderHeader = {
            "kind": self.kind,
            "schema": self.schema.to_json(),
            "facts": self.facts,
            "coverage": posterior.coverage._asdict(),
        }
        arrays: dict[str, np.ndarray] = {
            "candidates": np.concatenate(scores.candidates),
            "n_candidates": np.array([own.size for own in scores.candidates], np.int64),
            "probabilities": self.probabilities.ravel(),
            "center": posterior.standard.center,
            "spread": posterior.standard.spread,
            "sets": np.empty(0, np.uint64) if posterior.sets is None else posterior.sets,
            "best": graph_parent_bitsets(self.best.parents),
            "conditional": np.concatenate([table.ravel() for table in self.conditional_tables] or [np.empty(0)]),
        }
        # With few parents most sets are impossible: storing the possible ones with their places takes fewer bytes.
        possible = np.flatnonzero(scores.logs > -np.inf)
        if 2 * possible.size < scores.logs.size:
            arrays |= {"places": possible, "logs": scores.logs[possible]}
        else:
            arrays |= {"places": np.empty(0, np.int64), "logs": scores.logs}
        if self.rows is not None:
            arrays |= {"rows": self.rows.x.ravel(), "row_counts": self.rows.counts}
        if posterior.bge is not None:
            bge = posterior.bge
            header["bge"] = {"n_rows": bge.n_rows} | asdict(bge.prior)
            arrays |= {"mean": bge.mean, "scatter": bge.scatter.ravel()}
        return header, arrays

    @classmethod
    def from_arrays(cls, header: Mapping[str, object], arrays: Arrays) -> Self:
        """Build the model from the output of `to_arrays`; the arrays may be memory-mapped and read-only."""
        stored = cast(OrderHeader, header)
        schema = Schema.from_json(stored["schema"])
        d = schema.n_attributes
        ends = np.cumsum(arrays["n_candidates"])
        candidates = tuple(np.split(np.asarray(arrays["candidates"]), ends[:-1]))
        logs = arrays["logs"]
        if arrays["places"].size:
            logs = np.full(int(np.sum(1 << arrays["n_candidates"])), -np.inf)
            logs[arrays["places"]] = arrays["logs"]
        bge = None
        if (own := stored.get("bge")) is not None:
            prior = BGePrior(own["alpha_mu"], own["alpha_w"], own["t"])
            bge = BGe(own["n_rows"], arrays["mean"], np.asarray(arrays["scatter"]).reshape(d, d), prior)
        coverage = stored["coverage"]
        posterior = OrderPosterior(
            FamilyScores(candidates, logs),
            arrays["sets"] if arrays["sets"].size else None,
            Coverage(coverage["is_exact"], Share(*coverage["orders"]), Share(*coverage["graphs"]), coverage["n_draws"]),
            bge,
            Standard(arrays["center"], arrays["spread"]),
        )
        parents = tuple(bitset_nodes(own) for own in arrays["best"].tolist())
        best = BestGraph(parents, posterior.scores.log_score(parents))
        tables = _tables_of(schema, parents, arrays["conditional"]) if arrays["conditional"].size else []
        probabilities = np.asarray(arrays["probabilities"]).reshape(d, d)
        rows = None
        if "rows" in arrays:
            rows = KeptRows(np.array(arrays["rows"]).reshape(d, -1), np.array(arrays["row_counts"]))
        return cls(schema, posterior, stored["facts"], probabilities, best, tables, rows)

    def tables(self) -> dict[str, pa.Table]:
        """Return the tables `columns`, `edges` with their probabilities, and `graphs`, the most probable of some drawn
        ones, for SQL.
        """
        d, scores = len(self.names), self.posterior.scores
        pairs = [(i, j) for i in range(d) for j in range(d) if i != j]
        best = {(parent, node) for node, own in enumerate(self.best.parents) for parent in own}
        graphs = self.graph_queries.answer(Graphs(N_GRAPHS))["graphs"]
        top = sorted(graphs, key=lambda graph: -graph["log_score"])[:TOP_GRAPHS]
        rows = [
            (rank, edge["from"], edge["to"], graph["log_score"], graph["log_posterior"])
            for rank, graph in enumerate(top, 1)
            for edge in graph["edges"] or [{"from": None, "to": None}]
        ]
        columns = [(i, name, own.size) for i, (name, own) in enumerate(zip(self.names, scores.candidates, strict=True))]
        edges = [(self.names[i], self.names[j], float(self.probabilities[i, j]), (i, j) in best) for i, j in pairs]
        text, whole, real = pa.string(), pa.int64(), pa.float64()
        return {
            "columns": _table(columns, node=whole, name=text, n_candidates=whole),
            "edges": _table(edges, parent=text, child=text, probability=real, is_in_best=pa.bool_()),
            "graphs": _table(rows, rank=whole, parent=text, child=text, log_score=real, log_posterior=real),
        }


def _table(rows: Sequence[tuple[object, ...]], **columns: pa.DataType) -> pa.Table:
    return pa.table({name: pa.array([row[i] for row in rows], kind) for i, (name, kind) in enumerate(columns.items())})


def _tables_of(schema: Schema, parents: Graph, flat: Floats) -> list[Floats]:
    sizes = schema.domain_sizes
    shapes = [(int(np.prod(sizes[list(own)])), int(sizes[node])) for node, own in enumerate(parents)]
    ends = np.cumsum([q * r for q, r in shapes])
    return [part.reshape(shape) for part, shape in zip(np.split(flat, ends[:-1]), shapes, strict=True)]
