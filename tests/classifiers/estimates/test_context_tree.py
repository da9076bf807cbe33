"""Context trees against grouping rows by their path."""

from collections import defaultdict

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from learners.classifiers.estimates.context_tree import context_tree_from_cells
from learners.classifiers.estimates.m_estimate import m_estimates
from learners.classifiers.estimates.tree_kernels import sort_ascending
from learners.counts.family_counts import Family, FamilyCounts
from learners.kernels.jit import kernel
from tests import laws, strategies
from tests.naive.estimates import m_estimate


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


def paths_of(tree):
    """The path (class, parents …) of every node."""
    paths = [()]
    for node in range(1, tree.n_nodes):
        paths.append((*paths[tree.parent[node]], int(tree.branch[node])))
    return paths


@given(families())
def test_levels_nodes_and_cells_are_those_of_the_rows(drawn):
    _, chunk, attribute, parents, tree = drawn
    expected = defaultdict(lambda: defaultdict(int))
    for row in range(chunk.n_rows):
        path = (int(chunk.y[row]), *(int(chunk.x[parent, row]) for parent in parents))
        for depth in range(len(path) + 1):
            expected[path[:depth]][int(chunk.x[attribute, row])] += 1
    paths = paths_of(tree)
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
    paths, node_of_cell, v = paths_of(tree), tree.node_of_cell(), tree.n_values
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


@kernel
def sorted_by_kernel(values, n):
    sort_ascending(values, n)


@given(values=st.lists(st.integers(-5, 1_000), max_size=200), data=st.data())
def test_the_first_values_are_sorted_and_the_others_stay(values, data):
    n = data.draw(st.integers(0, len(values)))
    found = np.array(values, np.int64)
    sorted_by_kernel(found, n)
    assert found.tolist() == sorted(values[:n]) + values[n:]
