"""Graphs of models for display: weights of edges, the neighbourhood of a column, and the table of a column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from learners.classifiers.column_findings import most_frequent_contexts, parent_information_gains
from learners.classifiers.lookup.lookup import LookupModel
from learners.errors import LearnerError, UnknownColumn
from learners.models.query import Edges, Graph

if TYPE_CHECKING:
    from learners.orders.model import OrderModel

MOST_OF_CLASS = 40
LEAST_DRAWN = 0.01  # less probable edges of a posterior are folded, as in picture.js


class NoGraph(LearnerError, ValueError):
    """A model has no graph between columns."""

    def __init__(self, kind: str) -> None:
        super().__init__(
            f"A model of kind {kind!r} has no graph between columns. Networks (nb, tan, kdb, skdb), ensembles and posteriors over "
            "structures have one; the picture of a circuit shows its regions."
        )


@dataclass(frozen=True)
class GraphEdge:
    """An edge between columns.

    Its weight is the information of the parent about the child, in nats, given the class and the earlier parents; of
    a posterior over structures it is the probability of the edge.
    """

    source: str
    sink: str
    weight: float


@dataclass(frozen=True)
class ColumnGraph:
    """Columns and the edges between them."""

    target: str | None  # the class; each column has it as a parent, and those edges are in `of_class`, not in `edges`
    columns: tuple[str, ...]  # without the class
    edges: tuple[GraphEdge, ...]
    of_class: Mapping[str, float]  # in nats what the class tells of each column
    unit: str  # of the weights
    # Of a posterior over structures the probable edges that its best graph does not have; they may make circles.
    others: tuple[GraphEdge, ...] = ()

    def around(self, column: str, steps: int = 1) -> ColumnGraph:
        """Return the columns within a number of edges of one, and the edges among them. Raises UnknownColumn."""
        if column == self.target:
            near = set(sorted(self.columns, key=lambda name: -self.of_class.get(name, 0.0))[:MOST_OF_CLASS])
        elif column not in self.columns:
            raise UnknownColumn(column, [*self.columns, *([self.target] if self.target else [])])
        else:
            near = {column}
            for _ in range(steps):
                near |= {
                    end
                    for edge in (*self.edges, *self.others)
                    for end in (edge.source, edge.sink)
                    if {edge.source, edge.sink} & near
                }
        return ColumnGraph(
            self.target,
            tuple(name for name in self.columns if name in near),
            tuple(edge for edge in self.edges if edge.source in near and edge.sink in near),
            {name: value for name, value in self.of_class.items() if name in near},
            self.unit,
            tuple(edge for edge in self.others if edge.source in near and edge.sink in near),
        )


def network_column_graph(model: LookupModel) -> ColumnGraph:
    """Return the graph of a classifier's network; the weight of an edge is the information of the parent about the child."""
    names = [attribute.name for attribute in model.schema.attributes]
    edges: list[GraphEdge] = []
    of_class: dict[str, float] = {}
    for child, parents, tree in zip(model.network.order, model.network.parents, model.trees, strict=True):
        gains = parent_information_gains(tree).tolist()
        of_class[names[child]] = gains[0] if gains else 0.0
        edges += [GraphEdge(names[parent], names[child], gain) for parent, gain in zip(parents, gains[1:], strict=True)]
    columns = tuple(names[child] for child in model.network.order)
    return ColumnGraph(model.schema.target, columns, tuple(edges), of_class, "log loss")


def posterior_column_graph(model: OrderModel, present: Sequence[str] = (), absent: Sequence[str] = ()) -> ColumnGraph:
    """The most probable graph of a posterior over structures, given known edges, and the other probable edges.

    Raises UnknownColumn, InvalidParameter or ImpossibleEdges.
    """
    known = tuple(present), tuple(absent)
    best = {(edge["from"], edge["to"]) for edge in model.graph_queries.answer(Graph(*known))["edges"]}
    every = model.graph_queries.answer(Edges(*known))["edges"]
    edges = [GraphEdge(edge["from"], edge["to"], edge["probability"] or 0.0) for edge in every]
    of_best = tuple(edge for edge in edges if (edge.source, edge.sink) in best)
    others = tuple(edge for edge in edges if edge.weight >= LEAST_DRAWN and (edge.source, edge.sink) not in best)
    return ColumnGraph(None, tuple(model.names), of_best, {}, "probability", others)


def structure_column_graph(structure: Mapping[str, Any]) -> ColumnGraph:
    """Return the graph of `structure()`, for models whose edges have no information value.

    Edges from the class are left out. Those to it stay: of trees they come from the columns that are used.
    """
    nodes, pairs = structure["nodes"], [(edge["from"], edge["to"]) for edge in structure["edges"]]
    target = next((node["name"] for node in nodes if node.get("role") == "class"), None)
    is_drawn = any(sink == target for _, sink in pairs)
    columns = tuple(node["name"] for node in nodes if is_drawn or node["name"] != target)
    edges = tuple(GraphEdge(source, sink, 1.0) for source, sink in pairs if source != target)
    return ColumnGraph(None if is_drawn else target, columns, edges, {}, "")


def network_family_table(model: LookupModel, column: str, limit: int) -> dict[str, Any]:
    """The table behind a column of a network: rows and probabilities of each value in each context, the largest first.

    At most `limit` contexts are listed. Raises UnknownColumn.
    """
    attributes, target = model.schema.attributes, str(model.schema.target)
    if column == target:
        counts = model.class_counts.tolist()
        shares = [n / max(1, sum(counts)) for n in counts]
        context = {"given": {}, "n_rows": counts, "probability": shares}
        values = list(model.schema.classes)
        return {"column": column, "parents": [], "values": values, "contexts": [context], "n_contexts": 1}
    names = [attribute.name for attribute in attributes]
    if column not in names or names.index(column) not in model.network.order:
        raise UnknownColumn(column, [names[child] for child in model.network.order])
    number = names.index(column)
    place = list(model.network.order).index(number)
    tree, estimates, parents = model.trees[place], model.estimates[place], model.network.parents[place]
    domains: list[Sequence[str]] = [model.schema.classes, *(attributes[parent].labels() for parent in parents)]
    conditions = [target, *(names[parent] for parent in parents)]
    return {
        "column": column,
        "parents": conditions,
        "values": attributes[number].labels(),
        "n_contexts": int(tree.level_starts[-1] - tree.level_starts[-2]),
        "contexts": [
            {
                "given": {
                    name: domain[code] if code < len(domain) else "(unseen)"
                    for name, domain, code in zip(conditions, domains, context.codes, strict=True)
                },
                "n_rows": context.n_rows.tolist(),
                "probability": context.probability.tolist(),
            }
            for context in most_frequent_contexts(tree, estimates, limit)
        ],
    }


def graph_outline(graph: ColumnGraph) -> list[dict[str, Any]]:
    """The graph as a list: each column with its parents and children, for readers of text."""
    parents: dict[str, list[GraphEdge]] = {name: [] for name in graph.columns}
    children: dict[str, list[GraphEdge]] = {name: [] for name in graph.columns}
    for edge in graph.edges:
        parents[edge.sink].append(edge)
        children[edge.source].append(edge)
    return [
        {
            "column": name,
            "of_class": graph.of_class.get(name),
            "parents": [{"column": edge.source, "weight": edge.weight} for edge in parents[name]],
            "children": [{"column": edge.sink, "weight": edge.weight} for edge in children[name]],
        }
        for name in graph.columns
    ]
