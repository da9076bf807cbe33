"""What a network says with attributes missing, against sums over all worlds and against its circuit."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.classifiers.lookup import elimination
from learners.classifiers.lookup.elimination import Elimination
from learners.classifiers.lookup.look_up_tables import family_lookup_tables, fill_class_log_joints
from learners.classifiers.lookup.lookup import LookupModel
from learners.classifiers.structure import Structure
from learners.schema import Chunk
from tests.support.registry import STRUCTURES, network_joint, trained

TOLERANCE = 1e-5  # tables hold logarithms as float32


def rows_with_holes(seed, sizes, n_rows=12):
    """Codes of which some are missing: (n_attributes, n_rows)."""
    random = np.random.default_rng(seed)
    x = random.integers(0, np.array(sizes)[:, np.newaxis], (len(sizes), n_rows))
    return np.where(random.random(x.shape) < random.random(n_rows), np.array(sizes)[:, np.newaxis], x).astype(np.uint8)


def of_known(joint, row, sizes, n_classes):
    """(n_classes,) probabilities of the class and of what is known of a row, summed over all worlds."""
    p = np.zeros(n_classes)
    for world in itertools.product(*(range(s) if code >= s else [code] for code, s in zip(row, sizes, strict=True))):
        for k in range(n_classes):
            p[k] += joint[(*world, k)]
    return p


@pytest.mark.parametrize("most_listed", [0, elimination.MOST_LISTED], ids=["eliminated", "listed"])
@pytest.mark.parametrize("hierarchical", [False, True])
@pytest.mark.parametrize("name", STRUCTURES)
@given(seed=st.integers(0, 2**32 - 1), sizes=st.lists(st.integers(1, 3), min_size=1, max_size=5), c=st.integers(2, 3))
@settings(max_examples=15)
def test_missing_attributes_are_summed_out(name, hierarchical, most_listed, seed, sizes, c):
    model = trained(seed, sizes, c, STRUCTURES[name], hierarchical, n_rows=30)
    joint, x = network_joint(model), rows_with_holes(seed, sizes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(elimination, "MOST_LISTED", most_listed)
        patch.setattr(elimination, "MOST_LISTED_OF_FEW", most_listed)
        logs, answers = model.log_joint(Chunk(x, None)), model.predict_proba(Chunk(x, None))
    for row, log_p, answer in zip(x.T.tolist(), logs, answers, strict=True):
        expected = of_known(joint, row, sizes, c)
        assert np.exp(log_p) == pytest.approx(expected, rel=TOLERANCE)
        assert answer == pytest.approx(expected / expected.sum(), abs=TOLERANCE)


@given(seed=st.integers(0, 2**32 - 1), most=st.sampled_from([8, 24, 64, elimination.MOST_LISTED]))
@settings(max_examples=15)
def test_sums_are_listed_as_they_are_eliminated(seed, most):
    """Rows of both kinds side by side, each lacking something else."""
    sizes = [3, 4, 3, 2, 3, 2]
    model = trained(seed, sizes, 2, STRUCTURES["kdb2"], n_rows=60)
    x, found = rows_with_holes(seed, sizes, 40), []
    for listed in (0, most):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(elimination, "MOST_LISTED", listed)
            patch.setattr(elimination, "MOST_LISTED_OF_FEW", listed)
            summed = Elimination(model._tables, model.network, model.schema.domain_sizes)
            found.append(summed.log_joint(x)[0])
        n_most = [plan.listed.n_most for plan in summed._plans.values() if plan.order and plan.listed]
        assert not n_most if not listed else 2 * max(n_most, default=0) <= listed
    assert found[1] == pytest.approx(found[0], rel=1e-12)


def bounded(model, x, most_cells):
    """A network whose sums have so many cells at most, and its log joints."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(elimination, "MOST_COMBINATIONS", 0)
        patch.setattr(elimination, "MOST_CELLS", most_cells)
        narrow = Elimination(model._tables, model.network, model.schema.domain_sizes)
        return narrow, narrow.log_joint(x)[0]


@given(seed=st.integers(0, 2**32 - 1), most=st.sampled_from([1, 2, 6, 18, 60]))
@settings(max_examples=25)
def test_too_wide_a_sum_ends_contexts(seed, most):
    """No sum is wider than the bound, but for that of one attribute, and the rest is summed out as by a sum over all worlds."""
    sizes = [3, 4, 3, 2, 3, 2]
    model = trained(seed, sizes, 2, STRUCTURES["kdb2"], n_rows=60)
    x = rows_with_holes(seed, sizes)
    narrow, logs = bounded(model, x, 2 * most)
    for row, found in zip(x.T, logs, strict=True):
        missing = frozenset(np.flatnonzero(row >= sizes).tolist())
        plan = narrow._plans[missing]
        assert plan.n_cells <= max(most, *sizes)
        assert np.exp(found) == pytest.approx(naive_sum(model, row, missing, plan, sizes), rel=TOLERANCE)


