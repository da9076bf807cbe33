"""Networks as circuits: the same distribution in every world."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learners.circuits.structures.from_network import NetworkTooLarge, _elimination, _Scoped
from learners.classifiers.structure import (
    Structure,
    tree_augmented_structure,
)
from learners.registry.networks.model_networks import network_circuit
from tests.naive import circuits as naive
from tests.support.registry import STRUCTURES, network_joint, trained


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


def naive_elimination(families, n_values):
    """Eliminate the variable whose sums have the fewest edges, and return the order and all edges."""
    neighbours = {family[-1]: set() for family in families}
    for family in families:
        for v in family:
            neighbours[v] |= set(family) - {v}
    scopes, order, n_edges, n_classes = [], [], 0, n_values[-1]
    while neighbours:
        cost, v = min((n_values[v] * math.prod(n_values[u] for u in own), v) for v, own in neighbours.items())
        around = neighbours.pop(v)
        for u in around:
            neighbours[u] = (neighbours[u] | around) - {u, v}
        below = [scope for scope in scopes if v in scope]
        scopes = [scope for scope in scopes if v not in scope] + [around]
        if below:
            n_edges += n_classes * math.prod(n_values[u] for u in set().union(*below) | {v}) * (1 + len(below))
        n_edges += n_classes * cost
        order.append(v)
    return tuple(order), n_edges + n_classes * (2 + len(scopes))


@given(data=st.data(), n_values=st.lists(st.integers(1, 4), min_size=2, max_size=12))
def test_variables_are_eliminated_cheapest_first(data, n_values):
    n = len(n_values) - 1
    parents = [data.draw(st.sets(st.integers(0, v - 1), max_size=3)) if v else () for v in range(n)]
    families = [(*own, v) for v, own in enumerate(parents)]
    plan = _elimination(families, n_values)
    assert (plan.order, plan.n_edges) == naive_elimination(families, n_values)


def test_a_variable_with_many_children_takes_no_quadratic_time():
    """The hub is a neighbour of all; its cost, a number of 20,000 bits, was multiplied again for each child."""
    families = [(0,), *((0, v) for v in range(1, 20_000))]
    plan = _elimination(families, [2] * 20_000 + [1])
    assert set(plan.order[-2:]) == {0, 19_999} and plan.order[:3] == (1, 2, 3)


@given(scopes=st.lists(st.sets(st.integers(0, 5))), taken=st.lists(st.integers(0, 5)))
def test_items_are_taken_by_variable_in_their_order(scopes, taken):
    scoped, left = _Scoped((scope, scope) for scope in scopes), list(scopes)
    for v in taken:
        assert scoped.take(v) == [scope for scope in left if v in scope]
        left = [scope for scope in left if v not in scope]
        scoped.add({v, 6}, {v, 6})
        left.append({v, 6})
    assert scoped.rest() == left
