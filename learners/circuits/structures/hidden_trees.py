"""Hidden Chow-Liu trees: where learning starts, their circuits, and stepwise EM by matrix products."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from learners.circuits.circuit import Circuit
from learners.circuits.em.tree_kernels import (
    TREE_BLOCK,
    TreeArrays,
    TreeCounts,
    TreeWork,
    add_tree_counts,
)
from learners.circuits.structures.chow_liu import (
    PairTables,
    Tree,
    maximum_spanning_tree,
    smoothed_conditional_table,
    smoothed_marginal,
)
from learners.circuits.structures.circuit_builder import Blocks
from learners.circuits.structures.random_regions import mixture_of_circuits
from learners.counts.pairwise import PairwiseCounts
from learners.errors import InvalidParameter
from learners.kernels.arrays import Floats, Integers


class HiddenTree(NamedTuple):
    """A hidden tree: each variable has a state, which depends on the state of its parent in a tree."""

    tree: Tree
    starts: Integers  # (n + 1,) int64: rows of each variable in `leaves`
    prior: Floats  # (h,) float64: probability of each state of the root
    weights: (
        Floats  # (n, h, h) float64: P(state of v = j | state of its parent = i) at [v, i, j]; the root's are unused
    )
    leaves: Floats  # (n_leaves, h) float64: P(value | state) of each value of each variable

    def single(self) -> TreeArrays:
        """Return the parameters in single precision."""
        parts = self.prior, self.weights, self.weights.transpose(0, 2, 1), self.leaves
        return TreeArrays(*self.tree, self.starts, *(np.ascontiguousarray(part, np.float32) for part in parts))

    def circuit(self) -> Circuit:
        """Return the circuit of the tree, with one sum for each state of a parent."""
        blocks = Blocks(np.diff(self.starts))
        messages: list[list[Integers]] = [[] for _ in range(self.tree.order.size)]
        for v in self.tree.order.tolist():
            parent = int(self.tree.parent[v])
            of_states = np.log(self.leaves[self.starts[v] : self.starts[v + 1]].T)
            nodes = blocks.products(np.stack([blocks.distributions(v, of_states), *messages[v]], axis=1))
            weights = self.weights[v] if parent >= 0 else self.prior[np.newaxis]
            sums = blocks.sums(np.broadcast_to(nodes, weights.shape), np.log(weights))
            if parent >= 0:
                messages[parent].append(sums)
        return blocks.circuit()


# Leaves of the states of a variable begin as this share of its own distribution and the rest of the state's values.
OWN_SHARE = 0.3
LEAST_SHARE = 1e-3


def hclt(pairs: PairwiseCounts, states: int = 8, seed: int = 0, *, concentration: float = 0.3) -> Circuit:
    """Learn a hidden Chow-Liu tree: latent copies of the variables form the tree, and the variables hang below them.

    Each state represents some of its variable's values, and weights are those of the Chow-Liu tree times random
    factors.
    states: values of each latent variable.
    concentration: shape of the gamma-distributed random factors. Larger values start closer to the Chow-Liu tree;
    smaller ones make states more different, which helps learning. On nltcs and plants 0.1 was best for EM, 0.3 to
    1 for one pass of BMM.
    The circuit has about n · states² edges.
    Raises EmptyStatistic if `pairs` has counted no rows; InvalidParameter if a parameter is out of range.
    References: Liu, Van den Broeck (2021), Tractable Regularization of Probabilistic Circuits, section 4.1.
    """
    return HiddenTreeStart(pairs).tree(states, seed, concentration).circuit()


class HiddenTreeStart:
    """Where the learning of hidden trees of any size starts from."""

    def __init__(self, pairs: PairwiseCounts) -> None:
        self.tables = PairTables(pairs)
        self.shape = maximum_spanning_tree(self.tables.mutual_information())

    @cached_property
    def shares(self) -> list[Floats]:
        """Smoothed distribution of each variable."""
        return [smoothed_marginal(self.tables, v) for v in range(self.tables.n_variables)]

    def tree(self, states: int, seed: int, concentration: float) -> HiddenTree:
        """Return a tree to learn from; parameters and errors as in `hclt`."""
        if states < 1:
            raise InvalidParameter("states", states, "1 or more")
        if not concentration > 0:
            raise InvalidParameter("concentration", concentration, "a positive number")
        rng = np.random.default_rng(seed)
        starts = np.concatenate([[0], np.cumsum(self.tables.n_values)])
        leaves = np.empty((int(starts[-1]), states))
        weights = np.full((self.tables.n_variables, states, states), 1.0 / states)
        prior = np.empty(states)
        for v in self.shape.order.tolist():
            parent, own = int(self.shape.parent[v]), self.shares[v]
            leaves[starts[v] : starts[v + 1]] = _leaves_of_states(own, states, rng, concentration).T
            start = rng.gamma(concentration, size=(states if parent >= 0 else 1, states))
            p = own[np.newaxis] if parent < 0 else smoothed_conditional_table(self.tables.table(parent, v), own)
            start *= _between_states(p, self.shares[parent] if parent >= 0 else np.ones(1), states)
            start += LEAST_SHARE * start.mean(axis=1, keepdims=True)
            start /= start.sum(axis=1, keepdims=True)
            if parent >= 0:
                weights[v] = start
            else:
                prior[:] = start[0]
        return HiddenTree(self.shape, starts, prior, weights, leaves)


def _values_of_states(n_values: int, states: int) -> Integers:
    """Return 1 where a state represents a value, (states, n_values) int64; each value has a state and each state a
    value.
    """
    n = min(n_values, states)
    # State s stands for the values that equal s modulo the smaller of the two numbers.
    return (np.arange(states)[:, np.newaxis] % n == np.arange(n_values) % n).astype(np.int64)


def _leaves_of_states(own: Floats, states: int, rng: np.random.Generator, concentration: float) -> Floats:
    """Return the probabilities of each state's values, (states, n_values) float64."""
    factors = rng.gamma(concentration, 1.0 / concentration, (states, own.size))
    of_state = _values_of_states(own.size, states) * own
    of_state = of_state / np.maximum(of_state.sum(axis=1, keepdims=True), 1e-300)
    p = ((1 - OWN_SHARE) * of_state + OWN_SHARE * own) * factors
    # No value so improbable that learning would take long to find it again.
    p = p / p.sum(axis=1, keepdims=True) + LEAST_SHARE * (own + 1.0 / own.size)
    return p / p.sum(axis=1, keepdims=True)


