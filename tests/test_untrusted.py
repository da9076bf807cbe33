"""Models that somebody else has made: refused in words, or they answer; never do kernels read beyond their arrays."""

import json
import random
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from learners import Source, drive, encode, explain, load_model
from learners.classifiers.lookup import compilation
from learners.errors import InvalidArray, LearnerError, SchemaError
from learners.registry import recipes

N = 240
TABLE = pa.table(
    {
        "word": ["a", "b", "c", None] * (N // 4),
        "many": [str(i % 20) for i in range(N)],
        "number": [0.5, 1.5, float("nan"), 3.5] * (N // 4),
        "class": ["yes", "no", "perhaps"] * (N // 3),
    }
)
# Columns without any information about the class have no weight in an ensemble, and so no tables.
PREDICTABLE = TABLE.set_column(
    3, "class", pa.array([("yes", "no", "perhaps")[i % 3 if i % 2 else i % 4] for i in range(N)])
)
ASKED = TABLE.slice(0, 24)
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "lookup": ("kdb", {"k": 2, "estimator": "hdp", "iterations": 20}),
    "averaged-trees": ("tan", {"average": True}),
    "ensemble": ("auto", {"members": 2}),
    "circuit": ("spn", {"structure": "learnspn", "learning": "adf"}),
    "boosted-trees": ("xgboost", {"rounds": 3}),
}
# What a model's classes raise where the header is not what it should be; all of it is a refusal where models come in.
REFUSALS = (LearnerError, ValueError, ArithmeticError, LookupError, TypeError, AttributeError)
NUMBERS = [-1, -2, 0, 1, 2, 7, 255, 10**6, 10**12, 2**62, -(2**63)]
LOGARITHMS = [float("nan"), float("inf"), -float("inf"), 1e30, -1.0, 0.0, 2.0]
N_CHANGES = 20


@cache
def written(kind):
    """Header and arrays as they are stored."""
    with pytest.MonkeyPatch.context() as patch:
        if kind == "lookup":  # some attributes by hash tables too
            patch.setattr(compilation, "SMALL_TABLE", 100)
            patch.setattr(compilation, "DENSE_RATIO", 0)
        source = Source.of_table(PREDICTABLE if kind == "ensemble" else TABLE)
        header, arrays = drive(recipes.learner(*RUNS[kind], "class"), source).to_arrays()
    return json.loads(json.dumps(header)), dict(arrays)


def answers(header, arrays):
    """Let it answer everything that kernels answer, unless it is refused."""
    try:
        model: Any = load_model(header, arrays, is_trusted=False)
    except REFUSALS:
        return
    chunk = encode(ASKED, model.schema, with_class=False)
    assert model.predict_proba(chunk).shape == (24, model.schema.n_classes)
    if hasattr(model, "credible_intervals"):
        try:
            model.credible_intervals(chunk, 0.9)
        except REFUSALS:
            return
        explain(model, chunk)


@pytest.mark.parametrize("kind", RUNS)
def test_what_was_written_is_taken_and_answers_as_before(kind):
    header, arrays = written(kind)
    ours, theirs = load_model(header, arrays), load_model(header, arrays, is_trusted=False)
    chunk = encode(TABLE, ours.schema)
    np.testing.assert_array_equal(ours.predict_proba(chunk), theirs.predict_proba(chunk))
    assert json.loads(json.dumps(ours.structure())) == ours.structure(), "it is what JSON holds"


def changed(array, rng):
    """The array with one thing wrong."""
    how = rng.choice(["value", "value", "value", "next", "next", "shorter", "longer", "type", "shape"])
    if how in {"value", "next"} and array.size:
        array = array.copy()
        place = rng.randrange(array.size)
        if array.dtype.kind == "f":
            array.flat[place] = rng.choice(LOGARITHMS)
        else:
            limits, own = np.iinfo(array.dtype), int(array.flat[place])
            value = rng.choice(NUMBERS) if how == "value" else own + rng.choice([-1, 1])
            array.flat[place] = min(max(value, limits.min), limits.max)
        return array
    if how == "shorter":
        return array[:-1]
    if how == "longer":
        return np.concatenate([array.ravel(), array.ravel()[:1]])
    return array.astype(rng.choice(["f8", "i4", "u8", "i1", "?"])) if how == "type" else array.reshape(-1, 1)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", RUNS)
def test_no_change_of_an_array_leads_kernels_astray(kind):
    header, arrays = written(kind)
    rng = random.Random(0)
    # XGBoost's own bytes are read in a process that may die: tests/classifiers/baselines/test_untrusted_boosters.py.
    for name in sorted(name for name in arrays if not name.startswith("booster")):
        for _ in range(N_CHANGES):
            array = changed(np.array(arrays[name]), rng)
            array.setflags(write=False)
            answers(header, arrays | {name: array})


@pytest.mark.parametrize("kind", RUNS)
@pytest.mark.parametrize("dtype", [">f8", ">i4", "c16", "M8[s]"])
def test_arrays_of_types_that_no_kernel_reads_are_refused(kind, dtype):
    header, arrays = written(kind)
    name = next(iter(arrays))
    with pytest.raises(InvalidArray, match=f"Array '{name}' of the model has the type '[<>].*', which no kernel reads"):
        load_model(header, arrays | {name: np.zeros(3, dtype)}, is_trusted=False)


def test_variances_that_are_no_numbers_are_refused():
    header, arrays = written("lookup")
    infinite = arrays | {"estimate_variance": arrays["estimate_variance"] | np.uint16(0x7F80)}
    with pytest.raises(InvalidArray, match="Array 'estimate_variance' of the model contains invalid variances"):
        load_model(header, infinite, is_trusted=False)


def one_child_moved(n_children):
    return np.array([n_children[0] - 1, n_children[1] + 1, *n_children[2:]], n_children.dtype)


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("table_dense_starts", lambda a: a + 10**12, "points past the end of the dense tables"),
        ("table_hash_ranks", lambda a: a + 10**6, "points past the end of the vectors"),
        ("table_hash_words", lambda a: a | np.uint64(2**64 - 1), "without an empty slot"),
        ("table_key_low", lambda a: a[:-1].copy(), "does not have the length of the vectors"),
        ("table_parents", lambda a: a + 100, "does not follow from the schema and the structure"),
        ("table_strides", lambda a: a * 1000, "does not follow from the schema and the structure"),
        ("table_dense", lambda a: a.astype(np.float64), "is float64 of shape"),
        ("table_log_prior", lambda a: a * np.nan, "contains a value that is not finite"),
        ("tree_levels", lambda a: a + 1, "has a tree without one root"),
        ("tree_n_children", one_child_moved, "points to a node that is not on the next level"),
        ("tree_n_children", lambda a: a + np.uint8(1), "does not visit every node exactly once"),
        ("tree_n_cells", lambda a: a[:-1].copy(), "elements where the trees have"),
        ("tree_cell_count_at", lambda a: np.array([10**9], np.uint32), "points past the end of the numbers"),
        ("tree_cell_count_above", lambda a: a.astype(np.int64), "expected uint32 of shape"),
        ("tree_branch", lambda a: a + np.uint8(99), "contains codes outside the domain"),
        ("tree_cell_value", lambda a: a + np.uint8(99), "contains codes outside the domain"),
        ("tree_cell_value", lambda a: a[::-1].copy(), "values out of order"),
        ("tree_cell_count", lambda a: a.astype(np.int64), "expected uint8 of shape"),
        ("estimate_rest", lambda a: a[1:], "elements where the trees have"),
        ("estimate_probability", lambda a: a.astype(np.float64), "expected float32 of shape"),
        ("class_counts", lambda a: -a - 1, "contains invalid row counts"),
    ],
)
def test_what_is_wrong_with_an_array_is_told_by_its_name(name, change, words):
    header, arrays = written("lookup")
    with pytest.raises(InvalidArray, match=f"Array '{name}' of the model .*{words}"):
        load_model(header, arrays | {name: change(np.array(arrays[name]))}, is_trusted=False)
    missing = {other: array for other, array in arrays.items() if other != name}
    with pytest.raises(InvalidArray, match=f"Array '{name}' of the model is missing"):
        load_model(header, missing, is_trusted=False)


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("packed_n_keys", lambda a: -a - 1, "is no count of keys"),
        ("packed_keys", lambda a: np.zeros((9, a.shape[1]), np.uint8), "more than 8 bytes for a number"),
        ("packed_dense_masks", lambda a: a | np.uint8(128), "names classes that are not in the schema"),
        ("packed_dense_masks", lambda a: a[:, :-1].copy(), "is (uint8|float32) of shape"),
        ("packed_dense", lambda a: np.repeat(a, 5, axis=0), "more than 4 bytes for a number"),
        ("packed_dense", lambda a: a[:, 1:].copy(), "is uint8 of shape"),
        ("packed_spread_dense", lambda a: a[1:].copy(), "is uint8 of shape"),
        ("table_dense_starts", lambda a: a + 1, "begins within a row"),
        ("table_dense_starts", lambda a: a + 3 * 10**12, "points past the end of the dense tables"),
        ("table_n_values", lambda a: a + 1, "does not follow from the schema and the structure"),
    ],
)
def test_what_is_wrong_with_a_packed_array_is_told(name, change, words):
    header, arrays = written("ensemble")
    with pytest.raises(InvalidArray, match=f"Array '.*' of the model .*{words}"):
        load_model(header, arrays | {name: change(np.array(arrays[name]))}, is_trusted=False)


