"""Up to 10,000 classes: learned, stored and answered without tables of contexts times classes."""

from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learners import Source, drive, encode, infer_schema, load_model, record_classifier
from learners.classifiers.estimates.context_tree import build_context_trees
from learners.classifiers.estimates.hdp import HDPParameters, hdp_map_estimates
from learners.classifiers.lookup import lookup
from learners.classifiers.lookup.checks import check_lookup_arrays
from learners.classifiers.lookup.kernels import ManyClassTables
from learners.classifiers.lookup.lookup import LookupModel
from learners.counts.family_counts import FamilyCounts
from learners.errors import InvalidArray, InvalidParameter, SchemaError
from learners.registry import recipes
from tests import laws
from tests.support.classifiers import networks, table

N_CLASSES = 10_000


@pytest.fixture(scope="module")
def extreme():
    return table(30_000, N_CLASSES)


@pytest.mark.parametrize(("learner", "parameters"), [("nb", {}), ("kdb", {"k": 2}), ("tan", {})])
def test_ten_thousand_classes_are_learned_and_told_apart(extreme, learner, parameters):
    model = drive(recipes.learner(learner, parameters, "article"), Source.of_table(extreme), threads=1)
    assert isinstance(model, LookupModel)
    assert model.schema.n_classes == N_CLASSES and model.schema.class_values()[:2] == [0, 10]
    asked = table(20_000, N_CLASSES, seed=1).slice(0, 200)
    chunk = encode(asked, model.schema)
    found = model.predict_proba(chunk)
    assert np.allclose(found.sum(axis=1), 1)
    assert (found.argmax(axis=1) == chunk.y).mean() > 0.85
    header, arrays = model.to_arrays()
    check_lookup_arrays(header, arrays)
    assert np.array_equal(load_model(header, arrays).predict_proba(chunk), found)
    without = {name: array for name, array in arrays.items() if name not in header["derived"]}
    assert np.array_equal(load_model(header, without).predict_proba(chunk), found)
    # Ten times as many bytes as the cells that were counted, not contexts times classes.
    n_cells = sum(tree.n_cells for tree in model.trees)
    assert sum(array.nbytes for array in arrays.values()) < 64 * n_cells
    record = {name: asked[name][0].as_py() for name in ("shelf", "place", "weight")}
    assert np.array_equal(record_classifier(model)(record), found[0])
    log_prior, terms = model.log_terms(chunk.rows(slice(0, 3)))
    assert np.allclose(log_prior + terms.sum(axis=0), model.log_joint(chunk.rows(slice(0, 3))))
    with pytest.raises(InvalidParameter, match="up to 256 classes, and this model has 10,000"):
        model.credible_intervals(chunk)


@given(data=st.data())
def test_tables_of_many_classes_answer_as_the_others(data):
    """With the hierarchical estimates, which m-estimates in test_lookup are not."""
    schema, structure, training, asked = data.draw(networks(unseen=True))
    families = laws.updated(FamilyCounts(schema, structure.families()), [training])
    trees = build_context_trees(families)
    estimates = [posterior.estimates for posterior in hdp_map_estimates(trees, HDPParameters())]
    found = []
    for most in (0, 256):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lookup, "FEW_CLASSES", most)
            model = LookupModel.of(schema, structure, families.class_counts, trees, list(estimates), {})
            found.append((model.predict_proba(asked), model.log_joint(asked), model.log_terms(asked)[1]))
            check_lookup_arrays(*model.to_arrays())
    for many, few in zip(*found, strict=True):
        assert np.allclose(many, few, rtol=1e-5, atol=2e-5)


@cache
def stored():
    model = drive(recipes.learner("kdb", {"k": 1}, "article"), Source.of_table(table(1200, 300)), threads=1)
    return model.to_arrays()


def refused(change, name, says):
    header, arrays = stored()
    with pytest.raises(InvalidArray, match=says):
        check_lookup_arrays(header, dict(arrays) | {f"many_{name}": change(arrays[f"many_{name}"].copy())})


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("rest_class", 300, "contains codes outside the domain"),
        ("cell_class", 65_535, "contains codes outside the domain"),
        ("roots", -1, "points past the end"),
        ("child_ends", 1 << 40, "points past the end"),
        ("rest_starts", 5, "ascend"),
        ("pair_starts", 1, "ascend"),
        ("cell_starts", -1, "ascend"),
        ("rest_log", np.nan, "contains values that are not log probabilities"),
        ("cell_log", np.inf, "contains values that are not log probabilities"),
        ("log_prior", np.nan, "not finite"),
        ("value_starts", 9, "does not follow"),
    ],
)
def test_damaged_tables_are_refused(name, value, says):
    def first(array):
        array[0] = value
        return array

    refused(first, name, f"many_{name}.*{says}")


@pytest.mark.parametrize("name", sorted(ManyClassTables._fields))
def test_tables_of_another_type_or_length_are_refused(name):
    refused(lambda array: array.astype(np.complex128), name, f"many_{name}.*complex128")
    refused(lambda array: array[:-1], name, "many_")


@pytest.mark.parametrize(
    ("y", "says"),
    [
        (np.arange(600), "'y' has 600 different values in 600 rows, fewer than two rows for each"),
        (np.arange(20_002) // 2, "'y' has more than 10,000 different values"),
    ],
)
def test_a_target_of_too_many_values_is_no_class(y, says):
    with pytest.raises(SchemaError, match=says):
        infer_schema(Source.of_table(pa.table({"x": ["a", "b"] * (y.size // 2), "y": y})), "y")


@pytest.mark.parametrize("learner", ["skdb", "auto", "xgboost", "spn"])
def test_other_learners_say_which_take_so_many(learner):
    rows = table(1200, 300)
    with pytest.raises(
        SchemaError, match=r"more than 256 different values.* 10,000 classes take learners nb, tan and kdb"
    ):
        drive(recipes.learner(learner, {}, "article"), Source.of_table(rows), threads=1)
    schema = infer_schema(Source.of_table(rows), "article")
    with pytest.raises(SchemaError, match="more than 256 different values"):
        recipes.learner(learner, {}, "article", schema)