def _between_states(p: Floats, margin: Floats, states: int) -> Floats:
    """Return the weight of each state of a variable for each state of its parent, (states or 1, states) float64."""
    above = _values_of_states(margin.size, states) * margin if margin.size > 1 else np.ones((1, 1))
    above = above / np.maximum(above.sum(axis=1, keepdims=True), 1e-300)
    below = _values_of_states(p.shape[1], states)
    # A value that several states stand for is shared between them.
    return above @ p @ (below / below.sum(axis=0)).T


# Rows of a step, in parts that threads share: their sums are added in order, so threads change nothing.
STEP_ROWS, PARTS, LEAST_STEPS = 512, 4, 8
# Rows times edges from which on rows are divided into parts: about a millisecond, less than which threads would not save.
WORTH_THREADS = 2_000_000
# Sizes of the first and the last step; between them they shrink geometrically.
FIRST_STEP, LAST_STEP = 0.5, 0.02
# A fit ends when this share of its passes in a row, and no fewer than PATIENCE, gain less than GAIN nats a row.
WITHOUT_GAIN, PATIENCE, GAIN = 0.1, 3, 2e-4


# Computed from likelihoods alone.
NO_SHARES = np.empty(0, np.float32)
NO_COUNTS = TreeCounts(NO_SHARES, np.empty((0, 0, 0), np.float32), np.empty((0, 0), np.float32))


class HiddenTrees(NamedTuple):
    """A mixture of hidden trees, or one alone."""

    mixing: Floats  # (n_trees,) float64
    trees: tuple[HiddenTree, ...]

    def circuit(self) -> Circuit:
        """Return the circuit of the mixture."""
        parts = [tree.circuit() for tree in self.trees]
        return mixture_of_circuits(parts, self.mixing) if len(parts) > 1 else parts[0]


