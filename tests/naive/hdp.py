"""The posterior of a hierarchical Dirichlet process on a small tree, by enumeration.

A tree is a nested dict: at the leaves {value: count}, above {branch: tree}. All pseudo-counts t are enumerated; the one
concentration (of every level, or of all) is integrated over a grid under its Gamma prior, by default of shape 2 and rate 1. Written from spec and paper:
likelihood of a configuration: prod_u alpha^t_u / alpha^(n_u) prod_x S(n, t), the root with its own rule.
"""

import itertools
import math
from functools import cache

import numpy as np

ROOT = 2.0


@cache
def stirling(n, t):
    if n == t:
        return 1
    if t < 1 or t > n:
        return 0
    return stirling(n - 1, t - 1) + (n - 1) * stirling(n - 1, t)


def nodes_of(tree, path=()):
    """Paths of all nodes, the root first; and the leaves' counts."""
    if all(isinstance(below, int) for below in tree.values()):
        return [path], {path: tree}
    paths, leaves = [path], {}
    for branch, below in tree.items():
        more, counts = nodes_of(below, (*path, branch))
        paths += more
        leaves |= counts
    return paths, leaves


def configurations(paths, leaves):
    """All (n, t) with n[path][x] and t[path][x]; t of the root is left out."""
    inner = sorted((p for p in paths if p), key=len, reverse=True)

    def extend(index, n, t):
        if index == len(inner):
            yield n, t
            return
        path = inner[index]
        values = sorted(x for x in n[path] if n[path][x] > 0)
        for choice in itertools.product(*(range(1, n[path][x] + 1) for x in values)):
            chosen = dict(zip(values, choice, strict=True))
            above = dict(n[path[:-1]])
            for x, tables in chosen.items():
                above[x] = above.get(x, 0) + tables
            yield from extend(index + 1, n | {path[:-1]: above}, t | {path: chosen})

    start = {path: dict(leaves.get(path, {})) for path in paths}
    yield from extend(0, start, {})


def log_root(counts, n_values, root):
    whole = math.lgamma(ROOT + sum(counts.values())) - math.lgamma(ROOT)
    if root == "unit":
        return sum(math.lgamma(n) for n in counts.values()) - whole
    share = ROOT / n_values
    return sum(math.lgamma(n + share) - math.lgamma(share) for n in counts.values()) - whole


def posterior(tree, n_values, root="unit", tying="single", prior=(2.0, 1.0)):
    """Means of p(x | node) for every node, and P(t) for every (node, x).

    Returns
    -------
    estimates : dict path -> (n_values,) array
    tables : dict (path, x) -> dict t -> probability
    """
    paths, leaves = nodes_of(tree)
    depth = max(len(path) for path in paths)
    grid = np.concatenate([np.geomspace(1e-3, 0.05, 30), np.linspace(0.06, 12, 300)])
    if prior != (2.0, 1.0):  # with a longer tail
        grid = np.concatenate([np.geomspace(1e-7, 9e-4, 60), grid, np.geomspace(12.1, 400, 300)])
    width = np.gradient(grid)
    shape = (grid.size,) * (1 if tying == "single" else depth)
    axes = np.meshgrid(*[grid] * len(shape), indexing="ij")
    shape_parameter, rate = prior
    log_prior = sum((shape_parameter - 1) * np.log(axis) - rate * axis for axis in axes) + sum(
        np.log(w) for w in np.meshgrid(*[width] * len(shape), indexing="ij")
    )
    alpha_of = (lambda path: axes[0]) if tying == "single" else (lambda path: axes[len(path) - 1])
    total, estimates, tables = 0.0, {path: np.zeros(n_values) for path in paths}, {}
    reference = None
    for n, t in configurations(paths, leaves):
        log_weight = log_prior + log_root(n[()], n_values, root)
        for path, chosen in t.items():
            alpha, n_node = alpha_of(path), sum(n[path].values())
            log_weight = log_weight + sum(chosen.values()) * np.log(alpha)
            for i in range(n_node):
                log_weight = log_weight - np.log(alpha + i)
            log_weight = log_weight + sum(math.log(stirling(n[path][x], tables_x)) for x, tables_x in chosen.items())
        reference = log_weight.max() if reference is None else reference
        weight = np.exp(log_weight - reference)
        mass = weight.sum()
        total += mass
        p = {
            (): np.array([(n[()].get(x, 0) + ROOT / n_values) / (sum(n[()].values()) + ROOT) for x in range(n_values)])
        }
        p[()] = np.broadcast_to(p[()].reshape(n_values, *(1,) * len(shape)), (n_values, *shape))
        for path in paths:
            if path:
                alpha, n_node = alpha_of(path), sum(n[path].values())
                p[path] = np.stack(
                    [(n[path].get(x, 0) + alpha * p[path[:-1]][x]) / (n_node + alpha) for x in range(n_values)]
                )
            estimates[path] = estimates[path] + (p[path] * weight).reshape(n_values, -1).sum(axis=1)
        for path, chosen in t.items():
            for x, tables_x in chosen.items():
                cell = tables.setdefault((path, x), {})
                cell[tables_x] = cell.get(tables_x, 0.0) + mass
    return (
        {path: value / total for path, value in estimates.items()},
        {cell: {t: mass / total for t, mass in of.items()} for cell, of in tables.items()},
    )
