import threading

import numpy as np
import pytest
from scipy import special, stats

from learners.classifiers.estimates import hdp, hdp_kernels, hdp_sampler
from learners.classifiers.estimates.context_tree import context_tree_from_cells
from learners.classifiers.estimates.hdp import Chain, HDPParameters, hdp_map_estimates, split_r_hat
from learners.classifiers.estimates.hdp_sampler import hdp_gibbs_estimates
from learners.errors import Cancelled, InvalidParameter
from learners.kernels import random
from learners.kernels.jit import kernel
from tests.naive.estimates import node_paths
from tests.naive.hdp import nodes_of, posterior


def tree_of(nested, n_values):
    """A context tree from a nested dict, and the path of each of its nodes."""
    _, leaves = nodes_of(nested)
    rows = [(path, x, n) for path, counts in leaves.items() for x, n in counts.items() if n]
    y = np.array([path[0] for path, _, _ in rows])
    parents = np.array([path[1:] for path, _, _ in rows], np.int64).reshape(len(rows), -1)
    x, counts = np.array([x for _, x, _ in rows]), np.array([n for _, _, n in rows])
    tree = context_tree_from_cells(y, parents, x, counts, n_values)
    return tree, node_paths(tree)


def distribution(tree, estimates, node):
    """p(x | node) of every value."""
    below = np.full(tree.n_values, estimates.rest[0])
    chain = [node]
    while chain[-1]:
        chain.append(int(tree.parent[chain[-1]]))
    for u in reversed(chain):
        cells = slice(tree.cell_starts[u], tree.cell_starts[u + 1])
        below = below if u == 0 else below * estimates.rest[u]
        below[tree.cell_value[cells]] = estimates.probability[cells]
    return below


def random_nested(rng, depth, n_values, n_branches=2):
    """A small tree; every leaf has between 1 and 6 rows."""
    if depth == 0:
        rows = rng.integers(0, n_values, rng.integers(1, 5))
        return {int(x): int((rows == x).sum()) for x in np.unique(rows)}
    return {branch: random_nested(rng, depth - 1, n_values) for branch in range(n_branches)}


@pytest.mark.parametrize(
    ("nested", "root", "wanted"),
    [
        ({0: {0: 2}, 1: {0: 20, 1: 5}}, "unit", 0.876),
        ({0: {0: 2}, 1: {0: 4, 1: 9}}, "unit", 0.836),
        ({0: {0: 2}, 1: {0: 20, 1: 5}}, "dirichlet", 0.857),
        ({0: {0: 2}, 1: {0: 4, 1: 9}}, "dirichlet", 0.794),
    ],
)
def test_the_worked_examples_of_the_paper(nested, root, wanted):
    """To the error of 250,000 draws: the exact values are 0.8756, 0.8363, 0.8571 and 0.7936 within half a unit of the third decimal."""
    tree, _ = tree_of(nested, 2)
    result = hdp_gibbs_estimates([tree], HDPParameters(iterations=250_000, root=root))[0]
    cell = int(tree.cell_starts[1])  # class 0, value 0
    assert abs(result.estimates.probability[cell] - wanted) < 2.4e-3
    exact, _ = posterior(nested, 2, root) if nested[1][0] == 4 else ({}, {})
    if exact:
        assert abs(exact[(0,)][0] - wanted) < 6e-4
        assert abs(result.estimates.probability[cell] - exact[(0,)][0]) < 2e-3


@pytest.mark.parametrize("root", ["unit", "dirichlet"])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_estimates_and_tables_against_enumeration(depth, root):
    """Fixed seeds; a tolerance of five standard errors of 10,000 draws with an autocorrelation time of up to 10."""
    rng = np.random.default_rng(100 * depth + (root == "unit"))
    for _ in range(2 if depth < 3 else 1):
        nested = random_nested(rng, depth, 3)
        if depth == 3:  # keep the enumeration small
            nested = {0: {0: {0: {0: 2, 1: 1}, 1: {0: 3}}, 1: {0: {2: 2}}}, 1: {0: {0: {0: 1, 2: 2}}}}
        exact, exact_tables = posterior(nested, 3, root)
        tree, paths = tree_of(nested, 3)
        parameters = HDPParameters(iterations=100_000, root=root, tying="single", seed=int(rng.integers(1 << 30)))
        result = hdp_gibbs_estimates([tree], parameters)[0]
        for node, path in enumerate(paths):
            assert np.abs(distribution(tree, result.estimates, node) - exact[path]).max() < 5e-3
        for cell, drawn in tables_of(tree, paths, parameters, exact_tables).items():
            for t, probability in exact_tables[cell].items():
                assert abs(np.mean(drawn == t) - probability) < 5 * np.sqrt(10 * 0.25 / drawn.size) + 1e-3