@dataclass(frozen=True, eq=False)
class TreeRows:
    """Training and validation rows: codes of the variables, -1 if missing."""

    # fit, valid (n_variables, n_rows) int64
    fit: Integers
    valid: Integers
    shares: list[Floats]  # smoothed distribution of each variable
    threads: int = 1

    def score(self, trees: HiddenTrees) -> float:
        """Return the mean log likelihood of the validation rows."""
        arrays, log_mixing = [tree.single() for tree in trees.trees], np.log(trees.mixing)

        def logs(part: Integers) -> Floats:
            return _joint_logs(arrays, log_mixing, self.valid, part, _work(arrays[0]))

        rows = np.arange(self.valid.shape[1])
        if not _is_worth_threads(arrays, rows.size):
            return float(np.logaddexp.reduce(logs(rows)).mean())
        with ThreadPoolExecutor(self.threads) as pool:
            parts = pool.map(logs, np.array_split(rows, self.threads))
            return float(np.logaddexp.reduce(np.concatenate(list(parts), axis=1)).mean())


def _is_worth_threads(arrays: list[TreeArrays], n_rows: int) -> bool:
    return n_rows * sum(tree.weights.size for tree in arrays) > WORTH_THREADS


def _work(tree: TreeArrays) -> TreeWork:
    n_states = tree.prior.size
    shape = tree.order.size, TREE_BLOCK, n_states
    shapes = shape, shape, shape, shape[1:], (n_states, TREE_BLOCK)
    return TreeWork(*(np.empty(own, np.float32) for own in shapes))


def _joint_logs(
    arrays: list[TreeArrays], log_mixing: Floats, codes: Integers, rows: Integers, work: TreeWork
) -> Floats:
    """Return the log likelihood of each row with each tree, (n_trees, n_rows) float64."""
    logs = np.empty((len(arrays), rows.size))
    for tree, log in zip(arrays, logs, strict=True):
        add_tree_counts(tree, codes, rows, NO_SHARES, work, log, NO_COUNTS)
    return logs + log_mixing[:, np.newaxis]


class _Expectations:
    """Expected counts of rows in parts, which threads share; the parts are added in order."""

    def __init__(self, trees: HiddenTrees, codes: Integers, pool: ThreadPoolExecutor) -> None:
        self.codes, self.pool = codes, pool
        arrays = [tree.single() for tree in trees.trees]
        self.works = [_work(arrays[0]) for _ in range(PARTS)]
        self.sums = [
            [TreeCounts(*(np.empty_like(array) for array in (a.prior, a.weights, a.leaves))) for a in arrays]
            for _ in range(PARTS)
        ]

    def means(self, trees: HiddenTrees, rows: Integers) -> list[TreeCounts]:
        """Return each tree's expected counts of rows, divided by the number of rows; valid until the next call."""
        arrays, log_mixing = [tree.single() for tree in trees.trees], np.log(trees.mixing)

        def add(part: Integers, work: TreeWork, sums: list[TreeCounts]) -> None:
            shares = np.ones((1, part.size), np.float32)
            if len(arrays) > 1:
                logs = _joint_logs(arrays, log_mixing, self.codes, part, work)
                shares = np.exp(logs - np.logaddexp.reduce(logs)).astype(np.float32)
            log = np.empty(part.size)
            for tree, share, counts in zip(arrays, shares, sums, strict=True):
                for array in counts:
                    array[...] = 0.0
                add_tree_counts(tree, self.codes, part, share, work, log, counts)

        n_parts = PARTS if _is_worth_threads(arrays, rows.size) else 1
        list((self.pool.map if n_parts > 1 else map)(add, np.array_split(rows, n_parts), self.works, self.sums))
        totals = self.sums[0]
        for others in self.sums[1:n_parts]:
            for total, other in zip(totals, others, strict=True):
                for ours, theirs in zip(total, other, strict=True):
                    ours[...] += theirs
        for total, tree in zip(totals, arrays, strict=True):
            total.weights[...] *= tree.weights
            for array in total:
                array[...] /= np.float32(rows.size)
        return totals


def _scaled(counts: TreeCounts, factor: float) -> TreeCounts:
    return TreeCounts(*(array * np.float32(factor) for array in counts))


