"""Queries by column names against enumeration."""

import json
import math

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from learners.circuits.errors import ImpossibleEvidence, InvalidEvidence
from learners.circuits.kernels import CATEGORICAL
from learners.circuits.queries.queries import answer, answer_all
from learners.circuits.variables import Columns
from learners.errors import InvalidParameter, SchemaError, UnknownColumn
from learners.models.query import Conditional, Map, Marginal, Moments, Query, Sample
from learners.schema import Attribute, Chunk, Schema
from tests.naive import circuits as naive
from tests.naive.map import categorical, flat_circuit, logs, mixture
from tests.support.small_circuit import CIRCUIT, SCHEMA

EVIDENCE = {"size": 2.5, "n": 5, "colour": None}
CODES = {1: 1, 3: 2}
LIKELY = {"colour": {"red": 2.0, "green": 0.5}}


def test_each_distribution_by_itself_and_all_together():
    found = answer(CIRCUIT, SCHEMA, Conditional(("colour", "sold"), EVIDENCE))
    assert list(found["distributions"]["colour"]) == ["red", "green", "(other)"]
    expected = naive.conditional(CIRCUIT, CODES, [0])
    assert list(found["distributions"]["colour"].values()) == pytest.approx(list(expected.values()))
    expected = naive.conditional(CIRCUIT, CODES, [4])
    assert found["distributions"]["sold"] == pytest.approx({"False": expected[0,], "True": expected[1,]})
    together = answer(CIRCUIT, SCHEMA, Conditional(("colour", "sold"), EVIDENCE, joint=True))["distribution"]
    expected = naive.conditional(CIRCUIT, CODES, [0, 4])
    labels = (["red", "green", "(other)"], ["False", "True"])
    by_label = {(labels[0][a], labels[1][b]): p for (a, b), p in expected.items()}
    assert {tuple(cell["values"].values()): cell["probability"] for cell in together} == pytest.approx(by_label)
    assert together == sorted(together, key=lambda cell: -cell["probability"])


def test_columns_that_are_not_named_are_all_of_the_kind():
    asked = [Conditional((), EVIDENCE), Moments(), Map((), {"weight": 1.0}, "bt"), Sample(1, EVIDENCE)]
    conditional, moments, best, sample = answer_all(CIRCUIT, SCHEMA, asked)
    assert list(conditional["distributions"]) == ["colour", "sold"]
    assert list(moments["moments"]) == ["weight"]
    assert list(best["assignment"]) == ["colour", "size", "n", "sold"]
    assert list(sample["rows"][0]) == ["colour", "size", "weight", "n", "sold"]


def test_a_number_has_moments_and_is_evidence():
    found = answer(CIRCUIT, SCHEMA, Moments(("weight",), EVIDENCE))["moments"]["weight"]
    assert (found["mean"], found["variance"]) == pytest.approx(naive.moments(CIRCUIT, CODES, 2))
    found = answer(CIRCUIT, SCHEMA, Conditional(("sold",), {"weight": 4, "sold": None}))
    expected = naive.conditional(CIRCUIT, {2: 4.0}, [4])
    assert found["distributions"]["sold"]["True"] == pytest.approx(expected[1,])


def test_samples_are_raw_values():
    rows = answer(CIRCUIT, SCHEMA, Sample(2000, EVIDENCE, seed=3))["rows"]
    assert {row["colour"] for row in rows} == {"red", "green", "(other)"}
    assert {row["size"] for row in rows} == {"(1, 2.5]"}
    assert {row["n"] for row in rows} == {5}
    assert {row["sold"] for row in rows} == {False, True}
    expected = naive.conditional(CIRCUIT, CODES, [0])
    # Five standard errors of 2000 draws.
    assert np.mean([row["colour"] == "red" for row in rows]) == pytest.approx(expected[0,], abs=0.056)
    assert {row["n"] for row in answer(CIRCUIT, SCHEMA, Sample(200, {"sold": True}, ("n",)))["rows"]} == {
        None,
        3,
        5,
    }


def test_the_most_probable_values():
    found = answer(CIRCUIT, SCHEMA, Map(("colour", "sold", "n"), {"size": 0.5}))
    values = naive.all_values(CIRCUIT, [0, 4, 3], {1: 0})
    best = max(values, key=values.get)
    colours, sold, numbers = ["red", "green", "(other)"], [False, True], [None, 3, 5]
    assert found["assignment"] == {"colour": colours[best[0]], "sold": sold[best[1]], "n": numbers[best[2]]}
    assert found["log_probability"] == pytest.approx(math.log(values[best]))
    assert found["is_optimal"]