@pytest.mark.parametrize("estimate", [hdp_gibbs_estimates, hdp_map_estimates])
def test_another_prior_against_enumeration(estimate):
    """The sampler to the error of its draws; the solution without draws is near, and moves with the prior as the truth does."""
    nested, prior = {0: {0: 2}, 1: {0: 4, 1: 9}}, (0.5, 2.0)
    exact, _ = posterior(nested, 2, prior=prior)
    usual, _ = posterior(nested, 2)
    tree, _ = tree_of(nested, 2)
    parameters = HDPParameters(iterations=250_000, tying="single", prior=prior)
    probability = estimate([tree], parameters)[0].estimates.probability[int(tree.cell_starts[1])]
    assert exact[(0,)][0] > usual[(0,)][0] + 0.01, "a concentration that is smaller beforehand trusts the two rows more"
    assert abs(probability - exact[(0,)][0]) < (2e-3 if estimate is hdp_gibbs_estimates else 0.04)


def tables_of(tree, paths, parameters, cells, n_draws=10_000):
    """Draws of t of each cell, which is a node and a value, by one chain."""
    chain = Chain(tree, parameters, 0)
    drawn, items = {cell: np.ones(n_draws, np.int64) for cell in cells}, {}
    for path, x in cells:
        node = paths.index(path)
        values = tree.cell_value[tree.cell_starts[node] : tree.cell_starts[node + 1]]
        index = int(tree.cell_starts[node] + np.flatnonzero(values == x)[0])
        for item in np.flatnonzero(chain.plan.item_cell == index):
            items[path, x] = int(item)
    for i in range(n_draws):
        chain.sweep(1)
        for cell, item in items.items():
            drawn[cell][i] = table_of_item(chain, item)
    return drawn


def table_of_item(chain, item):
    """What a cell adds to n above; with siblings it is drawn again from its conditional, which leaves its distribution as it is."""
    above, state = chain.plan.item_parent[item], chain.state
    if np.count_nonzero(chain.plan.item_parent == above) == 1:
        return state.n[above] - chain.plan.item_base[above]
    t, state.random[0] = random.crp_table_count_variate(state.n[item], state.weight[above], np.uint64(state.random[0]))
    return t


def test_tying_by_level_against_enumeration():
    nested = {0: {0: {0: 3, 1: 1}, 1: {1: 2}}, 1: {0: {0: 2}}}
    exact, _ = posterior(nested, 2, "unit", tying="level")
    tree, paths = tree_of(nested, 2)
    result = hdp_gibbs_estimates([tree], HDPParameters(iterations=300_000))[0]
    for node, path in enumerate(paths):
        assert np.abs(distribution(tree, result.estimates, node) - exact[path]).max() < 4e-3


def large_tree(seed=0, n=3000):
    rng = np.random.default_rng(seed)
    y, a, b = rng.integers(0, 3, n), rng.integers(0, 6, n), rng.integers(0, 9, n)
    x = (rng.poisson(1.0 + y, n) + a * (rng.random(n) < 0.3)) % 12
    cells, counts = np.unique(np.stack([y, a, b, x]), axis=1, return_counts=True)
    return context_tree_from_cells(cells[0], cells[1:3].T, cells[3], counts, 13)


@pytest.mark.parametrize("tying", ["level", "parent", "single"])
@pytest.mark.parametrize("estimate", [hdp_gibbs_estimates, hdp_map_estimates])
def test_every_node_sums_to_one(estimate, tying):
    tree = large_tree()
    result = estimate([tree], HDPParameters(iterations=100, tying=tying))[0]
    assert np.all(np.isfinite(result.variance)) and np.all(result.variance >= 0)
    assert np.all((result.estimates.probability > 0) & (result.estimates.probability < 1))
    for node in range(tree.n_nodes):
        assert abs(distribution(tree, result.estimates, node).sum() - 1) < 1e-9


