# mypy: disallow-untyped-defs=False, check-untyped-defs=False
"""Rows through the whole complete tree, given weights and leaf parameters: up, and down again; a block of rows is the innermost loop."""

from __future__ import annotations

import math

import numpy as np

from learners.circuits.draws.kernels import exponential
from learners.circuits.gibbs.lazy_kernels import CHOICE, LEAF, OWN, SUM, descend, uniform
from learners.circuits.gibbs.leaf_kernels import CENTRE, FIRST, KIND, SQUARES, TOTAL, N
from learners.circuits.kernels import CATEGORICAL, EXPONENTIAL, GAUSSIAN
from learners.circuits.sampling_kernels import GOLDEN
from learners.kernels.jit import inner_kernel, kernel

# Columns of `natural` (n_leaves, 4), of which a leaf's log density is linear: Gaussian A - B (x - C)² with the logarithm of the height A;
# exponential A - B x; Poisson A x - B - log x!. Of categorical leaves A is the first of their cells.
A, B, C, OFFSET = range(4)
# Values are at most one. Below this a root has lost digits: such rows are evaluated in logarithms.
SMALLEST = 1e-200


@kernel
def leaf_logs(leaf, natural, log_cells, x, n, logs):
    """OUT logs (n_leaves, b): log densities of the leaves at rows n to n + b of x (n_rows, n_columns); 0 where missing."""
    for i in range(logs.shape[0]):
        kind = np.int64(leaf[i, KIND])
        family, column = kind & 7, kind >> 3
        a, b, c, offset = natural[i]
        for j in range(logs.shape[1]):
            value = np.float64(x[n + j, column])
            if np.isnan(value):
                logs[i, j] = 0.0
            elif family == GAUSSIAN:
                logs[i, j] = a - b * (value - c) * (value - c)
            elif family == CATEGORICAL:
                logs[i, j] = log_cells[np.int64(a) + np.int64(value)]
            else:
                value += offset
                if value < 0.0:
                    logs[i, j] = -np.inf
                elif family == EXPONENTIAL:
                    logs[i, j] = a - b * value
                else:
                    value = np.rint(value)
                    logs[i, j] = a * value - b - math.lgamma(value + 1.0)


