"""Rows that count more than once, and rows whose class is null."""

import json
import re
import warnings
from datetime import date

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fewpass import ESKDB, KDB, NB, SKDB, TAN, FewPassClassifier, StructurePosterior, SumProductNetwork, XGBoost
from learners import Source, infer_schema
from learners.errors import InvalidParameter, SchemaError, UnknownColumn
from learners.passes.learner import MemoryStore, Part, Rows, drive
from learners.passes.row_rules import Weight, apply_null_class_rule, apply_row_weight_rule, repeated_row_positions
from learners.passes.sources.row_filter import Selection
from learners.registry import recipes
from learners.schema import Schema
from learners.schema.overrides import MOST_WEIGHT
from tests.support.passes import same

N = 300
COLUMNS = {"w": {"weight": True}}
N_NULL = 120
ROWS = pa.table({"x": ["u", "v", "w"] * (N_NULL // 3), "y": ["a", "b", None] * (N_NULL // 3)})
KNOWN = ROWS.filter(pa.compute.is_valid(ROWS["y"]))


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    a = rng.choice(["u", "v", "w"], N)
    y = np.where((a == "u") ^ (rng.random(N) < 0.2), "yes", "no")
    numbers = {"number": rng.normal(size=N) + (y == "yes"), "few": rng.integers(0, 5, N), "w": rng.integers(0, 7, N)}
    return pa.table({"a": a, **numbers, "class": y})


@pytest.fixture(scope="module")
def expanded(table):
    return table.drop(["w"]).take(pa.array(np.repeat(np.arange(N), table["w"].to_numpy())))


@pytest.mark.parametrize("estimator", [NB(), TAN(), KDB(k=2, estimator="hdp-map"), SKDB()])
def test_a_classifier_is_that_of_repeated_rows(table, expanded, estimator):
    ours = type(estimator)(**estimator.get_params()).set_params(columns=COLUMNS).fit(table, "class")
    theirs = estimator.fit(expanded, "class")
    assert np.array_equal(ours.predict_proba(table), theirs.predict_proba(table))
    assert ours.model_.facts["n_rows"] == expanded.num_rows
    if isinstance(estimator, NB | SKDB):
        given = estimator.fit(table.drop(["w"]), "class", sample_weight=table["w"].to_numpy())
        assert np.array_equal(given.predict_proba(table), ours.predict_proba(table))


@pytest.mark.parametrize("estimator", [ESKDB(members=2), FewPassClassifier(members=2)])
def test_an_ensemble_counts_repeated_rows_and_leaves_them_out_together(table, expanded, estimator):
    """Copies that a weight makes are known to be copies; those of the expanded table seem to confirm each other."""
    ours = type(estimator)(**estimator.get_params()).set_params(columns=COLUMNS).fit(table, "class")
    theirs = estimator.fit(expanded, "class")
    assert ours.model_.facts["n_rows"] == theirs.model_.facts["n_rows"] == expanded.num_rows
    assert np.array_equal(ours.model_.class_counts, theirs.model_.class_counts)
    assert ours.model_.schema.attributes == theirs.model_.schema.attributes
    assert ours.model_.facts["left_out_loss"] > theirs.model_.facts["left_out_loss"]
    given = estimator.fit(table.drop(["w"]), "class", sample_weight=table["w"].to_numpy())
    assert np.array_equal(given.predict_proba(table), ours.predict_proba(table))


def test_other_learners_too(table, expanded):
    booster = XGBoost(rounds=5, columns=COLUMNS).fit(table, "class")
    of_repeated = XGBoost(rounds=5).fit(expanded, "class")
    assert np.allclose(booster.predict_proba(table), of_repeated.predict_proba(table), atol=1e-5)
    few = {"structure": "hclt", "states": 4}
    circuit = SumProductNetwork(columns=COLUMNS, **few).fit(table, "class")
    whole = SumProductNetwork(**few).fit(expanded, "class")
    assert np.allclose(circuit.predict_proba(table), whole.predict_proba(table), atol=0.02)
    nominal = table.select(["a", "few", "class"])
    posterior = StructurePosterior(columns=COLUMNS).fit(nominal.append_column("w", table["w"]))
    whole = StructurePosterior().fit(expanded.select(["a", "few", "class"]))
    assert np.array_equal(posterior.edge_probabilities_, whole.edge_probabilities_)


def test_the_model_says_which_column_was_the_weight_and_large_weights_cost_nothing(table):
    schema = NB(columns=COLUMNS).fit(table, "class").model_.schema
    assert ("w", "the weight of the rows") in [(entry.name, entry.reason) for entry in schema.left_out]
    assert "w" not in [attribute.name for attribute in schema.attributes]
    model = KDB().fit(table.drop(["w"]), "class", sample_weight=np.full(N, 10_000_000))
    assert model.model_.facts["n_rows"] == N * 10_000_000


def test_rows_count_by_their_class(table):
    plain = table.drop(["w"])
    by_class = np.array([{"yes": 3}.get(y, 1) for y in table["class"].to_pylist()])
    ours = KDB(columns={"class": {"weight": {"yes": 3}}}).fit(plain, "class")
    theirs = KDB().fit(plain, "class", sample_weight=by_class)
    assert np.array_equal(ours.predict_proba(plain), theirs.predict_proba(plain))
    assert "class" not in [entry.name for entry in ours.model_.schema.left_out]
    by_word = KDB(columns={"a": {"weight": {"u": 0}}}).fit(plain, "class")
    assert by_word.model_.facts["n_rows"] == sum(value != "u" for value in table["a"].to_pylist())


def test_values_count_whatever_their_type_and_fractions_are_scaled_and_rounded():
    rows = pa.record_batch({"w": pa.array([1.0, None, 2.0]), "b": [True, False, None]})
    assert Weight("w", None, (("1", 7),)).counts(rows).tolist() == [7, 1, 1]
    assert Weight("b", None, (("True", 2), ("False", 0))).counts(rows).tolist() == [2, 0, 1]
    assert Weight("b", None, (("true", 2), ("false", 0))).counts(rows).tolist() == [2, 0, 1]
    text = pa.record_batch({"b": ["true", "True", "false"]})
    assert Weight("b", None, (("true", 2), ("false", 0))).counts(text).tolist() == [2, 1, 0]
    assert Weight("w", None, (("1", 7),)).counts(pa.record_batch({"w": pa.nulls(2)})).tolist() == [1, 1]
    assert Weight("w", 100.0).counts(pa.record_batch({"w": [0.0, 0.125, 0.5, 2.0]})).tolist() == [0, 12, 50, 200]
    assert Weight("w", 0.5).counts(pa.record_batch({"w": [4, 7]})).tolist() == [2, 4]


def test_booleans_of_another_spelling_have_statistics_of_their_own():
    """Release 0.2.0 counted every row once where a boolean column had the weight of "true"."""
    assert Weight("b", None, (("True", 2),)).text == 'weighted by b: [["True", 2]]'
    assert Weight("b", None, (("true", 2),)).text == 'weighted by b: [["true", 2]] with booleans'


@pytest.mark.parametrize(
    ("column", "values", "word", "warning"),
    [
        ("s", ["red", "blue"], "Red", r"no value 'Red', so its weight counts no row \(known: 'red', …\)"),
        ("b", [True, False], "yes", r"no value 'yes', .*\(known: 'false', 'true'\)"),
        ("k", [1, 5], "7", r"no value '7', .*\(it ranges from 1 to 5\)"),
        ("k", [1, 5], "1.0", r"no value '1.0', .*\(it ranges from 1 to 5\)"),
        ("d", [date(2024, 1, 1), date(2024, 3, 1)], "2024-01-01T00:00", "no value '2024-01-01T00:00', "),
        ("s", ["red", "blue"], "red", None),
        ("b", [True, False], "true", None),
        ("k", [1, 5], "5", None),
        ("d", [date(2024, 1, 1), date(2024, 3, 1)], "2024-01-01", None),
    ],
)
def test_a_weight_of_a_value_that_no_row_has_is_told(column, values, word, warning):
    rows = pa.table({column: values * 40, "class": ["n", "p"] * 40})
    for estimator in (NB, SumProductNetwork):
        estimator = estimator(columns={column: {"weight": {word: 3}}})
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            estimator.fit(rows, "class")
        warned = [str(entry.message) for entry in caught if "weight counts" in str(entry.message)]
        assert len(warned) == (warning is not None)
        if warning is not None:
            assert re.search(warning, warned[0])


def test_a_boolean_class_is_weighted_by_the_words_of_python_and_of_json():
    rows = pa.table({"a": ["u", "v", "v", "u"] * 20, "class": [True, False, True, True] * 20})
    of_json, of_python = (NB(columns={"class": {"weight": {word: 3}}}).fit(rows, "class") for word in ("true", "True"))
    assert of_json.model_.class_counts.tolist() == of_python.model_.class_counts.tolist() == [20, 180]
    with pytest.raises(InvalidParameter, match="one of the classes 'False', 'True'"):
        NB(columns={"class": {"weight": {"yes": 3}}}).fit(rows, "class")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "holds None. Fill in a weight"),
        (-1.0, "holds -1.0. A weight must be zero or more"),
        (0.5, '"w": {"weight": 100}'),
        (1e300, "set a scale below 1"),
        (float("inf"), "set a scale below 1"),
    ],
)
def test_what_is_no_weight_is_refused_with_the_remedy(value, words, tmp_path):
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"w": [1.0, value, 2.0], "x": ["a", "b", "a"], "class": ["n", "y", "y"]}), path)
    with pytest.raises(SchemaError, match=r"rows\.parquet: Column 'w' is the row weight and holds") as caught:
        NB(columns=COLUMNS).fit(path, "class")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "weights", "error", "says"),
    [
        ({"w": {"weight": 1}, "few": {"weight": 1}}, None, InvalidParameter, "only one column"),
        (COLUMNS, 1, InvalidParameter, "not both"),
        ({"w": {"weight": 1, "kind": "numeric"}}, None, InvalidParameter, "takes no other setting"),
        ({"w": {"weight": -2}}, None, InvalidParameter, "weight"),
        ({"class": {"weight": {"maybe": 2}}}, None, InvalidParameter, "one of the classes 'no', 'yes'"),
        *(
            ({"class": {"weight": {"yes": count}}}, None, InvalidParameter, "a whole number up to")
            for count in (0.5, -1, 1 << 70, True)
        ),
        ({"v": {"weight": True}}, None, UnknownColumn, "'v'"),
        ({"a": {"weight": True}}, None, SchemaError, "needs numbers"),
        ({"w": "drop"}, MOST_WEIGHT // N + 1, SchemaError, "sum to more than"),  # less than losses can sum
    ],
)
def test_what_is_said_wrongly_of_weights_is_refused(table, columns, weights, error, says):
    with pytest.raises(error, match=says):
        NB(columns=columns).fit(table, "class", sample_weight=None if weights is None else np.full(N, weights))


