"""Lattices of orders: the sets of nodes that may come first."""

from __future__ import annotations

import numpy as np

from learners.kernels.arrays import Integers, Uint64s, freeze
from learners.orders.lattice.lattice_kernels import Lattice, fill_steps
from learners.orders.scores.scores import FamilyScores

__all__ = ["Lattice", "complete_lattice", "lattice_of", "step_bytes"]

# Of each step: its node, its target and its place.
_STEP_BYTES = 9


def step_bytes(d: int) -> int:
    """Bytes of the steps of the lattice of all orders of d nodes."""
    return _STEP_BYTES * d << (d - 1)


def complete_lattice(scores: FamilyScores) -> Lattice:
    """The lattice of all orders."""
    return lattice_of(np.arange(1 << scores.d, dtype=np.uint64), scores)


def lattice_of(sets: Uint64s, scores: FamilyScores) -> Lattice:
    """The lattice of some sets of nodes, ascending, from the empty set to that of all nodes.

    Its orders are those of which every beginning is among them.
    """
    freeze(sets)
    starts, n_steps = np.zeros(sets.size + 1, np.int64), np.zeros(sets.size, np.int64)
    fill_steps(scores.d, scores.starts, scores.byte_places, n_steps, _with_room(sets, starts))
    np.cumsum(n_steps, out=starts[1:])
    lattice = _with_room(sets, starts)
    fill_steps(scores.d, scores.starts, scores.byte_places, starts[:-1].copy(), lattice)
    freeze(*lattice)
    return lattice


def _with_room(sets: Uint64s, starts: Integers) -> Lattice:
    """A lattice with room for as many steps as its starts say."""
    total = int(starts[-1])
    return Lattice(sets, starts, np.empty(total, np.uint8), np.empty(total, np.int32), np.empty(total, np.int32))