@pytest.mark.parametrize(
    ("member", "value", "words"),
    [
        ("has_missing", -5, "lacks the fields on missing and folded values"),
        ("n_folded", -1, "lacks the fields on missing and folded values"),
        ("values", ["a", "a"], "not different texts"),
        ("values", ["a", 1], "not different texts"),
        ("cuts", [2.0, 1.0], "do not ascend"),
        ("cuts", [float("nan")], "not numbers"),
        ("cuts", list(range(70_000)), "at most 65535"),
        ("kind", "ordinal", "lacks a name, kind or type"),
        ("distribution", "cauchy", "cannot have"),
    ],
)
@pytest.mark.parametrize("kind", RUNS)
def test_what_is_wrong_with_the_schema_is_told_by_the_column(kind, member, value, words):
    header, arrays = written(kind)
    schema = json.loads(header["schema"])
    attribute = next(one for one in schema["attributes"] if one["name"] == "number")
    attribute[member] = value
    if member == "cuts":
        attribute["kind"] = "numeric"
    with pytest.raises(SchemaError, match=f"Column 'number' of the schema .*{words}"):
        load_model(header | {"schema": json.dumps(schema)}, arrays, is_trusted=False)


def test_a_schema_with_half_a_character_is_refused():
    header, arrays = written("lookup")
    schema = json.loads(header["schema"])
    schema["classes"][0] = "\ud800"
    with pytest.raises(SchemaError, match="not text"):
        load_model(header | {"schema": json.dumps(schema)}, arrays, is_trusted=False)