def test_rows_that_are_read_one_after_the_other_are_repeated(table):
    source = apply_row_weight_rule(Source.of_table(table), COLUMNS)
    rows = Rows(infer_schema(Source.of_table(table), "class", COLUMNS), [source])
    assert sum(chunk.n_rows for chunk in rows) == table["w"].to_numpy().sum()
    with pytest.raises(SchemaError, match="train a classifier"):
        list(repeated_row_positions(np.array([1 << 30])))


def test_what_plain_rows_gave_is_not_taken_for_weighted_ones(table, tmp_path):
    pq.write_table(table, tmp_path / "rows.parquet")
    plain, store, accounts = Source.open(tmp_path), MemoryStore(), []
    drive(recipes.learner("nb", {}, "class", None, {"w": "drop"}), [Part(plain, store)])
    weighted = apply_row_weight_rule(plain, COLUMNS)
    assert weighted.weight is not None
    chosen = Selection(plain.weighted(weighted.weight), {0: (weighted.weight,)})
    kept = infer_schema(plain, "class", COLUMNS)

    def learned(part):
        return drive(recipes.learner("nb", {}, "class", kept, COLUMNS), [part], accounts=accounts)

    counted = learned(Part(chosen.source, store, chosen))
    assert all(account.n_rows_reused == 0 for account in accounts)
    assert same(counted, learned(Part(weighted)))
    assert same(counted, learned(Part(chosen.source, store, chosen)))
    assert accounts[-1].n_rows_reused == N


