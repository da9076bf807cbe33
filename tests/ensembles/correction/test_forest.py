"""The flat trees of a correction, against XGBoost's own walked node by node."""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import xgboost

from learners.classifiers.baselines.boosted import CodeTable
from learners.ensembles.correction import forest as forests
from learners.ensembles.correction.forest import (
    check_forest,
    flatten_xgboost_forest,
    forest_arrays,
    forest_from_arrays,
    forest_shap_values,
    no_packed_trees,
    pack_trees,
)
from learners.ensembles.correction.forest_kernels import (
    BLOCK_ROWS,
    MASKED_DEPTH,
    PART_ROWS,
    WALKED_ROWS,
    add_forest_scores,
)
from learners.errors import InvalidArray
from learners.kernels.arrays import read_only_array
from tests import strategies
from tests.naive import ensembles as naive

WEIGHTS = (0.7, 1.5)
SIZES = [2, 3, 260]
BY_SHARES = 1e-4  # shares of splits are multiples of 2^-16


@cache
def grown(n_classes):
    """Schema of 2 to 700 cut points and a word of 300 values, two boosters, and rows to ask about, one column of which has nulls."""
    schema = strategies.grouped_schema_of(0, (700, 2, 254), n_classes, missing={1})
    word = strategies.schema_of([300], 2).attributes[0]
    schema = replace(schema, attributes=(*schema.attributes, replace(word, name="word")))
    codes, rows = CodeTable(schema), strategies.chunk_of(1, schema, 900)
    matrix = xgboost.DMatrix(codes.features(rows.x), rows.y, feature_types=codes.feature_types, enable_categorical=True)
    kind = (
        {"objective": "binary:logistic"} if n_classes == 2 else {"objective": "multi:softprob", "num_class": n_classes}
    )
    boosters = tuple(
        xgboost.train(
            {"max_depth": depth, "nthread": 1, "min_child_weight": 0, **kind}, matrix, 1 + 4 * (n_classes < 9)
        )
        for depth in (5, 8)
    )
    return schema, boosters, strategies.chunk_of(2, schema, 40).x


def expected(schema, boosters, x):
    """Where a column is absent a row is parted, or else goes where XGBoost sends it."""
    told = [json.loads(bytes(booster.save_raw("json"))) for booster in boosters]
    is_absent = (x == schema.domain_sizes[:, np.newaxis]).T
    return naive.forest_scores(told, WEIGHTS, CodeTable(schema).features(x), is_absent, schema.n_classes)


def scores_of(forest, schema, x):
    """Few rows, which walk down the trees, and many, which go down packed trees or by masks, get the same answers."""
    assert x.shape[1] < WALKED_ROWS <= 3 * x.shape[1]
    scores = np.zeros((4 * x.shape[1], schema.n_classes))
    walked, masked = np.split(scores, [x.shape[1]])
    packed = pack_trees(forest)
    assert np.array_equal(packed.starts >= 0, forest.depths > forests.MASKED_DEPTH), "the deep ones"
    add_forest_scores(forest, no_packed_trees(forest), x, schema.domain_sizes, walked)
    add_forest_scores(forest, packed, np.tile(x, 3), schema.domain_sizes, masked)
    is_whole = np.tile((x < schema.domain_sizes[:, np.newaxis]).all(axis=0), 3)
    walked_thrice = np.tile(walked, (3, 1))
    assert np.array_equal(walked_thrice[is_whole], masked[is_whole])
    assert walked_thrice == pytest.approx(masked, abs=1e-12), "the ways of a row are added in another order"
    return walked


@pytest.mark.parametrize("n_classes", SIZES)
def test_whole_rows_get_the_leaves_of_xgboost(n_classes):
    schema, boosters, x = grown(n_classes)
    forest = flatten_xgboost_forest(schema, boosters, WEIGHTS)
    assert {0, 3} <= set(forest.attributes.tolist()), "the wide columns are split"
    assert (forest.depths <= MASKED_DEPTH).any() and ((forest.depths > MASKED_DEPTH).any() or n_classes == 260)
    found = scores_of(forest, schema, x)
    assert found == pytest.approx(expected(schema, boosters, x), abs=1e-5)
    codes = CodeTable(schema)
    rows = xgboost.DMatrix(codes.features(x), feature_types=codes.feature_types, enable_categorical=True)
    margins = sum(w * one.predict(rows, output_margin=True) for w, one in zip(WEIGHTS, boosters, strict=True))
    own = found[:, 1] if n_classes == 2 else found
    assert np.ptp(margins - own, axis=0).max() < 1e-4, "but for a constant, as the library itself"