def test_an_ended_context_keeps_its_known_parents():
    """c of a and b, and d of c: where b and c are missing, a still tells of c, and so d of the class."""
    structure = Structure((0, 1, 2, 3), ((), (), (0, 1), (2,)))
    sizes = [3, 4, 4, 3]
    model = trained(2, sizes, 2, lambda _: structure, n_rows=200)
    x = np.array([[0, 1, 2], [4] * 3, [4] * 3, [1] * 3], np.uint8)
    narrow, logs = bounded(model, x, 2 * 4)
    (plan,) = narrow._plans.values()
    assert plan.scopes == {0: (), 2: (2,), 3: (2,)} and plan.around == [0, 3]
    for row, found in zip(x.T, logs, strict=True):
        assert np.exp(found) == pytest.approx(naive_sum(model, row, {1, 2}, plan, sizes), rel=TOLERANCE)


def naive_sum(model, row, missing, plan, sizes):
    """(n_classes,): over all worlds, families that the plan ends without their missing parents."""
    total = np.zeros(model.class_counts.size)
    for world in itertools.product(*(range(s) if v in missing else [row[v]] for v, s in enumerate(sizes))):
        logs = np.array(model.log_prior)
        for i in range(len(sizes)):
            attribute, parents = model.network.order[i], model.network.parents[i]
            codes = np.array([*world, 0], np.uint8)[:-1, np.newaxis]
            for v in {*parents} - set(plan.scopes.get(i, missing)):
                codes[v] = row[v]  # missing where the context ends
            if i in plan.scopes:
                own = codes[[*parents, attribute]]
                own.setflags(write=False)
                out = np.empty((1, logs.size))
                fill_class_log_joints(family_lookup_tables(model._tables, i, len(parents)), own, 0, 1, out)
                logs = logs + out[0]
        summed = {v for scope in plan.scopes.values() for v in scope}
        n_alike = np.prod([sizes[v] for v in missing - summed])
        total += np.exp(logs) / n_alike
    return total


def test_an_ended_context_costs_little_beside_ending_all():
    """The sum that remains is nearer to the exact answer."""
    random, errors = np.random.default_rng(1), np.zeros(2)
    for seed in range(10):
        model = trained(seed, [4] * 6, 2, STRUCTURES["kdb2"], n_rows=300)
        x = rows_with_holes(random.integers(1 << 30), [4] * 6, 40)
        exact = model.predict_proba(Chunk(x, None))
        for place, most in enumerate((2 * 16, 2)):
            _, logs = bounded(model, x, most)
            errors[place] += abs(np.exp(logs - np.logaddexp.reduce(logs, axis=1, keepdims=True)) - exact).mean()
    assert errors[0] < 0.75 * errors[1]


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=10)
def test_rows_are_answered_alike_alone_and_together(seed):
    """Those that share the known attributes of a family share its look-ups."""
    sizes = [3, 2, 4, 3]
    model = trained(seed, sizes, 2, STRUCTURES["kdb2"], hierarchical=True)
    x = rows_with_holes(seed, sizes, 30)
    together = model.log_joint(Chunk(x, None))
    alone = np.concatenate([model.log_joint(Chunk(x[:, [i]], None)) for i in range(30)])
    assert together == pytest.approx(alone, rel=1e-9)


def test_whole_rows_are_answered_by_look_ups_alone(monkeypatch):
    model = trained(5, [3, 2, 4], 2, STRUCTURES["kdb2"])
    monkeypatch.setattr(Elimination, "log_joint", None)
    x, nothing = np.zeros((3, 4), np.uint8), np.zeros((3, 4), np.uint8)
    assert model.predict_proba(Chunk(x, None)).shape == (4, 2)
    # A leaf that is missing is no parent of anything: its own term is all that goes.
    leaf = set(range(3)) - set().union(*map(set, model.network.parents))
    nothing[list(leaf)] = model.schema.domain_sizes[list(leaf), np.newaxis]
    assert model.predict_proba(Chunk(nothing, None)).shape == (4, 2)


def test_no_rows_have_no_answers():
    """As where a file's header is written before its rows are read."""
    model = trained(5, [3, 2, 4], 2, STRUCTURES["kdb2"])
    logs, variance = Elimination(model._tables, model.network, model.schema.domain_sizes).log_joint(
        np.zeros((3, 0), np.uint8)
    )
    assert logs.shape == variance.shape == (0, 2)


def test_the_variance_of_a_sum_is_that_of_its_terms_by_their_squared_shares():
    model = trained(7, [3, 3], 2, lambda pairs: STRUCTURES["tan"](pairs), hierarchical=True, n_rows=200)
    parent = model.network.order[0]
    spread = model._tables._replace(
        dense=np.full_like(model._tables.dense, 0.01),
        vectors=np.full_like(model._tables.vectors, 0.01),
        log_prior=np.zeros(2),
    )
    x = np.ones((2, 1), np.uint8)
    x[parent] = 3
    logs, variance = Elimination(model._tables, model.network, model.schema.domain_sizes, spread).log_joint(x)
    joint, k = network_joint(model), 0
    worlds = [joint[(*(v if i == parent else 1 for i in range(2)), k)] for v in range(3)]
    shares = np.array(worlds) / sum(worlds)
    assert isinstance(model, LookupModel)
    assert variance[0, k] == pytest.approx(0.02 * (shares**2).sum(), rel=1e-4)
    assert np.exp(logs[0, k]) == pytest.approx(sum(worlds), rel=1e-5)
