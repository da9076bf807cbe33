"""How much the answers to queries about structures take, known before they are made."""

from __future__ import annotations

from collections.abc import Sequence

from learners.models.query import Edges, Effects, Graphs, Paths, StructureQuery
from learners.orders.queries.paths import MOST_EXACT


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