def test_seeds_repeat_and_threads_do_not_matter():
    trees = [large_tree(seed, 500 * (seed + 1)) for seed in range(4)]
    parameters = HDPParameters(iterations=200, seed=7)
    one = hdp_gibbs_estimates(trees, parameters, threads=1)
    four = hdp_gibbs_estimates(trees, parameters, threads=4)
    other = hdp_gibbs_estimates(trees, HDPParameters(iterations=200, seed=8))
    for a, b, c in zip(one, four, other, strict=True):
        assert np.array_equal(a.estimates.probability, b.estimates.probability)
        assert np.array_equal(a.variance, b.variance)
        assert not np.array_equal(a.estimates.probability, c.estimates.probability)


@pytest.mark.parametrize("estimate", [hdp_gibbs_estimates, hdp_map_estimates])
def test_nothing_depends_on_how_often_a_sampler_looks_whether_to_stop(estimate, monkeypatch):
    parameters = HDPParameters(iterations=250)
    whole = estimate([large_tree()], parameters)[0]
    monkeypatch.setattr(hdp, "CALL_ITEMS", 1)  # a sweep a call
    pieces = estimate([large_tree()], parameters)[0]
    assert pieces.n_sweeps == whole.n_sweeps
    for a, b in zip(pieces[:3], whole[:3], strict=True):
        assert all(map(np.array_equal, a, b)) if isinstance(a, tuple) else np.array_equal(a, b)


def test_the_fixed_point_is_near_the_sampler():
    tree = large_tree()
    sampled = hdp_gibbs_estimates([tree], HDPParameters(iterations=5000))[0]
    solved = hdp_map_estimates([tree], HDPParameters())[0]
    weight = tree.cell_count / tree.cell_count.sum()
    assert weight @ np.abs(np.log(sampled.estimates.probability / solved.estimates.probability)) < 0.02


def test_auto_stops_when_settled_and_says_when():
    result, other = hdp_gibbs_estimates([large_tree(), large_tree(1, 60)], HDPParameters(iterations="auto"))
    assert 1000 <= result.n_sweeps <= 51_000
    assert all(not found.is_settled or not found.r_hat > 1.1 for found in (result, other))
    long = hdp_gibbs_estimates([large_tree()], HDPParameters(iterations=20_000))[0]
    relative = result.estimates.probability / long.estimates.probability - 1
    assert np.sqrt(np.mean(relative**2)) < 0.05


def test_what_has_not_settled_gets_the_deterministic_estimates_and_says_so(monkeypatch):
    tree = large_tree()
    monkeypatch.setattr(hdp_sampler, "AUTO_MOST", 1_000)
    monkeypatch.setattr(hdp_sampler, "AUTO_DIFFERENCE", 0.0)
    (sampled,) = hdp_gibbs_estimates([tree], HDPParameters(iterations="auto"))
    (solved,) = hdp_map_estimates([tree], HDPParameters())
    assert not sampled.is_settled
    assert np.array_equal(sampled.estimates.probability, solved.estimates.probability)
    assert np.array_equal(sampled.variance, solved.variance)
    assert np.array_equal(sampled.concentrations, solved.concentrations)
    assert sampled.r_hat >= 1
    assert sampled.log_likelihood.size >= 100


def test_the_traces_are_those_of_the_draws():
    tree = large_tree()
    result = hdp_gibbs_estimates([tree], HDPParameters(iterations=2000))[0]
    assert result.log_likelihood.shape == (180,)
    leaves = slice(tree.cell_starts[tree.level_starts[-2]], None)
    mean = tree.cell_count[leaves] @ np.log(result.estimates.probability[leaves])
    assert result.log_likelihood.min() < mean < result.log_likelihood.max() + abs(mean) * 0.01
    assert 1 <= result.r_hat < 2
    assert np.isnan(hdp_map_estimates([tree], HDPParameters())[0].r_hat)


def test_counts_of_millions_stay_finite():
    y = np.array([0, 0, 1, 1])
    tree = context_tree_from_cells(y, np.array([[0], [1], [0], [1]]), np.array([0, 1, 0, 1]), np.full(4, 50_000_000), 2)
    for result in (
        hdp_gibbs_estimates([tree], HDPParameters(iterations=50))[0],
        hdp_map_estimates([tree], HDPParameters())[0],
    ):
        assert np.all(np.isfinite(result.estimates.probability))
        assert result.estimates.probability[tree.cell_starts[tree.level_starts[-2]]] > 0.999


