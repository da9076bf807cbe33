"""Sets, ranges, what is excluded and soft evidence, against enumeration."""

import itertools
import math
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import kstest, norm, truncnorm

import fewpass
from learners.circuits.errors import ImpossibleEvidence, InvalidEvidence
from learners.circuits.queries.queries import answer, answer_all
from learners.errors import UnknownColumn
from learners.models.evidence import NoneOf, Range
from learners.models.query import Conditional, Impute, Map, Marginal, Moments, Sample, Surprise
from tests.circuits.map_circuits import random_circuit
from tests.naive import circuits as naive
from tests.support.circuits import CIRCUIT, MIXED, schema_of, some_evidence


def problem(seed):
    """(circuit, schema, evidence, soft evidence, {codes: weighted probability}) of a small random circuit."""
    rng = np.random.default_rng(seed)
    circuit = random_circuit(rng, int(rng.integers(1, 6)))
    evidence, likely = {}, {}
    weighted = naive.joint(circuit)
    for v in np.flatnonzero(rng.random(circuit.n_variables) < 0.6).tolist():
        known, soft, weights = some_evidence(rng, circuit, v)
        evidence |= known
        likely |= soft
        weighted = {codes: p * weights[codes[v]] for codes, p in weighted.items()}
    return circuit, schema_of(circuit), evidence, likely, weighted


def free_of(schema, evidence):
    """The columns that can be asked for, by number."""
    return [v for v, a in enumerate(schema.attributes) if not isinstance(evidence.get(a.name), str | int)]


def close(ours, expected):
    return ours == pytest.approx(expected, rel=1e-10, abs=1e-14)


@pytest.mark.parametrize("seed", range(80))
def test_every_query_is_what_enumeration_says(seed):
    circuit, schema, evidence, likely, weighted = problem(seed)
    total = sum(weighted.values())
    assert close(answer(circuit, schema, Marginal(evidence, likely=likely))["probability"], total)
    free = free_of(schema, evidence)
    names = tuple(f"x{v}" for v in free)
    if not free:
        return
    if not total:
        for query in (Conditional(names, evidence, likely=likely), Map(names, evidence, likely=likely)):
            with pytest.raises(ImpossibleEvidence, match="column 'x"):
                answer(circuit, schema, query)
        return
    found, guesses, together, best, ranked, sample = answer_all(
        circuit,
        schema,
        [
            Conditional(names, evidence, likely=likely),
            Impute(names, evidence, likely=likely),
            Conditional(names, evidence, joint=True, likely=likely),
            Map(names[:2], evidence, likely=likely),
            Map(names[:2], evidence, best=4, likely=likely),
            Sample(20, evidence, names, seed=1, likely=likely),
        ],
    )
    assert close(math.exp(found["log_evidence"]), total)
    for v in free:
        expected = [
            sum(p for codes, p in weighted.items() if codes[v] == code) / total for code in range(circuit.n_values[v])
        ]
        assert close(list(found["distributions"][f"x{v}"].values()), expected)
        assert close(guesses["imputed"][f"x{v}"]["probability"], max(expected))
        assert all(found["distributions"][f"x{v}"][row[f"x{v}"]] > 0 for row in sample["rows"])
    labels = [list(found["distributions"][name]) for name in names]
    by_codes = {
        codes: sum(p for world, p in weighted.items() if tuple(world[v] for v in free) == codes) / total
        for codes in itertools.product(*(range(len(own)) for own in labels))
    }
    expected = {tuple(labels[i][code] for i, code in enumerate(codes)): p for codes, p in by_codes.items()}
    assert close({tuple(cell["values"].values()): cell["probability"] for cell in together["distribution"]}, expected)
    marginal = Counter()
    for codes, p in weighted.items():
        marginal[tuple(codes[v] for v in free[:2])] += p
    assert best["is_optimal"] and close(math.exp(best["log_probability"]), max(marginal.values()))
    expected = sorted((p for p in marginal.values() if p > 0), reverse=True)[:4]
    assert close([math.exp(each["log_probability"]) for each in ranked["best"]], expected)
    assert ranked["best"][0] == {name: best[name] for name in ranked["best"][0]}


def test_samples_follow_the_weights():
    circuit, schema, evidence, likely, weighted = problem(17)
    total, free = sum(weighted.values()), free_of(schema, evidence)
    assert total and likely and free
    rows = answer(circuit, schema, Sample(4000, evidence, seed=5, likely=likely))["rows"]
    labels = answer(circuit, schema, Conditional((), evidence, likely=likely))["distributions"]
    for v in free:
        for code, label in enumerate(labels[f"x{v}"]):
            share = sum(row[f"x{v}"] == label for row in rows) / len(rows)
            p = sum(q for codes, q in weighted.items() if codes[v] == code) / total
            assert share == pytest.approx(p, abs=5 * math.sqrt(p * (1 - p) / len(rows)) + 1e-12)


def probability(evidence, **likely):
    return answer(CIRCUIT, MIXED, Marginal(evidence, likely=likely))["probability"]