def _averaged(means: list[TreeCounts], found: list[TreeCounts], step: float) -> list[TreeCounts]:
    """Return the means moved by a step towards new ones."""
    pairs = [(_scaled(old, 1.0 - step), _scaled(new, step)) for old, new in zip(means, found, strict=True)]
    return [TreeCounts(*(a + b for a, b in zip(old, new, strict=True))) for old, new in pairs]


@dataclass
class TreeFit:
    """Stepwise EM of hidden trees, in steps that shrink.

    References: Liang, Klein (2009), Online EM for unsupervised models, section 3.
    """

    trees: HiddenTrees  # as they are now
    added: float  # rows added to each distribution
    passes: int  # at most
    seed: int = 0  # of the order of rows
    best: HiddenTrees = field(init=False)  # those that explained the validation rows best
    valid: float = -np.inf  # how well that was, in nats a row
    n_passes: int = 0

    @property
    def n_states(self) -> int:
        """States of each variable."""
        return self.trees.trees[0].prior.size

    @property
    def laplace(self) -> float:
        """Rows added to each count."""
        return self.added / self.n_states

    def run(self, rows: TreeRows, report: Callable[[], None] = lambda: None) -> None:
        """Make all passes, or fewer if the validation rows gain nothing.

        report: called after each pass; may raise.
        """
        n_rows = rows.fit.shape[1]
        n_steps = min(n_rows, max(LEAST_STEPS, -(-n_rows // STEP_ROWS)))
        means: list[TreeCounts] = []
        self.best, waited, done = self.trees, 0, 0
        with ThreadPoolExecutor(rows.threads) as pool:
            expectations = _Expectations(self.trees, rows.fit, pool)
            while self.n_passes < self.passes and waited < max(PATIENCE, WITHOUT_GAIN * self.passes):
                order = np.random.default_rng([self.seed, self.n_passes]).permutation(n_rows)
                for some in np.array_split(order, n_steps):
                    found = expectations.means(self.trees, some)
                    step = FIRST_STEP * (LAST_STEP / FIRST_STEP) ** (done / (self.passes * n_steps))
                    means = _averaged(means, found, step) if means else [_scaled(own, 1.0) for own in found]
                    self.trees = _maximised(self.trees, means, self.added / n_rows, rows.shares)
                    done += 1
                self.n_passes += 1
                valid = rows.score(self.trees)
                waited = 0 if valid > self.valid + GAIN else waited + 1
                if valid > self.valid:
                    self.valid, self.best = valid, self.trees
                report()


def refitted_trees(trees: HiddenTrees, rows: TreeRows, added: float, passes: int) -> HiddenTrees:
    """Run passes of EM over training and validation rows together; `added` rows are added to each distribution."""
    codes = np.concatenate([rows.fit, rows.valid], axis=1)
    n_rows = codes.shape[1]
    with ThreadPoolExecutor(rows.threads) as pool:
        expectations = _Expectations(trees, codes, pool)
        for _ in range(passes):
            found = expectations.means(trees, np.arange(n_rows))
            trees = _maximised(trees, found, added / n_rows, rows.shares)
    return trees


def _maximised(trees: HiddenTrees, means: list[TreeCounts], added: float, shares: list[Floats]) -> HiddenTrees:
    """Run the M-step on expected counts divided by the number of rows, as is `added`."""
    of_values, totals, trees_now = np.concatenate(shares)[:, np.newaxis], [], []
    for tree, own in zip(trees.trees, means, strict=True):
        n_states = tree.prior.size
        weights = own.weights.astype(np.float64) + added / n_states
        weights /= weights.sum(axis=2, keepdims=True)
        prior = own.prior.astype(np.float64) + added / n_states
        leaves = own.leaves + added * of_values
        leaves /= np.repeat(np.add.reduceat(leaves, tree.starts[:-1]), np.diff(tree.starts), axis=0)
        totals.append(prior.sum())
        trees_now.append(tree._replace(prior=prior / prior.sum(), weights=weights, leaves=leaves))
    return HiddenTrees(np.array(totals) / sum(totals), tuple(trees_now))