def test_a_batch_of_queries_gives_each_its_own_answer_as_json():
    queries = [
        Marginal({"size": 3}),
        Conditional(("sold",), {"colour": "red"}),
        Conditional(("sold",), {"n": 3, "weight": 2.0}),
        Sample(2, {"colour": "red"}, seed=1),
        Marginal({}),
        Conditional(("sold",), {}),
        Moments((), {"sold": True}),
        Map(("sold",), {"n": 3}, solver="bt"),
        Sample(2, {"colour": "green"}, seed=1),
        Marginal(likely=LIKELY),
        Conditional(("sold",), {"n": 3}, likely=LIKELY),
        Map(("sold", "n"), likely=LIKELY),
        Conditional(("sold",), {"n": 3}, likely=LIKELY),
    ]
    together = answer_all(CIRCUIT, SCHEMA, queries)
    alone = [answer(CIRCUIT, SCHEMA, query) for query in queries]
    for ours in (*together, *alone):
        ours.pop("seconds", None)
    assert together == alone
    assert answer_all(CIRCUIT, SCHEMA, []) == []
    queries += [Marginal(EVIDENCE), Conditional(), Conditional(("n", "sold"), joint=True), Moments(), Sample(3)]
    json.dumps(answer_all(CIRCUIT, SCHEMA, [*queries, Map(("colour",))]), allow_nan=False)


def test_pydantic_reads_queries():
    adapter = TypeAdapter(Query)
    read = adapter.validate_json(
        '{"kind": "conditional", "variables": ["a"], "evidence": {"b": 1, "c": "x", "d": null}}'
    )
    assert read == Conditional(("a",), {"b": 1, "c": "x", "d": None})
    assert adapter.validate_python({"kind": "sample", "n": 3}) == Sample(3)
    assert adapter.validate_python({"kind": "map", "solver": "bt"}) == Map(solver="bt")
    with pytest.raises(ValidationError, match="must be 1 or more"):
        adapter.validate_python({"kind": "sample", "n": 0})
    with pytest.raises(ValidationError, match="solver"):
        adapter.validate_python({"kind": "map", "solver": "guess"})


@pytest.mark.parametrize(
    ("query", "error", "message"),
    [
        (Marginal({"colur": "red"}), UnknownColumn, "Column 'colur' is not in the table .similar: colour"),
        (Conditional(("price",)), UnknownColumn, "'price'"),
        (Marginal({"n": 4}), InvalidEvidence, "Column 'n' never had the value 4 in training .known: '.*3'"),
        (Marginal({"sold": "maybe"}), InvalidEvidence, "Column 'sold' never had the value 'maybe'"),
        (Marginal({"size": "big"}), SchemaError, "Column 'size' holds 'big'"),
        (Marginal({"weight": "heavy"}), SchemaError, "Column 'weight' holds 'heavy' .*expects a number"),
        (Marginal({"serial": 7}), InvalidEvidence, "Column 'serial' is not in the model .constant"),
        (Conditional(("serial",)), InvalidEvidence, "Column 'serial' is not in the model .constant"),
        (
            Conditional(("n",), {"n": 3}),
            InvalidEvidence,
            "'n' is both queried and given as evidence: keep one of the two",
        ),
        (Conditional(("weight",)), InvalidEvidence, "'weight' is numeric: ask for its moments"),
        (Moments(("n",)), InvalidEvidence, "'n' is discrete"),
        (Moments((), {"weight": 1.0}), InvalidEvidence, "No numeric column is left"),
        (Sample(1, variables=("n", "n")), InvalidEvidence, "Column 'n' is queried twice"),
    ],
)
def test_what_cannot_be_asked_is_refused_by_name(query, error, message):
    with pytest.raises(error, match=message):
        answer(CIRCUIT, SCHEMA, query)


def words_schema(names, values):
    """Nominal columns that have the same values."""
    return Schema(tuple(Attribute(name, "nominal", tuple(values)) for name in names), None, ("",))


def test_impossible_evidence_names_the_query_and_the_column():
    never, schema = mixture([[categorical(1, 0), categorical(0.5, 0.5)]]), words_schema("ab", "xy")
    zero = {"kind": "marginal", "log_probability": -math.inf, "probability": 0.0}
    assert answer(never, schema, Marginal({"a": "y"})) == zero
    for query in (Conditional(("b",), {"a": "y"}), Sample(1, {"a": "y"}), Map(("b",), {"a": "y"})):
        with pytest.raises(ImpossibleEvidence, match="the evidence probability zero: column 'a' is never 'y'"):
            answer(never, schema, query)
        with pytest.raises(ImpossibleEvidence, match="query 2") as caught:
            answer_all(never, schema, [Marginal(), type(query)(**(vars(query) | {"evidence": {}})), query])
        assert (caught.value.row, caught.value.column) == (2, "a")
    equal = mixture([[categorical(1, 0)] * 3, [categorical(0, 1)] * 3], [0.5, 0.5])
    with pytest.raises(ImpossibleEvidence, match="'b' is never, given the other evidence, 'y'"):
        answer(equal, words_schema("abc", "xy"), Conditional(("c",), {"a": "x", "b": "y"}))


