"""Regions: every node is in the one of its columns, and the root's is the last."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from learners.circuits.formats.drawing import regions
from learners.circuits.kernels import PRODUCT, SUM
from tests.circuits.map_circuits import random_circuit


@given(st.integers(0, 2**32 - 1), st.integers(1, 7))
def test_regions_are_the_nodes_over_the_same_columns(seed, n_variables):
    """Against a walk over the nodes one by one."""
    circuit = random_circuit(np.random.default_rng(seed), n_variables)
    own, below = Counter(), {}
    for node in range(circuit.n_nodes):
        scope = tuple(circuit.scope(node))
        kind = int(circuit.kind[node])
        own[scope, "sum" if kind == SUM else "product" if kind == PRODUCT else "leaf"] += 1
        for child in circuit.children[circuit.child_starts[node] : circuit.child_starts[node + 1]].tolist():
            if tuple(circuit.scope(child)) != scope:
                below.setdefault(scope, set()).add(tuple(circuit.scope(child)))
    found = regions(circuit)
    assert found[-1].variables == tuple(circuit.scope(circuit.root))
    assert {region.variables for region in found} == {scope for scope, _ in own}
    for region in found:
        counted = tuple(own[region.variables, kind] for kind in ("sum", "product", "leaf"))
        assert (region.n_sums, region.n_products, region.n_leaves) == counted
        assert {found[child].variables for child in region.children} == below.get(region.variables, set())
