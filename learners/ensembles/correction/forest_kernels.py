"""Single-threaded kernels that score boosted trees over codes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learners.kernels.arrays import Array
from learners.kernels.intrinsics import popcount
from learners.kernels.jit import borrowing_kernel, kernel

BLOCK_ROWS = 16_384
PART_ROWS = 2_048  # whose leaves the first cache holds
TOGETHER = 4  # attributes whose masks are intersected at a time
WALKED_ROWS = 64  # fewer are sooner walked down a tree than its masks are made
WORD, MASKED_DEPTH = 64, 6  # a bit for each of 2^6 leaves
WALKED_TREES = 32  # complete trees that one row goes down together, so that none waits for another's memory
ALL_LEAVES = np.uint64(2**64 - 1)
ALWAYS = np.uint64(2**16 - 1)


class Forest(NamedTuple):
    """Flat, read-only arrays of boosted trees.

    Those of at most `MASKED_DEPTH` levels are complete: a leaf higher up fills all places below it, and the children of
    split i are 2i + 1 and 2i + 2. Deeper ones have the splits and leaves that they need, parents before children.
    """

    depths: Array  # (n_trees,) int64
    labels: Array  # (n_trees,) int64: the class whose score each tree adds to
    # node_starts, leaf_starts (n_trees,) int64: where the splits and the leaves of each begin.
    node_starts: Array
    leaf_starts: Array
    attributes: Array  # (n_nodes,) int32
    # (n_nodes,) int32: where the words of each split begin, of which bit c tells whether code c goes left.
    word_starts: Array
    words: Array  # (n_words,) uint64
    leaves: Array  # (n_leaves,) float64
    # (n_nodes,) float32: the share of the training rows of each split that went left, by XGBoost's weights.
    left_shares: Array
    # lows, highs (n_nodes,) int32: codes from low to before high go left; a high of -1 leaves it to the words.
    lows: Array
    highs: Array
    # lefts, rights (n_nodes,) int32: the child on each side, a split of the same tree; leaf l of the tree is -1 - l.
    lefts: Array
    rights: Array


class PackedTrees(NamedTuple):
    """The deep trees of a `Forest`, a word for each split or leaf, so that many rows go down them. All arrays read-only.

    The children of split i of a tree are its nodes 2i + 1 and 2i + 2. A word holds, 16 bits each from the lowest: the attribute; the
    lowest code that goes left, or the number of a leaf; how far above it codes still go left, or `ALWAYS` at a leaf; the
    left child, which is a leaf itself.
    """

    starts: Array  # (n_trees,) int64: the root of each; -1 of trees that are not packed
    nodes: Array  # (n_packed,) uint64
    word_starts: Array  # (n_packed,) int32: as those of the forest; -1 where a range of codes goes left
    has_words: Array  # (n_trees,) uint8: whether a split of the tree is by words


@kernel
def add_forest_scores(forest, packed, x, sizes, scores):
    """Add each tree's leaf value to the score of its class, tree by tree in order.

    x (n_attributes, n) codes, missing where not below sizes (n_attributes,) int64; OUT scores (n, C) float64. For many rows a shallow
    tree is not walked: a code of each attribute that it splits on leaves some of its leaves, a bit each, and the one that all
    codes of a row leave is the row's. Each of few rows goes down some shallow trees together. All rows go down a packed tree
    together, a level at a time, so that none waits for another's memory. A row that lacks the attribute of a split on its way goes
    both ways, in the shares of the training rows. Where the second half of few rows is the first without some of its values, both
    go down together: the ways of the row that lacks more are the other's, too.

    Lucchese et al. (2015), QuickScorer, section 3; Quinlan (1993), C4.5: Programs for machine learning, chapter 3.
    """
    # The right branches that one row is still to follow, at most one a level; or the ways of a row down some trees.
    right, shares = np.empty(WALKED_TREES * WORD, np.int64), np.empty((2, WALKED_TREES * WORD))
    if x.shape[1] < WALKED_ROWS:
        owners, of_trees = np.empty(right.size, np.int64), np.empty(WALKED_TREES)
        half = 0 if x.shape[1] % 2 else x.shape[1] // 2
        for attribute in range(sizes.size):
            for row in range(half):
                code = np.int64(x[attribute, half + row])
                if code < sizes[attribute] and code != np.int64(x[attribute, row]):
                    half = 0  # the second half is of other rows
                    break
        tree = 0
        while tree < forest.depths.size:
            if forest.depths[tree] > MASKED_DEPTH:
                label = forest.labels[tree]
                for row in range(half, x.shape[1]):
                    of_row, of_twin = _expected_leaf(forest, tree, x, row, row - half, sizes, right, shares)
                    scores[row, label] += of_row
                    if half > 0:
                        scores[row - half, label] += of_twin
                tree += 1
                continue
            last = tree + 1
            while last < min(tree + WALKED_TREES, forest.depths.size) and forest.depths[last] <= MASKED_DEPTH:
                last += 1
            for row in range(half, x.shape[1]):
                _walk_down(forest, tree, last, x, row, row - half, sizes, owners, right, shares, of_trees, scores)
            tree = last
        return
    starts = np.zeros(sizes.size + 1, np.int64)
    for attribute in range(sizes.size):
        starts[attribute + 1] = starts[attribute] + sizes[attribute] + 1
    allowed, used = np.empty(starts[sizes.size] + 1, np.uint64), np.empty(sizes.size + TOGETHER, np.int64)
    allowed[starts[sizes.size]] = ALL_LEAVES  # of the attribute that fills up the last ones of a tree
    n_block = min(BLOCK_ROWS, x.shape[1])
    is_any_packed, is_any_masked = False, False
    for tree in range(forest.depths.size):
        is_any_packed = is_any_packed or packed.starts[tree] >= 0
        is_any_masked = is_any_masked or forest.depths[tree] <= MASKED_DEPTH
    by_row = np.empty((n_block if is_any_packed else 0, sizes.size), np.uint16)
    by_attribute = np.zeros((sizes.size + 1, n_block if is_any_masked else 0), np.uint16)
    totals = np.empty((scores.shape[1], n_block))  # by class, so that a tree adds to neighbours
    left_over, active = np.empty(PART_ROWS, np.uint64), np.empty(PART_ROWS, np.int64)
    is_whole = np.empty(n_block, np.bool_)
    for begin in range(0, x.shape[1], BLOCK_ROWS):
        block = x[:, begin : begin + BLOCK_ROWS]
        n = block.shape[1]
        is_whole[:n] = True
        for attribute in range(sizes.size):
            own, size = x[attribute, begin : begin + n], sizes[attribute]
            if is_any_packed:
                for row in range(n):
                    by_row[row, attribute] = own[row]
                    is_whole[row] &= own[row] < size
            if is_any_masked:
                missing = np.uint16(size)
                for row in range(n):
                    code = np.uint16(own[row])
                    by_attribute[attribute, row] = code if code < missing else missing
        for label in range(scores.shape[1]):
            for row in range(n):
                totals[label, row] = scores[begin + row, label]
        for tree in range(forest.depths.size):
            total, leaves = totals[forest.labels[tree]], forest.leaf_starts[tree]
            if forest.depths[tree] <= MASKED_DEPTH:
                n_used = _allowed_leaves(forest, tree, sizes, starts, used, allowed)
                used[n_used : n_used + TOGETHER] = sizes.size
                for first in range(0, n, PART_ROWS):
                    last = min(first + PART_ROWS, n)
                    _leaves_left_over(by_attribute, first, last, starts, used, max(n_used, 1), allowed, left_over)
                    for row in range(first, last):
                        word = left_over[row - first]
                        if word & (word - np.uint64(1)):
                            total[row] += _expected_leaf(forest, tree, block, row, row, sizes, right, shares)[0]
                        else:
                            total[row] += forest.leaves[leaves + popcount(word - np.uint64(1))]
            elif packed.starts[tree] >= 0:
                for first in range(0, n, PART_ROWS):
                    last = min(first + PART_ROWS, n)
                    _go_down(forest, packed, tree, by_row[first:last], is_whole[first:last], active, left_over)
                    for row in range(first, last):
                        if is_whole[row]:
                            total[row] += forest.leaves[leaves + np.int64(left_over[row - first])]
                        else:
                            total[row] += _expected_leaf(forest, tree, block, row, row, sizes, right, shares)[0]
            else:
                for row in range(n):
                    total[row] += _expected_leaf(forest, tree, block, row, row, sizes, right, shares)[0]
        for label in range(scores.shape[1]):
            for row in range(n):
                scores[begin + row, label] = totals[label, row]


@borrowing_kernel
def _go_down(forest, packed, tree, codes, is_whole, active, leaves):  # OUT (n_block,) int64 scratch, (n_block,) uint64
    """The leaf of each row that lacks nothing, by its number in the tree. No step has a branch that could be mistaken."""
    nodes, word_starts = packed.nodes[packed.starts[tree] :], packed.word_starts[packed.starts[tree] :]
    n_active, last_word = np.int64(0), forest.words.size - 1
    for row in range(is_whole.size):
        leaves[row] = 0
        active[n_active] = row
        n_active += is_whole[row]
    while n_active > 0:
        n_left = np.int64(0)
        if packed.has_words[tree]:
            for i in range(n_active):
                row = np.uint64(active[i])
                node, words = nodes[leaves[row]], np.int64(word_starts[leaves[row]])
                code = np.uint64(codes[row, node & ALWAYS])
                span = (node >> np.uint64(32)) & ALWAYS
                is_beyond = ((code - (node >> np.uint64(16))) & ALWAYS) > span
                # Read in any case, which is sooner done than not: of a range any word will do.
                word = forest.words[np.uint64(min(max(words, 0) + np.int64(code >> np.uint64(6)), last_word))]
                goes_left = (word >> (code & np.uint64(63))) & np.uint64(1) != np.uint64(0)
                leaves[row] = (node >> np.uint64(48)) + np.uint64(is_beyond if words < 0 else not goes_left)
                active[n_left] = row
                n_left += span != ALWAYS
        else:
            for i in range(n_active):
                row = np.uint64(active[i])
                node = nodes[leaves[row]]
                code = np.uint64(codes[row, node & ALWAYS])
                span = (node >> np.uint64(32)) & ALWAYS
                is_beyond = ((code - (node >> np.uint64(16))) & ALWAYS) > span
                leaves[row] = (node >> np.uint64(48)) + np.uint64(is_beyond)
                active[n_left] = row
                n_left += span != ALWAYS
        n_active = n_left
    for row in range(is_whole.size):
        leaves[row] = (nodes[leaves[row]] >> np.uint64(16)) & ALWAYS


@borrowing_kernel
def _allowed_leaves(
    forest, tree, sizes, starts, used, allowed
):  # OUT (n_attributes,) int64 used, (n_codes,) uint64 allowed
    """Compute the bit mask of leaves that each code of a tree's split attributes allows (all if missing); returns the
    number of these attributes.
    """
    n_used, place = 0, forest.node_starts[tree]
    for level in range(forest.depths[tree]):
        n_below = np.uint64(1) << np.uint64(forest.depths[tree] - level - 1)  # leaves of each child
        for k in range(np.int64(1) << level):
            attribute, first = forest.attributes[place], forest.word_starts[place]
            place += 1
            start, size = starts[attribute], sizes[attribute]
            is_new = True
            for i in range(n_used):
                is_new = is_new and used[i] != attribute
            if is_new:
                used[n_used] = attribute
                n_used += 1
                allowed[start : start + size + 1] = ALL_LEAVES
            left = ((np.uint64(1) << n_below) - np.uint64(1)) << (np.uint64(2 * k) * n_below)
            without_left, without_right = ~left, ~(left << n_below)
            for begin in range(0, size, WORD):
                word = forest.words[first + begin // WORD]
                own = allowed[start + begin : start + min(begin + WORD, size)]
                for code in range(own.size):
                    goes_left = (word >> np.uint64(code)) & np.uint64(1)
                    own[code] &= without_right if goes_left else without_left
    return n_used


@borrowing_kernel
def _leaves_left_over(
    codes, first, last, starts, used, n_used, allowed, left_over
):  # OUT (last - first,) uint64 left_over
    """Intersect the leaves allowed by all codes (n_attributes, n) of rows first..last-1, `TOGETHER` attributes at a time."""
    for i in range(0, n_used, TOGETHER):
        a, b, c, d = used[i], used[i + 1], used[i + 2], used[i + 3]
        of_a, of_b, of_c, of_d = allowed[starts[a] :], allowed[starts[b] :], allowed[starts[c] :], allowed[starts[d] :]
        code_a, code_b = codes[a, first:last], codes[b, first:last]
        code_c, code_d = codes[c, first:last], codes[d, first:last]
        if i == 0:
            left_over[: last - first] = ALL_LEAVES
        for row in range(last - first):
            # An index of 64 bits without a sign, so that none is checked for counting from the end.
            left_over[row] &= (
                of_a[np.uint64(code_a[row])]
                & of_b[np.uint64(code_b[row])]
                & of_c[np.uint64(code_c[row])]
                & of_d[np.uint64(code_d[row])]
            )


@borrowing_kernel
def goes_left(forest, node, code):
    """Return whether a code that is not missing goes left at a split."""
    high = forest.highs[node]
    if high >= 0:
        return forest.lows[node] <= code < high
    word = forest.words[forest.word_starts[node] + (code >> 6)]
    return (word >> np.uint64(code & 63)) & np.uint64(1) != np.uint64(0)


@borrowing_kernel
def _walk_down(forest, first, last, x, row, twin, sizes, owners, places, shares, totals, scores):
    """Add the scores of complete trees first..last-1 to those of a row and of its twin, which may lack less, a level of all trees at a
    time.

    A way down has its tree, its place and its share of both; where the row lacks the attribute of a split, another begins. A row
    without a twin is its own. OUT scratch: (WALKED_TREES * WORD,) int64 owners and places, (2, WALKED_TREES * WORD) float64 shares,
    (WALKED_TREES,) float64 totals.
    """
    n_ways, own, of_twin = last - first, shares[0], shares[1]
    for way in range(n_ways):
        owners[way], places[way], own[way], of_twin[way] = first + way, 0, 1.0, 1.0
    for level in range(MASKED_DEPTH):
        for way in range(n_ways):
            tree, place = owners[way], places[way]
            if forest.depths[tree] <= level:
                continue
            node = forest.node_starts[tree] + place
            attribute = forest.attributes[node]
            code = np.int64(x[attribute, row])
            if code < sizes[attribute]:
                word = forest.words[forest.word_starts[node] + (code >> 6)]
                places[way] = 2 * place + 2 - np.int64((word >> np.uint64(code & 63)) & np.uint64(1))
                continue
            left, code = np.float64(forest.left_shares[node]), np.int64(x[attribute, twin])
            left_of_twin = np.float64(goes_left(forest, node, code)) if code < sizes[attribute] else left
            if left < 1.0 or left_of_twin < 1.0:  # a leaf that fills all places below it has one way
                owners[n_ways], places[n_ways] = tree, 2 * place + 2
                own[n_ways], of_twin[n_ways] = own[way] * (1.0 - left), of_twin[way] * (1.0 - left_of_twin)
                n_ways += 1
            places[way] = 2 * place + 1
            own[way] *= left
            of_twin[way] *= left_of_twin
    for reading in range(2 if twin != row else 1):
        asked = twin if reading else row
        totals[: last - first] = 0.0
        for way in range(n_ways):
            tree = owners[way]
            leaf = forest.leaf_starts[tree] + places[way] - (np.int64(1) << forest.depths[tree]) + 1
            totals[tree - first] += shares[reading, way] * forest.leaves[leaf]
        for tree in range(first, last):
            scores[asked, forest.labels[tree]] += totals[tree - first]


@borrowing_kernel
def _expected_leaf(
    forest, tree, x, row, twin, sizes, right, shares
):  # at least (WORD,) int64 right, (2, WORD) float64 shares: scratch
    """Return the mean leaf value of a tree, weighted by the share of the row that reaches each leaf, by one where it lacks nothing, and
    that of its twin, which may lack less.
    """
    nodes, leaves = forest.node_starts[tree], forest.leaf_starts[tree]
    right[0], shares[0, 0], shares[1, 0] = 0 if forest.depths[tree] > 0 else -1, 1.0, 1.0
    n_left, total, total_of_twin = 1, 0.0, 0.0
    while n_left > 0:
        n_left -= 1
        place, share, of_twin = right[n_left], shares[0, n_left], shares[1, n_left]
        while place >= 0:
            node = nodes + place
            attribute = forest.attributes[node]
            code = np.int64(x[attribute, row])
            if code >= sizes[attribute]:
                left, code = np.float64(forest.left_shares[node]), np.int64(x[attribute, twin])
                left_of_twin = np.float64(goes_left(forest, node, code)) if code < sizes[attribute] else left
                right[n_left] = forest.rights[node]
                shares[0, n_left], shares[1, n_left] = share * (1.0 - left), of_twin * (1.0 - left_of_twin)
                n_left += 1
                share *= left
                of_twin *= left_of_twin
                place = np.int64(forest.lefts[node])
            else:
                place = np.int64(forest.lefts[node] if goes_left(forest, node, code) else forest.rights[node])
        leaf = forest.leaves[leaves - 1 - place]
        total += share * leaf
        total_of_twin += of_twin * leaf
    return total, total_of_twin
