"""Context trees from counted families."""

from __future__ import annotations

from collections.abc import Iterator

from learners.classifiers.estimates.context_tree import ContextTree, Levels, levels_from_paths
from learners.counts.families.family_counts import FamilyCounts
from learners.passes.engine import Advance, unheard


def trees_of(families: FamilyCounts, advance: Advance = unheard) -> list[ContextTree]:
    """The context tree of each family; `advance` is told how many there are so far, and may raise."""
    return [levels.tree() for levels in each_grown(families, advance)]


def each_grown(families: FamilyCounts, advance: Advance = unheard) -> Iterator[Levels]:
    """The levels of one tree of `trees_of` after the other."""
    sizes = families.schema.domain_sizes
    for index, family in enumerate(families.families):
        advance(index, len(families.families))
        yield levels_from_paths(list(families.paths(index)), int(sizes[family.attribute]))
