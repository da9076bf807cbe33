"""Structures: valid circuits that say what their counts say."""

import itertools
import math

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from learners.circuits.kernels import SUM
from learners.circuits.structures.chow_liu import PairTables, chow_liu, maximum_spanning_tree
from learners.circuits.structures.hidden_trees import hclt
from learners.circuits.structures.learnspn import _one_hot, independence_p_values, learnspn
from learners.circuits.structures.random_regions import random_regions
from learners.counts.pairwise import PairwiseCounts
from learners.errors import EmptyData, EmptyStatistic, InvalidParameter
from learners.schema import Chunk, Schema
from tests.naive import circuits as naive
from tests.naive.map import value
from tests.strategies import chunk_of, schema_of


def counted(seed, sizes, n_rows=200, n_classes=1, missing=()):
    """Pairwise counts of random codes, with their schema and chunk."""
    schema = schema_of(sizes, n_classes, missing)
    if n_classes == 1:
        schema = Schema(schema.attributes, None, ("",))
    chunk = chunk_of(seed, schema, n_rows)
    pairs = PairwiseCounts(schema)
    pairs.update(chunk)
    return pairs, chunk


def codes_of(chunk, schema):
    """Lists of codes, None where missing, the class last."""
    columns = [
        [None if attribute.has_missing and code == 0 else int(code) - attribute.has_missing for code in column]
        for attribute, column in zip(schema.attributes, chunk.x, strict=True)
    ]
    return [*columns, chunk.y.tolist()] if schema.target is not None else columns


