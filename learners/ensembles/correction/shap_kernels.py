"""A single-threaded kernel of SHAP values of boosted trees over codes."""

from __future__ import annotations

import numpy as np

from learners.ensembles.correction.forest_kernels import goes_left
from learners.kernels.jit import borrowing_kernel, kernel


@kernel
def add_shap_values(forest, x, sizes, bias, values):
    """Add the SHAP values of each tree, and its mean leaf, to those of the class whose score it adds to.

    x (n_attributes, n) codes, missing where not below sizes (n_attributes,) int64; OUT bias (C,), values (n, n_attributes, C) float64. The
    trees' paths say what a tree expects of a row of which only some attributes are known: at a split on another one it goes both ways,
    in the shares of the training rows. A missing attribute is never known, so its value is 0, and those of a row add up to its score.

    Lundberg et al. (2020), From local explanations to global understanding with explainable AI for trees, algorithm 2, leaf by leaf.
    """
    deepest = forest.depths.max() + 1
    # Splits still to visit, and those above the current leaf with the side that leads to it.
    waiting, levels, sides = (
        np.empty(deepest + 1, np.int64),
        np.empty(deepest + 1, np.int64),
        np.empty(deepest + 1, np.int64),
    )
    path, path_sides = np.empty(deepest, np.int64), np.empty(deepest, np.int64)
    attributes, shares = np.empty(deepest, np.int64), np.empty(deepest)
    known, weights = np.empty(deepest), np.empty(deepest + 1)
    for tree in range(forest.depths.size):
        label, nodes, leaves = forest.labels[tree], forest.node_starts[tree], forest.leaf_starts[tree]
        waiting[0], levels[0], sides[0] = 0 if forest.depths[tree] > 0 else -1, 0, 0
        n_waiting = 1
        while n_waiting > 0:
            n_waiting -= 1
            place, level = waiting[n_waiting], levels[n_waiting]
            if level > 0:
                path_sides[level - 1] = sides[n_waiting]
            if place >= 0:
                path[level] = nodes + place
                for side in range(2):
                    waiting[n_waiting] = forest.lefts[nodes + place] if side else forest.rights[nodes + place]
                    levels[n_waiting], sides[n_waiting] = level + 1, side
                    n_waiting += 1
                continue
            leaf = forest.leaves[leaves - 1 - place]
            n_own, reach = _attributes_of_path(forest, path[:level], path_sides, attributes, shares)
            if reach == 0.0:
                continue  # a place that completes a tree
            bias[label] += reach * leaf
            for row in range(x.shape[1]):
                _weigh_sets(forest, path[:level], path_sides, x, row, sizes, attributes[:n_own], shares, known, weights)
                for i in range(n_own):
                    if known[i] != shares[i]:
                        sum_of_others = _unwound(shares[i], known[i], n_own, weights)
                        values[row, attributes[i], label] += sum_of_others * (known[i] - shares[i]) * leaf


@borrowing_kernel
def _attributes_of_path(forest, path, sides, attributes, shares):  # OUT (depth,) int64, (depth,) float64
    """Find the attributes that a path splits on, and the share of the training rows that each of them leaves on it; returns how many
    there are, and the product of the shares.
    """
    n_own, reach = 0, 1.0
    for level in range(path.size):
        attribute, share = forest.attributes[path[level]], np.float64(forest.left_shares[path[level]])
        if not sides[level]:
            share = 1.0 - share
        reach *= share
        place = 0
        while place < n_own and attributes[place] != attribute:
            place += 1
        if place == n_own:
            attributes[n_own], shares[n_own] = attribute, 1.0
            n_own += 1
        shares[place] *= share
    return n_own, reach


@borrowing_kernel
def _weigh_sets(
    forest, path, sides, x, row, sizes, attributes, shares, known, weights
):  # OUT (depth,) float64 known, (n_own + 1,) float64 weights
    """Find the share of a row that stays on a path by what is known of each attribute: 0 or 1, or as the training rows if it is missing.
    Sum over the sets of known attributes of each size what stays on the path, times the probability of that set in a random order.
    """
    known[: attributes.size] = 1.0
    for level in range(path.size):
        node = path[level]
        attribute, place = forest.attributes[node], 0
        while attributes[place] != attribute:
            place += 1
        code = np.int64(x[attribute, row])
        if code >= sizes[attribute]:
            left = np.float64(forest.left_shares[node])
            known[place] *= left if sides[level] else 1.0 - left
        elif goes_left(forest, node, code) != (sides[level] == 1):
            known[place] = 0.0

    weights[0] = 1.0
    for i in range(attributes.size):
        weights[i + 1] = 0.0
        for size in range(i, -1, -1):
            weights[size + 1] += known[i] * weights[size] * (size + 1) / (i + 2)
            weights[size] *= shares[i] * (i + 1 - size) / (i + 2)


@borrowing_kernel
def _unwound(share, known, n_own, weights):
    """Sum the weights of the sets of the other attributes: `_weigh_sets` without one attribute, of this share and known."""
    total, after = 0.0, weights[n_own]
    for size in range(n_own - 1, -1, -1):
        if known != 0.0:
            own = after * (n_own + 1) / ((size + 1) * known)
            total += own
            after = weights[size] - own * share * (n_own - size) / (n_own + 1)
        else:
            total += weights[size] / (share * (n_own - size) / (n_own + 1))
    return total