def mixed(first, second):
    return pytest.approx(0.4 * first + 0.6 * second, rel=1e-12)


@pytest.mark.parametrize(
    ("evidence", "first", "second"),
    [
        ({"colour": ["(missing)", "red"]}, 0.6, 1.0),
        ({"colour": NoneOf("red")}, 0.5, 0.2),
        ({"size": Range(1.0, 2.5)}, 0.2, 0.2),
        ({"size": Range(None, 2.5)}, 0.3, 0.8),
        ({"size": Range(low=1)}, 0.7, 0.4),
        ({"size": [0.5, 99.0]}, 0.6, 0.8),
        ({"size": NoneOf("(missing)")}, 0.8, 1.0),
        ({"n": Range(4, 8)}, 1.0, 0.7),
        ({"day": Range("1970-01-05")}, 0.7, 0.1),
        ({"day": Range(None, "1970-01-04")}, 0.3, 0.9),
        ({"rare": [1, 7]}, 0.7, 0.9),
        ({"weight": Range(0.0, 3.0)}, norm.cdf(1.0) - norm.cdf(-0.5), norm.cdf(-2.0) - norm.cdf(-5.0)),
        ({"weight": Range(high=3), "size": Range(2.5)}, 0.5 * norm.cdf(1.0), 0.2 * norm.cdf(-2.0)),
        ({"colour": (), "likely": {"colour": {"red": 2.0, "green": 3.0}}}, 2.2, 1.6),
        ({"likely": {"size": {"0.5": 2.0, "(1, 2.5]": 1.0}}}, 0.4, 1.4),
    ],
)
def test_evidence_of_every_kind_is_read(evidence, first, second):
    likely = evidence.pop("likely", {})
    assert probability({name: value for name, value in evidence.items() if value}, **likely) == mixed(first, second)


def test_a_range_of_numbers_weighs_the_other_columns():
    found = answer(CIRCUIT, MIXED, Conditional(("day",), {"weight": Range(4.5, 5.5)}))["distributions"]["day"]
    first, second = 0.4 * (norm.cdf(2.25) - norm.cdf(1.75)), 0.6 * (norm.cdf(0.5) - norm.cdf(-0.5))
    expected = (0.3 * first + 0.9 * second) / (first + second)
    assert found["(-inf, 1970-01-04]"] == pytest.approx(expected, rel=1e-12)
    assert "weight" not in answer(CIRCUIT, MIXED, Map((), {"weight": Range(4.5)}))["assignment"]
    found = answer(CIRCUIT, MIXED, Map(("weight",), {"weight": Range(2.5, 3.5)}, solver="kbt"))
    assert found["assignment"] == {"weight": 3.5}
    expected = 0.4 * norm.pdf(3.5, 1.0, 2.0) + 0.6 * norm.pdf(3.5, 5.0, 1.0)
    assert math.exp(found["log_probability"]) == pytest.approx(expected, rel=1e-12)
    assert found["upper_bound"] >= found["log_probability"]


