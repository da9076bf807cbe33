"""Context trees from counted families."""

from __future__ import annotations

from collections.abc import Iterator

from learners.classifiers.context_tree import ContextTree, context_tree_from_cells
from learners.counts.family import FamilyCounts
from learners.passes.engine import Advance, unheard


def trees_of(families: FamilyCounts, advance: Advance = unheard) -> list[ContextTree]:
    """The context tree of each family; `advance` is told how many there are so far, and may raise."""
    return list(each_tree(families, advance))


def each_tree(families: FamilyCounts, advance: Advance = unheard) -> Iterator[ContextTree]:
    """One tree of `trees_of` after the other."""
    sizes = families.schema.domain_sizes
    for index, family in enumerate(families.families):
        advance(index, len(families.families))
        yield context_tree_from_cells(*families.cells(index), int(sizes[family.attribute]))
