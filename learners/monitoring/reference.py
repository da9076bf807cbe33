"""References that served rows are compared with: training counts or other served rows, optionally with other class
shares.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from learners.classifiers.estimates.context_tree import ContextTree
from learners.kernels.arrays import Floats, Integers
from learners.monitoring.count_layout import Watched
from learners.monitoring.served_counts import ServedCounts

ITERATIONS = 200
TOLERANCE = 1e-7
MAX_DENSE = 1 << 20  # cells of one family by class: 8 MiB


@dataclass(frozen=True, eq=False)
class Reference:
    """Reference counts for the tests."""

    name: str  # in the user's words: training, window, …
    # Tuple of (n_classes, n_contexts, n_values + 1) int64: of each attribute; with one class where the class was not
    # known, or where there would be more than `MAX_DENSE` cells.
    families: tuple[Integers, ...]
    # Where the rows were served or scored: statuses, predictions, surprise and repeats.
    served: ServedCounts | None = None
    knows_ranges: bool = False  # whether no row of it has a number outside the range of training: training itself
    # Attributes whose values these rows themselves chose, as the most frequent ones: their shares are too large for other rows.
    chosen_here: frozenset[int] = frozenset()

    @property
    def n_rows(self) -> int:
        """Number of rows in the reference."""
        return max((int(table.sum()) for table in self.families), default=0)

    def family(self, i: int) -> Integers:
        """Return the counts of an attribute, (n_contexts, n_values + 1) int64, summed over the class."""
        return self._summed[i]

    @cached_property
    def _summed(self) -> list[Integers]:
        return [table.sum(axis=0) for table in self.families]


def training_reference(watched: Watched, scored: ServedCounts | None = None) -> Reference | None:
    """Return the exact training counts from a network's context trees.

    `scored`: of rows that were kept back from training, for what training itself does not count, and for attributes with
    folded values: training kept the values that were frequent in its own rows, which are less frequent in others.
    Returns Reference, or None if the model keeps no counts of attributes and nothing was scored.
    """
    if watched.member is None or not watched.member.trees:
        return None if scored is None or not scored.n_rows else served_reference("rows kept back", scored)
    member = watched.member
    trees = dict(zip(member.network.order, member.trees, strict=True))
    folded = {i for i, attribute in enumerate(watched.codes.attributes) if attribute.n_folded}
    if scored is not None and scored.n_rows:
        trees, folded = {i: tree for i, tree in trees.items() if i not in folded}, set()
    families = [
        _dense(trees[i], watched, i) if i in trees else _of_scored(watched, scored, i)
        for i in range(len(watched.sizes))
    ]
    return Reference("training", tuple(families), scored, knows_ranges=True, chosen_here=frozenset(folded))


def served_reference(name: str, counts: ServedCounts) -> Reference:
    """Use other served rows as the reference."""
    n = len(counts.watched.sizes)
    return Reference(name, tuple(counts.family(i)[np.newaxis] for i in range(n)), counts)


def _of_scored(watched: Watched, scored: ServedCounts | None, i: int) -> Integers:
    """Count a column whose training counts do not serve from the scored rows, or return zeros."""
    if scored is not None:
        return scored.family(i)[np.newaxis]
    return np.zeros((1, *watched.blocks[f"family {i}"].shape), np.int64)


def _dense(tree: ContextTree, watched: Watched, i: int) -> Integers:
    """Return the cells of the tree's level with the watched parents, (n_classes, n_contexts, n_values + 1).

    They are summed over the class if they would exceed `MAX_DENSE`.
    """
    assert watched.member is not None
    n_classes, parents = watched.member.schema.n_classes, watched.parents[i]
    shape = watched.blocks[f"family {i}"].shape
    has_classes = n_classes * math.prod(shape) <= MAX_DENSE
    context, of_class = _paths(tree, [watched.sizes[parent] for parent in parents])
    level = 1 + len(parents)
    nodes = slice(int(tree.level_starts[level]), int(tree.level_starts[level + 1]))
    cells = slice(int(tree.cell_starts[nodes.start]), int(tree.cell_starts[nodes.stop]))
    of_cell = tree.node_of_cell()[cells]
    dense = np.zeros((n_classes if has_classes else 1, *shape), np.int64)
    np.add.at(
        dense, (of_class[of_cell] * has_classes, context[of_cell], tree.cell_value[cells]), tree.cell_count[cells]
    )
    return dense


def _paths(tree: ContextTree, sizes: Sequence[int]) -> tuple[Integers, Integers]:
    """Return the context number and class of each node, down to the level of these parents."""
    context, of_class = np.zeros(tree.n_nodes, np.int64), np.zeros(tree.n_nodes, np.int64)
    for level in range(1, 2 + len(sizes)):
        nodes = slice(int(tree.level_starts[level]), int(tree.level_starts[level + 1]))
        above = tree.parent[nodes]
        if level == 1:
            of_class[nodes] = tree.branch[nodes]
        else:
            of_class[nodes] = of_class[above]
            context[nodes] = context[above] * sizes[level - 2] + tree.branch[nodes]
    return context, of_class


def estimated_class_shares(window: ServedCounts, reference: Reference) -> Floats | None:
    """Estimate the class shares that maximize the likelihood of the window's marginals, by EM on their product.

    Needs no labels and no predictions. The estimate holds only while the distribution of the attributes given the
    class is unchanged.

    `reference`: a reference with counts for each class.
    Returns (n_classes,) float64, or None if the reference does not know the classes.

    References
    ----------
    Saerens, Latinne, Decaestecker (2002), section 2.2, on the marginals instead of the posteriors.
    """
    n_classes = max((table.shape[0] for table in reference.families), default=1)
    if n_classes < 2 or not window.n_rows:
        return None
    shares: list[Floats] = []
    counts: list[Floats] = []
    for i, table in enumerate(reference.families):
        if table.shape[0] != n_classes:
            continue
        own = window.marginal(i)[:-1]
        by_class = table.sum(axis=1)[:, :-1] + 0.5
        shares.append(by_class / by_class.sum(axis=1, keepdims=True))
        counts.append(own.astype(np.float64))
    values, weights = np.concatenate(shares, axis=1), np.concatenate(counts)
    mix = reference_class_shares(reference)
    if not weights.any():  # no value at all speaks for other shares
        return mix
    for _ in range(ITERATIONS):
        joint = mix[:, None] * values
        new = (joint / joint.sum(axis=0)) @ weights
        new /= new.sum()
        moved = float(np.abs(new - mix).max())
        mix = new
        if moved < TOLERANCE:
            break
    return mix


def reference_class_shares(reference: Reference) -> Floats:
    """Return the class shares of the reference, (n_classes,) float64."""
    n_classes = max(table.shape[0] for table in reference.families)
    table = next(table for table in reference.families if table.shape[0] == n_classes)
    return smoothed_shares(table.sum(axis=(1, 2)))


def smoothed_shares(counts: Integers) -> Floats:
    """Return the shares of counts, none of them zero, (n,) float64."""
    more = counts + 1.0 / counts.size
    return more / more.sum()


def training_class_counts(reference: Reference, n_classes: int) -> Integers | None:
    """Return the rows of each class in training, and 0 of unknown classes, (n_classes + 1,) int64; None if the reference does
    not know the classes.
    """
    tables = [table for table in reference.families if table.shape[0] == n_classes > 1]
    return np.append(tables[0].sum(axis=(1, 2)), 0) if tables else None


def reference_with_class_shares(reference: Reference, mix: Floats) -> Reference:
    """Reweight the reference to other class shares; counts are rounded, the number of rows is kept."""
    ratio = mix / reference_class_shares(reference)
    families = tuple(
        np.rint(table * ratio[:, None, None]).astype(np.int64) if table.shape[0] == mix.size else table
        for table in reference.families
    )
    return replace(reference, families=families)
