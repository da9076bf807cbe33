"""Kernels over the whole tree against its circuit, and against enumeration of induced trees."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.circuits.evaluate import log_values
from learners.circuits.gibbs.collapsed_vb import Expected, divergence, expected_parts, iterated, started
from learners.circuits.gibbs.layout import layout_of
from learners.circuits.gibbs.leaf_kernels import KIND
from learners.circuits.gibbs.parameters import drawn_parameters
from learners.circuits.gibbs.sampler import InMemory, entered, lazy, tallied
from learners.circuits.gibbs.sampler import Moves as M
from learners.circuits.gibbs.whole import parts_of, tree_of, work_of
from learners.circuits.gibbs.whole_kernels import bottom_up_sweep, expect, leaf_logs, upward, upward_in_logs
from tests.circuits.gibbs.problems import (
    EXPONENTIAL,
    GAUSSIAN,
    MIXED,
    POISSON,
    PROBLEMS,
    THREE,
    WORDS,
    prior_of,
    rows_of,
)
from tests.naive import bayesian_circuits as naive

COLUMNS = st.lists(st.sampled_from([GAUSSIAN, EXPONENTIAL, POISSON, WORDS, *MIXED]), min_size=1, max_size=4)


def problem(columns, n_children, n_rows=9, seed=0):
    prior, x = prior_of(columns, n_children, seed), rows_of(columns, n_rows, seed)
    state = lazy(prior, InMemory(x)).init(np.random.default_rng(seed))
    return prior, InMemory(x).x, drawn_parameters(np.random.default_rng(seed), prior, state.tallies)


def roots(prior, x, parameters):
    """Log likelihoods of rows, linearly and in logarithms."""
    parts, tree, work = parts_of(prior, parameters), tree_of(prior.shape), work_of(prior.shape)
    n = len(x)
    logs = work.logs[:, :n]
    leaf_logs(parts.leaf, parts.natural, parts.log_cells, x, 0, logs)
    upward(tree, parts.weight, logs, work.peak[:, :n], work.shares[:, :n], work.values[:, :n], work.scale[:n])
    linear, in_logs = np.log(work.values[0, :n]) + work.scale[:n], []
    for row in range(n):
        upward_in_logs(tree, parts.log_weight, logs, row, work.in_logs)
        in_logs.append(work.in_logs[0])
    return linear, np.array(in_logs)


@settings(max_examples=15)
@given(columns=COLUMNS, n_children=st.integers(2, 3))
def test_likelihoods_are_those_of_the_circuit(columns, n_children):
    prior, x, parameters = problem(columns, n_children)
    wanted = log_values(layout_of(prior).circuit(parameters), x.T.astype(float))
    linear, in_logs = roots(prior, x, parameters)
    assert np.allclose(linear, wanted, atol=1e-10) and np.allclose(in_logs, wanted, atol=1e-10)


def test_trees_are_drawn_in_proportion_to_their_probability():
    """20,000 copies of one row, against enumeration; four standard errors."""
    prior, x, parameters = problem(MIXED, 2)
    many = np.repeat(x[:1], 20_000, axis=0)
    choices = np.empty((len(many), prior.shape.n_positions), np.uint8)
    trees, counter = np.zeros((2, prior.shape.n_positions, 3), np.int64), np.array([5], np.uint64)
    bottom_up_sweep(
        prior.shape.place,
        tree_of(prior.shape),
        parts_of(prior, parameters),
        work_of(prior.shape),
        trees,
        many,
        choices,
        counter,
    )
    found = dict.fromkeys(probabilities(prior, x[0], parameters), 0)
    for key in map(tuple, choices.tolist()):
        found[key] += 1
    for key, p in probabilities(prior, x[0], parameters).items():
        assert found[key] / len(many) == pytest.approx(p, abs=4 * np.sqrt(p * (1 - p) / len(many)) + 1e-12)


def probabilities(prior, row, parameters):
    """Of each induced tree, given a row."""
    leaf_of = parts_of(prior, parameters)
    logs = np.empty((len(prior.leaf), 1))
    leaf_logs(leaf_of.leaf, leaf_of.natural, leaf_of.log_cells, row[np.newaxis], 0, logs)
    weight = {
        choices: np.prod([parameters.weight[edge] for edge in edges]) * np.exp(sum(logs[i, 0] for i in leaves))
        for choices, edges, leaves in naive.induced_trees(naive.tree_of(prior))
    }
    total = sum(weight.values())
    return {choices: w / total for choices, w in weight.items()}


def test_expected_counts_are_those_of_enumeration():
    prior, x, parameters = problem(THREE, 2)
    parts, work = parts_of(prior, parameters), work_of(prior.shape)
    counts, leaf, cells = np.zeros_like(parts.weight), np.array(prior.leaf), np.zeros(prior.n_cells)
    total = expect(tree_of(prior.shape), parts, work, x, np.empty_like(work.values), counts, leaf, cells)
    assert total == pytest.approx(roots(prior, x, parameters)[0].sum())
    wanted = np.zeros_like(counts)
    for row in x:
        of_tree = probabilities(prior, row, parameters)
        for choices, edges, _ in naive.induced_trees(naive.tree_of(prior)):
            for edge in edges:
                wanted[edge] += of_tree[choices]
    assert np.allclose(counts, wanted)
    column = leaf[:, KIND].astype(int) // 8
    for d in range(3):  # every row that is known is at the leaves of its column
        assert leaf[column == d, 1].sum() == pytest.approx((~np.isnan(x[:, d])).sum())
    assert cells.sum() == pytest.approx((~np.isnan(x[:, 1])).sum())


def test_rows_that_are_far_from_everything_are_evaluated_in_logarithms():
    """Two draws of a leaf apart, one product of which is right for no row: all values are below the smallest double."""
    prior, x, parameters = problem([GAUSSIAN] * 4, 2)
    parameters = parameters._replace(
        first=1e4 * np.arange(parameters.first.size), second=np.ones(parameters.second.size)
    )
    x = np.array([[0.0, 5e4, -3e4, 2e4]], np.float32)
    _linear, in_logs = roots(prior, x, parameters)
    wanted = log_values(layout_of(prior).circuit(parameters), x.T.astype(float))
    assert in_logs == pytest.approx(wanted) and np.isfinite(in_logs).all() and in_logs[0] < -1e6
    prior, rows = prior_of([GAUSSIAN] * 4), InMemory(x)
    posterior = started(lazy(prior, rows).init(np.random.default_rng(0)).tallies)
    assert np.isfinite(iterated(prior, rows, posterior).bound)


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_bound_never_falls_and_never_passes_the_evidence(name):
    """From ten starts each; the evidence is a sum over all assignments."""
    columns, n_rows = PROBLEMS[name]
    prior, x = prior_of(columns, seed=1), rows_of(columns, n_rows, seed=2)
    evidence, rows, bounds = naive.posterior(prior, x)[1], InMemory(x), []
    for start in range(10):
        posterior = started(entered(np.random.default_rng(start), prior, rows, M()).tallies)
        own = []
        for _ in range(25):
            posterior, bound = iterated(prior, rows, posterior)
            own.append(bound)
        assert np.diff(own).min() > -1e-9
        bounds.append(own[-1])
    assert max(bounds) < evidence
    assert max(bounds) > evidence - 2 * n_rows  # it says something


def test_of_one_sum_over_one_column_the_bound_of_one_child_is_exact():
    """With a weight that all but excludes the other leaf there is nothing to factorise: the bound is the evidence."""
    prior, x = prior_of([GAUSSIAN], seed=3), rows_of([GAUSSIAN], 5, missing=0.0)
    tallies = tallied(prior, InMemory(x), np.zeros((5, 1), np.uint8)).tallies
    posterior = Expected(np.array([[1e9, 0.0]]), np.array(tallies.leaf), np.zeros(1))
    parts = expected_parts(prior, posterior)
    logs = np.empty((2, 5))
    leaf_logs(parts.leaf, parts.natural, parts.log_cells, InMemory(x).x, 0, logs)
    nothing = Expected(posterior.counts, np.array(prior.leaf), np.zeros(1))
    of_leaf = divergence(prior, posterior) - divergence(prior, nothing)
    wanted = sum(naive.log_predictive(prior, 0, [float(v) for v in x[:n, 0]], float(x[n, 0])) for n in range(5))
    assert logs[0].sum() - of_leaf == pytest.approx(wanted)
