# mypy: disallow-untyped-defs=False, check-untyped-defs=False
"""The sampler of the paper: every row has a state at every sum of the circuit."""

from __future__ import annotations

import numpy as np

from learners.circuits.bayesian.sampler.lazy_kernels import (
    ACCEPTED,
    CHOICE,
    LEAF,
    NEW,
    OWN,
    REJECTED,
    SIZE,
    STRIDE,
    SUM,
    UNCHANGED,
    child_of,
    descend,
    log_ratio,
)
from learners.circuits.bayesian.sampler.leaf_kernels import ALPHA, change, close
from learners.circuits.queries.sampling_kernels import GOLDEN
from learners.kernels.jit import inner_kernel, kernel
from learners.kernels.random import uniform


@inner_kernel
def walk_states(place, states, n, trees, which, begin):
    """The induced tree of states (n_rows, n_sums) uint8 of row n, below a position whose sum is known: OUT trees[which]."""
    for p in range(begin, begin + 2 * place[begin, SIZE] - 1):
        c = np.int64(states[n, trees[which, p, SUM]])
        trees[which, p, CHOICE] = c
        descend(place, trees, which, p, c)


@inner_kernel
def propose_states(place, counts, alpha, trees, states, n, begin, counter):
    """Draw a state at every sum below (and at) that of a position: OUT the last row of states; the next counter."""
    first = trees[OWN, begin, SUM]
    for s in range(first, first + 1 + counts.shape[1] * place[begin, STRIDE]):
        counter += GOLDEN
        states[-1, s] = child_of(counts, s, alpha, np.int64(states[n, s]), uniform(counter))
    trees[NEW, begin, SUM], trees[NEW, begin, LEAF] = first, trees[OWN, begin, LEAF]
    walk_states(place, states, states.shape[0] - 1, trees, NEW, begin)
    return counter


@inner_kernel
def take_states(place, counts, leaf, cells, hyper, trees, begin, x):
    """Make the proposal the row's own tree; counts stay as they are. Whether the trees differ."""
    n_children, differs = counts.shape[1], False
    for p in range(begin, begin + 2 * place[begin, SIZE] - 1):
        if trees[OWN, p, SUM] == trees[NEW, p, SUM] and trees[OWN, p, CHOICE] == trees[NEW, p, CHOICE]:
            continue
        differs = True
        if place[p, SIZE] == 1:
            for which in range(2):
                i = trees[which, p, LEAF] * n_children + trees[which, p, CHOICE]
                change(leaf, i, cells, x, 2 * which - 1)
                close(leaf, i, hyper)
        for part in range(trees.shape[2]):
            trees[OWN, p, part] = trees[NEW, p, part]
    return differs


@kernel
def reference_sweep(shape, tallies, hyper, trees, x, states, moves, state):
    """As `lazy_sweep`, with IN/OUT states (n_rows + 1, n_sums) uint8, of which the last row is scratch.

    References: Yokoi, Sato (2024), algorithm 1.
    """
    counter = state[0]
    place, counts, leaf, cells = shape.place, tallies.counts, tallies.leaf, tallies.cells
    n_children, scratch = counts.shape[1], states.shape[0] - 1
    for n in range(x.shape[0]):
        trees[OWN, 0, SUM] = trees[OWN, 0, LEAF] = 0
        walk_states(place, states, n, trees, OWN, 0)
        for kind in range(2):
            counter += GOLDEN
            for _ in range(np.int64(moves[kind, 0] + uniform(counter))):
                counter += GOLDEN
                begin = np.int64(uniform(counter) * place.shape[0]) * kind
                counter = propose_states(place, counts, hyper[0, ALPHA], trees, states, n, begin, counter)
                ratio = log_ratio(place, n_children, leaf, cells, hyper, trees, begin, x[n])
                counter += GOLDEN
                became = REJECTED
                if ratio >= 0.0 or np.log(uniform(counter)) < ratio:
                    first = trees[OWN, begin, SUM]
                    for s in range(first, first + 1 + n_children * place[begin, STRIDE]):
                        counts[s, states[n, s]] -= 1
                        counts[s, states[scratch, s]] += 1
                        states[n, s] = states[scratch, s]
                    differs = take_states(place, counts, leaf, cells, hyper, trees, begin, x[n])
                    became = ACCEPTED if differs else UNCHANGED
                moves[kind, 1 + became] += 1
    state[0] = counter


@kernel
def count_states(states, counts):
    """Add states (n_rows + 1, n_sums) of rows to OUT counts (n_sums, n_children)."""
    for n in range(states.shape[0] - 1):
        for s in range(states.shape[1]):
            counts[s, states[n, s]] += 1


@kernel
def reached(place, states, trees, choices):
    """OUT choices (n_rows, n_positions) uint8: the states that induced trees reach."""
    for n in range(choices.shape[0]):
        trees[OWN, 0, SUM] = trees[OWN, 0, LEAF] = 0
        walk_states(place, states, n, trees, OWN, 0)
        for p in range(place.shape[0]):
            choices[n, p] = trees[OWN, p, CHOICE]