@kernel
def upward(tree, weight, logs, peak, shares, values, scale):
    """A block of rows up the tree, linearly: each leaf divided by the largest of its column and row.

    tree: see `whole.Tree`. weight (n_sums, n_children). logs (n_leaves, b). OUT peak (n_columns, b), shares (n_leaves, b) the
    leaves divided, values (n_sums, b), scale (b,) the logarithm by which each row is divided.
    """
    n_children = weight.shape[1]
    peak[:] = -np.inf
    for i in range(logs.shape[0]):
        d = tree.column[i // n_children]
        for j in range(logs.shape[1]):
            peak[d, j] = max(peak[d, j], logs[i, j])
    scale[:] = 0.0
    for d in range(peak.shape[0]):
        for j in range(scale.size):
            scale[j] += peak[d, j]
    for i in range(logs.shape[0]):
        d = tree.column[i // n_children]
        for j in range(logs.shape[1]):
            shares[i, j] = exponential(logs[i, j] - peak[d, j])
    for s in range(weight.shape[0] - 1, -1, -1):
        values[s] = 0.0
        for c in range(n_children):
            w, left, right = weight[s, c], tree.left[s, c], tree.right[s, c]
            if right < 0:
                for j in range(scale.size):
                    values[s, j] += w * shares[left, j]
            else:
                for j in range(scale.size):
                    values[s, j] += w * values[left, j] * values[right, j]


@kernel
def upward_in_logs(tree, log_weight, logs, row, values):
    """One row of a block up the tree in logarithms: OUT values (n_sums,)."""
    n_children = log_weight.shape[1]
    for s in range(log_weight.shape[0] - 1, -1, -1):
        most = -np.inf
        for c in range(n_children):
            most = max(most, log_of_child(tree, log_weight, logs, row, values, s, c))
        total = 0.0
        if most > -np.inf:
            for c in range(n_children):
                total += np.exp(log_of_child(tree, log_weight, logs, row, values, s, c) - most)
        values[s] = most + np.log(total) if total > 0.0 else -np.inf


@inner_kernel
def log_of_child(tree, log_weight, logs, row, values, s, c):
    """Log of a weight times its child's value."""
    left, right = tree.left[s, c], tree.right[s, c]
    if right < 0:
        return log_weight[s, c] + logs[left, row]
    return log_weight[s, c] + values[left] + values[right]


@inner_kernel
def child_by(share, u):
    """A child with probability in proportion to its share; u is uniform in [0, 1)."""
    u *= share.sum()
    for c in range(share.size - 1):
        u -= share[c]
        if u < 0.0:
            return c
    return share.size - 1


@inner_kernel
def shares_of_children(tree, weight, shares, values, s, row, share):
    """OUT share (n_children,): weight times value of each child of a sum."""
    for c in range(share.size):
        left, right = tree.left[s, c], tree.right[s, c]
        if right < 0:
            share[c] = weight[s, c] * shares[left, row]
        else:
            share[c] = weight[s, c] * values[left, row] * values[right, row]


@inner_kernel
def shares_in_logs(tree, log_weight, logs, row, values, s, share):
    """The same from logarithms; the largest is one."""
    most = -np.inf
    for c in range(share.size):
        share[c] = log_of_child(tree, log_weight, logs, row, values, s, c)
        most = max(most, share[c])
    for c in range(share.size):
        share[c] = np.exp(share[c] - most)


# Arguments of the drivers below. parts: leaf (n_leaves, 8), natural, log_cells, weight, log_weight. work: logs, peak, shares, values, scale and
# in_logs (n_sums,), scratch for a block of rows.
@kernel
def bottom_up_sweep(place, tree, parts, work, trees, x, choices, state):
    """Draw the induced tree of every row given weights and leaf parameters: OUT choices (n_rows, n_positions) uint8.

    References: Vergari et al. (2019), section 3: ancestral sampling, from the values of all nodes.
    """
    counter, block = state[0], work.scale.size
    share = np.empty(parts.weight.shape[1])
    for first in range(0, x.shape[0], block):
        b = min(block, x.shape[0] - first)
        logs, values = work.logs[:, :b], work.values[:, :b]
        leaf_logs(parts.leaf, parts.natural, parts.log_cells, x, first, logs)
        upward(tree, parts.weight, logs, work.peak[:, :b], work.shares[:, :b], values, work.scale[:b])
        for j in range(b):
            is_far = not values[0, j] > SMALLEST
            if is_far:
                upward_in_logs(tree, parts.log_weight, logs, j, work.in_logs)
            trees[OWN, 0, SUM] = trees[OWN, 0, LEAF] = 0
            for p in range(place.shape[0]):
                s = trees[OWN, p, SUM]
                if is_far:
                    shares_in_logs(tree, parts.log_weight, logs, j, work.in_logs, s, share)
                else:
                    shares_of_children(tree, parts.weight, work.shares, values, s, j, share)
                counter += GOLDEN
                c = child_by(share, uniform(counter))
                trees[OWN, p, CHOICE] = c
                choices[first + j, p] = c
                descend(place, trees, OWN, p, c)
    state[0] = counter


@kernel
def expect(tree, parts, work, x, flow, counts, leaf, cells):
    """Add expected counts of every sum, and statistics of every leaf, over rows: OUT counts, leaf, cells; the sum of log likelihoods.

    flow (n_sums, b) is scratch. References: Zhao, Adel, Gordon, Amos (2016), section 3.2: one pass up and one down.
    """
    total, block, n_children = 0.0, work.scale.size, parts.weight.shape[1]
    share = np.empty(n_children)
    for first in range(0, x.shape[0], block):
        b = min(block, x.shape[0] - first)
        logs, values = work.logs[:, :b], work.values[:, :b]
        leaf_logs(parts.leaf, parts.natural, parts.log_cells, x, first, logs)
        upward(tree, parts.weight, logs, work.peak[:, :b], work.shares[:, :b], values, work.scale[:b])
        for j in range(b):
            is_far = not values[0, j] > SMALLEST
            if is_far:
                upward_in_logs(tree, parts.log_weight, logs, j, work.in_logs)
                total += work.in_logs[0]
            else:
                total += np.log(values[0, j]) + work.scale[j]
            flow[0, j] = 1.0
            for s in range(parts.weight.shape[0]):
                if flow[s, j] == 0.0:
                    for c in range(n_children):
                        if tree.right[s, c] >= 0:
                            flow[tree.left[s, c], j] = flow[tree.right[s, c], j] = 0.0
                    continue
                if is_far:
                    shares_in_logs(tree, parts.log_weight, logs, j, work.in_logs, s, share)
                else:
                    shares_of_children(tree, parts.weight, work.shares, values, s, j, share)
                each = flow[s, j] / share.sum()
                for c in range(n_children):
                    part = each * share[c]
                    counts[s, c] += part
                    left, right = tree.left[s, c], tree.right[s, c]
                    if right >= 0:
                        flow[left, j] = flow[right, j] = part
                    else:
                        add_share(leaf, left, cells, x[first + j], part)
    return total


@inner_kernel
def add_share(leaf, i, cells, x, part):
    """Give leaf i a part of the row x (n_columns,)."""
    kind = np.int64(leaf[i, KIND])
    family, value = kind & 7, np.float64(x[kind >> 3])
    if np.isnan(value):
        return
    leaf[i, N] += part
    if family == CATEGORICAL:
        cells[np.int64(leaf[i, FIRST]) + np.int64(value)] += part
    elif family == GAUSSIAN:
        d = value - leaf[i, FIRST]
        leaf[i, TOTAL] += part * d
        leaf[i, SQUARES] += part * d * d
    elif family == EXPONENTIAL:
        leaf[i, TOTAL] += part * (value + leaf[i, CENTRE])
    else:
        value = np.rint(value + leaf[i, CENTRE])
        leaf[i, TOTAL] += part * value
        leaf[i, SQUARES] += part * math.lgamma(value + 1.0)