@st.composite
def counts_and_columns(draw):
    """Pairwise counts of sixty rows, and the lists of their codes."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    missing, n_classes = draw(st.sets(st.integers(0, 3))), draw(st.sampled_from([1, 3]))
    pairs, chunk = counted(draw(st.integers(0, 2**32 - 1)), sizes, 60, n_classes, missing)
    return pairs, codes_of(chunk, pairs.schema)


@given(counts_and_columns())
def test_information_is_that_of_the_definition(parts):
    pairs, columns = parts
    information = PairTables(pairs).mutual_information()
    for i, j in itertools.combinations(range(len(columns)), 2):
        expected = naive.mutual_information(columns[i], columns[j])
        assert information[i, j] == information[j, i] == pytest.approx(expected, abs=1e-9)
    assert not np.diag(information).any()


@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 5))
def test_the_spanning_tree_is_the_best(seed, n):
    weights = np.random.default_rng(seed).random((n, n))
    weights = weights + weights.T
    tree = maximum_spanning_tree(weights)
    total = sum(weights[v, parent] for v, parent in enumerate(tree.parent) if parent >= 0)
    assert total == pytest.approx(nx.maximum_spanning_tree(nx.from_numpy_array(weights)).size("weight"))
    place = {v: i for i, v in enumerate(tree.order.tolist())}
    assert all(place[v] < place[int(parent)] for v, parent in enumerate(tree.parent) if parent >= 0)
    assert tree.parent[int(tree.order[-1])] == -1


@pytest.mark.parametrize("n", [1, 2, 3, 8, 101])
def test_a_chain_is_rooted_in_its_middle(n):
    weights = np.eye(n, k=1) + np.eye(n, k=-1)
    tree = maximum_spanning_tree(weights)
    depth, longest = {int(tree.order[-1]): 0}, 0
    for v in tree.order[::-1][1:].tolist():
        depth[v] = depth[int(tree.parent[v])] + 1
        longest = max(longest, depth[v])
    assert longest == n // 2


@given(counts_and_columns())
def test_a_chow_liu_circuit_is_the_product_of_its_conditionals(parts):
    pairs, columns = parts
    circuit = chow_liu(pairs)
    tree = maximum_spanning_tree(PairTables(pairs).mutual_information())
    total = 0.0
    for world in naive.worlds(circuit):
        expected = 1.0
        for v, parent in enumerate(tree.parent.tolist()):
            n_values = int(circuit.n_values[v])
            known = [code for code in columns[v] if code is not None]
            own = (known.count(world[v]) + 1.0 / n_values) / (len(known) + 1.0)
            if parent < 0:
                expected *= own
                continue
            both = [(a, b) for a, b in zip(columns[parent], columns[v], strict=True) if a is not None and b is not None]
            of_parent = [b for a, b in both if a == world[parent]]
            expected *= (of_parent.count(world[v]) + own) / (len(of_parent) + 1.0)
        assert value(circuit, world) == pytest.approx(expected, rel=1e-9)
        total += expected
    assert total == pytest.approx(1.0)


@given(parts=counts_and_columns(), states=st.integers(1, 5))
def test_a_hidden_tree_is_a_circuit_of_the_promised_size(parts, states):
    pairs, _ = parts
    circuit = hclt(pairs, states, seed=3)
    assert circuit == hclt(pairs, states, seed=3)
    n = circuit.n_variables
    assert circuit.summary()["scope_of_root"] == n
    assert circuit.n_edges <= n * states**2 + 2 * n * states
    assert sum(naive.joint(circuit).values()) == pytest.approx(1.0)


def test_a_hidden_tree_begins_near_the_chow_liu_tree():
    pairs, _ = counted(3, [4, 4, 4], n_rows=0)
    codes = np.random.default_rng(0).integers(0, 4, 2000)
    pairs.update(Chunk(np.stack([codes, codes, (codes + 1) % 4]).astype(np.uint8), np.zeros(2000, np.uint8)))
    plain, hidden = naive.joint(chow_liu(pairs)), naive.joint(hclt(pairs, 8, concentration=1000.0))
    distance = sum(p * math.log(p / hidden[world]) for world, p in plain.items())
    of_independent_columns = sum(p * math.log(p * 4**3) for p in plain.values())
    assert distance < 1.0 < of_independent_columns - distance


@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 6),
    depth=st.integers(0, 3),
    sums=st.integers(1, 3),
    replicas=st.integers(1, 3),
)
def test_random_regions_make_a_normalised_circuit(seed, n, depth, sums, replicas):
    shares = ([(0.2, 0.8), (0.5, 0.3, 0.2)] * 3)[:n]
    settings = {"depth": depth, "sums": sums, "replicas": replicas, "seed": seed}
    circuit = random_regions(shares, **settings)
    assert circuit == random_regions(shares, **settings)
    assert circuit.summary()["scope_of_root"] == n
    assert sum(naive.joint(circuit).values()) == pytest.approx(1.0)


def test_random_regions_share_nodes_and_differ_by_seed():
    shares = [(0.5, 0.5)] * 8
    circuit = random_regions(shares, depth=2, replicas=4)
    assert circuit.summary()["shared_inner_nodes"] > 0
    assert circuit != random_regions(shares, depth=2, replicas=4, seed=1)


@given(seed=st.integers(0, 2**32 - 1))
def test_independence_tests_are_those_of_scipy(seed):
    rng = np.random.default_rng(seed)
    x = np.stack([rng.integers(0, size, 50) for size in (2, 3, 4, 2, 1)]).astype(np.float64)
    x[3] = np.where(rng.random(50) < 0.7, x[0], x[3])
    x[rng.random(x.shape) < 0.1] = np.nan
    one_hot, starts = _one_hot(x, np.array([2, 3, 4, 2, 1]))
    p_values = independence_p_values(one_hot, np.diff(starts))
    for i, j in itertools.combinations(range(5), 2):
        assert p_values[i, j] == pytest.approx(naive.g_test(x[i], x[j]), abs=1e-4)


def test_learnspn_separates_what_is_independent_and_joins_what_is_not():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 2, 4000), rng.integers(0, 2, 4000)
    x = np.stack([a, a ^ (rng.random(4000) < 0.1), b, b ^ (rng.random(4000) < 0.2)])
    circuit = learnspn(x, [2] * 4)
    top = circuit.children[circuit.child_starts[circuit.root] : circuit.child_starts[circuit.root + 1]]
    assert sorted(circuit.scope(child) for child in top) == [[0, 1], [2, 3]]
    joint = naive.joint(circuit)
    assert sum(joint.values()) == pytest.approx(1.0)
    for world, p in joint.items():
        assert p == pytest.approx(np.all(world == x.T, axis=1).mean(), abs=0.02)
    assert circuit == learnspn(x, [2] * 4)


def test_learnspn_does_not_depend_on_the_number_of_threads():
    rng = np.random.default_rng(0)
    hidden = rng.integers(0, 2, (3, 6000))
    x = np.stack([hidden[i % 3] ^ (rng.random(6000) < 0.2) for i in range(12)])
    with threadpool_limits(1):
        one = learnspn(x, [2] * 12)
    with threadpool_limits(4):
        assert learnspn(x, [2] * 12) == one


def test_learnspn_takes_missing_values():
    rng = np.random.default_rng(0)
    group = rng.integers(0, 2, 600)
    x = np.stack([group, group ^ (rng.random(600) < 0.05), rng.integers(0, 3, 600)]).astype(float)
    x[rng.random(x.shape) < 0.2] = np.nan
    circuit = learnspn(x, [2, 2, 3])
    given = {w: value(circuit, {0: w, 1: 1}) for w in (0, 1)}
    assert given[1] > 5 * given[0]


def test_learnspn_of_constant_columns_and_one_row_is_a_product():
    assert SUM not in learnspn(np.zeros((3, 500)), [2, 2, 2]).kind
    circuit = learnspn(np.array([[1.0], [np.nan]]), [2, 3])
    assert SUM not in circuit.kind
    assert np.exp(circuit.leaf_parameters) == pytest.approx([0.1 / 1.2, 1.1 / 1.2, 1 / 3, 1 / 3, 1 / 3])


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: chow_liu(counted(0, [2, 2])[0].empty()),
            EmptyStatistic,
            "No rows were counted, so no circuit can be built",
        ),
        (lambda: hclt(counted(0, [2, 2])[0], 0), InvalidParameter, "states=0"),
        (lambda: random_regions([(0.5, 0.5)], sums=0), InvalidParameter, "sums=0"),
        (lambda: learnspn(np.zeros((1, 5)), [2], max_rows=0), InvalidParameter, "max_rows=0"),
        (lambda: learnspn(np.zeros((1, 0)), [2]), EmptyData, "no rows"),
    ],
)
def test_errors_name_the_parameter(make, error, message):
    with pytest.raises(error, match=message):
        make()
