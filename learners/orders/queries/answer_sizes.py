"""How much the answers to queries about structures take, known before they are made."""

from __future__ import annotations

from collections.abc import Sequence

from learners.models.query import DrawQuery, Effects, Graphs, Paths, StructureQuery
from learners.orders.queries.paths import MOST_EXACT


def answer_size(d: int, queries: Sequence[StructureQuery]) -> int:
    """How many values the answers have at most."""
    pairs = 5 * d * (d - 1)
    return sum(query.n * (d * d // 2 + 4) if isinstance(query, Graphs) else pairs for query in queries)


def n_draws(queries: Sequence[StructureQuery], d: int, is_exact: bool) -> int:
    """How many graphs the queries draw."""
    always = (Graphs, Effects) if is_exact and d <= MOST_EXACT else (Graphs, Effects, Paths)
    may_draw = (query for query in queries if isinstance(query, DrawQuery))
    return sum(query.n for query in may_draw if query.prior == "graph" or isinstance(query, always))