def test_rows_of_all_blocks_get_the_scores_of_rows_asked_alone():
    schema, boosters, x = grown(3)
    forest = flatten_xgboost_forest(schema, boosters, WEIGHTS)
    assert (forest.depths <= MASKED_DEPTH).any() and (forest.depths > MASKED_DEPTH).any()
    alone, n = np.zeros((x.shape[1], 3)), BLOCK_ROWS + PART_ROWS + 7
    add_forest_scores(forest, no_packed_trees(forest), x, schema.domain_sizes, alone)
    chosen = np.random.default_rng(4).integers(0, x.shape[1], n)
    begun = np.random.default_rng(5).random((n, 3))  # what the tables have said
    scores = begun.copy()
    add_forest_scores(forest, pack_trees(forest), read_only_array(x[:, chosen]), schema.domain_sizes, scores)
    assert scores == pytest.approx(begun + alone[chosen], abs=1e-12)


@pytest.mark.parametrize("n_classes", SIZES)
def test_where_a_column_is_missing_a_row_goes_both_ways(n_classes):
    schema, boosters, x = grown(n_classes)
    is_absent = np.random.default_rng(3).random(x.shape) < 0.4
    x = np.where(is_absent, schema.domain_sizes[:, np.newaxis], x).astype(schema.code_dtype)
    found = scores_of(flatten_xgboost_forest(schema, boosters, WEIGHTS), schema, x)
    assert found == pytest.approx(expected(schema, boosters, x), abs=BY_SHARES)


@pytest.mark.parametrize("n_classes", SIZES)
@pytest.mark.parametrize("is_whole", [True, False])
def test_rows_beside_the_same_without_some_values_get_their_own_scores(n_classes, is_whole):
    """They go down together, which other rows do not; both may lack values."""
    schema, boosters, x = grown(n_classes)
    forest, rng = flatten_xgboost_forest(schema, boosters, WEIGHTS), np.random.default_rng(7)
    sizes = schema.domain_sizes[:, np.newaxis]
    more = x if is_whole else np.where(rng.random(x.shape) < 0.3, sizes, x)
    less = np.where(rng.random(x.shape) < 0.4, sizes, more)
    for rows in (slice(0, 20), slice(3, 4)):
        both = np.concatenate([more[:, rows], less[:, rows]], axis=1).astype(schema.code_dtype)
        together, alone = np.zeros((2, both.shape[1], n_classes))
        for chosen, scores in (
            (both, together),
            *zip(np.split(both, both.shape[1], axis=1), np.split(alone, len(alone)), strict=True),
        ):
            chosen = read_only_array(np.ascontiguousarray(chosen))
            add_forest_scores(forest, no_packed_trees(forest), chosen, schema.domain_sizes, scores)
        assert together == pytest.approx(alone, abs=1e-12)


@pytest.mark.parametrize("n_classes", SIZES)
def test_shap_values_are_shapley_values_of_what_the_trees_expect(n_classes):
    """Rows lack some attributes, whose values are then 0."""
    schema, boosters, x = grown(n_classes)
    x = x[:, :12]
    is_absent = np.random.default_rng(6).random(x.shape) < np.array([0.0, 0.3])[np.arange(12) % 2]
    x = np.where(is_absent, schema.domain_sizes[:, np.newaxis], x).astype(schema.code_dtype)
    right = naive.shapley_values(lambda own: expected(schema, boosters, own), x, schema.domain_sizes)
    found = forest_shap_values(
        flatten_xgboost_forest(schema, boosters, WEIGHTS), read_only_array(x), schema.domain_sizes, schema.n_classes
    )
    for own, by_sets in zip(found, right, strict=True):
        assert own == pytest.approx(by_sets[0] if own.ndim == 1 else by_sets, abs=BY_SHARES)
    assert is_absent.any() and not found[1][is_absent].any()


@pytest.mark.parametrize("n_classes", SIZES)
def test_shap_values_are_those_of_xgboost(n_classes):
    schema, boosters, x = grown(n_classes)
    _, found = forest_shap_values(
        flatten_xgboost_forest(schema, boosters, WEIGHTS), read_only_array(x), schema.domain_sizes, schema.n_classes
    )
    codes = CodeTable(schema)
    rows = xgboost.DMatrix(codes.features(x), feature_types=codes.feature_types, enable_categorical=True)
    theirs = sum(w * one.predict(rows, pred_contribs=True) for w, one in zip(WEIGHTS, boosters, strict=True))
    own = found[:, :, 1].T if n_classes == 2 else found.transpose(1, 2, 0)
    assert own == pytest.approx(theirs[..., :-1], abs=1e-4)


