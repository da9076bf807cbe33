"""Small random circuits: DAGs whose nodes are shared, with zeros."""

import math

import numpy as np
from hypothesis import strategies as st

from learners.circuits.kernels import CATEGORICAL, INDICATOR
from learners.circuits.map.query import k_best
from tests.naive.map import flat_circuit


def map_query(circuit, query, evidence=None, solver="exact", **options):
    """The most probable assignment."""
    return k_best(circuit, query, evidence, solver, **options)[0]


def random_circuit(rng, n_variables, *, most_values=3, leaves=(INDICATOR, CATEGORICAL), zeros=0.1):
    """A complete and decomposable DAG over n_variables; nodes of one scope are reused where they can be."""
    n_values = rng.integers(2, most_values + 1, n_variables)
    nodes, with_scope = [], {}

    def add(node, scope):
        nodes.append(node)
        with_scope.setdefault(scope, []).append(len(nodes) - 1)
        return len(nodes) - 1

    def some_weights(n):
        weights = rng.dirichlet(np.full(n, 0.7))
        if rng.random() < zeros:
            weights[rng.integers(n)] = 0.0
        return weights / weights.sum() if weights.sum() > 0 else np.full(n, 1 / n)

    def leaf(v):
        if leaves[rng.integers(len(leaves))] == CATEGORICAL:
            p = some_weights(n_values[v])
            return add((CATEGORICAL, v, [math.log(a) if a > 0 else -math.inf for a in p]), (v,))
        children = [add((INDICATOR, v, [x]), (v, "indicator")) for x in range(n_values[v])]
        return add(("sum", list(zip(children, some_weights(len(children)), strict=True))), (v,))

    def grow(scope, depth):
        made = with_scope.get(scope, [])
        if made and rng.random() < 0.4:
            return made[rng.integers(len(made))]
        if len(scope) == 1:
            return leaf(scope[0])
        if depth > 0 and rng.random() < 0.6:
            children = sorted({grow(scope, depth - 1) for _ in range(rng.integers(2, 4))})
            return add(("sum", list(zip(children, some_weights(len(children)), strict=True))), scope)
        order = rng.permutation(scope)
        cut = rng.integers(1, len(scope))
        parts = [tuple(sorted(map(int, part))) for part in (order[:cut], order[cut:])]
        return add(("product", [grow(part, depth) for part in parts]), scope)

    scope = tuple(range(n_variables))
    children = [grow(scope, 2) for _ in range(3)]
    nodes.append(("sum", list(zip(children, some_weights(3), strict=True))))
    return flat_circuit(nodes, n_values)


@st.composite
def problems(draw, leaves=(INDICATOR, CATEGORICAL)):
    """(circuit, query, evidence): variables are asked, given or hidden at random."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n = draw(st.integers(1, 7))
    circuit = random_circuit(rng, n, leaves=leaves)
    roles = rng.integers(0, 3, n)
    roles[rng.integers(n)] = 0
    query = [int(v) for v in np.flatnonzero(roles == 0)]
    evidence = {int(v): int(rng.integers(circuit.n_values[v])) for v in np.flatnonzero(roles == 1)}
    return circuit, query, evidence