def test_a_column_in_a_range_is_cut_to_it():
    """P(x | low <= x <= high), from two truncated normal distributions; draws follow it."""
    low, high = 2.5, 5.5
    evidence = {"weight": Range(low, high), "colour": ["red", "(missing)"]}
    leaves = [truncnorm((low - a) / b, (high - a) / b, a, b) for a, b in ((1.0, 2.0), (5.0, 1.0))]
    weights = np.array([0.4 * 0.6 * (norm.cdf(2.25) - norm.cdf(0.75)), 0.6 * (norm.cdf(0.5) - norm.cdf(-2.5))])
    weights /= weights.sum()
    mean = sum(w * leaf.mean() for w, leaf in zip(weights, leaves, strict=True))
    square = sum(w * leaf.moment(2) for w, leaf in zip(weights, leaves, strict=True))
    expected = {"mean": mean, "variance": square - mean**2}
    assert answer(CIRCUIT, MIXED, Moments((), evidence))["moments"]["weight"] == pytest.approx(expected, rel=1e-10)
    guess = answer(CIRCUIT, MIXED, Impute(("weight",), evidence))["imputed"]["weight"]
    assert guess == pytest.approx({"value": mean, "variance": square - mean**2}, rel=1e-10)
    rows = answer(CIRCUIT, MIXED, Sample(1000, evidence, seed=3))["rows"]
    drawn = np.array([row["weight"] for row in rows])
    assert drawn.min() >= low and drawn.max() <= high
    whole = lambda x: sum(w * leaf.cdf(x) for w, leaf in zip(weights, leaves, strict=True))  # noqa: E731
    assert kstest(drawn, whole).pvalue > 0.01
    assert answer(CIRCUIT, MIXED, Sample(10, evidence, seed=3))["rows"] == rows[:10]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (Marginal({"colour": ["red", "blue"]}), "Column 'colour' never had the value 'blue'"),
        (
            Marginal({"colour": ()}),
            "Column 'colour' has an empty set as evidence: name a value, or leave the column out",
        ),
        (Marginal({"colour": [None]}), "Column 'colour' has null among its values"),
        (Marginal({"colour": NoneOf(("red", "green", "(missing)"))}), "Column 'colour' has no value left"),
        (
            Marginal({"colour": Range(1, 2)}),
            "Column 'colour' does not have numbers as values, so it cannot take a range: use a set of values instead",
        ),
        (Marginal({"size": Range(1.0, 2.0)}), "Column 'size' .* a range cannot end at 2.0, only at 1, 2.5"),
        (Marginal({"size": Range(2.5, 1.0)}), "Column 'size' has an empty range, from 2.5 to 1.0"),
        (Marginal({"size": Range(1.0, 1.0)}), "Column 'size' .* none lies between 1.0 and 1.0"),
        (Marginal({"size": Range()}), "Column 'size' has a range without ends: set one, or leave the column out"),
        (
            Marginal({"day": Range("1970-01-04")}),
            "Column 'day' .* a range cannot start at '1970-01-04', only at 1970-01-05",
        ),
        (Marginal({"n": Range(6, 7)}), "Column 'n' has no value left"),
        (
            Marginal({"n": Range("few")}),
            "Column 'n' has a range whose ends are not numbers: use a set of values instead",
        ),
        (
            Marginal({"rare": Range(1, 2)}),
            "Column 'rare' has rare values that share one code, so the model cannot decide which of them are in a range",
        ),
        (
            Marginal({"weight": [1.0, 2.0]}),
            "Column 'weight' is modelled by its numbers: give one number or a range, not a set of values or an exclusion",
        ),
        (
            Marginal(likely={"weight": {"1": 1.0}}),
            "Column 'weight' is modelled by its numbers, which take no weights: give a number or a range",
        ),
        (Marginal(likely={"colour": {"red": -1.0}}), "Column 'colour' has the weight -1.0 for 'red'"),
        (Marginal(likely={"colour": {"red": math.nan}}), "Column 'colour' has the weight nan for 'red'"),
        (Marginal(likely={"colour": {"red": 0.0}}), "Column 'colour' has weight 0 for every value"),
        (Marginal(likely={"colour": {}}), "Column 'colour' needs weights by value in likely, such as"),
        (Marginal(likely={"colour": {"blue": 1.0}}), "Column 'colour' never had the value 'blue'"),
        (Marginal(likely={"size": {"0.5": 1.0, "(-inf, 1]": 1.0}}), "'0.5' and '.-inf, 1]' are the same"),
        (
            Marginal({"colour": "red"}, likely={"colour": {"red": 1.0}}),
            "Column 'colour' is in both evidence and likely: keep one of the two",
        ),
        (Marginal(likely={"colur": {"red": 1.0}}), "Column 'colur' is not in the table"),
        (Conditional(("weight",), {"weight": Range(1)}), "'weight' is numeric: ask for its moments"),
        (Surprise({"colour": ("red", "green")}), "Column 'colour' has more than one value: surprise"),
    ],
)
def test_errors_name_the_column(query, message):
    with pytest.raises((InvalidEvidence, UnknownColumn), match=message):
        answer(CIRCUIT, MIXED, query)


def test_impossible_evidence_names_the_column():
    likely = {"colour": {"green": 1.0}, "n": {"5": 2.0}}
    found = answer(CIRCUIT, MIXED, Conditional(("day",), {"size": ("(missing)",)}, likely=likely))
    assert list(found["distributions"]["day"].values()) == pytest.approx([0.3, 0.7])
    with pytest.raises(ImpossibleEvidence, match=r"column 'n' is never, given the other evidence, \{'3': 2.0\}"):
        answer(CIRCUIT, MIXED, Conditional(("day",), {"size": "(missing)"}, likely={"n": {"3": 2.0}}))
    with pytest.raises(ImpossibleEvidence, match="column 'n' is never, given the other evidence, NoneOf"):
        answer(CIRCUIT, MIXED, Map(("day",), {"size": ("(missing)",), "n": NoneOf((5, 8)), "weight": Range(0)}))
    assert probability({"size": ("(missing)",)}, n={"3": 2.0}) == 0.0


def test_a_range_of_whole_numbers_takes_all_that_round_into_it():
    counts = np.random.default_rng(1).poisson(3, 5_000)
    whole, real = (
        fewpass.SumProductNetwork(structure="hclt", leaves="gaussian").fit(pa.table({"k": column, "z": counts + 0.5}))
        for column in (counts, counts.astype(float))
    )

    def p(model, low, high):
        return model.query(Marginal({"k": Range(low, high)}))["probability"]

    for low, high in ((2, 4), (3, 3), (0, 1)):
        assert p(whole, low, high) == pytest.approx(p(real, low - 0.5, high + 0.5), rel=1e-12)
        assert p(whole, low, high) == pytest.approx(((counts >= low) & (counts <= high)).mean(), abs=0.02)
    assert p(whole, 1.2, 4.9) == p(whole, 2, 4) and p(whole, None, 4) > p(whole, 2, 4)
    with pytest.raises(InvalidEvidence, match=r"'k' has whole numbers, and none lies from 2\.2 to 2\.8"):
        p(whole, 2.2, 2.8)
