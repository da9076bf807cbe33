"""Networks as circuits: the same distribution in every world."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learners.circuits.structures.from_network import NetworkTooLarge
from learners.classifiers.estimates.context_tree import build_context_trees, m_estimates
from learners.classifiers.estimates.hdp import HDPParameters, hdp_map_estimates
from learners.classifiers.lookup.lookup import LookupModel
from learners.classifiers.structure import (
    Structure,
    k_dependence_structure,
    naive_bayes_structure,
    tree_augmented_structure,
)
from learners.counts.family_counts import FamilyCounts
from learners.counts.pairwise import PairwiseCounts
from learners.registry.networks.model_networks import network_circuit
from tests.naive import circuits as naive
from tests.naive.estimates import node_paths
from tests.strategies import chunk_of, schema_of


def trained(seed, sizes, n_classes, structure_of, hierarchical=False, n_rows=60):
    schema = schema_of(sizes, n_classes)
    chunk = chunk_of(seed, schema, n_rows)
    pairs = PairwiseCounts(schema)
    pairs.update(chunk)
    structure = structure_of(pairs)
    families = FamilyCounts(schema, structure.families())
    families.update(chunk)
    trees = build_context_trees(families)
    if hierarchical:
        estimates = [posterior.estimates for posterior in hdp_map_estimates(trees, HDPParameters())]
    else:
        estimates = [m_estimates(tree, 1.0) for tree in trees]
    return LookupModel.of(schema, structure, families.class_counts, trees, estimates, {})


def probability(tree, nodes, estimates, path, x):
    """p(x | the context of a path of class and parent codes), walking down the tree, whose nodes are by path, from the definition."""
    p = estimates.rest[0]
    for level in range(len(path) + 1):
        node = nodes.get(path[:level])
        if node is None:
            break
        of_x = [c for c in range(tree.cell_starts[node], tree.cell_starts[node + 1]) if tree.cell_value[c] == x]
        if of_x:
            p = estimates.probability[of_x[0]]
        elif level:
            p = estimates.rest[node] * p if estimates.hierarchical else estimates.rest[node]
    return p


def network_joint(model):
    """{codes and class: probability} from the tables, world by world."""
    sizes = [*model.schema.domain_sizes.tolist(), model.schema.n_classes]
    counts = model.class_counts
    prior = (counts + 1 / counts.size) / (counts.sum() + 1)
    joint, network = {}, model.network
    trees = [({path: node for node, path in enumerate(node_paths(tree))}, tree) for tree in model.trees]
    for world in itertools.product(*map(range, sizes)):
        p = prior[world[-1]]
        families = zip(network.order, network.parents, trees, model.estimates, strict=True)
        for attribute, parents, (nodes, tree), estimates in families:
            path = (world[-1], *(world[v] for v in parents))
            p *= probability(tree, nodes, estimates, path, world[attribute])
        joint[world] = p
    return joint


STRUCTURES = {
    "nb": lambda pairs: naive_bayes_structure(len(pairs.margins)),
    "tan": tree_augmented_structure,
    "kdb2": lambda pairs: k_dependence_structure(pairs, 2),
    "kdb3": lambda pairs: k_dependence_structure(pairs, 3),
}


@pytest.mark.parametrize("hierarchical", [False, True])
@pytest.mark.parametrize("name", STRUCTURES)
@given(seed=st.integers(0, 2**32 - 1), sizes=st.lists(st.integers(1, 3), min_size=1, max_size=5), c=st.integers(2, 3))
def test_the_circuit_is_the_product_of_the_tables_in_all_worlds(name, hierarchical, seed, sizes, c):
    model = trained(seed, sizes, c, STRUCTURES[name], hierarchical, n_rows=30)
    circuit = network_circuit(model)
    joint = naive.joint(circuit)
    assert sum(joint.values()) == pytest.approx(1.0)
    for world, p in network_joint(model).items():
        assert joint[world] == pytest.approx(p, rel=1e-6)  # estimates are kept as float32


def test_tables_of_a_tree_shaped_network_set_the_size():
    sizes = [3] * 100
    model = trained(0, sizes, 2, tree_augmented_structure)
    circuit = network_circuit(model)
    # Per attribute: 2 classes, 3 x 3 weights, and a product of at most its indicator and the subtrees.
    assert circuit.n_edges < 100 * 2 * (9 + 9)
    assert network_circuit(trained(0, sizes, 2, STRUCTURES["nb"])).n_edges == 100 * 2 * 3 + 2 * 101 + 2


def test_attributes_that_were_selected_away_have_no_leaf():
    model = trained(0, [2, 2, 2], 2, lambda pairs: Structure((1,), ((),)))
    circuit = network_circuit(model)
    assert circuit.n_variables == 4
    assert circuit.scope(circuit.root) == [1, 3]
    only_class = trained(0, [2, 2], 2, lambda pairs: Structure((), ()))
    assert network_circuit(only_class).scope(-1) == [2]


def test_a_network_that_is_too_wide_is_refused_with_its_size():
    model = trained(0, [8] * 30, 2, STRUCTURES["kdb3"], n_rows=4000)
    with pytest.raises(NetworkTooLarge, match=r"would have [\d,]+ edges, more than max_edges=1,000") as caught:
        network_circuit(model, max_edges=1000)
    assert caught.value.n_edges > 1000
    small = trained(0, [2, 3, 2, 3], 3, STRUCTURES["kdb2"])
    with pytest.raises(NetworkTooLarge) as caught:
        network_circuit(small, max_edges=1)
    # What is foretold is what it takes, up to products of one child that need no edge.
    assert 0.7 * caught.value.n_edges <= network_circuit(small).n_edges <= caught.value.n_edges
