"""Kernels that score boosted trees over codes, one thread each."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learners.kernels.arrays import Array
from learners.kernels.jit import inner_kernel, kernel

BLOCK_ROWS = 256
WORD = 64


class Forest(NamedTuple):
    """Trees of a few levels, each complete: a leaf higher up fills all places below it. All arrays read-only."""

    depths: Array  # (n_trees,) int64
    labels: Array  # (n_trees,) int64: the class whose score each tree adds to
    # node_starts, leaf_starts (n_trees,) int64: where the 2^depth - 1 splits and the 2^depth leaves of each begin; the
    # children of split i are 2i + 1 and 2i + 2.
    node_starts: Array
    leaf_starts: Array
    attributes: Array  # (n_nodes,) int32
    # (n_nodes,) int32: where the words of each split begin, of which bit c tells whether code c goes left.
    word_starts: Array
    words: Array  # (n_words,) uint64
    leaves: Array  # (n_leaves,) float64
    # (n_nodes,) float32: the share of the training rows of each split that went left, by XGBoost's weights.
    left_shares: Array


@kernel
def add_forest_scores(forest, x, sizes, scores):
    """Add each tree's leaf to the score of its class, tree by tree in order.

    x (n_attributes, n) codes, missing where not below sizes (n_attributes,) int64; OUT scores (n, C) float64. Many rows go
    down together level by level, so that the processor waits for the splits of several at once; a row that lacks the
    attribute of a split on its way goes both ways, in the shares of the training rows.

    Quinlan (1993), C4.5: Programs for machine learning, chapter 3.
    """
    attributes, word_starts, words = forest.attributes, forest.word_starts, forest.words
    places, is_lacking = np.zeros(BLOCK_ROWS, np.int64), np.zeros(BLOCK_ROWS, np.uint8)
    # The right branches that one row is still to follow, at most one a level.
    right, shares = np.empty(WORD, np.int64), np.empty(WORD)
    for begin in range(0, x.shape[1], BLOCK_ROWS):
        end = min(begin + BLOCK_ROWS, x.shape[1])
        for tree in range(forest.depths.size):
            depth, label, nodes = forest.depths[tree], forest.labels[tree], forest.node_starts[tree]
            leaves = forest.leaf_starts[tree] - (np.int64(1) << depth) + 1
            for _ in range(depth):
                for row in range(begin, end):
                    place = places[row - begin]
                    node = nodes + place
                    attribute = attributes[node]
                    code = np.int64(x[attribute, row])
                    word = words[word_starts[node] + (code >> 6)]
                    goes_left = np.int64((word >> np.uint64(code & 63)) & np.uint64(1))
                    places[row - begin] = 2 * place + 2 - goes_left
                    is_lacking[row - begin] |= np.uint8(code >= sizes[attribute])
            for row in range(begin, end):
                if is_lacking[row - begin]:
                    scores[row, label] += _expected_leaf(forest, tree, x, row, sizes, right, shares)
                else:
                    scores[row, label] += forest.leaves[leaves + places[row - begin]]
                places[row - begin], is_lacking[row - begin] = 0, 0


@inner_kernel
def _expected_leaf(forest, tree, x, row, sizes, right, shares):  # (WORD,) int64 right, (WORD,) float64 shares: scratch
    """The mean leaf of a tree, each weighted by the share of the row that reaches it."""
    nodes, leaves = forest.node_starts[tree], forest.leaf_starts[tree]
    n_splits = (np.int64(1) << forest.depths[tree]) - 1
    right[0], shares[0] = 0, 1.0
    n_left, total = 1, 0.0
    while n_left > 0:
        n_left -= 1
        place, share = right[n_left], shares[n_left]
        while place < n_splits:
            node = nodes + place
            attribute = forest.attributes[node]
            code = np.int64(x[attribute, row])
            place = 2 * place + 1
            if code >= sizes[attribute]:
                left = np.float64(forest.left_shares[node])
                right[n_left], shares[n_left] = place + 1, share * (1.0 - left)
                n_left += 1
                share *= left
            else:
                word = forest.words[forest.word_starts[node] + (code >> 6)]
                place += 1 - np.int64((word >> np.uint64(code & 63)) & np.uint64(1))
        total += share * forest.leaves[leaves + place - n_splits]
    return total