def test_no_probability_is_above_one():
    circuit = mixture([[categorical(*[1 / 3 + 2e-10] * 3)] * 5])
    told = answer_all(circuit, words_schema("abcde", "xyz"), [Marginal(), Conditional(("a",))])
    assert told[0] == {"kind": "marginal", "log_probability": 0.0, "probability": 1.0}
    assert told[1]["log_evidence"] == 0.0


def test_values_may_have_the_names_of_missing_and_of_rare_ones():
    names = ("(missing)", "(other)", "x")
    column = Attribute("a", "nominal", names, has_missing=True, n_folded=3)
    schema = Schema((column, Attribute("b", "nominal", ("x", "y"))), None, ("",))
    p = (0.1, 0.2, 0.3, 0.15, 0.25)
    circuit = mixture([[categorical(*p), categorical(0.5, 0.5)]])
    told = answer(circuit, schema, Conditional(("a",)))["distributions"]["a"]
    assert list(told) == ["((missing))", *names, "((other))"] and list(told.values()) == pytest.approx(p)
    for name, expected in told.items():
        assert answer(circuit, schema, Marginal({"a": name}))["probability"] == pytest.approx(expected)


def test_what_was_selected_away_changes_nothing_as_evidence_and_cannot_be_asked_for():
    """As a prediction takes it; the answer names it, for its probability is not in that of the evidence."""
    circuit, schema = flat_circuit([(CATEGORICAL, 0, logs(0.25, 0.75))], [2, 2]), words_schema("ab", "xy")
    for given in ({"evidence": {"b": "x"}}, {"evidence": {"b": ("x", "y")}}, {"likely": {"b": {"y": 0.5}}}):
        told = answer(circuit, schema, Marginal(**given))
        assert told["probability"] == 1.0 and told["unused"] == ["b"]
        told = answer(circuit, schema, Conditional(("a",), **given))
        assert list(told["distributions"]["a"].values()) == pytest.approx([0.25, 0.75]) and told["unused"] == ["b"]
        assert answer(circuit, schema, Map(("a",), **given))["assignment"] == {"a": "y"}
    with pytest.raises(
        InvalidEvidence,
        match=r"Feature selection removed column 'b', so the model cannot answer about it",
    ):
        answer(circuit, schema, Conditional(("b",)))
    with pytest.raises(InvalidEvidence, match="Column 'b' never had the value 'z'"):
        answer(circuit, schema, Marginal({"b": "z"}))
    assert "unused" not in answer(circuit, schema, Marginal({"b": None}))


@pytest.mark.parametrize(
    ("make", "wrong", "message"),
    [
        *((make, wrong, r"variables=.* must be names of columns; put known values")
          for make in (Conditional, Moments, Map) for wrong in ({"n": 3}, 3, None)),
        *((Sample, wrong, "n=.*must be 1 or more") for wrong in ({"n": 3}, 2.5, "3", 0)),
        (lambda limit: Map(time_limit_s=limit), math.nan, "time_limit_s=nan"),
        *((lambda k: Map(k=k), wrong, "k=") for wrong in (0, 1001, 10**400)),
        *((lambda seed: Map(seed=seed), wrong, "seed=") for wrong in (-1, 1 << 64)),
        (lambda best: Map(("x0",), best=best), 0, "must be 1 to 1,000"),
        (lambda solver: Map(("x0",), best=2, solver=solver), "bt", "solver 'bt' returns one"),
    ],
)  # fmt: skip
def test_parameters_out_of_range_are_refused(make, wrong, message):
    with pytest.raises(InvalidParameter, match=message):
        make(wrong)


def test_a_circuit_of_another_schema_is_refused():
    with pytest.raises(InvalidEvidence, match="5 variables, the schema 3 columns"):
        Columns(CIRCUIT, Schema(SCHEMA.attributes[:3], None, ("",)))
    with pytest.raises(InvalidEvidence, match="Variable 4 of the circuit has 2 values, column 'x' 4"):
        wider = Attribute("x", "nominal", ("a", "b", "c", "d"))
        Columns(CIRCUIT, Schema((*SCHEMA.attributes, wider), None, ("",)))


def test_chunks_become_rows_with_missing_values_summed_out():
    schema = Schema((SCHEMA.attributes[0], SCHEMA.attributes[3]), "sold", ("no", "yes"))
    circuit = mixture([[categorical(*[1 / n] * n) for n in (3, 3, 2)]])
    chunk = Chunk(np.array([[0, 1, 3, 4], [0, 1, 2, 3]], np.uint8), np.array([0, 1, 1, 0], np.uint8))
    rows = Columns(circuit, schema).rows_of_chunk(chunk)
    assert rows.tolist() == [[-1, 0, 2, -1], [0, 1, 2, -1], [0, 1, 1, 0]]
    assert Columns(circuit, schema).rows_of_chunk(chunk, with_class=False)[2].tolist() == [-1] * 4
