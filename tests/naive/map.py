"""MAP from the definitions: recursion over nodes, enumeration of assignments and of parse trees."""

from __future__ import annotations

import itertools
import math

import numpy as np

from learners.circuits.circuit import Circuit, CircuitArrays
from learners.circuits.kernels import CATEGORICAL, GAUSSIAN, INDICATOR, POISSON, PRODUCT, SUM


def flat_circuit(nodes, n_values):
    """From ("sum", [(child, weight), ...]), ("product", [child, ...]) and (kind, variable, [parameter, ...])."""
    kinds, starts, children, log_weights, variables, leaf_starts, parameters = [], [0], [], [], [], [0], []
    for node in nodes:
        variable = -1
        if node[0] == "sum":
            kinds.append(SUM)
            children += [child for child, _ in node[1]]
            log_weights += [math.log(weight) if weight > 0 else -math.inf for _, weight in node[1]]
        elif node[0] == "product":
            kinds.append(PRODUCT)
            children += node[1]
            log_weights += [0.0] * len(node[1])
        else:
            kinds.append(node[0])
            variable = node[1]
            parameters += node[2]
        starts.append(len(children))
        variables.append(variable)
        leaf_starts.append(len(parameters))
    arrays = CircuitArrays(
        np.array(kinds, dtype=np.int8),
        np.array(starts),
        np.array(children, dtype=np.int64),
        np.array(log_weights, dtype=np.float64),
        np.array(variables),
        np.array(leaf_starts),
        np.array(parameters, dtype=np.float64),
        np.array(n_values, dtype=np.int64),
    )
    return Circuit(arrays)


def children_of(circuit, node):
    edges = range(circuit.child_starts[node], circuit.child_starts[node + 1])
    return [(int(circuit.children[e]), math.exp(circuit.log_weight[e])) for e in edges]


def leaf_value(circuit, node, x):
    """Value of a leaf at x, 1 if x is None."""
    parameters = circuit.leaf_parameters[circuit.leaf_starts[node] : circuit.leaf_starts[node + 1]]
    kind = circuit.kind[node]
    if x is None:
        return 1.0
    if kind == INDICATOR:
        return float(x == parameters[0])
    if kind == CATEGORICAL:
        return math.exp(parameters[int(x)])
    if kind == GAUSSIAN:
        mean, std = parameters
        return math.exp(-(((x - mean) / std) ** 2) / 2) / (std * math.sqrt(2 * math.pi))
    if kind == POISSON:
        return parameters[0] ** x * math.exp(-parameters[0]) / math.factorial(int(x))
    return parameters[0] * math.exp(-parameters[0] * x) if x >= 0 else 0.0


def value(circuit, assignment):
    """S at a partial assignment (a dict); variables it does not name are summed out."""
    values = []
    for node in range(len(circuit.kind)):
        if circuit.kind[node] == SUM:
            values.append(sum(weight * values[child] for child, weight in children_of(circuit, node)))
        elif circuit.kind[node] == PRODUCT:
            values.append(math.prod(values[child] for child, _ in children_of(circuit, node)))
        else:
            values.append(leaf_value(circuit, node, assignment.get(int(circuit.variable[node]))))
    return values[-1]


def all_values(circuit, query, evidence):
    """Every assignment of the query (a tuple) with its value."""
    domains = [range(circuit.n_values[v]) for v in query]
    return {
        codes: value(circuit, dict(evidence) | dict(zip(query, codes, strict=True)))
        for codes in itertools.product(*domains)
    }


def parse_trees(circuit, node=None):
    """All parse trees below a node: (value, codes of the variables), for circuits of indicators."""
    node = len(circuit.kind) - 1 if node is None else node
    if circuit.kind[node] == INDICATOR:
        code = int(circuit.leaf_parameters[circuit.leaf_starts[node]])
        return [(1.0, {int(circuit.variable[node]): code})]
    below = [(weight, parse_trees(circuit, child)) for child, weight in children_of(circuit, node)]
    if circuit.kind[node] == SUM:
        return [(weight * tree, codes) for weight, trees in below for tree, codes in trees]
    trees = [(1.0, {})]
    for _, more in below:
        trees = [(a * b, x | y) for a, x in trees for b, y in more]
    return trees