def column(instead):
    return {"y": {"null_class": instead}}


@pytest.mark.parametrize("y", [ROWS["y"], ROWS["y"].dictionary_encode()])
def test_rows_without_a_class_are_left_out_or_have_one(y):
    table = ROWS.set_column(1, "y", y)
    model = NB(target="y", columns=column("drop")).fit(table)
    assert model.predict_proba(ROWS).tolist() == NB(target="y").fit(KNOWN).predict_proba(ROWS).tolist()
    model = NB(target="y", columns=column("unknown")).fit(table)
    filled = ROWS.set_column(1, "y", ROWS["y"].fill_null("unknown"))
    assert model.classes_.tolist() == ["a", "b", "unknown"]
    assert model.predict_proba(ROWS).tolist() == NB(target="y").fit(filled).predict_proba(ROWS).tolist()


def test_files_of_any_format_and_frames(tmp_path):
    pq.write_table(ROWS, tmp_path / "t.parquet", row_group_size=50)
    ROWS.to_pandas().to_csv(tmp_path / "t.csv", index=False)
    expected = NB(target="y").fit(KNOWN).predict_proba(ROWS).tolist()
    for given in (tmp_path / "t.parquet", tmp_path / "t.csv", ROWS.to_pandas()):
        assert NB(target="y", columns=column("drop")).fit(given).predict_proba(ROWS).tolist() == expected


