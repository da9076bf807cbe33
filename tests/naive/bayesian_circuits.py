"""Bayesian circuits from the definitions: nested tuples for nodes, predictives of scipy, one row after the other."""

import itertools
import math

from scipy import stats

from learners.circuits.bayesian.leaf_kernels import CENTRE, FIRST, KIND, SECOND
from learners.circuits.kernels import CATEGORICAL, EXPONENTIAL, GAUSSIAN


def tree_of(prior):
    """("sum", number, [product, …]) with product (left, right), or ("leaves", number, [leaf number, …]); numbers in preorder."""
    n_children = prior.shape.n_children
    numbers, leaves = itertools.count(), itertools.count()

    def node(size):
        number = next(numbers)
        if size == 1:
            return "leaves", number, [next(leaves) for _ in range(n_children)]
        return "sum", number, [(node(size - size // 2), node(size // 2)) for _ in range(n_children)]

    return node(prior.shape.n_columns)


def induced_trees(node):
    """Every induced tree as (choices in preorder, [(sum, child), …], [leaf, …])."""
    kind, number, children = node
    for c, child in enumerate(children):
        if kind == "leaves":
            yield (c,), [(number, c)], [child]
            continue
        for left, right in itertools.product(*(list(induced_trees(half)) for half in child)):
            yield (c, *left[0], *right[0]), [(number, c), *left[1], *right[1]], left[2] + right[2]


def log_predictive(prior, leaf, others, x):
    """Log density of a number at a leaf that has the numbers `others`."""
    own, strengths = prior.leaf[leaf], prior.strengths
    family, n, total = int(own[KIND]) % 8, len(others), math.fsum(others)
    if family == GAUSSIAN:
        a, rho = strengths.gaussian + n / 2, strengths.rho + n
        mean = (strengths.rho * own[FIRST] + total) / rho
        average = total / n if n else 0.0
        within = math.fsum((other - average) ** 2 for other in others)
        b = own[SECOND] + within / 2 + strengths.rho * n * (average - own[FIRST]) ** 2 / (2 * rho)
        return stats.t.logpdf(x, 2 * a, mean, math.sqrt(b * (1 + 1 / rho) / a))
    if family == CATEGORICAL:
        count = sum(other == x for other in others)
        return math.log((count + strengths.categorical) / (n + strengths.categorical * own[SECOND]))
    x, total = x + own[CENTRE], total + n * own[CENTRE]
    if family == EXPONENTIAL:
        shape, rate = strengths.exponential + n, own[FIRST] + total
        return stats.lomax.logpdf(x, shape, scale=rate)
    shape, rate = strengths.poisson + total, own[FIRST] + n
    return stats.nbinom.logpmf(x, shape, rate / (rate + 1))


def log_joint(prior, x, trees):
    """Log probability of rows and of the induced trees that they take, row after row by predictives."""
    alpha, n_children = prior.strengths.alpha, prior.shape.n_children
    taken, at = [], {}
    total = 0.0
    for row, (_, edges, leaves) in zip(x, trees, strict=True):
        for s, c in edges:
            counts = [taken.count((s, child)) for child in range(n_children)]
            total += math.log((counts[c] + alpha) / (sum(counts) + n_children * alpha))
        taken += edges
        for leaf in leaves:
            value = row[int(prior.leaf[leaf, KIND]) // 8]
            if not math.isnan(value):
                total += log_predictive(prior, leaf, at.setdefault(leaf, []), value)
                at[leaf].append(value)
    return total


def posterior(prior, x):
    """{choices of all rows: probability} of every joint assignment."""
    trees = list(induced_trees(tree_of(prior)))
    logs = {}
    for assigned in itertools.product(trees, repeat=len(x)):
        logs[tuple(choices for choices, _, _ in assigned)] = log_joint(prior, x, assigned)
    most = max(logs.values())
    weight = {key: math.exp(log - most) for key, log in logs.items()}
    total = math.fsum(weight.values())
    return {key: w / total for key, w in weight.items()}, most + math.log(total)
