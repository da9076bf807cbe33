"""Chow-Liu trees as circuits, plain and hidden."""

from __future__ import annotations

from typing import Literal

import numpy as np

from learners.circuits.circuit import Circuit
from learners.circuits.structures.circuit_builder import Blocks, log_shares
from learners.circuits.structures.trees import PairTables, maximum_spanning_tree
from learners.circuits.structures.variables import Variable
from learners.counts.pairwise import PairwiseCounts
from learners.errors import InvalidParameter
from learners.kernels.arrays import Floats, Integers

# Leaves of the states of a variable begin as this share of its own distribution and the rest of the state's values.
OWN_SHARE = 0.3
LEAST_SHARE = 1e-3


def chow_liu(pairs: PairwiseCounts) -> Circuit:
    """The tree-shaped network closest to the data, as a circuit with one sum per value of each inner variable.

    One row, spread like the variable's own values, is added to each context; its own values get one uniformly.
    Raises EmptyStatistic if `pairs` has counted no rows.

    It has Σ v_i v_parent(i) edges, up to a constant.
    References: Chow, Liu (1968).
    """
    tables = PairTables(pairs)
    tree = maximum_spanning_tree(tables.mutual_information())
    blocks = Blocks(tables.n_values)
    messages: list[list[Integers]] = [[] for _ in range(tables.n_variables)]
    for v in tree.order.tolist():
        indicators = blocks.indicators(v)
        products = blocks.products(np.stack([indicators, *messages[v]], axis=1))
        parent = int(tree.parent[v])
        own = smoothed_margin(tables, v)
        p = own[np.newaxis] if parent < 0 else conditional(tables.table(parent, v), own)
        sums = blocks.sums(np.broadcast_to(products, p.shape), log_shares(p))
        if parent >= 0:
            messages[parent].append(sums)
    return blocks.circuit()


def smoothed_margin(tables: PairTables, v: int) -> Floats:
    """(n_values[v],) float64: the distribution of a variable."""
    margin = tables.margin(v).astype(np.float64)
    p = margin + 1.0 / margin.size
    return p / p.sum()


def conditional(table: Integers, own: Floats) -> Floats:
    """(n_parent_values, n_values) float64: the distribution of a variable for each value of another."""
    found: Floats = (table + own) / (table.sum(axis=1, keepdims=True) + 1.0)
    return found


def hclt(
    pairs: PairwiseCounts,
    states: int = 8,
    seed: int = 0,
    *,
    initial: Literal["chow-liu", "random"] = "chow-liu",
    concentration: float = 0.3,
    as_sums: bool = False,
) -> Circuit:
    """A Chow-Liu tree whose variables each got a latent copy: the copies form the tree, the variables hang below.

    states: values of each latent variable.
    initial 'chow-liu' or 'random': the weights to start from. With `chow-liu` each state stands for some of the values
    of its variable and weights are those of the Chow-Liu tree times random factors; with `random` they are random
    factors alone.
    concentration: of the gamma-distributed random factors. The larger, the nearer the circuit begins to the Chow-Liu
    tree; the smaller, the more states differ, and learning makes more of states that differ. On nltcs and plants 0.1
    was best for EM, 0.3 to 1 for one pass of BMM.
    as_sums: categorical distributions as sums over shared indicators instead of leaves.
    The circuit has about n · states² edges.
    Raises EmptyStatistic if `pairs` has counted no rows; InvalidParameter if a parameter is out of range.
    References: Liu, Van den Broeck (2021), Tractable Regularization of Probabilistic Circuits, section 4.1.
    """
    if states < 1:
        raise InvalidParameter("states", states, "use 1 or more")
    if initial not in ("chow-liu", "random"):
        raise InvalidParameter("initial", initial, "use chow-liu or random")
    if not concentration > 0:
        raise InvalidParameter("concentration", concentration, "use a positive number")
    tables = PairTables(pairs)
    tree = maximum_spanning_tree(tables.mutual_information())
    rng = np.random.default_rng(seed)
    blocks = Blocks(tables.n_values)
    messages: list[list[Integers]] = [[] for _ in range(tables.n_variables)]
    for v in tree.order.tolist():
        parent = int(tree.parent[v])
        own = smoothed_margin(tables, v)
        if initial == "random":
            leaves = Variable(probabilities=tuple(own.tolist())).random_leaves(blocks, v, states, rng, as_sums)
        else:
            leaves = blocks.distributions(v, _leaves_of_states(own, states, rng, concentration), as_sums)
        nodes = blocks.products(np.stack([leaves, *messages[v]], axis=1))
        weights = rng.gamma(concentration, size=(states if parent >= 0 else 1, states))
        if initial == "chow-liu":
            p = own[np.newaxis] if parent < 0 else conditional(tables.table(parent, v), own)
            margin = smoothed_margin(tables, parent) if parent >= 0 else np.ones(1)
            weights *= _between_states(p, margin, states)
        weights += LEAST_SHARE * weights.mean(axis=1, keepdims=True)
        sums = blocks.sums(np.broadcast_to(nodes, weights.shape), log_shares(weights))
        if parent >= 0:
            messages[parent].append(sums)
    return blocks.circuit()


def _values_of_states(n_values: int, states: int) -> Integers:
    """(states, n_values) int64: 1 where a state stands for a value; each value has a state and each state a value."""
    n = min(n_values, states)
    # State s stands for the values that equal s modulo the smaller of the two numbers.
    return (np.arange(states)[:, np.newaxis] % n == np.arange(n_values) % n).astype(np.int64)


def _leaves_of_states(own: Floats, states: int, rng: np.random.Generator, concentration: float) -> Floats:
    """(states, n_values) float64: log probabilities."""
    factors = rng.gamma(concentration, 1.0 / concentration, (states, own.size))
    of_state = _values_of_states(own.size, states) * own
    of_state = of_state / np.maximum(of_state.sum(axis=1, keepdims=True), 1e-300)
    p = ((1 - OWN_SHARE) * of_state + OWN_SHARE * own) * factors
    # No value so improbable that learning would take long to find it again.
    return log_shares(p / p.sum(axis=1, keepdims=True) + LEAST_SHARE * (own + 1.0 / own.size))


def _between_states(p: Floats, margin: Floats, states: int) -> Floats:
    """(states or 1, states) float64: the weight of each state of a variable for each state of its parent."""
    above = _values_of_states(margin.size, states) * margin if margin.size > 1 else np.ones((1, 1))
    above = above / np.maximum(above.sum(axis=1, keepdims=True), 1e-300)
    below = _values_of_states(p.shape[1], states)
    # A value that several states stand for is shared between them.
    return above @ p @ (below / below.sum(axis=0)).T
