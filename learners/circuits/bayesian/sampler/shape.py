"""The complete tree circuit that the sampler works on, and how a walk through it finds its way."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from learners.errors import InvalidParameter
from learners.kernels.arrays import Integers, frozen

# A choice is one byte.
MOST_CHILDREN = 256


class Shape(NamedTuple):
    """A complete tree of sums and binary products over columns, with arithmetic in place of pointers.

    A sum over m > 1 columns has `n_children` products; each splits the columns in halves of ⌈m/2⌉ and ⌊m/2⌋ at random, and
    has a sum over either half. A sum over one column has `n_children` leaves. Sums are numbered in preorder. So all induced
    trees have the same shape: a *position* is a sum of an induced tree, in preorder, and where its children are follows from
    the position alone.
    """

    n_children: int
    # (n_positions, 6) int64: SIZE: columns of the sums at a position; 1 where they have leaves, and then all else is 0.
    # RIGHT: position of the right half; that of the left one is the next. STRIDE, RIGHT_SUM, LEAF_STRIDE, RIGHT_LEAF:
    # the sum at the left half of child c of sum s is s + 1 + c STRIDE, that at the right half RIGHT_SUM more; leaf
    # sums, numbered apart, alike.
    place: Integers
    column: Integers  # (n_leaf_sums,) int64

    @property
    def n_positions(self) -> int:
        """Sums of an induced tree: 2 n_columns - 1."""
        return len(self.place)

    @property
    def n_columns(self) -> int:
        """Columns."""
        return (self.n_positions + 1) // 2

    @property
    def n_sums(self) -> int:
        """Sums of the circuit, those over leaves included."""
        return n_sums_of(self.n_columns, self.n_children)[0]

    @property
    def n_leaf_sums(self) -> int:
        """Sums over leaves."""
        return int(self.column.size)


@cache
def n_sums_of(n_columns: int, n_children: int) -> tuple[int, int]:
    """How many sums the complete tree has, and how many of them are over leaves.

    References: Yokoi, Sato (2024), table 2, for any number of columns.
    """
    if n_columns == 1:
        return 1, 1
    left, right = n_sums_of(n_columns - n_columns // 2, n_children), n_sums_of(n_columns // 2, n_children)
    return 1 + n_children * (left[0] + right[0]), n_children * (left[1] + right[1])


def complete_shape(n_columns: int, n_children: int, seed: int = 0) -> Shape:
    """The complete tree over some columns, halved at random; sums have 2 to 256 children. Raises InvalidParameter.

    References: Yokoi, Sato (2024), section 3.1: the largest tree with products of two children.
    """
    if not 2 <= n_children <= MOST_CHILDREN:
        raise InvalidParameter("children", n_children, f"a whole number from 2 to {MOST_CHILDREN}")
    if n_columns < 1:
        raise InvalidParameter("n_columns", n_columns, "at least one column")
    places: list[tuple[int, ...]] = []
    _place(n_columns, n_children, places)
    column = np.empty(n_sums_of(n_columns, n_children)[1], np.int64)
    _fill(column, np.arange(n_columns), n_children, np.random.default_rng(seed))
    return Shape(n_children, frozen(np.array(places, np.int64)), frozen(column))


def _place(m: int, n_children: int, places: list[tuple[int, ...]]) -> None:
    """Add the positions of an induced tree over m columns."""
    if m == 1:
        places.append((1, 0, 0, 0, 0, 0))
        return
    here = len(places)
    places.append(())
    (left_sums, left_leaves), (right_sums, right_leaves) = (n_sums_of(h, n_children) for h in (m - m // 2, m // 2))
    _place(m - m // 2, n_children, places)
    places[here] = (m, len(places), left_sums + right_sums, left_sums, left_leaves + right_leaves, left_leaves)
    _place(m // 2, n_children, places)


def _fill(column: Integers, scope: Integers, n_children: int, rng: np.random.Generator) -> None:
    """The column of each leaf sum below a sum over a scope."""
    if scope.size == 1:
        column[0] = scope[0]
        return
    half = scope.size - scope.size // 2
    n_left = n_sums_of(half, n_children)[1]
    size = column.size // n_children
    for c in range(n_children):
        own, order = column[c * size : (c + 1) * size], rng.permutation(scope)
        _fill(own[:n_left], order[:half], n_children, rng)
        _fill(own[n_left:], order[half:], n_children, rng)
