"""Kernels that score boosted trees over codes, one thread each."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learners.kernels.arrays import Array
from learners.kernels.jit import kernel

BLOCK_ROWS = 256
WORD = 64


class Forest(NamedTuple):
    """Trees of a few levels, each complete: a leaf higher up fills all places below it. All arrays read-only.

    Parameters
    ----------
    depths : (n_trees,) int64
    labels : (n_trees,) int64
        The class whose score each tree adds to.
    node_starts, leaf_starts : (n_trees,) int64
        Where the 2^depth - 1 splits and the 2^depth leaves of each begin; the children of split i are 2i + 1 and 2i + 2.
    attributes : (n_nodes,) int32
    word_starts : (n_nodes,) int32
        Where the words of each split begin, of which bit c tells whether code c goes left.
    words : (n_words,) uint64
    leaves : (n_leaves,) float64
    left_shares : (n_nodes,) float32
        The share of the training rows of each split that went left, by XGBoost's weights.
    """

    depths: Array
    labels: Array
    node_starts: Array
    leaf_starts: Array
    attributes: Array
    word_starts: Array
    words: Array
    leaves: Array
    left_shares: Array


@kernel
def add_scores(forest, x, first, last, scores):  # x (n_attributes, n) codes; OUT (n, C) float64, rows first..last-1
    """Add each tree's leaf to the score of its class, tree by tree in order.

    Many rows go down together level by level, so that the processor waits for the splits of several at once.
    """
    attributes, word_starts, words = forest.attributes, forest.word_starts, forest.words
    places = np.zeros(BLOCK_ROWS, np.int64)
    for begin in range(first, last, BLOCK_ROWS):
        end = min(begin + BLOCK_ROWS, last)
        for tree in range(forest.depths.size):
            depth, label, nodes = forest.depths[tree], forest.labels[tree], forest.node_starts[tree]
            leaves = forest.leaf_starts[tree] - (np.int64(1) << depth) + 1
            for _ in range(depth):
                for row in range(begin, end):
                    place = places[row - begin]
                    node = nodes + place
                    code = np.int64(x[attributes[node], row])
                    word = words[word_starts[node] + (code >> 6)]
                    goes_left = np.int64((word >> np.uint64(code & 63)) & np.uint64(1))
                    places[row - begin] = 2 * place + 2 - goes_left
            for row in range(begin, end):
                scores[row, label] += forest.leaves[leaves + places[row - begin]]
                places[row - begin] = 0


@kernel
def add_expected_scores(forest, x, sizes, scores):
    """As `add_scores`, of all rows; where a split's attribute is missing a row goes both ways, in the shares of the training rows.

    x (n_attributes, n) codes, missing where not below sizes (n_attributes,) int64; OUT scores (n, C) float64.

    Quinlan (1993), C4.5: Programs for machine learning, chapter 3.
    """
    # The right branches that are still to be followed, at most one a level.
    places, shares = np.empty(WORD, np.int64), np.empty(WORD)
    for begin in range(0, x.shape[1], BLOCK_ROWS):
        end = min(begin + BLOCK_ROWS, x.shape[1])
        for tree in range(forest.depths.size):
            nodes, leaves, label = forest.node_starts[tree], forest.leaf_starts[tree], forest.labels[tree]
            n_splits = (np.int64(1) << forest.depths[tree]) - 1
            for row in range(begin, end):
                places[0], shares[0] = 0, 1.0
                n_left = 1
                while n_left > 0:
                    n_left -= 1
                    place, share = places[n_left], shares[n_left]
                    while place < n_splits:
                        node = nodes + place
                        attribute = forest.attributes[node]
                        code = np.int64(x[attribute, row])
                        place = 2 * place + 1
                        if code >= sizes[attribute]:
                            left = np.float64(forest.left_shares[node])
                            places[n_left], shares[n_left] = place + 1, share * (1.0 - left)
                            n_left += 1
                            share *= left
                        else:
                            word = forest.words[forest.word_starts[node] + (code >> 6)]
                            place += 1 - np.int64((word >> np.uint64(code & 63)) & np.uint64(1))
                    scores[row, label] += share * forest.leaves[leaves + place - n_splits]


@kernel
def softmax_rows(
    scores, fallback, first, last
):  # OUT (n, C) float64: log scores become probabilities; fallback (C,) logs
    """Probabilities of log scores; a row whose classes are all impossible gets the fallback."""
    for row in range(first, last):
        largest = -np.inf
        for k in range(scores.shape[1]):
            largest = max(largest, scores[row, k])
        total = 0.0
        for k in range(scores.shape[1]):
            shifted = scores[row, k] - largest if largest > -np.inf else fallback[k]
            scores[row, k] = np.exp(shifted)
            total += scores[row, k]
        for k in range(scores.shape[1]):
            scores[row, k] /= total
