"""Draw samples from a discrete network in arc order, weighted by the evidence."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learners.kernels.arrays import Floats, Integers
from learners.kernels.jit import kernel
from learners.kernels.random import STEP, uniform_variate


class SampledNetwork(NamedTuple):
    """Arrays of a network for the kernel."""

    order: Integers  # (m,) int64: the variables, parents first
    sizes: Integers  # (n_variables,) int64
    # (n_cells,) float64: one variable after the other: p(x | parents), the last parent's value varying fastest, then x.
    tables: Floats
    table_starts: Integers  # (n_variables,) int64
    parents: Integers  # (n_arcs,) int64
    parent_starts: Integers  # (n_variables + 1,) int64
    # (n_values,) float64: of each variable's values, one variable after the other: one where nothing is known.
    likelihoods: Floats
    value_starts: Integers  # (n_variables,) int64


# x of a variable is drawn from p(x | parents) λ(x), and the sum of these over x goes into the weight. Hard evidence is a λ that is
# zero but for one value.
@kernel
def draw_likelihood_weighted_samples(
    network, counter, codes, weights
):  # SampledNetwork, uint64; OUT (n_variables, n) uint16, OUT (n,) float64
    """Draw samples and their weights: Fung, Chang (1989); Shachter, Peot (1989)."""
    n = weights.size
    weights[:] = 1.0
    for v in network.order:
        size, own = network.sizes[v], network.value_starts[v]
        first, last = network.parent_starts[v], network.parent_starts[v + 1]
        for row in range(n):
            cell = 0
            for place in range(first, last):
                parent = network.parents[place]
                cell = cell * network.sizes[parent] + np.int64(codes[parent, row])
            start = network.table_starts[v] + cell * size
            total = 0.0
            for x in range(size):
                total += network.tables[start + x] * network.likelihoods[own + x]
            weights[row] *= total
            counter += STEP
            left = uniform_variate(counter) * total
            chosen = 0
            for x in range(size):
                share = network.tables[start + x] * network.likelihoods[own + x]
                if share > 0.0:
                    chosen = x
                    if left < share:
                        break
                    left -= share
            codes[v, row] = chosen
    return counter
