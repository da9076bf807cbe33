"""Single-threaded kernels that read context trees at every level, with or without leaving a row out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learners.counts.sparse_kernels import binary_search_index
from learners.kernels.arrays import Array
from learners.kernels.jit import inner_kernel, kernel

ODD = np.uint64(0x9E3779B97F4A7C15)  # of Fibonacci hashing (Knuth, volume 3, section 6.4)


class LevelTree(NamedTuple):
    """Context tree with the table counts of its hierarchical Dirichlet process; arrays as in `ContextTree`."""

    child_starts: Array  # (n_nodes + 1,) int32: ranges of the children of each node, ascending by branch
    branch: Array  # (n_nodes,) int32
    cell_starts: Array  # (n_nodes + 1,) int32
    cell_value: Array  # (n_cells,) int32
    cell_parent: Array  # (n_cells,) int32
    rows: Array  # (n_cells,) int64
    customers: Array  # (n_cells,) float64: rows at the deepest level, expected tables of the children above it
    # node_rows, node_customers (n_nodes,) float64: their sums.
    node_rows: Array
    node_customers: Array
    level_starts: Array  # (n_levels + 1,) int64
    concentration: Array  # (n_levels,) float64: of the nodes of each level
    n_values: int


class LeftOut(NamedTuple):
    """Rows that are left out of their own class, with all their copies."""

    y: Array  # (n,) uint8 or uint16 classes of the rows, which the tree has counted, or (0,): nothing is left out
    copies: Array  # (n,) float64: how many of the counted rows are copies of each, itself included


@inner_kernel
def _descend(tree, value, label, codes, nodes, cells):
    """Follow a row's path: OUT nodes, cells (n_levels,) int64, -1 for a value without a cell; returns the number of
    levels found.
    """
    n_levels = nodes.size
    node, depth = np.int64(0), 0
    while True:
        nodes[depth] = node
        cells[depth] = binary_search_index(tree.cell_value, tree.cell_starts[node], tree.cell_starts[node + 1], value)
        depth += 1
        if depth == n_levels:
            return depth
        wanted = label if depth == 1 else codes[depth - 2]
        node = binary_search_index(tree.branch, tree.child_starts[node], tree.child_starts[node + 1], wanted)
        if node < 0:
            return depth


@kernel
def _shares(tree, depth, nodes, cells, q, copies, shares):
    """Compute the expected number of tables that a row and its copies open at each level of its path: OUT shares (n_levels,).

    They count as the last customers of their value, each of which opened a new table with the probability of a new
    table.
    """
    shares[depth - 1] = copies
    for level in range(depth - 1, 0, -1):
        new, n = tree.concentration[level] * q[level - 1], tree.customers[cells[level]]
        if shares[level] <= 1.0:
            shares[level - 1] = shares[level] * new / (new + max(n - 1.0, 0.0))
        else:
            shares[level - 1] = new * np.log((new + n) / (new + max(n - shares[level], 0.0)))


@inner_kernel
def _first_alike(x, own, parents, left_out, row, first):
    """Find the first row with the same value, context and, if rows are left out, class and number of copies; a row without
    a match is added to the hash table `first`.
    """
    y = left_out.y
    n_slots = np.uint64(first.size - 1)
    mixed = np.uint64(x[own, row])
    if y.size > 0:
        mixed = mixed * ODD + np.uint64(y[row])
    for parent in parents:
        mixed = mixed * ODD + np.uint64(x[parent, row])
    mixed *= ODD
    slot = (mixed ^ (mixed >> np.uint64(32))) & n_slots
    while first[slot] >= 0:
        other = first[slot]
        is_alike = x[own, other] == x[own, row]
        if y.size > 0:
            is_alike = is_alike and y[other] == y[row] and left_out.copies[other] == left_out.copies[row]
        for parent in parents:
            is_alike = is_alike and x[parent, other] == x[parent, row]
        if is_alike:
            return np.int64(other)
        slot = (slot + np.uint64(1)) & n_slots
    first[slot] = row
    return np.int64(row)


@kernel
def level_log_probabilities(tree, x, own, parents, sizes, left_out, first, log_p):
    """Compute log P(value | class, first j parents) for every row, class and j, leaving the row with its copies out of its own
    class.

    Each level is estimated from its row counts; a context without a node uses the table counts of the deepest
    node on its path. A missing parent ends the context: averaging over it leaves the level above, estimated from
    its row counts.

    x (n_views, n) codes, own the view of the attribute, parents (k,) int64 views, sizes (k,) of their domains, left_out: `LeftOut` of the rows;
    first (a power of two above n,) int32, all -1: scratch. OUT log_p (n, k + 1, n_classes) float32, or
    (n, k + 1, 1) of each row's own class alone, which is then left out.

    Zero for a value that training never saw: it says nothing.
    """
    n_levels = tree.concentration.size
    nodes, cells = np.empty(n_levels, np.int64), np.empty(n_levels, np.int64)
    q, shares = np.empty(n_levels), np.zeros(n_levels)
    codes = np.empty(parents.size, np.int64)
    y = left_out.y
    is_own = y.size > 0 and log_p.shape[2] == 1
    for row in range(x.shape[1]):
        value = np.int64(x[own, row])
        if value >= tree.n_values:
            log_p[row] = 0.0
            continue
        alike = _first_alike(x, own, parents, left_out, row, first)
        if alike < row:
            log_p[row] = log_p[alike]
            continue
        for j in range(parents.size):
            codes[j] = x[parents[j], row]
        for place in range(log_p.shape[2]):
            label = np.int64(y[row]) if is_own else np.int64(place)
            depth = _descend(tree, value, label, codes, nodes, cells)
            above = 1.0 / tree.n_values
            shares[:] = 0.0
            if y.size > 0 and y[row] == label:
                for level in range(depth):
                    alpha = tree.concentration[level]
                    above = (tree.customers[cells[level]] + alpha * above) / (tree.node_customers[nodes[level]] + alpha)
                    q[level] = above
                _shares(tree, depth, nodes, cells, q, left_out.copies[row], shares)
                above = 1.0 / tree.n_values
            is_left_out = y.size > 0 and y[row] == label
            is_missing = 1 < depth < n_levels and codes[depth - 2] >= sizes[depth - 2]
            read = above
            logged, log_read = 1.0, 0.0  # below the levels found all estimates are equal
            for level in range(n_levels):
                if level < depth:
                    alpha, cell, node = tree.concentration[level], cells[level], nodes[level]
                    n, t = 0.0, 0.0
                    if cell >= 0:
                        n, t = tree.rows[cell], max(tree.customers[cell] - shares[level], 0.0)
                    total, tables = tree.node_rows[node], max(tree.node_customers[node] - shares[level], 0.0)
                    if is_left_out:
                        n, total = n - left_out.copies[row], total - left_out.copies[row]
                    read = (n + alpha * above) / (total + alpha)
                    above = (t + alpha * above) / (tables + alpha)
                elif not is_missing:
                    read = above
                if level > 0:
                    if read != logged:
                        logged, log_read = read, np.log(read)
                    log_p[row, level - 1, place] = log_read


@kernel
def weighted_level_estimates(tree, a, b, probability, rest, averaged, averaged_rest):
    """Compute the tree's weighted terms exp(a log p_0 + b (log p - log p_0)), with p_0 the probability given the class
    alone.

    A context without a node uses the table counts of the level above, as in `level_log_probabilities`; the
    deepest level uses row counts. OUT probability (n_cells,), rest (n_nodes,) float64: hierarchical `Estimates`;
    averaged, averaged_rest: the same for missing lower parents, with row counts at every level.
    """
    n_levels = tree.concentration.size
    q, own = np.empty(probability.size), np.empty(probability.size)
    for level in range(n_levels):
        alpha = tree.concentration[level]
        is_last = level == n_levels - 1
        for node in range(tree.level_starts[level], tree.level_starts[level + 1]):
            of_rows, of_tables = tree.node_rows[node] + alpha, tree.node_customers[node] + alpha
            for cell in range(tree.cell_starts[node], tree.cell_starts[node + 1]):
                above = alpha / tree.n_values if level == 0 else alpha * q[tree.cell_parent[cell]]
                q[cell] = (tree.customers[cell] + above) / of_tables
                read = (tree.rows[cell] + above) / of_rows
                own[cell] = own[tree.cell_parent[cell]] if level > 1 else read
                if level == 0:
                    probability[cell] = q[cell] ** a
                elif is_last:
                    probability[cell] = own[cell] ** a * (read / own[cell]) ** b
                else:
                    probability[cell] = own[cell] ** a * (q[cell] / own[cell]) ** b
                averaged[cell] = own[cell] ** a * (read / own[cell]) ** b
            if level == 0:
                rest[node] = (alpha / tree.n_values / of_tables) ** a
            elif level == 1:
                rest[node] = (alpha / of_rows) ** a
                if not is_last:
                    rest[node] *= (of_rows / of_tables) ** b
            else:
                rest[node] = (alpha / (of_rows if is_last else of_tables)) ** b
            averaged_rest[node] = rest[node] if level == 0 else (alpha / of_rows) ** (a if level == 1 else b)


@kernel
def weighted_level_variances(tree, a, b, largest, of_cell, of_rest):
    """The posterior variance of each weighted term a log p_0 + b (log p - log p_0), to first order, at most `largest`.

    Var log p ≈ Var p / p², with the variance of a Dirichlet distribution given the rows and what it inherits; p_0 is known
    far better and taken as fixed where there are parents. OUT of_cell (n_cells,), of_rest (n_nodes,) float64, for a value
    without a cell.
    """
    n_levels = tree.concentration.size
    q, inherited = np.empty(of_cell.size), np.empty(of_cell.size)
    for level in range(n_levels):
        alpha = tree.concentration[level]
        scale = b if level >= 2 else a
        for node in range(tree.level_starts[level], tree.level_starts[level + 1]):
            of_rows, of_tables = tree.node_rows[node] + alpha, tree.node_customers[node] + alpha
            left = 1.0
            for cell in range(tree.cell_starts[node], tree.cell_starts[node + 1]):
                above = 1.0 / tree.n_values if level == 0 else q[tree.cell_parent[cell]]
                q[cell] = (tree.customers[cell] + alpha * above) / of_tables
                read = (tree.rows[cell] + alpha * above) / of_rows
                left -= read
                inherited[cell] = read * (1.0 - read) / (of_rows + 1.0)
                if level > 0:
                    inherited[cell] += (alpha / of_rows) ** 2 * inherited[tree.cell_parent[cell]]
                of_cell[cell] = min(scale * scale * inherited[cell] / (read * read), largest)
            n_absent = max(tree.n_values - (tree.cell_starts[node + 1] - tree.cell_starts[node]), 1)
            mean = max(left, 1e-12) / n_absent
            of_rest[node] = min(scale * scale * (1.0 - mean) / (mean * (of_rows + 1.0)), largest)


@kernel
def left_out_level_estimates(tree, node_parent, a, b, probability):
    """Compute the weighted terms of the deepest cells with one of the cell's rows left out, as in
    `level_log_probabilities`.

    node_parent (n_nodes,) int64; IN/OUT probability (n_cells,) float64: exp(a log p_0 + b (log p - log p_0)); cells of other
    levels stay as they are.
    """
    n_levels = tree.concentration.size
    nodes, cells = np.empty(n_levels, np.int64), np.empty(n_levels, np.int64)
    q, shares = np.empty(n_levels), np.zeros(n_levels)
    for deepest in range(tree.level_starts[n_levels - 1], tree.level_starts[n_levels]):
        nodes[n_levels - 1] = deepest
        for level in range(n_levels - 1, 0, -1):
            nodes[level - 1] = node_parent[nodes[level]]
        for own in range(tree.cell_starts[deepest], tree.cell_starts[deepest + 1]):
            cells[n_levels - 1] = own
            for level in range(n_levels - 1, 0, -1):
                cells[level - 1] = tree.cell_parent[cells[level]]
            above = 1.0 / tree.n_values
            for level in range(n_levels):
                alpha = tree.concentration[level]
                above = (tree.customers[cells[level]] + alpha * above) / (tree.node_customers[nodes[level]] + alpha)
                q[level] = above
            _shares(tree, n_levels, nodes, cells, q, 1.0, shares)
            above = 1.0 / tree.n_values
            alone = read = above
            for level in range(n_levels):
                alpha = tree.concentration[level]
                n, t = tree.rows[cells[level]] - 1.0, max(tree.customers[cells[level]] - shares[level], 0.0)
                total, tables = tree.node_rows[nodes[level]] - 1.0, tree.node_customers[nodes[level]] - shares[level]
                read = (n + alpha * above) / (total + alpha)
                above = (t + alpha * above) / (max(tables, 0.0) + alpha)
                if level == 1:
                    alone = read
            probability[own] = alone**a * (read / alone) ** b