def test_a_missing_number_is_a_null_class_and_its_class_is_of_the_columns_type():
    frame = pd.DataFrame({"x": ["u", "v", "w"] * 40, "y": [1.0, 2.0, np.nan] * 40})
    assert NB(target="y", columns=column("drop")).fit(frame).classes_.tolist() == [1, 2]
    assert NB(target="y", columns=column(9)).fit(frame).classes_.tolist() == [1, 2, 9]
    with pytest.raises(
        SchemaError, match=r"'y' holds double, and null_class='none' has another type. Name a class of that type, or"
    ):
        NB(target="y", columns=column("none")).fit(frame)


def test_the_error_names_the_option_and_wrong_ones_are_refused():
    with pytest.raises(SchemaError, match=r"""columns=\{'y': \{'null_class': 'drop'\}\} leaves them out"""):
        NB(target="y").fit(ROWS)
    for wrong in (True, "", 1.5):
        with pytest.raises(InvalidParameter, match=r"columns\['y'\].null_class"):
            NB(target="y", columns=column(wrong)).fit(ROWS)


def test_statistics_of_the_rows_are_not_taken_for_others(tmp_path):
    pq.write_table(ROWS, tmp_path / "t.parquet")
    source = Source.open(tmp_path / "t.parquet")
    parts = {apply_null_class_rule(source, "y", column(instead)).files[0].part for instead in ("drop", "a", "b")}
    assert len(parts) == 3 and source.files[0].part == ()
    schema = infer_schema(source, "y", column("drop"))
    assert Schema.from_json(schema.to_json()).null_class == "drop"
    assert "null_class" not in json.loads(infer_schema(Source.of_table(KNOWN), "y").to_json())
