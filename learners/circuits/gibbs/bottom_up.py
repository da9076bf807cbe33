"""Ancestral Gibbs sampling with weights and leaf parameters of their own: the comparison."""

from __future__ import annotations

import numpy as np

from learners.circuits.gibbs.parameters import drawn_parameters
from learners.circuits.gibbs.priors import Prior
from learners.circuits.gibbs.sampler import (
    Info,
    Moves,
    RowBlocks,
    SamplingAlgorithm,
    State,
    entered,
    recounting,
    seed_of,
)
from learners.circuits.gibbs.whole import parts_of, tree_of, work_of
from learners.circuits.gibbs.whole_kernels import bottom_up_sweep


def bottom_up(prior: Prior, rows: RowBlocks, moves: Moves = Moves()) -> SamplingAlgorithm:  # noqa: B008 (a constant)
    """The sampler that draws weights and leaf parameters given the rows' trees, then each row's tree given these: O(n_sums) a row.

    Its state is that of the lazy sampler, whose target it has: the parameters are drawn anew in each step.

    Parameters
    ----------
    prior : Prior
    rows : RowBlocks
    moves : Moves
        Of rows when they enter; a step has no proposals.

    References
    ----------
    Vergari, Molina, Peharz, Ghahramani, Kersting, Valera (2019), "Automatic Bayesian density analysis", section 4;
    Yokoi, Sato (2024), section 2.3.
    """
    shape = prior.shape
    tree, work, recounted = tree_of(shape), work_of(shape), recounting(prior, rows)
    trees = np.zeros((2, shape.n_positions, 3), np.int64)

    def init(random: np.random.Generator) -> State:
        return entered(random, prior, rows, moves)

    def step(random: np.random.Generator, state: State) -> tuple[State, Info]:
        parts = parts_of(prior, drawn_parameters(random, prior, state.tallies))
        choices, counter = rows.choices(shape.n_positions), seed_of(random)
        for where, x in rows.blocks():
            bottom_up_sweep(shape.place, tree, parts, work, trees, x, choices[where], counter)
        following = recounted(choices)
        return following, Info(following.log_joint, np.zeros((2, 3), np.int64))

    return SamplingAlgorithm(init, step)
