"""Look-up kernels of models with many classes, one thread each."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learners.classifiers.lookup.kernels import normalize
from learners.counts.sparse_kernels import place_among
from learners.kernels.arrays import Codes, Float32s, Floats, Int32s, Integers, Uint8s
from learners.kernels.jit import kernel


class ManyClassTables(NamedTuple):
    """Estimates of m attributes with C classes, of which each context has few; all arrays read-only.

    A context is a path of values of the parents, whatever the class. Contexts of an attribute are numbered level by level, those
    below one another in the order of their values; the first is that of no parent. A context lists the classes that have been
    there with what their rest is worth, and of each value that it has seen the classes that had it.
    """

    attribute: Integers  # (m,) int64
    n_values: Integers  # (m,) int64
    parent_starts: Integers  # (m + 1,) int64
    parents: Integers  # (sum of k,) int64
    parent_sizes: Integers  # (sum of k,) int64
    # (m,) int64: where the logarithms of the root's probabilities of an attribute begin in `root_log`.
    value_starts: Integers
    root_log: Float32s  # (sum of v,) float32
    roots: Integers  # (m,) int64: the first context of each attribute
    # child_starts, child_ends (n,) int64: contexts with one parent more.
    child_starts: Integers
    child_ends: Integers
    branch: Int32s  # (n,) int32: value of the last parent; -1 at roots
    rest_starts: Integers  # (n + 1,) int64: ranges of `rest_class` and `rest_log`
    rest_class: Codes  # (r,) uint16
    # (r,) float32: if hierarchical, the logarithm of what the level above is multiplied by for a value that the class
    # has not had here; else of the probability itself.
    rest_log: Float32s
    pair_starts: Integers  # (n + 1,) int64: ranges of values seen
    pair_value: Int32s  # (p,) int32, ascending within a context
    cell_starts: Integers  # (p + 1,) int64: ranges of `cell_class` and `cell_log`
    cell_class: Codes  # (q,) uint16
    cell_log: Float32s  # (q,) float32
    log_prior: Floats  # (C,) float64
    is_hierarchical: Uint8s  # (1,) uint8


@kernel
def answer(tables, x, first, last, is_normalized, out):
    """As `kernels.answer`: from the root down, each context sets what it knows of its classes.

    One function: a call for each attribute would hand over all arrays of the tables, which takes longer than to look them up.
    """
    own = np.empty(tables.log_prior.size, np.float64)
    is_hierarchical = tables.is_hierarchical[0] == 1
    pair_starts, pair_value = tables.pair_starts, tables.pair_value
    cell_starts, cell_class, cell_log = tables.cell_starts, tables.cell_class, tables.cell_log
    for row in range(first, last):
        out[row] = tables.log_prior
        for a in range(tables.attribute.size):
            value = np.int64(x[tables.attribute[a], row])
            if value >= tables.n_values[a]:
                continue
            own[:] = tables.root_log[tables.value_starts[a] + value]
            context = tables.roots[a]
            parent, end = tables.parent_starts[a], tables.parent_starts[a + 1]
            while context >= 0:
                for entry in range(tables.rest_starts[context], tables.rest_starts[context + 1]):
                    k = tables.rest_class[entry]
                    own[k] = own[k] + tables.rest_log[entry] if is_hierarchical else np.float64(tables.rest_log[entry])
                pair = place_among(pair_value, pair_starts[context], pair_starts[context + 1], value)
                if pair >= 0:
                    for entry in range(cell_starts[pair], cell_starts[pair + 1]):
                        own[cell_class[entry]] = cell_log[entry]
                if parent == end:
                    break
                code = np.int64(x[tables.parents[parent], row])
                context = place_among(tables.branch, tables.child_starts[context], tables.child_ends[context], code)
                parent += 1
            for k in range(own.size):
                out[row, k] += own[k]
        if is_normalized:
            normalize(out[row], tables.log_prior)
