"""XGBoost's trees over codes as flat arrays, so that a served model needs neither XGBoost nor a call of it; and their SHAP values."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from learners.classifiers.baselines.boosted import CodeTable, load_xgboost_booster
from learners.ensembles.correction.forest_kernels import WORD, Forest
from learners.kernels.arrays import Array, Arrays, Floats, Mask, Uint8s, Uint64s, freeze_arrays
from learners.models.model import check_array_elements, check_array_type_and_shape
from learners.schema import Chunk, Schema

MAX_DEPTH = 16
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
}


def flatten_xgboost_forest(schema: Schema, boosters: Sequence[Any], weights: Sequence[float]) -> Forest:
    """The trees of several xgboost.Booster, by a schema's codes (`CodeTable`); each one's leaves times its weight."""
    parts: dict[str, list[Array]] = {name: [np.empty(0, dtype)] for name, dtype in DTYPES.items()}
    n_nodes = n_leaves = n_words = 0
    for booster, weight in zip(boosters, weights, strict=True):
        for tree, group in _trees(booster):
            splits, leaves, depth = _complete(schema, tree)
            words = [_words(goes_left) for _, goes_left, _ in splits]
            n_words_before = np.cumsum([0, *map(len, words)])
            own: dict[str, Any] = {
                "depths": [depth],
                "labels": [1 if schema.n_classes == 2 else group],
                "node_starts": [n_nodes],
                "leaf_starts": [n_leaves],
                "attributes": [attribute for attribute, _, _ in splits],
                "word_starts": n_words + n_words_before[:-1],
                "words": np.concatenate([np.empty(0, np.uint64), *words]),
                "leaves": weight * np.array(leaves),
                "left_shares": [left_share for _, _, left_share in splits],
            }
            for name, dtype in DTYPES.items():
                parts[name].append(np.array(own[name], dtype))
            n_nodes += len(splits)
            n_leaves += len(leaves)
            n_words += int(n_words_before[-1])
    forest = Forest(**{name: np.concatenate(parts[name]) for name in DTYPES})
    freeze_arrays(*forest)
    return forest


def _trees(booster: Any) -> Iterator[tuple[Mapping[str, Any], int]]:
    """Each tree as XGBoost's JSON has it, and its class: of a few rounds at a time, as Python's numbers take much memory."""
    for first in range(0, booster.num_boosted_rounds(), ROUNDS):
        some = booster[first : min(first + ROUNDS, booster.num_boosted_rounds())]
        model = json.loads(bytes(some.save_raw("json")))["learner"]["gradient_booster"]["model"]
        yield from zip(model["trees"], model["tree_info"], strict=True)


def _complete(schema: Schema, tree: Mapping[str, Any]) -> tuple[list[tuple[int, Mask, float]], list[float], int]:
    """The splits of a tree level by level (attribute, which codes go left, the share of rows that does), its leaves and its depth."""
    left, right = tree["left_children"], tree["right_children"]
    categories = _categories(tree)
    weights = tree["sum_hessian"]
    everything = (0, np.ones(schema.attributes[0].n_values + 1, bool), 1.0)
    level, splits, depth = [0], [], 0
    while any(left[node] >= 0 for node in level):
        below = []
        for node in level:
            if left[node] < 0:
                splits.append(everything)
                below += [node, node]
                continue
            total = weights[left[node]] + weights[right[node]]
            left_share = weights[left[node]] / total if total > 0.0 else 0.5
            splits.append((tree["split_indices"][node], _left_codes(schema, tree, node, categories), left_share))
            below += [left[node], right[node]]
        level = below
        depth += 1
    return splits, [float(tree["split_conditions"][node]) for node in level], depth


def _categories(tree: Mapping[str, Any]) -> dict[int, list[int]]:
    """The categories that go right, of the splits that have some."""
    nodes, segments, sizes = tree["categories_nodes"], tree["categories_segments"], tree["categories_sizes"]
    return {
        node: tree["categories"][first : first + size] for node, first, size in zip(nodes, segments, sizes, strict=True)
    }


def _left_codes(schema: Schema, tree: Mapping[str, Any], node: int, categories: Mapping[int, list[int]]) -> Mask:
    """Which codes go left: missing, unseen and absent ones where XGBoost sends missing values."""
    attribute = schema.attributes[tree["split_indices"][node]]
    first = int(attribute.has_missing)
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
    """The bits in words of 64."""
    padded = np.zeros(-(-goes_left.size // WORD) * WORD, bool)
    padded[: goes_left.size] = goes_left
    return np.packbits(padded, bitorder="little").view(np.uint64)


def forest_from_arrays(schema: Schema, arrays: Arrays) -> Forest:
    """The forest whose arrays are named `forest_…`; nothing is copied.

    Models from before 25 November 2026 have no shares: a row that lacks an attribute goes where XGBoost sends it, as it did.
    """
    parts = {name: arrays[f"forest_{name}"] for name in DTYPES if f"forest_{name}" in arrays}
    if "left_shares" not in parts:
        missing = schema.domain_sizes[parts["attributes"]]
        words = parts["words"][parts["word_starts"] + (missing >> 6)]
        parts["left_shares"] = ((words >> (missing & 63).astype(np.uint64)) & np.uint64(1)).astype(np.float32)
    forest = Forest(**parts)
    freeze_arrays(*forest)
    return forest


def check_forest(schema: Schema, arrays: Arrays) -> None:
    """Refuse arrays that a kernel would follow beyond their ends. Raises InvalidArray, naming the array."""
    parts = {
        name: check_array_type_and_shape(arrays, f"forest_{name}", dtype)
        for name, dtype in DTYPES.items()
        if name != "left_shares"
    }
    n_trees, n_splits = parts["depths"].size, parts["attributes"].size
    for name in ("labels", "node_starts", "leaf_starts"):
        check_array_type_and_shape(arrays, f"forest_{name}", np.int64, n_trees)
    depths, labels = parts["depths"], parts["labels"]
    check_array_elements(
        "forest_depths", (depths < 0) | (depths > MAX_DEPTH), f"holds what is no depth from 0 to {MAX_DEPTH}"
    )
    check_array_elements(
        "forest_labels", (labels < 0) | (labels >= schema.n_classes), "names classes that are not in the schema"
    )
    attributes = parts["attributes"].astype(np.int64)
    is_unknown = (attributes < 0) | (attributes >= schema.n_attributes)
    check_array_elements("forest_attributes", is_unknown, "names attributes that are not in the schema")
    check_array_type_and_shape(arrays, "forest_word_starts", np.int32, n_splits)
    n_leaves = np.int64(1) << depths
    for name, sizes, end in (
        ("node_starts", n_leaves - 1, n_splits),
        ("leaf_starts", n_leaves, parts["leaves"].size),
        ("word_starts", schema.domain_sizes[attributes] // WORD + 1, parts["words"].size),
    ):
        check_array_elements(
            f"forest_{name}", (parts[name] < 0) | (parts[name] > end - sizes), "points past the end of what it divides"
        )
    if "forest_left_shares" in arrays:
        shares = check_array_type_and_shape(arrays, "forest_left_shares", np.float32, n_splits)
        check_array_elements(
            "forest_left_shares", ~((shares >= 0) & (shares <= 1)), "holds what is no share from 0 to 1"
        )
    check_array_elements("forest_leaves", ~np.isfinite(parts["leaves"]), "holds a value that is not finite")


def forest_shap_values(
    schema: Schema, boosters: Sequence[Uint8s], weights: Sequence[float], chunk: Chunk
) -> tuple[Floats, Floats]:
    """(n_classes,) bias and (n_attributes, n_rows, n_classes) SHAP values of the boosters' margins, weighted and summed.

    References
    ----------
    Lundberg et al. (2020), From local explanations to global understanding with explainable AI for trees.
    """
    import xgboost

    codes = CodeTable(schema)
    bias = np.zeros(schema.n_classes)
    values = np.zeros((schema.n_attributes, chunk.n_rows, schema.n_classes))
    if not chunk.n_rows:
        return bias, values
    rows = xgboost.DMatrix(codes.features(chunk.x), feature_types=codes.feature_types, enable_categorical=True)
    for serialised, weight in zip(boosters, weights, strict=True):
        terms = (
            load_xgboost_booster(serialised)
            .predict(rows, pred_contribs=True, validate_features=False)
            .astype(np.float64)
        )
        if schema.n_classes == 2:  # the margin is the log odds of the second class
            terms = np.stack([np.zeros_like(terms), terms], axis=1)
        bias += weight * terms[0, :, -1]
        values += weight * terms[:, :, :-1].transpose(2, 0, 1)
    return bias, values
