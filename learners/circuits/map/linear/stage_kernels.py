# mypy: disallow-untyped-defs=False, check-untyped-defs=False
"""Circuits reduced further and further along a path of the search, in shared pools."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learners.circuits.map.linear.copy_kernels import copy
from learners.circuits.map.linear.reduction_kernels import MaxArrays, reduce, room_for_circuits
from learners.kernels.arrays import Floats, Integers
from learners.kernels.jit import inner_kernel

# Pools hold the whole problem and its reductions, each at most three quarters of the one before: less than four in all.
POOL_FACTOR = 4
MOST_STAGES = 40


class Stages(NamedTuple):
    """Circuits reduced along the current path, the whole problem first; all in shared pools."""

    pool: MaxArrays  # value_starts is (n_stages * (n_variables + 1),), one row per stage
    offsets: Integers  # (n_stages + 1, 4) int64: where each stage begins: leaves, table entries, inner nodes, edges
    variables: Integers  # (n_stages, n_variables) int64: numbers in the whole problem
    n_variables: Integers  # (n_stages,) int64
    log_bound: Floats  # (n_stages,) float64
    number: Integers  # (n_variables,) int64 scratch
    path: Integers  # (n_stages, n_variables) int64: values of the variables fixed before this stage


@inner_kernel
def stage_arrays(stages, s):
    """The circuit of stage s, as views."""
    pool = stages.pool
    leaf, entry, inner, edge = stages.offsets[s, 0], stages.offsets[s, 1], stages.offsets[s, 2], stages.offsets[s, 3]
    leaf_end, entry_end = stages.offsets[s + 1, 0], stages.offsets[s + 1, 1]
    inner_end, edge_end = stages.offsets[s + 1, 2], stages.offsets[s + 1, 3]
    row = s * (stages.variables.shape[1] + 1)
    # Starts have one entry more than nodes: stage s is shifted by s places.
    return MaxArrays(
        pool.value_starts[row : row + stages.n_variables[s] + 1],
        pool.leaf_variable[leaf:leaf_end],
        pool.leaf_starts[leaf + s : leaf_end + s + 1],
        pool.leaf_value[entry:entry_end],
        pool.is_sum[inner:inner_end],
        pool.child_starts[inner + s : inner_end + s + 1],
        pool.leaf_from[inner:inner_end],
        pool.children[edge:edge_end],
        pool.weight[edge:edge_end],
    )


@inner_kernel
def free_arrays(stages, s):
    """Views of the unused ends of the pools, from where stage s would begin."""
    pool = stages.pool
    leaf, entry, inner, edge = stages.offsets[s, 0], stages.offsets[s, 1], stages.offsets[s, 2], stages.offsets[s, 3]
    row = s * (stages.variables.shape[1] + 1)
    return MaxArrays(
        pool.value_starts[row : row + stages.variables.shape[1] + 1],
        pool.leaf_variable[leaf:],
        pool.leaf_starts[leaf + s :],
        pool.leaf_value[entry:],
        pool.is_sum[inner:],
        pool.child_starts[inner + s :],
        pool.leaf_from[inner:],
        pool.children[edge:],
        pool.weight[edge:],
    )


@inner_kernel
def begin_stages(arrays, log_bound, n_entries):
    """Pools with the whole problem as stage 0; n_entries values of leaves may be needed by one reduction."""
    n_variables = arrays.value_starts.size - 1
    stages = Stages(
        room_for_circuits(arrays, POOL_FACTOR, MOST_STAGES, n_entries),
        np.empty((MOST_STAGES + 1, 4), dtype=np.int64),
        np.empty((MOST_STAGES, n_variables), dtype=np.int64),
        np.empty(MOST_STAGES, dtype=np.int64),
        np.empty(MOST_STAGES),
        np.empty(n_variables, dtype=np.int64),
        np.empty((MOST_STAGES, n_variables), dtype=np.int64),
    )
    pool = stages.pool
    stages.offsets[0, :] = 0
    stages.offsets[1, 0], stages.offsets[1, 1] = arrays.leaf_variable.size, arrays.leaf_value.size
    stages.offsets[1, 2], stages.offsets[1, 3] = arrays.is_sum.size, arrays.children.size
    stages.n_variables[0] = n_variables
    stages.log_bound[0] = log_bound
    for v in range(n_variables):
        stages.variables[0, v] = v
    copy(arrays.value_starts, pool.value_starts)
    copy(arrays.leaf_variable, pool.leaf_variable)
    copy(arrays.leaf_starts, pool.leaf_starts)
    copy(arrays.leaf_value, pool.leaf_value)
    copy(arrays.is_sum, pool.is_sum)
    copy(arrays.child_starts, pool.child_starts)
    copy(arrays.leaf_from, pool.leaf_from)
    copy(arrays.children, pool.children)
    copy(arrays.weight, pool.weight)
    return stages


@inner_kernel
def add_stage(stages, old, allowed, slots, reduction, hidden, sizes):
    """Reduce stage `old` to the remaining values and append it; returns the new stage, or `old` if the pools are full.

    allowed and slots (n_slots,) are renumbered and rescaled in place.
    """
    new = old + 1
    arrays = stage_arrays(stages, old)
    pool, offsets = stages.pool, stages.offsets
    n_inner = arrays.is_sum.size
    if (
        new + 1 >= stages.log_bound.size
        or offsets[new, 0] + arrays.leaf_variable.size + n_inner > pool.leaf_variable.size
        or offsets[new, 1] + reduction.table.size > pool.leaf_value.size
        or offsets[new, 2] + n_inner > pool.is_sum.size
        or offsets[new, 3] + arrays.children.size > pool.children.size
    ):
        return old
    out = free_arrays(stages, new)
    gain = reduce(arrays, allowed, hidden, reduction, out, sizes)
    for s in range(sizes.size):
        offsets[new + 1, s] = offsets[new, s] + sizes[s]
    stages.log_bound[new] = stages.log_bound[old] + gain
    copy(stages.path[old], stages.path[new])
    number = stages.number
    n, slot = 0, 0
    scale = np.exp(-gain)
    out.value_starts[0] = 0
    for v in range(stages.n_variables[old]):
        if reduction.only_value[v] >= 0:
            stages.path[new, stages.variables[old, v]] = reduction.only_value[v]
            continue
        number[v] = n
        stages.variables[new, n] = stages.variables[old, v]
        for s in range(arrays.value_starts[v], arrays.value_starts[v + 1]):
            allowed[slot] = allowed[s]
            slots[slot] = slots[s] * scale
            slot += 1
        n += 1
        out.value_starts[n] = slot
    stages.n_variables[new] = n
    for leaf in range(sizes[0]):
        out.leaf_variable[leaf] = number[out.leaf_variable[leaf]]
    return new