@pytest.mark.parametrize("n_classes", SIZES)
def test_complete_trees_of_release_0_2_0_answer_as_they_did(n_classes, monkeypatch):
    """Their arrays do not name the children of a node: these follow from its place."""
    schema, boosters, x = grown(n_classes)
    monkeypatch.setattr(forests, "MASKED_DEPTH", 16)
    arrays = {
        f"forest_{name}": array for name, array in flatten_xgboost_forest(schema, boosters, WEIGHTS)._asdict().items()
    }
    for name in forests.LATER:
        del arrays[f"forest_{name}"]
    check_forest(schema, arrays)
    for name in ("node_starts", "leaf_starts"):
        with pytest.raises(InvalidArray, match=f"forest_{name}.*points past the end"):
            check_forest(schema, arrays | {f"forest_{name}": np.full_like(arrays[f"forest_{name}"], 2**63 - 1)})
    forest = forest_from_arrays(schema, arrays)
    x = np.where(np.random.default_rng(4).random(x.shape) < 0.4, schema.domain_sizes[:, np.newaxis], x).astype(x.dtype)
    assert scores_of(forest, schema, x) == pytest.approx(expected(schema, boosters, x), abs=BY_SHARES)


@pytest.mark.parametrize("n_classes", SIZES)
def test_a_forest_is_stored_without_what_follows_from_the_rest(n_classes):
    schema, boosters, _ = grown(n_classes)
    forest = flatten_xgboost_forest(schema, boosters, WEIGHTS)
    arrays = forest_arrays(forest)
    assert sum(array.nbytes for array in arrays.values()) < 0.9 * sum(array.nbytes for array in forest)
    check_forest(schema, arrays)
    again = forest_from_arrays(schema, arrays)
    for name, own in forest._asdict().items():
        assert own.dtype == getattr(again, name).dtype and np.array_equal(own, getattr(again, name)), name
    bits, first = arrays["forest_splits"], forest.attributes[0]
    for name, wrong, words in (
        ("forest_splits", bits[:-1], "of shape"),
        ("forest_splits", ~bits, "lefts.*not a child|rights.*not a child"),
        ("forest_attributes", np.full_like(forest.attributes, 3 - first), "word_starts.*points past the end"),
    ):
        with pytest.raises(InvalidArray, match=words):
            check_forest(schema, arrays | {name: wrong})


def test_trees_that_grow_leaf_by_leaf_have_no_more_splits_than_they_need():
    schema, _, x = grown(2)
    codes, rows = CodeTable(schema), strategies.chunk_of(1, schema, 900)
    matrix = xgboost.DMatrix(codes.features(rows.x), rows.y, feature_types=codes.feature_types, enable_categorical=True)
    settings = {"tree_method": "hist", "grow_policy": "lossguide", "max_depth": 0, "max_leaves": 60, "nthread": 1}
    booster = xgboost.train({**settings, "min_child_weight": 0, "objective": "binary:logistic"}, matrix, 3)
    forest = flatten_xgboost_forest(schema, [booster], [1.0])
    assert forest.depths.max() > MASKED_DEPTH
    n_leaves = sum(dump.count("leaf=") for dump in booster.get_dump())
    assert forest.leaves.size == n_leaves
    assert forest.attributes.size == n_leaves - 3
    for missing in (0.0, 0.4):
        is_absent = np.random.default_rng(5).random(x.shape) < missing
        own = np.where(is_absent, schema.domain_sizes[:, np.newaxis], x).astype(schema.code_dtype)
        told = [json.loads(bytes(booster.save_raw("json")))]
        absent = (own == schema.domain_sizes[:, np.newaxis]).T
        right = naive.forest_scores(told, (1.0,), codes.features(own), absent, 2)
        assert scores_of(forest, schema, own) == pytest.approx(right, abs=BY_SHARES)
    arrays = {f"forest_{name}": array for name, array in forest._asdict().items()}
    check_forest(schema, arrays)
    for name, wrong in (("lefts", 0), ("rights", 999), ("lefts", -100)):
        with pytest.raises(InvalidArray, match=f"forest_{name}.*names a node that is not a child of its parent"):
            check_forest(schema, arrays | {f"forest_{name}": np.full_like(arrays[f"forest_{name}"], wrong)})
