"""The collapsed sampler of a Bayesian circuit: `init` and `step`; loops and storage are outside."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from learners.circuits.bayesian.sampler.lazy_kernels import enter, lazy_sweep, log_joint, tally
from learners.circuits.bayesian.sampler.priors import Prior
from learners.circuits.bayesian.sampler.store import RowBlocks
from learners.errors import InvalidParameter
from learners.kernels.arrays import Floats, Integers, Uint8s, Uint64s

Int32s = NDArray[np.int32]
MOST_MOVES = 1_000_000


class Tallies(NamedTuple):
    """The rows at each sum and leaf."""

    counts: Int32s  # (n_sums, n_children) int32: rows that a sum sends to each child
    leaf: Floats  # (n_leaves, 8) float64: statistics, see `leaf_kernels`
    cells: Int32s  # (n_cells,) int32: rows with each value at categorical leaves


class State(NamedTuple):
    """Which part of the circuit each row belongs to."""

    # (n_rows, n_positions) uint8: the child that a row takes at each sum of its induced tree, see `Shape`: less than
    # two bytes a row and column.
    choices: Uint8s
    tallies: Tallies  # that follow from choices and rows
    log_joint: float  # log of the probability of rows and choices, weights and leaf parameters integrated out, in nats


class Moves(NamedTuple):
    """Moves of a row in one sweep."""

    whole: float = 1.0  # proposals of its whole induced tree; a fraction is the probability of one more
    subtree: float = 4.0  # proposals of the part below a sum of its tree, which is drawn with equal probabilities


class Info(NamedTuple):
    """What a sweep did."""

    log_joint: float
    # (2, 3) int64: of whole trees and of subtrees: how many changed nothing, were rejected, and were accepted.
    proposals: Integers


class LazySampler:
    """The collapsed sampler whose state is a row's induced tree alone: O(n_columns) per row and move.

    States of sums that the tree does not reach integrate out of the paper's target exactly, so both have the same distribution
    of induced trees. Raises InvalidParameter.

    known (n_known, n_positions) uint8: choices of the first rows, with which the first state begins.
    References: Yokoi, Sato (2024), section 3.3; the lazy state and moves of subtrees are ours.
    """

    def __init__(
        self,
        prior: Prior,
        rows: RowBlocks,
        moves: Moves = Moves(),  # noqa: B008 (a constant)
        known: Uint8s | None = None,
    ) -> None:
        if not (all(0 <= rate <= MOST_MOVES for rate in moves) and sum(moves) > 0):
            raise InvalidParameter("moves", tuple(moves), f"from zero to {MOST_MOVES:,} of each kind, and some")
        self.prior, self.rows, self.moves, self.known = prior, rows, moves, known
        self.hyper = prior.hyper(rows.n_rows)
        self.trees = np.zeros((2, prior.shape.n_positions, 3), np.int64)

    def init(self, random: np.random.Generator) -> State:
        """A first state: rows that are not known enter by their predictive, one after the other, and then move."""
        choices, tallies, n_known = self.rows.choices(self.prior.shape.n_positions), self.empty(), 0
        if self.known is not None:
            n_known = len(self.known)
            choices[:n_known] = self.known
            for where, x in self.rows.blocks():
                own = slice(where.start, min(where.stop, n_known))
                if own.start < own.stop:
                    tally(self.prior.shape, tallies, self.trees, x[: own.stop - own.start], choices[own])
            log_joint(tallies, self.hyper)
        counter, proposed = seed_of(random), self.proposals()
        for where, x in self.rows.blocks():
            if where.stop <= n_known:
                continue
            new = slice(max(where.start, n_known), where.stop)
            behind = x[new.start - where.start :]
            enter(self.prior.shape, tallies, self.hyper, self.trees, behind, choices[new], proposed, counter)
        return self.state_of(choices)

    def step(self, random: np.random.Generator, state: State) -> tuple[State, Info]:
        """The next state; changes none of its arguments but `random`."""
        shape = self.prior.shape
        tallies, following = copied(state.tallies), self.empty()
        choices = self.rows.choices(shape.n_positions)
        counter, proposed = seed_of(random), self.proposals()
        for where, x in self.rows.blocks():
            block = choices[where]
            block[...] = state.choices[where]
            lazy_sweep(shape, tallies, self.hyper, self.trees, x, block, proposed, counter)
            # Counted anew, so that rounding does not add up from sweep to sweep, and a state that was kept on disk goes on
            # with the same bits as one in memory.
            tally(shape, following, self.trees, x, block)
        log = log_joint(following, self.hyper)
        return State(choices, following, log), Info(log, proposed[:, 1:].astype(np.int64))

    def state_of(self, choices: Uint8s) -> State:
        """The state of choices that were kept; the same bits as when a sweep ended with them."""
        tallies = self.empty()
        for where, x in self.rows.blocks():
            tally(self.prior.shape, tallies, self.trees, x, choices[where])
        return State(choices, tallies, log_joint(tallies, self.hyper))

    def empty(self) -> Tallies:
        """No rows."""
        shape = self.prior.shape
        counts = np.zeros((shape.n_sums, shape.n_children), np.int32)
        return Tallies(counts, _aligned(self.prior.leaf), np.zeros(max(1, self.prior.n_cells), np.int32))

    def proposals(self) -> Floats:
        """(2, 4) float64: moves per row, and room to count what became of them."""
        counted = np.zeros((2, 4))
        counted[:, 0] = self.moves
        return counted


def seed_of(random: np.random.Generator) -> Uint64s:
    """(1,) uint64: where a kernel's random numbers start, which it moves on."""
    return random.integers(0, 1 << 64, 1, dtype=np.uint64)


def copied(tallies: Tallies) -> Tallies:
    """Tallies that may be changed."""
    return Tallies(tallies.counts.copy(), _aligned(tallies.leaf), tallies.cells.copy())


def _aligned(leaf: Floats) -> Floats:
    """A copy whose rows are cache lines: most of the time of large circuits goes into fetching them."""
    memory = np.empty(leaf.size + 8)
    first = -(memory.ctypes.data // 8) % 8
    copy = memory[first : first + leaf.size].reshape(leaf.shape)
    copy[...] = leaf
    return copy
