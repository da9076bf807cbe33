"""The paper's sampler, in whose state every row has a child at every sum of the circuit."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from learners.circuits.bayesian.sampler.priors import Prior
from learners.circuits.bayesian.sampler.sampler import Info, LazySampler, Moves, Tallies, copied, seed_of
from learners.circuits.bayesian.sampler.shape import Shape
from learners.circuits.bayesian.sampler.store import RowBlocks
from learners.kernels.arrays import Uint8s
from tests.naive.reference_kernels import count_states, reached, reference_sweep


class ReferenceState(NamedTuple):
    """As `sampler.State`, and states (n_rows + 1, n_sums) uint8 at all sums; the last row is scratch."""

    choices: Uint8s
    tallies: Tallies
    log_joint: float
    states: Uint8s


class SamplingAlgorithm(NamedTuple):
    """Its first state, and a step: as of `LazySampler`."""

    init: Callable[[np.random.Generator], ReferenceState]
    step: Callable[[np.random.Generator, ReferenceState], tuple[ReferenceState, Info]]


def reference(prior: Prior, rows: RowBlocks, moves: Moves = Moves(1, 0)) -> SamplingAlgorithm:
    """The paper's sampler, in whose state every row has a child at every sum: O(n_sums) per row and move of a whole tree.

    Parameters
    ----------
    prior : Prior
    rows : RowBlocks
        As many as fit in memory with one byte for each of their sums.
    moves : Moves
        The paper has no moves of subtrees.

    References
    ----------
    Yokoi, Sato (2024), algorithm 1.
    """
    work = LazySampler(prior, rows, moves)

    def init(random: np.random.Generator) -> ReferenceState:
        state = work.init(random)
        return ReferenceState(*state, _completed(prior.shape, state.choices, random))

    def step(random: np.random.Generator, state: ReferenceState) -> tuple[ReferenceState, Info]:
        states = state.states.copy()
        counts = np.zeros_like(state.tallies.counts)
        count_states(states, counts)
        tallies = copied(state.tallies)._replace(counts=counts)
        counter, proposed = seed_of(random), work.proposals()
        for where, x in rows.blocks():
            # The kernel walks all states; a block of rows has a part of them.
            own = np.concatenate([states[where], states[-1:]]) if len(x) < rows.n_rows else states
            reference_sweep(prior.shape, tallies, work.hyper, work.trees, x, own, proposed, counter)
            if own is not states:
                states[where] = own[:-1]
        choices = rows.choices(prior.shape.n_positions)
        reached(prior.shape.place, states, work.trees, choices)
        following = ReferenceState(*work.state_of(choices), states)
        return following, Info(following.log_joint, proposed[:, 1:].astype(np.int64))

    return SamplingAlgorithm(init, step)


def _completed(shape: Shape, choices: Uint8s, random: np.random.Generator) -> Uint8s:
    """States at all sums: where the induced tree does not lead, any."""
    states = random.integers(0, shape.n_children, (len(choices) + 1, shape.n_sums), np.uint8)
    sums = np.zeros((len(choices), shape.n_positions), np.int64)
    row = np.arange(len(choices))
    for p in range(shape.n_positions):
        states[row, sums[:, p]] = choices[:, p]
        size, right, stride, right_sum = shape.place[p, :4].tolist()
        if size > 1:
            sums[:, p + 1] = sums[:, p] + 1 + choices[:, p].astype(np.int64) * stride
            sums[:, right] = sums[:, p + 1] + right_sum
    return states
