"""Which pairs of attributes are counted three at a time: one increment a row into a table of three attributes serves three pairs."""

from __future__ import annotations

import numpy as np

from learners.counts.cell_kernels import MOST_TRIPLE_CELLS
from learners.kernels.arrays import Floats, Integers

LEAST_ROWS = 2 * MOST_TRIPLE_CELLS  # of a chunk: the table of a triple is added to those of its pairs for each chunk
PRICE = 1.2  # of a triple, in increments of a pair for each row
MOST_PAIRS = 1 << 17  # beyond which the search would take seconds


def triples_of(pairs: Integers, prices: Floats, sizes: Integers, n_classes: int) -> Integers:
    """Triples of attributes that count their three pairs sooner than these would be counted apart; no pair is in two.

    Greedy: each pair that is left, those of many values first, takes the third attribute with which it saves most.

    Parameters
    ----------
    pairs : (n_pairs, 2) int64
        i < j.
    prices : (n_pairs,) float64
        Of counting each apart, in increments for each row.
    sizes : (n_attributes,) int64
        Values of each.

    Returns
    -------
    (n_triples, 3) int64
        Ascending in each row.
    """
    price = np.zeros((sizes.size, sizes.size))  # 0 where a pair is not asked for, or is in a triple already
    i, j = pairs.T
    price[i, j] = price[j, i] = prices
    found = []
    order = np.argsort(-sizes[i] * sizes[j], kind="stable")
    for i, j in pairs[order[prices[order] >= PRICE / 3]].tolist():  # every triple has such a pair
        if not price[i, j]:
            continue
        is_third = (price[i] > 0) & (price[j] > 0) & (sizes * (sizes[i] * sizes[j] * n_classes) <= MOST_TRIPLE_CELLS)
        saved = np.where(is_third, price[i] + price[j], 0.0)
        k = int(np.argmax(saved))
        if saved[k] + price[i, j] > PRICE:
            for one, other in ((i, j), (i, k), (j, k)):
                price[one, other] = price[other, one] = 0.0
            found.append(sorted((i, j, k)))
    return np.array(sorted(found), np.int64).reshape(-1, 3)
