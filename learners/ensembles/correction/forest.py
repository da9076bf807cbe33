"""XGBoost trees over codes as flat arrays, scored without XGBoost, and their SHAP values."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from learners.ensembles.correction.forest_kernels import ALWAYS, MASKED_DEPTH, WORD, Forest, PackedTrees
from learners.ensembles.correction.shap_kernels import add_shap_values
from learners.kernels.arrays import (
    Array,
    Arrays,
    Codes,
    Floats,
    Int32s,
    Integers,
    Mask,
    Uint8s,
    Uint64s,
    freeze_arrays,
)
from learners.models.model import check_array_elements, check_array_type_and_shape
from learners.schema import Schema

MAX_DEPTH = WORD - 1  # the kernel holds at most one side branch a level
ROUNDS = 16
DTYPES = {
    "depths": np.int64,
    "labels": np.int64,
    "node_starts": np.int64,
    "leaf_starts": np.int64,
    "attributes": np.int32,
    "word_starts": np.int32,
    "words": np.uint64,
    "leaves": np.float64,
    "left_shares": np.float32,
    "lows": np.int32,
    "highs": np.int32,
    "lefts": np.int32,
    "rights": np.int32,
}
# Arrays that models of release 0.2.0 lack: all their trees are complete.
LATER = ("lows", "highs", "lefts", "rights")
# What a model does not store, as it follows: from the sizes of the domains, and from which children are splits.
DERIVED = ("word_starts", "lefts", "rights")
SPLITS = "forest_splits"  # (ceil(n_nodes / 4),) uint8: a bit for each left and right child, whether it is a split
SHARES = (1 << 16) - 1  # shares are multiples of one part in so many, stored as uint16
BY_WORDS = -1  # in `highs`: a split whose codes are in words
BY_RANGE = -1  # in `PackedTrees.word_starts`: a split whose codes are a range, or a leaf
MOST_PACKED = (1 << 15) - 1  # splits of a tree whose nodes have numbers of 16 bits


def flatten_xgboost_forest(schema: Schema, boosters: Sequence[Any], weights: Sequence[float]) -> Forest:
    """Flatten the trees of several xgboost.Booster over a schema's codes (`CodeTable`), each booster's leaves
    multiplied by its weight.
    """
    parts: dict[str, list[Array]] = {name: [np.empty(0, DTYPES[name])] for name in DTYPES if name != "word_starts"}
    n_nodes = n_leaves = 0
    for booster, weight in zip(boosters, weights, strict=True):
        for tree, group in _trees(booster):
            levels = _levels(tree)
            own = _complete(schema, tree, levels) if len(levels) - 1 <= MASKED_DEPTH else _ragged(schema, tree, levels)
            own |= {
                "depths": np.array([len(levels) - 1]),
                "labels": np.array([1 if schema.n_classes == 2 else group]),
                "node_starts": np.array([n_nodes]),
                "leaf_starts": np.array([n_leaves]),
                "leaves": (weight * own["leaves"]).astype(np.float32),
            }
            for name, arrays in parts.items():
                arrays.append(own[name].astype(DTYPES[name]))
            n_nodes += own["attributes"].size
            n_leaves += own["leaves"].size
    whole = {name: np.concatenate(arrays) for name, arrays in parts.items()}
    whole["word_starts"] = _word_starts(whole["highs"], schema.domain_sizes[whole["attributes"]])
    forest = Forest(**whole)
    freeze_arrays(*forest)
    return forest


def _trees(booster: Any) -> Iterator[tuple[Mapping[str, Any], int]]:
    """Yield each tree, as parsed from XGBoost's JSON, with its class; a few rounds at a time to limit memory."""
    for first in range(0, booster.num_boosted_rounds(), ROUNDS):
        some = booster[first : min(first + ROUNDS, booster.num_boosted_rounds())]
        model = json.loads(bytes(some.save_raw("json")))["learner"]["gradient_booster"]["model"]
        yield from zip(model["trees"], model["tree_info"], strict=True)


def _levels(tree: Mapping[str, Any]) -> list[Integers]:
    """Return the nodes of each level, starting with the root."""
    left, right = np.array(tree["left_children"]), np.array(tree["right_children"])
    levels = [np.zeros(1, np.int64)]
    while (left[levels[-1]] >= 0).any():
        splits = levels[-1][left[levels[-1]] >= 0]
        levels.append(np.stack([left[splits], right[splits]], axis=1).ravel())
    return levels


