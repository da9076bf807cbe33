"""Expected counts against the enumeration of induced trees; laws; what EM promises."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.circuits import random_pseudo_counts
from learners.circuits.em.em import ExpectedCounts, batch_em, em_passes
from learners.circuits.evaluation.evaluate import log_values, node_log_values_and_derivatives
from learners.circuits.evaluation.evaluate_kernels import BLOCK
from learners.circuits.kernels import CATEGORICAL, EXPONENTIAL, GAUSSIAN, POISSON, SUM
from learners.circuits.streaming.online import StreamingPosterior
from learners.errors import StatisticMismatch
from tests import laws
from tests.circuits.answer_circuits import needs_public_circuits, public_circuit, public_rows
from tests.circuits.map_circuits import random_circuit
from tests.naive import induced_trees as naive
from tests.naive.map import mixture
from tests.support.circuits import as_row, chain, mixed_circuit, mixed_rows, random_rows

# A row's share is rounded to 2^-32.
ROUNDED = 2.0**-31
N_ROWS = BLOCK + 3  # a block, and what is left over


def counted(circuit, x):
    counts = ExpectedCounts(circuit)
    counts.update(x)
    return counts


def of_sums(circuit):
    """(n_edges,) bool."""
    return np.repeat(circuit.kind == SUM, np.diff(circuit.child_starts))


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=12)
def test_counts_are_sums_of_posteriors_over_all_induced_trees(seed):
    rng = np.random.default_rng(seed)
    circuit = random_circuit(rng, int(rng.integers(1, 5)), most_values=6, zeros=0.2)
    x = random_rows(rng, circuit, N_ROWS)
    expected = np.zeros(circuit.n_edges)
    parameters = np.zeros(circuit.leaf_parameters.size)
    n_impossible, log_likelihood = 0, 0.0
    for column in x.T:
        row = as_row(column)
        value = naive.node_values(circuit, row)[-1]
        if value == 0:
            n_impossible += 1
            continue
        log_likelihood += math.log(value)
        edge, node = naive.posteriors(circuit, row)
        expected += edge
        for leaf in np.flatnonzero(circuit.kind == CATEGORICAL):
            first, end = circuit.leaf_starts[leaf : leaf + 2]
            code = row.get(int(circuit.variable[leaf]))
            share = np.exp(circuit.leaf_parameters[first:end]) if code is None else np.eye(end - first)[int(code)]
            parameters[first:end] += node[leaf] * share
    counts = counted(circuit, x)
    edge, parameter, _ = counts.expected()
    is_of_sum = of_sums(circuit)
    assert edge[is_of_sum] == pytest.approx(expected[is_of_sum], abs=N_ROWS * ROUNDED)
    assert parameter == pytest.approx(parameters, abs=N_ROWS * ROUNDED)
    assert (counts.n_rows, counts.n_impossible) == (N_ROWS, n_impossible)
    assert counts.log_likelihood == pytest.approx(log_likelihood, abs=N_ROWS * 2.0**-16)


@pytest.mark.parametrize(
    "law",
    [
        laws.merging_commutes_and_associates,
        laws.the_empty_statistic_is_neutral,
        laws.merging_leaves_the_other_as_it_was,
        laws.what_was_added_can_be_subtracted,
        laws.arrow_gives_it_back,
    ],
)
@given(seed=st.integers(0, 2**32 - 1))
def test_expected_counts_are_a_statistic(law, seed):
    rng = np.random.default_rng(seed)
    circuit = mixed_circuit(rng)
    law(ExpectedCounts(circuit), [mixed_rows(rng, n) for n in rng.integers(1, 40, 5)])


@given(seed=st.integers(0, 2**32 - 1))
def test_order_and_partition_do_not_matter(seed):
    rng = np.random.default_rng(seed)
    circuit = mixed_circuit(rng)
    parts = [mixed_rows(rng, n) for n in rng.integers(1, 40, 5)]
    # Rows far out are evaluated in wide numbers.
    parts[2][2, 0] = 100.0
    laws.order_and_partition_do_not_matter(
        ExpectedCounts(circuit), parts, lambda all_of: np.concatenate(all_of, axis=1)
    )
    shuffled = np.concatenate(parts, axis=1)
    shuffled = shuffled[:, rng.permutation(shuffled.shape[1])]
    assert counted(circuit, shuffled) == laws.updated(ExpectedCounts(circuit), parts)


def test_counts_of_another_circuit_are_refused():
    ours, theirs = (ExpectedCounts(mixed_circuit(np.random.default_rng(seed))) for seed in range(2))
    laws.others_are_refused(ours, theirs, [mixed_rows(np.random.default_rng(0), 5)])
    with pytest.raises(StatisticMismatch, match="different circuit"):
        ExpectedCounts(chain(3, 0.5)).from_arrow(ours.to_arrow())


def test_improbable_rows_count_like_others():
    circuit = chain(3000, 1e-5)
    x = np.ones((3000, 20), np.uint8)
    x[1, ::3] = 0
    x[2, 4] = 9
    edge, parameter, _ = counted(circuit, x).expected()
    values, derivatives = node_log_values_and_derivatives(circuit, x)
    parents = np.repeat(np.arange(circuit.n_nodes), np.diff(circuit.child_starts))
    below = circuit.log_weight[:, np.newaxis] + values[circuit.children]
    expected = np.exp(below + derivatives[parents] - values[-1]).sum(axis=1)
    is_of_sum = of_sums(circuit)
    assert edge[is_of_sum] == pytest.approx(expected[is_of_sum], abs=20 * ROUNDED)
    # Both products have a leaf of every variable; together they see every row, the missing value by its probability.
    by_variable = parameter.reshape(2, 3000, 2).sum(axis=0)
    assert by_variable[0] == pytest.approx([0, 20], abs=1e-6)
    assert by_variable[1] == pytest.approx([7, 13], abs=1e-6)
    assert by_variable[2] == pytest.approx([1 - 1e-5, 19 + 1e-5], abs=1e-6)


@given(seed=st.integers(0, 2**32 - 1))
def test_a_step_never_lowers_the_likelihood(seed):
    rng = np.random.default_rng(seed)
    circuit = mixed_circuit(rng)
    x = mixed_rows(rng, 300)
    before = log_values(circuit, x).sum()
    for _ in range(6):
        circuit = counted(circuit, x).maximised()
        after = log_values(circuit, x).sum()
        assert after >= before - 1e-4
        before = after


def test_numeric_leaves_fit_their_rows():
    circuit = mixture([[(GAUSSIAN, [1.0, 2.0]), (POISSON, [3.0]), (EXPONENTIAL, [0.5])]])
    rng = np.random.default_rng(5)
    x = np.stack([rng.normal(7, 0.5, 500), rng.poisson(11, 500), rng.exponential(0.25, 500)])
    expected = [x[0].mean(), x[0].std(), x[1].mean(), 1 / x[2].mean()]
    assert counted(circuit, x).maximised().leaf_parameters == pytest.approx(expected, rel=1e-4)


def test_em_stops_when_it_gains_nothing():
    circuit = mixed_circuit(np.random.default_rng(3))
    x = mixed_rows(np.random.default_rng(3), 100)
    passes = em_passes(circuit, 1000, 0.1, tolerance=0.01)
    counts = next(passes)
    with pytest.raises(StopIteration):
        for _ in range(100):
            counts.update(x)
            counts = passes.send(counts)


@needs_public_circuits
def test_batch_em_learns_nltcs_well():
    """`streaming/test_online.py` has what one pass learns: a tenth of a nat less."""
    circuit, (train, test) = public_circuit("nltcs"), public_rows("nltcs")
    start = StreamingPosterior(circuit, random_pseudo_counts(circuit, 0)).circuit()
    assert log_values(batch_em(start, train, 20), test).mean() > -6.1
