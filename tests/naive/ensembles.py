"""Levels, left-out rows and weights of ensembles, from their definitions."""

import math
from functools import partial
from itertools import product

import numpy as np
from scipy.stats import multivariate_normal

from tests.naive.estimates import node_paths

ROOT = 2.0


def tree_of(y, parents, x, counts):
    """Rows of each context and value: context () is the root, (class,), (class, first parent), …"""
    rows = {}
    for label, own, value, n in zip(y, parents, x, counts, strict=True):
        path = (int(label), *map(int, own))
        for depth in range(len(path) + 1):
            of_node = rows.setdefault(path[:depth], {})
            of_node[int(value)] = of_node.get(int(value), 0) + int(n)
    return rows


def view_codes(attribute, grouping):
    """By some of the cut points of a numeric attribute, the code of each code by all of them, through a number in its interval."""
    first, cuts = int(attribute.has_missing), attribute.cuts
    edges = [cuts[0] - 2, *cuts, cuts[-1] + 2]
    numbers = [(low + high) / 2 for low, high in zip(edges, edges[1:], strict=False)]
    codes = [first + sum(cuts[position] < number for position in grouping) for number in numbers]
    return [0] * first + codes + [first + len(grouping) + 1]


def codes_by_views(schema, x, only=None):
    """(n_views, n_rows) int64 of codes (n_attributes, n_rows): each attribute by its different groupings, or by one of these."""
    rows = []
    for attribute, codes in zip(schema.attributes, x, strict=True):
        groupings = attribute.groupings if only is None else attribute.groupings[only : only + 1]
        tables = [view_codes(attribute, grouping) for grouping in dict.fromkeys(groupings)]
        rows += [np.array(table)[codes] for table in tables or [range(attribute.n_values + 1)]]
    return np.stack(rows)


def tree_score(tree, numbers, is_absent, node=0):
    """The leaf of a tree as XGBoost writes it in JSON, of a row; the mean of both sides, by rows, where a split's attribute is absent.

    numbers (n_attributes,): NaN goes where the tree sends it.
    """
    left, right = tree["left_children"][node], tree["right_children"][node]
    if left < 0:
        return tree["split_conditions"][node]
    attribute = tree["split_indices"][node]
    sides = [partial(tree_score, tree, numbers, is_absent, child) for child in (left, right)]
    if is_absent[attribute]:
        rows = [tree["sum_hessian"][child] for child in (left, right)]
        return (rows[0] * sides[0]() + rows[1] * sides[1]()) / sum(rows)
    number = numbers[attribute]
    if np.isnan(number):
        return sides[0 if tree["default_left"][node] else 1]()
    if node in tree["categories_nodes"]:
        place = tree["categories_nodes"].index(node)
        first = tree["categories_segments"][place]
        return sides[int(number) in tree["categories"][first : first + tree["categories_sizes"][place]]]()
    return sides[0 if number < np.float32(tree["split_conditions"][node]) else 1]()


def forest_scores(boosters, weights, numbers, is_absent, n_classes):
    """(n_rows, n_classes) of boosters in XGBoost's JSON: of two classes the trees are those of the second."""
    scores = np.zeros((len(numbers), n_classes))
    for booster, weight in zip(boosters, weights, strict=True):
        model = booster["learner"]["gradient_booster"]["model"]
        for tree, group in zip(model["trees"], model["tree_info"], strict=True):
            for row, own in enumerate(numbers):
                scores[row, 1 if n_classes == 2 else group] += weight * tree_score(tree, own, is_absent[row])
    return scores