def _complete(schema: Schema, tree: Mapping[str, Any], levels: Sequence[Integers]) -> dict[str, Array]:
    """Return the arrays of a tree padded to a complete tree, level by level; a shallow leaf fills all places below it."""
    left, right = tree["left_children"], tree["right_children"]
    categories = _categories(tree)
    everything = np.ones(schema.attributes[0].n_values + 1, bool)
    level, attributes, words, shares = [0], [], [], []
    for _ in levels[1:]:
        below = []
        for node in level:
            is_leaf = left[node] < 0
            attributes.append(0 if is_leaf else tree["split_indices"][node])
            words.append(_words(everything if is_leaf else _left_codes(schema, tree, node, categories)))
            shares.append(1.0 if is_leaf else float(_on_grid(_left_share(tree, node))))
            below += [node, node] if is_leaf else [left[node], right[node]]
        level = below
    n_splits = len(attributes)
    lefts, rights = complete_children(np.arange(n_splits), n_splits)
    return {
        "attributes": np.array(attributes),
        "words": np.concatenate([np.empty(0, np.uint64), *words]),
        "leaves": np.array([float(tree["split_conditions"][node]) for node in level]),
        "left_shares": np.array(shares),
        "lows": np.zeros(n_splits),
        "highs": np.full(n_splits, BY_WORDS),
        "lefts": lefts,
        "rights": rights,
    }


def complete_children(places: Integers, n_splits: int | Integers) -> tuple[Integers, Integers]:
    """Return the left and right children of splits in complete trees with `n_splits` splits, encoded as `Forest.lefts`."""
    left, right = 2 * places + 1, 2 * places + 2
    return np.where(left < n_splits, left, n_splits - left - 1), np.where(right < n_splits, right, n_splits - right - 1)


def _ragged(schema: Schema, tree: Mapping[str, Any], levels: Sequence[Integers]) -> dict[str, Array]:
    """Return the arrays of a tree with only its actual splits and leaves, level by level."""
    nodes = np.concatenate(levels)
    left, right = np.array(tree["left_children"]), np.array(tree["right_children"])
    is_split = left[nodes] >= 0
    splits, leaves = nodes[is_split], nodes[~is_split]
    place = np.empty(left.size, np.int64)
    place[splits], place[leaves] = np.arange(splits.size), -1 - np.arange(leaves.size)
    attributes, conditions = np.array(tree["split_indices"])[splits], np.array(tree["split_conditions"], np.float32)
    first = np.array([attribute.has_missing for attribute in schema.attributes], np.int64)[attributes]
    n_values = schema.domain_sizes[attributes]
    # A number below the condition goes left; so does null where XGBoost sends missing values to the left.
    highs = first + np.clip(np.ceil(conditions[splits].astype(np.float64)), 0, n_values - first).astype(np.int64)
    lows = np.where(np.array(tree["default_left"], bool)[splits], 0, first)
    categories = _categories(tree)
    is_nominal = np.isin(splits, np.fromiter(categories, np.int64))
    highs[is_nominal] = BY_WORDS
    words = [_words(_left_codes(schema, tree, node, categories)) for node in splits[is_nominal].tolist()]
    weights = np.array(tree["sum_hessian"], np.float64)
    total = weights[left[splits]] + weights[right[splits]]
    return {
        "attributes": attributes,
        "words": np.concatenate([np.empty(0, np.uint64), *words]),
        "leaves": conditions[leaves].astype(np.float64),
        "left_shares": _on_grid(np.where(total > 0.0, weights[left[splits]] / np.where(total > 0.0, total, 1.0), 0.5)),
        "lows": lows,
        "highs": highs,
        "lefts": place[left[splits]],
        "rights": place[right[splits]],
    }


def _on_grid(share: Floats | float) -> Floats:
    """Round shares of splits to multiples of 1 / `SHARES` between 0 and 1; only what completes a tree is 0 or 1."""
    return np.asarray(np.clip(np.rint(np.asarray(share) * SHARES), 1, SHARES - 1) / SHARES)


def _left_share(tree: Mapping[str, Any], node: int) -> float:
    """Return the share of a split's training rows that goes left."""
    below = [tree["sum_hessian"][tree[side][node]] for side in ("left_children", "right_children")]
    return float(below[0] / sum(below)) if sum(below) > 0.0 else 0.5


