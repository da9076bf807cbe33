"""Circuits from the definitions: enumeration of worlds; trees, counts and tests one pair at a time."""

import itertools
import math

import numpy as np
from scipy.stats import chi2_contingency
from scipy.stats.contingency import crosstab

from learners.circuits.kernels import GAUSSIAN, POISSON
from tests.naive import information
from tests.naive.map import all_values, node_values, value


def worlds(circuit):
    """Every assignment of the discrete variables, as a dict."""
    domains = [range(n) if n else [None] for n in circuit.n_values.tolist()]
    for codes in itertools.product(*domains):
        yield {v: code for v, code in enumerate(codes) if code is not None}


def joint(circuit):
    """{codes: probability} of all worlds."""
    return {tuple(world.values()): value(circuit, world) for world in worlds(circuit)}


def mutual_information(x, y):
    """Of two lists of codes, None where missing."""
    pairs = [pair for pair in zip(x, y, strict=True) if None not in pair]
    return information.mutual_information(*np.array(pairs).T) if pairs else 0.0


def g_test(x, y):
    """p-value of scipy's G-test of two lists of codes, NaN where missing; 1 if one is constant."""
    known = ~(np.isnan(x) | np.isnan(y))
    table = crosstab(x[known], y[known]).count
    return 1.0 if min(table.shape) < 2 else chi2_contingency(table, correction=False, lambda_="log-likelihood").pvalue


def leaf_moments(circuit, node):
    """Expectation of x and of its square under a numeric leaf."""
    parameters = circuit.leaf_parameters[circuit.leaf_starts[node] : circuit.leaf_starts[node + 1]]
    if circuit.kind[node] == GAUSSIAN:
        return parameters[0], parameters[0] ** 2 + parameters[1] ** 2
    if circuit.kind[node] == POISSON:
        return parameters[0], parameters[0] ** 2 + parameters[0]
    return 1 / parameters[0], 2 / parameters[0] ** 2


def moments(circuit, assignment, v):
    """Mean and variance of a numeric variable given a partial assignment: S is linear in its leaves."""
    leaves = {int(leaf): leaf_moments(circuit, leaf) for leaf in np.flatnonzero(circuit.variable == v)}
    first, second = (
        node_values(circuit, assignment, {leaf: own[m] for leaf, own in leaves.items()})[-1]
        / value(circuit, assignment)
        for m in (0, 1)
    )
    return first, second - first**2


def conditional(circuit, assignment, query):
    """{codes of the query: probability} given a partial assignment, by enumeration."""
    free = all_values(circuit, query, assignment)
    fits = {codes: p for codes, p in free.items() if _agrees(query, codes, assignment)}
    total = sum(fits.values())
    return {codes: fits.get(codes, 0.0) / total for codes in free}


def _agrees(query, codes, assignment):
    return all(assignment.get(v, code) == code for v, code in zip(query, codes, strict=True))


def naive_filled(circuit, evidence, how):
    """{variable: values that a missing cell may be filled with}, several where they are equally probable; NaN in an impossible row."""
    found = {}
    is_possible = value(circuit, evidence) > 0
    for v in range(circuit.n_variables):
        leaves = np.flatnonzero(circuit.variable == v)
        if v in evidence or not leaves.size:
            continue
        if not is_possible:
            found[v] = [np.nan]
            continue
        if circuit.n_values[v] == 0 and how == "mean":
            found[v] = [moments(circuit, evidence, v)[0]]
            continue
        tried = range(circuit.n_values[v]) if circuit.n_values[v] else {_peak(circuit, leaf) for leaf in leaves}
        probable = {each: value(circuit, evidence | {v: each}) for each in tried}
        most = max(probable.values())
        found[v] = [each for each, p in probable.items() if p >= most * (1 - 1e-9)]
    return found


def _peak(circuit, leaf):
    first = circuit.leaf_parameters[circuit.leaf_starts[leaf]]
    if circuit.kind[leaf] == GAUSSIAN:
        return float(first)
    return float(math.floor(first)) if circuit.kind[leaf] == POISSON else 0.0