def flat_forest_scores(forest, x, sizes, n_classes):
    """(n_rows, n_classes) of a flat forest, of codes (n_attributes, n_rows), missing where not below sizes (n_attributes,)."""

    def leaf(tree, place, row):
        if place < 0:
            return forest.leaves[forest.leaf_starts[tree] - 1 - place]
        node = forest.node_starts[tree] + place
        sides = [partial(leaf, tree, children[node], row) for children in (forest.lefts, forest.rights)]
        attribute = forest.attributes[node]
        code, left = int(row[attribute]), float(forest.left_shares[node])
        if code >= sizes[attribute]:
            return left * sides[0]() + (1.0 - left) * sides[1]()
        if forest.highs[node] >= 0:
            return sides[0 if forest.lows[node] <= code < forest.highs[node] else 1]()
        word = int(forest.words[forest.word_starts[node] + code // 64])
        return sides[0 if word >> code % 64 & 1 else 1]()

    scores = np.zeros((x.shape[1], n_classes))
    for tree, label in enumerate(forest.labels.tolist()):
        root = 0 if forest.depths[tree] else -1
        scores[:, label] += [leaf(tree, root, row) for row in x.T]
    return scores


def shapley_values(scores_of, x, sizes):
    """Scores (n_rows, n_classes) where nothing is known, and the attributes' Shapley values (n_attributes, n_rows, n_classes) of a function
    of codes (n_attributes, n_rows), by all sets of known attributes.
    """
    m = len(x)
    of_sets = {}
    for known in product((False, True), repeat=m):
        of_sets[known] = scores_of(np.where(np.array(known)[:, np.newaxis], x, sizes[:, np.newaxis]).astype(x.dtype))
    values = np.zeros((m, *of_sets[(False,) * m].shape))
    for known, scores in of_sets.items():
        n = sum(known)
        for i in range(m):
            if known[i]:
                without = (*known[:i], False, *known[i + 1 :])
                values[i] += (
                    (scores - of_sets[without]) * math.factorial(n - 1) * math.factorial(m - n) / math.factorial(m)
                )
    return of_sets[(False,) * m], values


def customers_of(tree, customers):
    """The expected tables (rows at the deepest level) of a solved tree, by context and value."""
    paths = node_paths(tree)
    found = {path: {} for path in paths}
    for node, path in enumerate(paths):
        for cell in range(tree.cell_starts[node], tree.cell_starts[node + 1]):
            found[path][int(tree.cell_value[cell])] = float(customers[cell])
    return found


def log_probability(rows, customers, concentrations, n_values, value, path, k, leave_out):
    """Log P(value | class, first k parents): path holds the class and the codes of all parents, None for a missing one.

    A context that ends at a missing parent is read by its rows, one that is not there by the tables of the one above it.
    """
    if None in path[: k + 1]:
        k = path.index(None) - 1
    depth = max(d for d in range(len(path) + 1) if path[:d] in rows)
    alpha = [ROOT, *concentrations]
    n = [rows[path[:d]].get(value, 0) for d in range(depth + 1)]
    t = [customers[path[:d]].get(value, 0.0) for d in range(depth + 1)]
    n_all = [sum(rows[path[:d]].values()) for d in range(depth + 1)]
    t_all = [sum(customers[path[:d]].values()) for d in range(depth + 1)]
    share = [0.0] * (depth + 1)
    if leave_out:
        q = 1.0 / n_values
        full = []
        for d in range(depth + 1):
            q = (t[d] + alpha[d] * q) / (t_all[d] + alpha[d])
            full.append(q)
        share[depth] = 1.0
        for d in range(depth, 0, -1):
            new = alpha[d] * full[d - 1]
            share[d - 1] = share[d] * new / (new + max(t[d] - 1, 0))
    q = 1.0 / n_values
    one = 1 if leave_out else 0
    for d in range(depth + 1):
        if d == k + 1:
            return math.log((n[d] - one + alpha[d] * q) / (n_all[d] - one + alpha[d]))
        q = (max(t[d] - share[d], 0.0) + alpha[d] * q) / (max(t_all[d] - share[d], 0.0) + alpha[d])
    return math.log(q)


def mean_log_loss(terms, log_prior, y, weights):
    """Of softmax(log_prior + Σ_f weight_f · term_f)."""
    losses = []
    for row, label in enumerate(y):
        scores = log_prior[row] + np.asarray(terms[row], float).T @ weights
        losses.append(np.log(np.exp(scores - scores.max()).sum()) + scores.max() - scores[label])
    return float(np.mean(losses))


def prefix_losses(log_p, depths, log_prior, y):
    """Mean squared loss for every largest number of parents and every prefix."""
    n, m, n_levels, _ = log_p.shape
    losses = np.zeros((n_levels, m + 1))
    for k in range(n_levels):
        for prefix in range(m + 1):
            for row in range(n):
                joint = log_prior[row] + sum(log_p[row, i, min(k, depths[i])].astype(float) for i in range(prefix))
                p = np.exp(joint - joint.max())
                losses[k, prefix] += (1 - p[y[row]] / p.sum()) ** 2 / n
    return losses


def discriminant_scores(discriminant, x):
    """(n, n_classes) scores of codes: the log share of the class and the marginal normal log density of what is known, bounded."""
    scores = np.split(discriminant.scores, discriminant.starts[1:-1])
    found = np.zeros((x.shape[1], discriminant.log_shares.size))
    for row in range(x.shape[1]):
        codes = x[discriminant.columns, row]
        known = [place for place, own in enumerate(scores) if codes[place] < own.size]
        z = np.array([scores[place][codes[place]] for place in known])
        densities = []
        for k in range(len(discriminant.log_shares)):
            density = 0.0
            if known:
                mean, covariance = discriminant.means[k, known], discriminant.covariances[k][np.ix_(known, known)]
                density = multivariate_normal(mean, covariance).logpdf(z) + len(known) / 2 * np.log(2 * np.pi)
            densities.append(density)
        for k, (log_share, density) in enumerate(zip(discriminant.log_shares, densities, strict=True)):
            density = max(density, max(densities) - discriminant.bound[0])
            found[row, k] = discriminant.weight[0] * (log_share + density)
    return found