def _categories(tree: Mapping[str, Any]) -> dict[int, list[int]]:
    """Return the categories that go right, for each categorical split."""
    nodes, segments, sizes = tree["categories_nodes"], tree["categories_segments"], tree["categories_sizes"]
    return {
        node: tree["categories"][first : first + size] for node, first, size in zip(nodes, segments, sizes, strict=True)
    }


def _left_codes(schema: Schema, tree: Mapping[str, Any], node: int, categories: Mapping[int, list[int]]) -> Mask:
    """Return which codes go left; missing, unseen and absent codes follow XGBoost's default direction."""
    attribute = schema.attributes[tree["split_indices"][node]]
    first = attribute.first_code
    n_numbers = attribute.n_values - first
    goes_left = np.full(attribute.n_values + 1, bool(tree["default_left"][node]))
    if node in categories:
        own = np.ones(n_numbers, bool)
        own[[category for category in categories[node] if category < n_numbers]] = False
    else:
        own = np.arange(n_numbers, dtype=np.float32) < np.float32(tree["split_conditions"][node])
    goes_left[first : attribute.n_values] = own
    return goes_left


def _words(goes_left: Mask) -> Uint64s:
    """Pack a mask into 64-bit words."""
    padded = np.zeros(-(-goes_left.size // WORD) * WORD, bool)
    padded[: goes_left.size] = goes_left
    return np.packbits(padded, bitorder="little").view(np.uint64)


def forest_arrays(forest: Forest) -> Arrays:
    """Return the arrays of a forest that `forest_from_arrays` needs, in the least space."""
    arrays = {f"forest_{name}": array for name, array in forest._asdict().items() if name not in DERIVED}
    arrays["forest_leaves"] = forest.leaves.astype(np.float32)
    arrays["forest_left_shares"] = np.rint(forest.left_shares.astype(np.float64) * SHARES).astype(np.uint16)
    arrays[SPLITS] = np.packbits(np.stack([forest.lefts >= 0, forest.rights >= 0], axis=1))
    return arrays


def forest_from_arrays(schema: Schema, arrays: Arrays) -> Forest:
    """Build a forest from the arrays named `forest_…`: those of `forest_arrays`, or of release 0.2.0, whose trees are all complete."""
    parts = {name: arrays[f"forest_{name}"] for name in DTYPES if f"forest_{name}" in arrays}
    n = int(parts["attributes"].size)
    n_splits = np.diff(parts["node_starts"], append=n)
    if SPLITS in arrays:
        parts |= _derived(schema, parts, arrays[SPLITS])
    elif "lefts" not in parts:
        own = np.arange(n) - np.repeat(parts["node_starts"], n_splits)
        lefts, rights = complete_children(own, np.repeat(n_splits, n_splits))
        later = (np.zeros(n), np.full(n, BY_WORDS), lefts, rights)
        parts |= {name: array.astype(np.int32) for name, array in zip(LATER, later, strict=True)}
    if parts["left_shares"].dtype == np.uint16:
        parts["left_shares"] = (parts["left_shares"] / SHARES).astype(np.float32)
    forest = Forest(**parts | {"leaves": parts["leaves"].astype(np.float64, copy=False)})
    freeze_arrays(*forest)
    return forest


def _derived(schema: Schema, parts: Mapping[str, Array], splits: Uint8s) -> dict[str, Array]:
    """Return the arrays `DERIVED` of a forest from its others and the bits of `SPLITS`."""
    n, starts = int(parts["attributes"].size), parts["node_starts"]
    is_split = np.unpackbits(splits, count=2 * n).astype(bool)
    lefts, rights = _children(is_split, 2 * starts, 2 * np.diff(starts, append=n))
    word_starts = _word_starts(parts["highs"], schema.domain_sizes[parts["attributes"]])
    return {"word_starts": word_starts, "lefts": lefts, "rights": rights}


def _children(is_split: Mask, starts: Integers, sizes: Integers) -> tuple[Int32s, Int32s]:
    """Return the left and right children of all splits, encoded as `Forest.lefts`: splits and leaves of a tree are numbered in the order
    in which they are children.

    `is_split` of left and right children in turn; `starts` and `sizes` (n_trees,) divide them.
    """
    n_before = np.zeros(is_split.size + 1, np.int32)
    np.cumsum(is_split, out=n_before[1:])
    n_splits = n_before[:-1] - np.repeat(n_before[starts], sizes)
    n_children = np.arange(is_split.size, dtype=np.int32) - np.repeat(starts, sizes).astype(np.int32)
    children = np.where(is_split, n_splits + 1, n_splits - n_children - 1)
    return np.ascontiguousarray(children[::2]), np.ascontiguousarray(children[1::2])


def _word_starts(highs: Int32s, n_values: Integers) -> Int32s:
    """Return where the words of each split begin: those of splits by words follow each other."""
    sizes = np.where(highs == BY_WORDS, n_values // WORD + 1, 0)
    return (np.cumsum(sizes) - sizes).astype(np.int32)


def pack_trees(forest: Forest) -> PackedTrees:
    """The trees of more than `MASKED_DEPTH` levels in the form in which many rows go down them; not those of 2^15 splits and more."""
    n_splits = np.diff(forest.node_starts, append=forest.attributes.size)
    is_packed = (forest.depths > MASKED_DEPTH) & (n_splits <= MOST_PACKED)
    sizes = np.where(is_packed, 2 * n_splits + 1, 0)
    starts = np.cumsum(sizes) - sizes
    chosen = np.flatnonzero(np.repeat(is_packed, n_splits))
    tree = np.repeat(np.arange(n_splits.size), n_splits)[chosen]
    place = chosen - forest.node_starts[tree]
    is_by_words = forest.highs == BY_WORDS
    low, high = (np.where(is_by_words, n, np.clip(own, 0, ALWAYS)) for n, own in enumerate((forest.lows, forest.highs)))
    is_never = high <= low  # then left is the code `ALWAYS`, which no row that lacks nothing has
    low, span = np.where(is_never, ALWAYS, low), np.where(is_never, 0, high - low - 1)
    own = np.arange(forest.attributes.size) - np.repeat(forest.node_starts, n_splits)
    splits = _packed_words(forest.attributes, low, span, 2 * own + 1)
    word_starts = np.where(is_by_words, forest.word_starts, BY_RANGE)
    nodes, starts_of_words = np.empty(int(sizes.sum()), np.uint64), np.full(int(sizes.sum()), BY_RANGE, np.int32)
    roots = forest.node_starts[is_packed]
    nodes[starts[is_packed]], starts_of_words[starts[is_packed]] = splits[roots], word_starts[roots]
    for children, side in ((forest.lefts[chosen], 1), (forest.rights[chosen], 2)):
        at, child = 2 * place + side, np.maximum(children, 0) + forest.node_starts[tree]
        leaf = _packed_words(0, np.maximum(-1 - children.astype(np.int64), 0), ALWAYS, at)
        nodes[starts[tree] + at] = np.where(children < 0, leaf, splits[child])
        starts_of_words[starts[tree] + at] = np.where(children < 0, BY_RANGE, word_starts[child])
    has_words = np.zeros(n_splits.size, np.uint8)
    has_words[tree[is_by_words[chosen]]] = 1
    packed = PackedTrees(np.where(is_packed, starts, -1), nodes, starts_of_words, has_words)
    freeze_arrays(*packed)
    return packed


def _packed_words(*parts: Array | int | np.uint64) -> Uint64s:
    """Four numbers of 16 bits each in words of 64, from the lowest bits up."""
    words: Uint64s = np.zeros((), np.uint64)
    for number, part in enumerate(parts):
        words = words | (np.asarray(part).astype(np.uint64) << np.uint64(16 * number))
    return words


def no_packed_trees(forest: Forest) -> PackedTrees:
    """No packed trees, for few rows, which are walked down each tree."""
    packed = PackedTrees(
        np.full(forest.depths.size, -1),
        np.empty(0, np.uint64),
        np.empty(0, np.int32),
        np.zeros(forest.depths.size, np.uint8),
    )
    freeze_arrays(*packed)
    return packed


def check_forest(schema: Schema, arrays: Arrays) -> None:
    """Refuse arrays that would make a kernel read out of bounds. Raises InvalidArray, naming the array."""
    is_compact = SPLITS in arrays
    has_later = is_compact or f"forest_{LATER[0]}" in arrays
    dtypes = DTYPES | ({"leaves": np.float32, "left_shares": np.uint16} if is_compact else {})
    lacking = (() if has_later else LATER) + (DERIVED if is_compact else ())
    parts = {
        name: check_array_type_and_shape(arrays, f"forest_{name}", dtype)
        for name, dtype in dtypes.items()
        if name not in lacking
    }
    n_trees, n_splits = parts["depths"].size, parts["attributes"].size
    for name in ("labels", "node_starts", "leaf_starts"):
        check_array_type_and_shape(arrays, f"forest_{name}", np.int64, n_trees)
    depths, labels = parts["depths"], parts["labels"]
    check_array_elements(
        "forest_depths", (depths < 0) | (depths > MAX_DEPTH), f"contains depths outside 0 to {MAX_DEPTH}"
    )
    check_array_elements(
        "forest_labels", (labels < 0) | (labels >= schema.n_classes), "names classes that are not in the schema"
    )
    attributes = parts["attributes"].astype(np.int64)
    is_unknown = (attributes < 0) | (attributes >= schema.n_attributes)
    check_array_elements("forest_attributes", is_unknown, "names attributes that are not in the schema")
    for name in {"word_starts", "left_shares", *LATER} & parts.keys():
        check_array_type_and_shape(arrays, f"forest_{name}", dtypes[name], n_splits)
    is_ragged = (depths > MASKED_DEPTH) & has_later
    node_counts = _extents("forest_node_starts", parts["node_starts"], n_splits)
    leaf_counts = _extents("forest_leaf_starts", parts["leaf_starts"], parts["leaves"].size)
    n_complete = np.int64(1) << np.minimum(depths, 40)
    for name, counts, least in (
        ("node_starts", node_counts, np.where(is_ragged, leaf_counts - 1, n_complete - 1)),
        ("leaf_starts", leaf_counts, np.where(is_ragged, 2, n_complete)),
    ):
        check_array_elements(f"forest_{name}", counts < least, "points past the end of the divided array")
    if is_compact:
        is_split = check_array_type_and_shape(arrays, SPLITS, np.uint8, -(-n_splits // 4))
        parts |= _derived(schema, parts, is_split)
    is_by_words = np.ones(n_splits, bool)
    if has_later:
        is_by_words = parts["highs"] == BY_WORDS
        own = np.arange(n_splits) - np.repeat(parts["node_starts"], node_counts)
        for name in ("lefts", "rights"):
            child = parts[name].astype(np.int64)
            ends, leaves = np.repeat(node_counts, node_counts), np.repeat(leaf_counts, node_counts)
            is_wrong = np.where(child >= 0, (child <= own) | (child >= ends), -1 - child >= leaves)
            check_array_elements(f"forest_{name}", is_wrong, "names a node that is not a child of its parent")
    ends = parts["words"].size - (schema.domain_sizes[attributes] // WORD + 1)
    is_outside = is_by_words & ((parts["word_starts"] < 0) | (parts["word_starts"] > ends))
    check_array_elements("forest_word_starts", is_outside, "points past the end of the divided array")
    shares, most = parts["left_shares"], SHARES if is_compact else 1
    check_array_elements("forest_left_shares", ~((shares >= 0) & (shares <= most)), "contains shares outside 0 to 1")
    check_array_elements("forest_leaves", ~np.isfinite(parts["leaves"]), "contains a value that is not finite")


def _extents(name: str, starts: Integers, end: int) -> Integers:
    """Return the number of entries of each tree in consecutive ranges. Raises InvalidArray."""
    is_wrong = (starts < 0) | (starts > end) | (np.diff(starts, prepend=0) < 0)
    check_array_elements(name, is_wrong, "points past the end of the divided array")
    return np.diff(starts, append=end)


def forest_shap_values(forest: Forest, x: Codes, sizes: Integers, n_classes: int) -> tuple[Floats, Floats]:
    """Compute the mean score (n_classes,) and SHAP values (n_attributes, n_rows, n_classes) of codes x (n_attributes, n_rows), which
    are missing where not below sizes (n_attributes,).
    """
    x = x.astype(np.uint16, copy=False)
    freeze_arrays(x)  # one compiled signature, whatever the width of codes
    bias, values = np.zeros(n_classes), np.zeros((x.shape[1], x.shape[0], n_classes))
    add_shap_values(forest, x, sizes, bias, values)
    return bias, values.transpose(1, 0, 2)
