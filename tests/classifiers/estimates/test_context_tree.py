"""Context trees against grouping rows by their path; and which parents tell something, against predicting every row from all others."""

from collections import defaultdict
from math import log

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learners import Source, drive
from learners.classifiers.estimates.context_tree import (
    CHANCE_NATS,
    Levels,
    context_tree_from_cells,
    context_tree_probabilities,
    iterate_tree_levels,
    m_estimates,
    n_informative_parents,
    prune_uninformative_parents,
)
from learners.classifiers.estimates.context_tree_kernels import shell_sort
from learners.classifiers.structure import Structure
from learners.counts.family_counts import Family, FamilyCounts
from learners.kernels.jit import kernel
from learners.registry import recipes
from tests import laws, strategies
from tests.naive.estimates import m_estimate, node_paths
from tests.naive.selection import best_weights, estimate


@st.composite
def families(draw):
    """(schema, chunk with rows, attribute, parents, tree)."""
    schema, parts = draw(strategies.chunk_lists())
    chunk = strategies.joined(parts)
    if not chunk.n_rows:
        chunk = strategies.chunk_of(0, schema, 11)
    attribute = draw(st.integers(0, schema.n_attributes - 1))
    others = [a for a in range(schema.n_attributes) if a != attribute]
    parents = tuple(draw(st.lists(st.sampled_from(others), unique=True, max_size=3))) if others else ()
    counted = laws.updated(FamilyCounts(schema, [Family(attribute, parents)]), [chunk])
    cells = counted.cells(0)
    shuffled = np.random.default_rng(draw(st.integers(0, 99))).permutation(cells[0].size)
    tree = context_tree_from_cells(*(part[shuffled] for part in cells), int(schema.domain_sizes[attribute]))
    return schema, chunk, attribute, parents, tree


@given(families())
def test_levels_nodes_and_cells_are_those_of_the_rows(drawn):
    _, chunk, attribute, parents, tree = drawn
    expected = defaultdict(lambda: defaultdict(int))
    for row in range(chunk.n_rows):
        path = (int(chunk.y[row]), *(int(chunk.x[parent, row]) for parent in parents))
        for depth in range(len(path) + 1):
            expected[path[:depth]][int(chunk.x[attribute, row])] += 1
    paths = node_paths(tree)
    assert len(set(paths)) == len(paths)
    assert set(paths) == set(expected)
    assert tree.level_starts.size == len(parents) + 3
    node_of_cell = tree.node_of_cell()
    for node, path in enumerate(paths):
        cells = slice(tree.cell_starts[node], tree.cell_starts[node + 1])
        found = dict(zip(tree.cell_value[cells].tolist(), tree.cell_count[cells].tolist(), strict=True))
        assert found == expected[path]
        assert list(found) == sorted(found)
        assert tree.level_starts[len(path)] <= node < tree.level_starts[len(path) + 1]
        assert set(node_of_cell[cells].tolist()) <= {node}
    for level in range(tree.level_starts.size - 1):
        of_level = paths[tree.level_starts[level] : tree.level_starts[level + 1]]
        assert of_level == sorted(of_level), "nodes of a level are sorted by path"
    for cell, above in enumerate(tree.cell_parent.tolist()):
        node = node_of_cell[cell]
        if node == 0:
            assert above == -1
        else:
            assert node_of_cell[above] == tree.parent[node]
            assert tree.cell_value[above] == tree.cell_value[cell]
    assert tree.node_counts().tolist() == [sum(expected[path].values()) for path in paths]


@given(families(), st.sampled_from([0.0, 0.05, 1.0, 20.0]))
def test_m_estimates_are_the_formula_at_every_node(drawn, m):
    _, chunk, attribute, parents, tree = drawn
    estimates = m_estimates(tree, m)
    assert not estimates.hierarchical
    paths, node_of_cell, v = node_paths(tree), tree.node_of_cell(), tree.n_values
    some_cells = np.random.default_rng(0).permutation(tree.n_cells)[:40]
    for cell in some_cells.tolist():
        path = paths[node_of_cell[cell]]
        if not path:
            n_x, n = (chunk.x[attribute] == tree.cell_value[cell]).sum(), chunk.n_rows
            expected = (n_x + m / v) / (n + m)
        else:
            above = parents[: len(path) - 1]
            expected = m_estimate(chunk.x, chunk.y, attribute, tree.cell_value[cell], path[0], above, path[1:], v, m)
        assert estimates.probability[cell] == expected
    # Every node is a distribution over the domain.
    sums = np.add.reduceat(estimates.probability, tree.cell_starts[:-1])
    sums += estimates.rest * (v - np.diff(tree.cell_starts))
    assert np.allclose(sums, 1)


@given(families(), st.sampled_from([0.0, 0.05, 1.0, 20.0]))
def test_back_off_by_cell_drops_parents_until_the_value_occurred(drawn, m):
    """The rule of the paper: where n(value, context) = 0, the last parent is dropped, up to the root."""
    _, chunk, attribute, parents, tree = drawn
    p = context_tree_probabilities(tree, m_estimates(tree, m, "cell"), [*_sizes(chunk, parents), tree.n_values])
    random = np.random.default_rng(1)
    for _ in range(30):
        codes = [int(random.integers(size)) for size in p.shape]
        path, value = codes[:-1], codes[-1]
        for depth in range(len(path), -1, -1):
            inside = np.ones(chunk.n_rows, bool) if depth == 0 else chunk.y == path[0]
            for parent, code in zip(parents[: max(depth - 1, 0)], path[1:depth], strict=True):
                inside &= chunk.x[parent] == code
            n_x, n = int((chunk.x[attribute][inside] == value).sum()), int(inside.sum())
            if n_x or depth == 0:
                expected = (n_x + m / tree.n_values) / (n + m) if n + m else 0.0
                break
        assert p[tuple(codes)] == pytest.approx(expected, abs=1e-12)


