"""MAP from the definitions: recursion over nodes, enumeration of assignments."""

import itertools
import math

from learners.circuits.kernels import CATEGORICAL, GAUSSIAN, INDICATOR, POISSON, PRODUCT, SUM
from learners.circuits.structures.text import CircuitBuilder


def flat_circuit(nodes, n_values):
    """From ("sum", [(child, weight), ...]), ("product", [child, ...]) and (kind, variable, [parameter, ...])."""
    build = CircuitBuilder(n_values)
    for kind, *rest in nodes:
        if kind == "sum":
            build.sum([child for child, _ in rest[0]], logs(*(weight for _, weight in rest[0])))
        elif kind == "product":
            build.product(rest[0])
        else:
            build.leaf(kind, *rest)
    return build.circuit()


def logs(*p):
    """Logarithms of probabilities, of which some may be zero."""
    return [math.log(a) if a > 0 else -math.inf for a in p]


def categorical(*p):
    """A leaf of `mixture`."""
    return CATEGORICAL, logs(*p)


def mixture(components, shares=None):
    """A sum of products of a leaf (kind, [parameter, …]) of each variable; of one component, without shares, its product."""
    nodes, tops = [], []
    for leaves in components:
        first = len(nodes)
        nodes += [(kind, v, parameters) for v, (kind, parameters) in enumerate(leaves)]
        nodes.append(("product", range(first, len(nodes))))
        tops.append(len(nodes) - 1)
    if shares is not None:
        nodes.append(("sum", list(zip(tops, shares, strict=True))))
    return flat_circuit(nodes, [len(p) if kind == CATEGORICAL else 0 for kind, p in components[0]])


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


def node_values(circuit, assignment, changed=None):
    """Value of every node at a partial assignment (a dict), without which variables are summed out; changed: {node: value} in place of its own."""
    values = []
    for node, kind in enumerate(circuit.kind.tolist()):
        if changed and node in changed:
            value = changed[node]
        elif kind == SUM:
            value = math.fsum(weight * values[child] for child, weight in children_of(circuit, node))
        elif kind == PRODUCT:
            value = math.prod(values[child] for child, _ in children_of(circuit, node))
        else:
            value = leaf_value(circuit, node, assignment.get(int(circuit.variable[node])))
        values.append(value)
    return values


def value(circuit, assignment):
    """S at a partial assignment."""
    return node_values(circuit, assignment)[-1]


def all_values(circuit, query, evidence):
    """Every assignment of the query (a tuple) with its value."""
    domains = [range(circuit.n_values[v]) for v in query]
    return {
        codes: value(circuit, dict(evidence) | dict(zip(query, codes, strict=True)))
        for codes in itertools.product(*domains)
    }
