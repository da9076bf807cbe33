"""Hidden trees as matrices: against the sum over all states, against their circuits, and what EM promises."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learners.circuits.em.tree_kernels import TREE_BLOCK
from learners.circuits.evaluation.evaluate import log_values
from learners.circuits.structures.hidden_trees import (
    HiddenTrees,
    HiddenTreeStart,
    TreeFit,
    TreeRows,
    _Expectations,
    refitted_trees,
)
from learners.counts.pairwise import PairwiseCounts
from learners.schema import Attribute, Chunk, Schema
from tests.naive import hidden_trees as naive

SINGLE = 2e-5  # of single precision


def start_and_codes(sizes, n_rows, seed):
    """Columns that hang together, some values missing, and where learning starts from."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 3, n_rows)
    codes = np.stack([(group + (rng.random(n_rows) < 0.3)) % size for size in sizes])
    attributes = tuple(Attribute(f"v{i}", "nominal", tuple(map(str, range(size)))) for i, size in enumerate(sizes))
    pairs = PairwiseCounts(Schema(attributes, None, ("",)))
    pairs.update(Chunk(codes.astype(np.uint8), np.zeros(n_rows, np.uint8)))
    codes[rng.random(codes.shape) < 0.1] = -1
    return HiddenTreeStart(pairs), codes


def alone(tree):
    return HiddenTrees(np.ones(1), (tree,))


def means_of(trees, codes):
    with ThreadPoolExecutor(1) as pool:
        return _Expectations(trees, codes, pool).means(trees, np.arange(codes.shape[1]))


@given(
    sizes=st.lists(st.integers(2, 4), min_size=1, max_size=4), states=st.integers(1, 3), seed=st.integers(0, 2**32 - 1)
)
def test_counts_and_likelihoods_are_those_of_the_sum_over_all_states(sizes, states, seed):
    start, codes = start_and_codes(sizes, 9, seed)
    tree = start.tree(states, seed, 0.5)
    logs, counts = naive.log_likelihoods_and_counts(tree, codes)
    (found,) = means_of(alone(tree), codes)
    for ours, theirs in zip(found, counts, strict=True):
        np.testing.assert_allclose(ours * codes.shape[1], theirs, rtol=1e-4, atol=1e-4)
    rows = TreeRows(codes, codes, start.shares)
    assert rows.score(alone(tree)) == pytest.approx(logs.mean(), abs=SINGLE * len(sizes))


def test_a_mixture_counts_each_row_by_its_share_of_each_tree():
    start, codes = start_and_codes([2, 3, 2], 11, 5)
    trees = HiddenTrees(np.array([0.3, 0.7]), (start.tree(2, 0, 0.3), start.tree(2, 1, 0.3)))
    each = [naive.log_likelihoods_and_counts(tree, codes)[0] for tree in trees.trees]
    joint = np.stack(each) + np.log(trees.mixing)[:, np.newaxis]
    shares = np.exp(joint - np.logaddexp.reduce(joint))
    for own, found, tree in zip(shares, means_of(trees, codes), trees.trees, strict=True):
        rows = [naive.log_likelihoods_and_counts(tree, codes[:, [i]])[1] for i in range(codes.shape[1])]
        for place, ours in enumerate(found):
            expected = sum(share * row[place] for share, row in zip(own, rows, strict=True)) / codes.shape[1]
            np.testing.assert_allclose(ours, expected, atol=1e-5)
    assert TreeRows(codes, codes, start.shares).score(trees) == pytest.approx(
        np.logaddexp.reduce(joint).mean(), abs=1e-4
    )


@pytest.mark.parametrize("n_trees", [1, 3])
@pytest.mark.parametrize("states", [3, 16])
def test_the_circuit_is_the_same_distribution(n_trees, states):
    start, codes = start_and_codes([2, 5, 3, 2, 4], 3 * TREE_BLOCK + 7, 1)
    trees = HiddenTrees(np.full(n_trees, 1 / n_trees), tuple(start.tree(states, seed, 0.1) for seed in range(n_trees)))
    circuit = trees.circuit()
    x = np.where(codes < 0, np.nan, codes)
    ours = TreeRows(codes, codes, start.shares, threads=2).score(trees)
    assert ours == pytest.approx(float(log_values(circuit, x).mean()), abs=1e-4)
    every = np.array(np.meshgrid(*map(np.arange, (2, 5, 3, 2, 4)), indexing="ij")).reshape(5, -1)
    assert np.exp(log_values(circuit, every)).sum() == pytest.approx(1.0)


def test_many_children_of_one_variable_do_not_underflow():
    rng = np.random.default_rng(3)
    middle = rng.integers(0, 2, 200)
    codes = np.stack([middle, *(middle ^ (rng.random(200) < 0.2) for _ in range(300))])
    attributes = tuple(Attribute(f"v{i}", "nominal", ("0", "1")) for i in range(codes.shape[0]))
    pairs = PairwiseCounts(Schema(attributes, None, ("",)))
    pairs.update(Chunk(codes.astype(np.uint8), np.zeros(200, np.uint8)))
    start = HiddenTreeStart(pairs)
    fit = TreeFit(alone(start.tree(8, 0, 0.1)), 0.01, 5)
    fit.run(TreeRows(codes, codes, start.shares))
    assert fit.valid == pytest.approx(float(log_values(fit.best.circuit(), codes).mean()), rel=1e-5)


def test_steps_gain_and_the_best_trees_are_kept():
    start, codes = start_and_codes([3, 3, 2, 4], 900, 4)
    rows = TreeRows(codes[:, :600], codes[:, 600:], start.shares)
    first, reports = alone(start.tree(6, 0, 0.1)), []
    fit = TreeFit(first, 1.0, 30, seed=1)
    fit.run(rows, lambda: reports.append(fit.n_passes))
    assert fit.valid == rows.score(fit.best) > rows.score(first) + 0.05
    assert reports == list(range(1, fit.n_passes + 1)) and fit.laplace == 1.0 / 6


def test_whole_passes_never_lose_likelihood_and_keep_distributions():
    start, codes = start_and_codes([3, 2, 4], 500, 6)
    rows, trees = TreeRows(codes[:, :300], codes[:, 300:], start.shares), alone(start.tree(4, 0, 0.3))
    whole = TreeRows(codes, codes, start.shares)
    scores = [whole.score(trees)]
    for _ in range(6):
        trees = refitted_trees(trees, rows, 1e-9, 1)
        scores.append(whole.score(trees))
    assert scores[-1] > scores[0] + 0.05 and (np.diff(scores) > -1e-5).all()
    (tree,) = trees.trees
    np.testing.assert_allclose(tree.weights.sum(axis=2)[tree.tree.parent >= 0], 1.0)
    np.testing.assert_allclose(np.add.reduceat(tree.leaves, tree.starts[:-1]), 1.0)


def test_threads_change_nothing():
    start, codes = start_and_codes([3, 2, 4, 2], 700, 8)
    fits = []
    for threads in (1, 3):
        fit = TreeFit(HiddenTrees(np.full(2, 0.5), (start.tree(4, 0, 0.1), start.tree(4, 1, 0.1))), 1.0, 4)
        fit.run(TreeRows(codes[:, :600], codes[:, 600:], start.shares, threads))
        fits.append(fit)
    assert fits[0].best.circuit() == fits[1].best.circuit()
