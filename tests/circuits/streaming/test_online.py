"""Streaming posteriors: exact projections, published quality, checkpoints and shards."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import psi

from benchmarks.circuits import random_pseudo_counts
from learners.circuits.evaluation.evaluate import log_values
from learners.circuits.kernels import CATEGORICAL, EXPONENTIAL, GAUSSIAN, INDICATOR, POISSON, SUM
from learners.circuits.streaming.online import PseudoCounts, StreamingPosterior, circuit_pseudo_counts
from learners.circuits.streaming.projection_kernels import ADF, LARGE, project_onto_dirichlet
from learners.circuits.streaming.shards import merge_shard_posteriors
from learners.circuits.structures.text import CircuitBuilder
from learners.errors import InvalidParameter, StatisticMismatch
from tests.circuits.answer_circuits import needs_public_circuits, public_circuit, public_rows
from tests.circuits.map_circuits import random_circuit
from tests.laws import through_a_stream
from tests.naive import induced_trees as naive
from tests.naive.map import flat_circuit, mixture
from tests.support.circuits import as_row, mixed_circuit, mixed_rows, random_rows


def two_leaves():
    """Two independent Bernoulli variables, as sums over indicators."""
    sums = [[(INDICATOR, v, [0]), (INDICATOR, v, [1]), ("sum", [(3 * v, 0.5), (3 * v + 1, 0.5)])] for v in range(2)]
    return flat_circuit([*sums[0], *sums[1], ("product", [2, 5])], [2, 2])


def biased_rows(n_rows, seed=0):
    return (np.random.default_rng(seed).random((2, n_rows)) < np.array([[0.1], [0.3]])).astype(np.uint8)


@given(seed=st.integers(0, 2**32 - 1), projection=st.sampled_from(["adf", "bmm"]))
def test_a_row_projects_the_moments_of_all_induced_trees(seed, projection):
    rng = np.random.default_rng(seed)
    circuit = random_circuit(rng, int(rng.integers(1, 5)), leaves=(INDICATOR,), zeros=0, most_values=6)
    alpha = rng.gamma(1.0, 3.0, circuit.n_edges) + 0.05
    of_sum = np.repeat(circuit.kind == SUM, np.diff(circuit.child_starts))
    x = random_rows(rng, circuit, 1)
    mean, second, log = naive.one_step_moments(circuit, alpha, as_row(x[:, 0]))
    posterior = StreamingPosterior(circuit, PseudoCounts(alpha * of_sum, circuit.leaf_parameters * 0, 1.0), projection)
    posterior.update(x)
    beta = posterior.pseudo_counts().edge
    for node in np.flatnonzero(circuit.kind == SUM):
        edges = slice(circuit.child_starts[node], circuit.child_starts[node + 1])
        b, total = beta[edges], beta[edges].sum()
        if b.size == 1:
            continue
        assert np.exp(posterior.circuit().log_weight[edges]) == pytest.approx(b / total)
        variance = posterior.weight_variances()[0][edges]
        assert variance == pytest.approx(b * (total - b) / (total**2 * (total + 1)))
        if projection == "bmm":
            assert (variance + (b / total) ** 2).sum() == pytest.approx(second[edges].sum())
            assert b / total == pytest.approx(mean[edges], rel=1e-8)
            assert (b * (b + 1)).sum() / (total * (total + 1)) == pytest.approx(second[edges].sum(), rel=1e-8)
        else:
            assert psi(b) - psi(total) == pytest.approx(log[edges], rel=1e-7, abs=1e-8)


@pytest.mark.parametrize("projection", ["adf", "bmm"])
def test_independent_leaves_are_recovered(projection):
    """Certain induced trees: the posterior is the exact one, prior plus counts."""
    x = biased_rows(20_000)
    posterior = StreamingPosterior(two_leaves(), random_pseudo_counts(two_leaves(), 1), projection)
    posterior.update(x)
    n = np.array([(x[0] == 0).sum(), x[0].sum(), (x[1] == 0).sum(), x[1].sum()])
    expected = posterior.prior.edge[:4] + n
    assert posterior.pseudo_counts().edge[:4] == pytest.approx(expected, rel=1e-9)
    p = np.exp(posterior.circuit().log_weight)
    # Four standard deviations of 20,000 draws.
    assert p[1] == pytest.approx(0.1, abs=0.0085)
    assert p[3] == pytest.approx(0.3, abs=0.013)


@given(seed=st.integers(0, 2**32 - 1), projection=st.sampled_from(["adf", "bmm"]))
def test_division_and_a_checkpoint_change_nothing(seed, projection):
    rng = np.random.default_rng(seed)
    circuit = mixed_circuit(rng)
    x = mixed_rows(rng, 60)
    whole = StreamingPosterior(circuit, random_pseudo_counts(circuit, 3), projection)
    whole.update(x)
    part = StreamingPosterior(circuit, random_pseudo_counts(circuit, 3), projection)
    part.update(x[:, :17])
    again = StreamingPosterior(circuit, random_pseudo_counts(circuit, 3), projection).from_arrow(
        through_a_stream(part.to_arrow())
    )
    again.update(x[:, 17:])
    assert again == whole
    assert again.circuit() == whole.circuit()
    assert again.n_rows == 60
    assert not np.isnan(log_values(again.circuit(), x)).any()


def test_a_state_of_another_circuit_is_refused():
    part = StreamingPosterior(two_leaves(), random_pseudo_counts(two_leaves(), 3))
    other = mixed_circuit(np.random.default_rng(0))
    with pytest.raises(StatisticMismatch, match="The state does not belong to this circuit"):
        StreamingPosterior(other, random_pseudo_counts(other, 3)).from_arrow(part.to_arrow())
    with pytest.raises(InvalidParameter, match="one of adf, bmm"):
        StreamingPosterior(other, random_pseudo_counts(other, 3), "em")


def test_missing_values_teach_nothing():
    posterior = StreamingPosterior(two_leaves(), random_pseudo_counts(two_leaves(), 1))
    before = posterior.pseudo_counts().edge.copy()
    posterior.update(np.array([[np.nan, np.nan], [np.nan, 1.0]]))
    after = posterior.pseudo_counts().edge
    assert after - before == pytest.approx([0, 0, 0, 1, 0, 0])


def test_numeric_leaves_learn_the_rows_they_explain():
    circuit = mixture([[(GAUSSIAN, [1.0, 2.0]), (POISSON, [3.0]), (EXPONENTIAL, [0.5])]])
    rng = np.random.default_rng(5)
    x = np.stack([rng.normal(7, 0.5, 5000), rng.poisson(11, 5000), rng.exponential(0.25, 5000)])
    posterior = StreamingPosterior(circuit, circuit_pseudo_counts(circuit, 2.0))
    posterior.update(x)
    mean, std, rate, speed = posterior.circuit().leaf_parameters
    n = 5002
    expected = (x[0].sum() + 2) / n
    assert mean == pytest.approx(expected)
    assert std == pytest.approx(math.sqrt((((x[0] - 1) ** 2).sum() + 2 * 4) / n - (expected - 1) ** 2))
    assert rate == pytest.approx((x[1].sum() + 6) / n)
    assert speed == pytest.approx(n / (x[2].sum() + 4))


def test_tiny_probabilities_are_learned_from_like_others():
    """A row of probability e^-3000 moves the pseudo-counts as the same row of fewer variables does."""
    counts = []
    for n in (3, 3000):
        build = CircuitBuilder([2] * n)
        same = [build.leaf(CATEGORICAL, v, np.log([0.9, 0.1])) for v in range(2, n)]
        own = [[build.leaf(CATEGORICAL, v, np.log([p, 1 - p])) for v in range(2)] for p in (0.3, 0.6)]
        build.sum([build.product([*leaves, *same]) for leaves in own], np.log([0.5, 0.5]))
        circuit = build.circuit()
        posterior = StreamingPosterior(circuit, circuit_pseudo_counts(circuit, 10.0))
        posterior.update(np.ones((n, 4), np.uint8))
        assert posterior.n_impossible == 0
        counts.append(posterior.pseudo_counts().edge[-2:])
    assert counts[0] == pytest.approx(counts[1], rel=1e-9)


@needs_public_circuits
@pytest.mark.parametrize("projection", ["adf", "bmm"])
@pytest.mark.parametrize(("name", "at_least"), [("nltcs", -6.2), ("plants", -17.3)])
def test_one_pass_learns_well(name, at_least, projection):
    circuit, (train, test) = public_circuit(name), public_rows(name, 4000)
    posterior = StreamingPosterior(circuit, random_pseudo_counts(circuit, 0, 0.05, 0.15), projection)
    posterior.update(train)
    assert log_values(posterior.circuit(), test).mean() > at_least


@pytest.mark.parametrize("projection", ["adf", "bmm"])
@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1e6])
def test_tiny_and_huge_pseudo_counts_give_numbers(projection, scale):
    rng = np.random.default_rng(8)
    for _ in range(5):
        circuit = random_circuit(rng, 5, zeros=0)
        x = random_rows(rng, circuit, 400)
        posterior = StreamingPosterior(circuit, random_pseudo_counts(circuit, 1, scale, 1.5 * scale), projection)
        posterior.update(x)
        counts = posterior.pseudo_counts()
        assert np.isfinite(counts.edge).all()
        assert (counts.edge >= 0).all()
        assert not np.isnan(log_values(posterior.circuit(), x)).any()


@settings(max_examples=80)
@given(alpha=st.floats(LARGE, 1e7), other=st.floats(LARGE, 1e7), share=st.floats(1e-9, 1.0), n=st.integers(0, 4))
def test_large_pseudo_counts_are_projected_without_slopes(alpha, other, share, n):
    """The moments of log weights, by digammas: of two parameters, and of several as a sum has them."""
    counts = np.array([alpha, other, *np.geomspace(9, 900, n)])
    share = min(share, 8e-4 * counts.min() ** 2)
    total = counts.sum()
    wanted = share * np.eye(counts.size)[0] / counts - share / total
    entry, node = np.zeros((3, counts.size)), np.array([[total], [0.0], [1.0]])
    entry[0] = counts
    shares = np.zeros((5, counts.size))
    shares[0, 0] = share
    project_onto_dirichlet(entry, node, 0, 0, counts.size, share, ADF, shares)
    grown = entry[0] - counts
    assert entry[1] == pytest.approx(entry[0] / entry[0].sum())
    after = counts + grown
    # What a pseudo-count is wrong by, as a share of it; digammas of SciPy have fifteen digits of ψ.
    wrong = (psi(after) - psi(counts)) - (psi(after.sum()) - psi(total)) - wanted
    assert np.abs(wrong).max() < 1e-7


@pytest.mark.parametrize("projection", ["adf", "bmm"])
def test_shards_that_have_less_left_than_the_prior_keep_what_they_agree_on(projection):
    """As where rows left open which child they took: 1 and 4 of a prior of 30 and 30, in three shards."""
    circuit = two_leaves()
    left = PseudoCounts(np.array([1.0, 4.0, 2.0, 2.0, 0.0, 0.0]), circuit.leaf_parameters * 0, 1.0)
    prior = PseudoCounts(np.array([30.0, 30.0, 2.0, 2.0, 0.0, 0.0]), circuit.leaf_parameters * 0, 1.0)
    start = StreamingPosterior(circuit, prior, projection)
    merged = merge_shard_posteriors(start, [StreamingPosterior(circuit, left, projection) for _ in range(3)])
    # Of the first 3 in all, five sixths are what may be taken off: half a row stays.
    assert merged.pseudo_counts().edge[:4] == pytest.approx([0.5, 9.5, 2.0, 2.0])
