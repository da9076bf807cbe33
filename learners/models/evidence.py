"""Evidence about columns: a value, several values, a range of numbers, excluded values, or weights of values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from learners.models.estimation import Average, Sampling

RawValue = str | int | float | bool | None


@dataclass(frozen=True)
class Range:
    """A number or time from `low` to `high`.

    Both ends are included. If the model has only intervals of a column, both must be cut points, and a cut point
    belongs to the interval below it.

    Parameters
    ----------
    low, high : number, or text of a time
        None: without an end on this side.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    low: str | int | float | None = None
    high: str | int | float | None = None


@dataclass(frozen=True)
class NoneOf:
    """Any value except these; missing and rare values are included.

    Parameters
    ----------
    none_of : tuple of values, or one value
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    none_of: tuple[RawValue, ...]

    def __post_init__(self) -> None:
        values = self.none_of
        is_several = isinstance(values, tuple | list | set | frozenset)
        object.__setattr__(self, "none_of", tuple(values) if is_several else (values,))


# For each column one value (None counts as absent), any of several, a range, or excluded values.
Known = RawValue | tuple[RawValue, ...] | list[RawValue] | Range | NoneOf
Evidence = Mapping[str, Known]
# For each column the likelihood of its values: the probability of the observation given the value. Values not named have zero.
Likely = Mapping[str, Mapping[str, float]]


# For each column the value that it is set to.
Interventions = Mapping[str, RawValue]
# For a posterior over structures: its best graph, all graphs, or the graph of these edges, each as "parent->child".
AskedGraph = Literal["best"] | Average | tuple[str, ...]


@dataclass(frozen=True)
class Given:
    """Fields common to all queries about a distribution.

    Parameters
    ----------
    likely : mapping of column to weights by value
        Soft evidence: the probability of the observation if the column has this value; values that are not named have
        weight zero.
    do : mapping of column to value
        Columns that are set from outside, whatever their parents are; of networks.
    graph : "best", `Average` or tuple of edges
        The graph of a posterior over structures that answers.
    sampling : Sampling, optional
        Answer by samples if the exact way is too large; else the query is refused.
    """

    likely: Likely = field(default_factory=dict, kw_only=True)
    do: Interventions = field(default_factory=dict, kw_only=True)
    graph: AskedGraph = field(default="best", kw_only=True)
    sampling: Sampling | None = field(default=None, kw_only=True)
