"""Most probable values of query variables given evidence, other variables summed out (MAP)."""

from __future__ import annotations

from learners.circuits.errors import BeyondDoublePrecision, ContinuousQuery, ImpossibleEvidence, InvalidQuery
from learners.circuits.map.query import SOLVERS, MapAnswer, k_best, map_query

__all__ = [
    "SOLVERS",
    "BeyondDoublePrecision",
    "ContinuousQuery",
    "ImpossibleEvidence",
    "InvalidQuery",
    "MapAnswer",
    "k_best",
    "map_query",
]