def _sizes(chunk, parents):
    """Domains that hold the codes of a chunk: classes, then the parents."""
    return [int(codes.max(initial=0)) + 1 for codes in (chunk.y, *(chunk.x[parent] for parent in parents))]


@kernel
def sorted_by_kernel(values, n):
    shell_sort(values, n)


@given(values=st.lists(st.integers(-5, 1_000), max_size=200), data=st.data())
def test_the_first_values_are_sorted_and_the_others_stay(values, data):
    n = data.draw(st.integers(0, len(values)))
    found = np.array(values, np.int64)
    sorted_by_kernel(found, n)
    assert found.tolist() == sorted(values[:n]) + values[n:]


def levels_of(chunk, sizes, n_classes, attribute, parents):
    families = FamilyCounts(strategies.schema_of(sizes, n_classes), (Family(attribute, parents),))
    return next(iterate_tree_levels(laws.updated(families, [chunk])))


def chunk_of(rng, n, follows):
    """Three columns of 3, 2 and 4 values; the last follows some of the others."""
    y = rng.integers(0, 2, n)
    a, b = rng.integers(0, 3, n), rng.integers(0, 2, n)
    told = sum({"a": a, "b": 2 * b, "y": y}[name] for name in follows)
    c = np.where(rng.random(n) < 0.8, told % 4, rng.integers(0, 4, n))
    return strategies.Chunk(np.array([a, b, c], np.uint8), y.astype(np.uint8))


@pytest.mark.parametrize("follows", ["", "y", "a", "ab", "b"])
@pytest.mark.parametrize("seed", [0, 1])
def test_telling_levels_predict_left_out_rows_best(follows, seed):
    chunk = chunk_of(np.random.default_rng(seed), 50, follows)
    x, y, parents = chunk.x, chunk.y, (0, 1)
    weights = best_weights(x, y, 2, parents, 4)
    scores = []
    for depth in range(3):
        score = 0.0
        for row in range(y.size):
            others = np.arange(y.size) != row
            given = (parents[:depth], x[list(parents[:depth]), row], 4, weights[: depth + 1])
            score += log(estimate(x[:, others], y[others], 2, x[2, row], y[row], *given))
        scores.append(score)
    assert n_informative_parents(levels_of(chunk, (3, 2, 4), 2, 2, parents)) == min(
        d for d in range(3) if scores[d] >= max(scores) - CHANCE_NATS
    )


def test_parents_that_tell_something_stay_and_others_go():
    chunk = chunk_of(np.random.default_rng(0), 3000, "a")
    grown = [levels_of(chunk, (3, 2, 4), 2, a, parents) for a, parents in ((0, ()), (1, ()), (2, (0, 1)))]
    structure, trees = prune_uninformative_parents(Structure((0, 1, 2), ((), (), (0, 1))), grown)
    assert structure == Structure((0, 1, 2), ((), (), (0,)))
    counted = levels_of(chunk, (3, 2, 4), 2, 2, (0,)).tree()
    assert all(np.array_equal(ours, theirs) for ours, theirs in zip(trees[2], counted, strict=True))
    arrays = [part for part in trees[2] if isinstance(part, np.ndarray)]
    assert all(array.base is None for array in arrays), "it holds nothing of what was cut off"
    assert {array.dtype for array in arrays} == {np.dtype(np.int64)}


@pytest.mark.parametrize(("parameters", "n_edges"), [({}, 1), ({"prune": False}, 3), ({"estimator": "m"}, 3)])
def test_a_network_loses_edges_that_tell_nothing(parameters, n_edges):
    """m-estimates do not mix contexts with shorter ones, so nothing of theirs is pruned."""
    chunk = chunk_of(np.random.default_rng(0), 3000, "ay")
    columns = {name: [f"{name}{value}" for value in codes] for name, codes in zip("abc", chunk.x, strict=True)}
    table = pa.table(columns | {"class": [f"k{label}" for label in chunk.y]})
    given = {"estimator": "hdp-map", "k": 2} | parameters
    model = drive(recipes.learner("kdb", given, "class"), Source.of_table(table))
    assert sum(map(len, model.network.parents)) == n_edges


@pytest.mark.parametrize(
    ("learner", "parameters", "estimator"),
    [
        ("nb", {}, "hdp-map"),
        ("tan", {}, "hdp-map"),
        ("kdb", {"k": 2}, "hdp-map"),
        ("skdb", {}, "hdp-map"),
        ("kdb", {"m": 1.0}, "m"),
        ("kdb", {"estimator": "m"}, "m"),
        ("tan", {"average": True}, "m"),
        ("kdb", {"estimator": "hdp"}, "hdp"),
    ],
)
def test_hdp_map_is_the_estimator_unless_another_is_named_or_m_is(learner, parameters, estimator):
    assert recipes.parse_learner_parameters(learner, parameters).estimator == estimator


def test_trees_are_cut_one_after_the_other():
    """So that all of them, whole, are never in memory together."""
    chunk = chunk_of(np.random.default_rng(0), 3000, "a")
    events = []

    def grown():
        for attribute in range(3):
            events.append(f"grow {attribute}")
            yield levels_of(chunk, (3, 2, 4), 2, attribute, ())

    with pytest.MonkeyPatch.context() as patch:
        laid_out = Levels.tree
        patch.setattr(Levels, "tree", lambda levels, depth: events.append("cut") or laid_out(levels, depth))
        prune_uninformative_parents(Structure((0, 1, 2), ((), (), ())), grown())
    assert events == ["grow 0", "cut", "grow 1", "cut", "grow 2", "cut"]