def test_cancelling_stops_all_threads():
    def advance(done, total):
        if done:
            raise Cancelled("stop")

    before = threading.active_count()
    with pytest.raises(Cancelled):
        hdp_gibbs_estimates([large_tree(seed) for seed in range(6)], HDPParameters(iterations=10**7), 2, advance)
    assert threading.active_count() == before


@kernel
def gammas(shape, out):  # OUT (n,)
    counter = np.uint64(5)
    for i in range(out.size):
        out[i], counter = random.gamma_variate(shape, counter)


@kernel
def normals(out):  # OUT (n,)
    counter = np.uint64(5)
    for i in range(out.size):
        out[i], counter = random.normal_variate(counter)


@kernel
def tables(n, a, out):  # OUT (m,)
    counter = np.uint64(5)
    for i in range(out.size):
        out[i], counter = random.crp_table_count_variate(n, a, counter)


def test_variates_have_their_distributions():
    out = np.empty(200_000)
    normals(out)
    assert stats.kstest(out, "norm").pvalue > 1e-3
    for shape in (0.1, 1.0, 3.7, 500.0):
        gammas(shape, out)
        assert stats.kstest(out, "gamma", args=(shape,)).pvalue > 1e-3


@pytest.mark.parametrize(
    ("n", "a"), [(2, 0.3), (3, 5.0), (8, 1.0), (48, 0.02), (49, 2.0), (300, 0.5), (300, 80.0), (10_000, 3.0)]
)
def test_tables_are_a_sum_of_bernoulli_events(n, a):
    drawn = np.empty(100_000)
    tables(n, a, drawn)
    p = a / (a + np.arange(n))
    exact = np.zeros(n + 1)
    exact[0] = 1.0
    for q in p if n <= 300 else []:
        exact[1:] = exact[1:] * (1 - q) + exact[:-1] * q
        exact[0] *= 1 - q
    if n <= 300:
        expected = exact * drawn.size
        common = np.flatnonzero(expected > 10)
        observed = np.bincount(drawn.astype(int), minlength=n + 1)
        chi2 = ((observed[common] - expected[common]) ** 2 / expected[common]).sum()
        assert stats.chi2.sf(chi2, common.size) > 1e-3
    assert abs(drawn.mean() - p.sum()) < 5 * np.sqrt((p * (1 - p)).sum() / drawn.size)


def test_the_first_tables_are_those_of_the_digamma_function():
    n = np.unique(np.concatenate([np.arange(200), np.random.default_rng(0).integers(1, 10**9, 1000)]))
    expected = np.maximum(np.floor(2.0 * (special.digamma(2.0 + n) - special.digamma(2.0))), 1.0)
    assert np.array_equal(hdp._first_tables(n), expected)


def test_r_hat_tells_a_drift():
    rng = np.random.default_rng(0)
    assert abs(split_r_hat(rng.normal(size=(2000, 3))) - 1) < 0.01
    assert split_r_hat(np.arange(100.0)[:, None] + rng.normal(size=(100, 1))) > 1.5
    assert np.isnan(split_r_hat(np.ones((2, 1))))
    assert split_r_hat(np.ones((100, 1))) == 1.0


def test_parameters_are_checked():
    for wrong in (
        {"iterations": 3},
        {"iterations": "many"},
        {"tying": "tree"},
        {"root": "beta"},
        {"prior": (1, -1)},
        {"seed": -1},
    ):
        with pytest.raises(InvalidParameter, match=next(iter(wrong))):
            HDPParameters(**wrong)


def test_one_signature_a_kernel():
    trees = [large_tree(), tree_of({0: {0: 2}, 1: {0: 4, 1: 9}}, 2)[0]]
    hdp_gibbs_estimates(trees, HDPParameters(iterations=20))
    hdp_map_estimates(trees, HDPParameters())
    for one in (hdp_kernels.run_hdp_gibbs_sweeps, hdp_kernels.run_hdp_fixed_point, hdp_kernels.add_hdp_estimates):
        assert len(one.signatures) == 1
