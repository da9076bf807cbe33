"""Validate XGBoost models from untrusted sources before prediction.

XGBoost follows the indices in its files without bounds checks, so a changed byte can crash the process. Only
a disposable process may call `check_booster` (`service.product.versions.export_import`), which checks every
index after XGBoost has loaded the bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from learners.classifiers.baselines.boosted import load_xgboost_booster
from learners.errors import InvalidArray, SchemaError
from learners.kernels.arrays import Arrays
from learners.models.model import Header, check_array_elements, check_array_type_and_shape
from learners.schema import Schema

if TYPE_CHECKING:  # a process that only serves networks should not load XGBoost
    import xgboost

OBJECTIVES = {True: "binary:logistic", False: "multi:softprob"}  # of two classes, or more
CATEGORICAL = 1  # of XGBoost's FeatureType
PER_NODE = (
    "left_children",
    "right_children",
    "parents",
    "split_indices",
    "split_conditions",
    "default_left",
    "split_type",
    "base_weights",
)


def check_boosted_model(header: Mapping[str, object], arrays: Arrays) -> None:
    """Refuse a model whose booster does not match its schema, or whose trees are malformed.

    Raises InvalidArray, naming the array.
    """
    schema = Schema.from_json(cast(Header, header)["schema"])
    gains = check_array_type_and_shape(arrays, "gains", np.float64, schema.n_attributes)
    check_array_elements("gains", ~np.isfinite(gains), "contains a value that is not finite")
    check_array_type_and_shape(arrays, "n_splits", np.int64, schema.n_attributes)
    if "class_counts" not in cast(Header, header)["facts"]:
        raise SchemaError("The facts of the model lack class_counts, the rows of each class.")
    check_booster(schema, "booster", arrays)


def check_booster(schema: Schema, name: str, arrays: Arrays) -> None:
    """Refuse an array (n_bytes,) uint8 that is not a booster over a schema's codes. Raises InvalidArray, naming the
    array.
    """
    serialised = check_array_type_and_shape(arrays, name, np.uint8)
    try:
        reason = _wrong(schema, load_xgboost_booster(serialised))
    except Exception as error:  # of XGBoost, and of a document that lacks what each of its documents has
        raise InvalidArray(
            name, f"is not an XGBoost model ({type(error).__name__}: {str(error).partition(chr(10))[0]})"
        ) from error
    if reason:
        raise InvalidArray(name, reason)


def _wrong(schema: Schema, booster: xgboost.Booster) -> str:
    """Return the fault of a booster that XGBoost has loaded; empty if valid."""
    learner = json.loads(bytes(booster.save_raw("json")))["learner"]
    parameters, trees = learner["learner_model_param"], learner["gradient_booster"]
    n_groups = 0 if schema.n_classes == 2 else schema.n_classes
    if booster.num_features() != schema.n_attributes:
        return f"has {booster.num_features()} features, the schema {schema.n_attributes}"
    if int(parameters["num_class"]) != n_groups:
        return f"does not have the {schema.n_classes} classes of the schema"
    if learner["objective"]["name"] != OBJECTIVES[schema.n_classes == 2]:
        return f"has the objective {learner['objective']['name']!r}"
    start = np.atleast_1d(np.array(json.loads(parameters["base_score"]), np.float64))
    if trees["name"] != "gbtree" or not np.isfinite(start).all():
        return "is not a sum of trees with a finite base score"
    return _wrong_forest(schema, trees["model"], max(1, n_groups))


def _wrong_forest(schema: Schema, forest: Mapping[str, Any], n_groups: int) -> str:
    groups, trees = np.array(forest["tree_info"], np.int64), forest["trees"]
    if groups.shape != (len(trees),) or ((groups < 0) | (groups >= n_groups)).any():
        return "has trees for classes that are not in the schema"
    starts = np.array(forest.get("iteration_indptr", [0, len(trees)]), np.int64)
    if starts[0] != 0 or starts[-1] != len(trees) or (np.diff(starts) < 0).any():
        return "has no rounds of trees"
    return "" if all(_leads_down(tree, schema) for tree in trees) else "has an invalid tree"


def _leads_down(tree: Mapping[str, Any], schema: Schema) -> bool:
    """Return whether each node but the first has one parent before it, and all splits use existing values."""
    column = {field: np.array(tree[field]) for field in PER_NODE}
    n_nodes = column["left_children"].size
    if not n_nodes or any(values.shape != (n_nodes,) for values in column.values()):
        return False
    left, right, feature = column["left_children"], column["right_children"], column["split_indices"]
    inner, node = left >= 0, np.arange(n_nodes)
    children = np.concatenate([left[inner], right[inner]])
    is_down = bool((children > np.tile(node[inner], 2)).all() and (children < n_nodes).all())
    is_tree = children.size == n_nodes - 1 == np.unique(children).size and bool((right[~inner] < 0).all())
    if not (is_down and is_tree and bool(((feature >= 0) & (feature < schema.n_attributes)).all())):
        return False
    finite = np.isfinite(column["split_conditions"].astype(np.float64)[~inner]).all()
    return bool(finite) and _has_categories(tree, column["split_type"], inner, feature, schema)


def _has_categories(tree: Mapping[str, Any], split_type: Any, inner: Any, feature: Any, schema: Schema) -> bool:
    """Return whether the sets of categories match the categorical splits, consecutively."""
    nodes, starts, sizes, values = (
        np.array(tree[f"categories{part}"], np.int64) for part in ("_nodes", "_segments", "_sizes", "")
    )
    categorical = np.flatnonzero((split_type == CATEGORICAL) & inner)
    if not (nodes.shape == starts.shape == sizes.shape and np.array_equal(nodes, categorical)):
        return False
    if (sizes < 0).any() or not np.array_equal(starts, np.concatenate([[0], np.cumsum(sizes)[:-1]])[: starts.size]):
        return False
    if values.size != sizes.sum():
        return False
    return bool(((values >= 0) & (values <= schema.domain_sizes[feature[np.repeat(nodes, sizes)]])).all())
