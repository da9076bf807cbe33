"""Queries to models, with their forms of evidence and of sampling."""

from learners.models.estimation import Average, Sampling
from learners.models.evidence import NoneOf, Range
from learners.models.query import (
    Conditional,
    Edges,
    Effects,
    Graph,
    Graphs,
    Impute,
    Map,
    Marginal,
    Moments,
    Paths,
    Sample,
    Score,
    Surprise,
)

__all__ = [
    "Average",
    "Conditional",
    "Edges",
    "Effects",
    "Graph",
    "Graphs",
    "Impute",
    "Map",
    "Marginal",
    "Moments",
    "NoneOf",
    "Paths",
    "Range",
    "Sample",
    "Sampling",
    "Score",
    "Surprise",
]
