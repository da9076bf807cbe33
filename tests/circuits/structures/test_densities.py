"""Numeric columns as mixtures of densities: from intervals to leaves, learned, stored, asked."""

import datetime
import itertools
import math
from decimal import Decimal, localcontext

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from learners import Source, drive, encode, load_model
from learners.circuits.errors import ImpossibleEvidence, InvalidEvidence
from learners.circuits.evaluation.evaluate import log_values
from learners.circuits.kernels import CATEGORICAL, GAUSSIAN, INDICATOR, POISSON
from learners.circuits.queries.posterior_kernels import leaf_value
from learners.circuits.streaming.online import StreamingPosterior
from learners.circuits.streaming.shards import merge_shard_posteriors
from learners.circuits.structures.densities import Densities, interval_densities, replace_intervals_by_densities
from learners.errors import InvalidParameter, SchemaError
from learners.models.query import Conditional, Map, Marginal, Moments, Sample
from learners.models.record_classifier import record_classifier
from learners.passes.learner import MemoryStore
from learners.registry import recipes
from learners.schema import Attribute, Kept
from learners.schema.discretise import Histogram
from learners.schema.encoding.json_records import encode_json_columns, encode_json_records
from learners.schema.overrides import ColumnOverride
from tests.circuits.map_circuits import random_circuit
from tests.naive.map import flat_circuit
from tests.support.passes import same

OTHERS = {"structure": "chow-liu", "n_bins": 4}
NAMES = ("gaussian", "poisson", "exponential")


def density(distribution, mean, std, x):
    if distribution == "gaussian":
        return norm.pdf(x, mean, std)
    if distribution == "poisson":
        return math.exp(x * math.log(mean) - mean - math.lgamma(x + 1))
    return math.exp(-x / mean) / mean


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1))
def test_a_density_takes_the_place_of_each_interval(seed):
    """p(x) is the sum over all codes of P(codes) times the densities of the codes."""
    rng = np.random.default_rng(seed)
    circuit = random_circuit(rng, int(rng.integers(1, 5)), leaves=(INDICATOR, CATEGORICAL))
    if circuit.kind[circuit.root] == INDICATOR:
        return
    chosen = [v for v in circuit.scope(circuit.root) if rng.random() < 0.7]
    densities = {
        v: Densities(str(rng.choice(NAMES)), rng.uniform(0.5, 3, n), rng.uniform(0.5, 2, n), 0.1)
        for v, n in ((v, int(circuit.n_values[v])) for v in chosen)
    }
    made = replace_intervals_by_densities(circuit, densities)
    row = [float(rng.poisson(2)) if v in densities else float(rng.integers(n)) for v, n in enumerate(circuit.n_values)]
    worlds = np.array(list(itertools.product(*map(range, circuit.n_values.tolist()))), np.float64).T
    total = 0.0
    for codes, log in zip(worlds.T, log_values(circuit, worlds), strict=True):
        p = math.exp(log)
        for v, code in enumerate(codes.astype(int)):
            if v in densities:
                own = densities[v]
                p *= density(own.distribution, own.mean[code], own.std[code], row[v])
            else:
                p *= code == row[v]
        total += p
    scopeless = math.prod(int(n) for v, n in enumerate(circuit.n_values) if v not in circuit.scope(circuit.root))
    found = math.exp(log_values(made, np.array(row)[:, np.newaxis])[0])
    assert scopeless != 1 or found == pytest.approx(total, rel=1e-9, abs=1e-300)
    assert list(made.n_values == 0) == [v in densities for v in range(circuit.n_variables)]


def histogram_of(x):
    return Histogram.of(np.asarray(x, np.float64), np.zeros(len(x), np.int64), 1)


def test_densities_are_those_of_the_numbers_in_each_interval():
    x = np.array([0.0, 1.0, 1.0, 2.0, 10.0, 14.0])
    column = Attribute("x", "numeric", cuts=(2.0, 5.0), distribution="gaussian")
    own = interval_densities(column, histogram_of(x))
    assert own.mean[[0, 2]] == pytest.approx([1.0, 12.0])
    assert own.mean[1] == pytest.approx(x.mean()), "an interval without rows begins as the whole column"
    assert own.narrowest == pytest.approx(1 / math.sqrt(12)), "half a step of what is recorded in steps of one"
    assert own.std == pytest.approx([math.sqrt(0.5), x.std(), 2.0])


@pytest.mark.parametrize(
    ("distribution", "x", "word"),
    [("poisson", [0.5, 1.0], "a whole number"), ("exponential", [-1.0, 1.0], "zero or more"),
     ("gaussian", [0.0, np.inf], "a finite number"), ("gaussian", [0.0, 1e200], "from 0 to 1e.200, whose squares"),
     ("exponential", [1e-200, 2e-200], "'x' holds .*Rescale it, or use"),
     ("lognormal", [2.0**60, 2.0**60 + 1500], "from 1.15292e.18 to 1.15292e.18, whose logarithms double precision does not tell apart"),
     ("gaussian", [], "'x' has no numbers.*Drop it")],
)  # fmt: skip
def test_what_a_distribution_cannot_have_is_refused(distribution, x, word):
    with pytest.raises(SchemaError, match=word):
        interval_densities(Attribute("x", "numeric", cuts=(0.7,), distribution=distribution), histogram_of(x))


def test_a_time_that_a_distribution_cannot_have_is_named_as_a_date():
    day = Attribute("x", "numeric", cuts=(0.7,), arrow_type="date32[day]", distribution="lognormal")
    with pytest.raises(
        SchemaError, match="'x' holds 1969-12-31, but values of the lognormal distribution must be above zero"
    ):
        interval_densities(day, histogram_of([-86_400.0, 86_400.0]))


@pytest.mark.parametrize(
    "entry", [{"distribution": "normal"}, {"distribution": "poisson", "kind": "nominal"}, {"order": ["a"], "cuts": [1]}]
)
def test_overrides_that_contradict_themselves_are_refused(entry):
    with pytest.raises(InvalidParameter, match=r"is not allowed|must be"):
        ColumnOverride.of("x", entry)


def people(n, seed=0):
    """Two kinds of people: heights, numbers of visits and waiting times depend on the kind."""
    rng = np.random.default_rng(seed)
    kind = rng.random(n) < 0.4
    missing = rng.random(n) < 0.1
    start = datetime.datetime(2026, 1, 1)
    return pa.table(
        {
            "height": pa.array(rng.normal(np.where(kind, 180.0, 165.0), 5.0), mask=missing),
            "visits": rng.poisson(np.where(kind, 2, 12)),
            "wait": rng.exponential(np.where(kind, 1.0, 6.0)),
            "colour": np.where(rng.random(n) < np.where(kind, 0.8, 0.3), "red", "blue"),
            "since": pa.array([start + datetime.timedelta(hours=int(h)) for h in rng.integers(0, 999, n)]),
            "kind": np.where(kind, "a", "b"),
        }
    )


COLUMNS = {
    "visits": {"distribution": "poisson"}, "wait": {"distribution": "exponential"}, "since": {"distribution": "intervals"},
}  # fmt: skip


@pytest.fixture(scope="module")
def table():
    return people(4000)


def learned(table, parameters, target="kind", columns=COLUMNS, **more):
    made = recipes.learner("spn", {"leaves": "gaussian", **parameters}, target, None, columns)
    return drive(made, Source.of_table(table), **more)


@pytest.fixture(scope="module")
def untrained(table):
    return learned(table, {**OTHERS, "learning": "none"}, None)


def all_ways(table, schema):
    """The same rows from Arrow, in pieces, as records and as columns."""
    rows = table.drop_columns(["kind"])
    pieces = pa.concat_tables([rows.slice(0, 7), rows.slice(7)])
    return [encode(rows, schema), encode(pieces, schema), encode_json_records(rows.to_pylist(), schema),
            encode_json_columns(rows.to_pydict(), schema)]  # fmt: skip


HOW = [
    {"structure": s, "learning": how, "passes": 10, "states": 6, "sums": 2, "replicas": 2, "depth": 2}
    for s, how in (("chow-liu", "none"), ("hclt", "em"), ("random", "bmm"), ("learnspn", "adf"), ("random", "em"))
]


@pytest.mark.parametrize("parameters", HOW, ids=lambda p: f"{p['structure']}-{p['learning']}")
def test_it_is_learned_read_back_and_asked(table, parameters):
    model = learned(table, parameters)
    again = load_model(*model.to_arrays())
    assert same(model, again) and model.schema == again.schema
    kinds = {a.name: a.distribution for a in model.schema.attributes}
    assert kinds == {"height": "gaussian", "visits": "poisson", "wait": "exponential", "colour": None, "since": None}
    fresh = people(500, seed=1)
    chunks = all_ways(fresh, again.schema)
    first = again.predict_proba(chunks[0])
    for chunk in chunks[1:]:
        assert np.array_equal(chunk.numbers, chunks[0].numbers, equal_nan=True)
        assert np.array_equal(again.predict_proba(chunk), first)
    one = record_classifier(again)
    assert np.allclose([one(row) for row in fresh.slice(0, 5).to_pylist()], first[:5], atol=1e-12)
    right = np.mean((first[:, 0] > 0.5) == (np.array(fresh["kind"]) == "a"))
    assert right > 0.9
    logs = again.log_likelihood(encode(fresh, again.schema))
    assert np.all(np.isfinite(logs))
    told, drawn, best = again.answer(
        [Moments(("height", "wait"), {"visits": 14}), Sample(3, {"kind": "a"}, seed=1),
         Map(("colour", "kind"), {"height": 190.0, "visits": 0})]
    )  # fmt: skip
    assert told["moments"]["height"]["mean"] == pytest.approx(165, abs=2.5)
    assert told["moments"]["wait"]["mean"] == pytest.approx(6, rel=0.35)
    assert all(row["visits"] == int(row["visits"]) and row["wait"] >= 0 for row in drawn["rows"])
    assert best["assignment"] == {"colour": "red", "kind": "a"}


def test_learning_is_near_the_truth(table):
    """Within 0.06 nats of the density that drew the rows, with height and kind alone."""
    model = learned(table.select(["height", "kind"]), {**OTHERS, "passes": 30}, columns={})
    fresh = people(4000, seed=2).select(["height", "kind"])
    kind, height = np.array(fresh["kind"]) == "a", fresh["height"].to_numpy()
    logs = np.log(np.where(kind, 0.4, 0.6)) + np.nan_to_num(norm.logpdf(height, np.where(kind, 180, 165), 5))
    assert model.log_likelihood(encode(fresh, model.schema)).mean() == pytest.approx(logs.mean(), abs=0.06)


def test_neither_threads_nor_parts_nor_a_store_change_it(table, tmp_path):
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=700)
    made = {"leaves": "gaussian", "passes": 3, **OTHERS}

    def run(**more):
        learner = recipes.learner("spn", made, "kind", None, COLUMNS)
        return drive(learner, Source.open(tmp_path / "a.parquet"), **more)

    one, store, accounts = run(threads=1), MemoryStore(), []
    assert same(one, run(threads=3)) and same(one, run(store=store)) and same(one, run(store=store, accounts=accounts))
    assert all(account.n_rows_read == 0 for account in accounts), "every iteration of EM was found"
    kept = recipes.learner("spn", made, "kind", Kept(one.schema), COLUMNS)
    assert same(one, drive(kept, Source.open(tmp_path / "a.parquet"), store=store)), "from a kept schema"
    given = recipes.learner("spn", made, "kind", one.schema, COLUMNS)
    assert same(one, drive(given, Source.open(tmp_path / "a.parquet")))


@pytest.mark.parametrize("learning", ["em", "bmm", "adf"])
@pytest.mark.parametrize(("distribution", "repeated"), [("gaussian", 7.0), ("poisson", 0.0), ("exponential", 0.0)])
def test_a_repeated_number_does_not_become_a_needle(distribution, repeated, learning):
    """Nine in ten are the same, in a column recorded in steps of one: no density becomes narrower than the step tells."""
    x = np.where(np.arange(1000) % 10 > 0, repeated, np.arange(1000) % 13)
    table = pa.table({"x": x, "y": x[::-1].copy()})
    how = {**OTHERS, "learning": learning, "passes": 80, "tolerance": 0.0, "laplace": 0.0, "leaves": distribution}
    circuit = learned(table, how, None, {}).circuit
    first = circuit.leaf_starts[:-1][circuit.kind >= GAUSSIAN]
    if distribution == "gaussian":
        assert circuit.leaf_parameters[first + 1].min() >= (1 - 1e-12) / math.sqrt(12)
    elif distribution == "exponential":
        assert circuit.leaf_parameters[first].max() <= math.sqrt(12) * (1 + 1e-12)
    else:
        assert circuit.leaf_parameters[first].min() > 0


def test_a_missing_number_says_nothing(untrained):
    rows = [{"colour": "red"}, {"colour": "red", "height": None}, {"colour": "red", "height": float("nan")}]
    logs = untrained.log_likelihood(encode_json_records(rows, untrained.schema))
    assert logs[0] == logs[1] == logs[2]


def test_what_is_a_density_is_called_one(untrained):
    plain, dense = untrained.answer([Marginal({"colour": "red"}), Marginal({"height": 170.0})])
    assert set(plain) == {"kind", "log_probability", "probability"}
    assert set(dense) == {"kind", "log_probability", "density"}
    (count,) = untrained.answer([Marginal({"visits": 3})])
    assert "probability" in count, "of a whole number"
    (told,) = untrained.answer([Map(())])
    assert not {"height", "visits", "wait"} & set(told["assignment"]) and told["is_optimal"]
    with pytest.raises(InvalidEvidence, match="'height', 'wait' are numbers"):
        untrained.answer([Map(("height", "wait"))])
    with pytest.raises(InvalidEvidence, match=r"learn a circuit \(learner spn\) with leaves=gaussian"):
        untrained.answer([Moments(("since",))])
    (told,) = untrained.answer([Map((), solver="bt")])
    assert 150 < told["assignment"]["height"] < 195


def test_shards_of_a_stream_keep_the_bound(table):
    """And the pieces of a stream are the stream."""
    model = learned(table, {**OTHERS, "learning": "bmm"})
    posterior = model.posterior
    rows = posterior.rows_of(encode(table, model.schema))
    start, prior = posterior.structure, posterior.prior
    least = np.full(start.n_variables, 3.0)
    whole, left, right, none = (StreamingPosterior(start, prior, "bmm", narrowest=least) for _ in range(4))
    whole.update(rows)
    left.update(rows[:, :1500])
    right.update(rows[:, 1500:])
    merged = merge_shard_posteriors(none, [left, right])
    assert merged.n_rows == whole.n_rows
    spread = merged.circuit().leaf_parameters[start.leaf_starts[:-1][start.kind == 4] + 1]
    assert spread.min() >= 3.0
    left.update(rows[:, 1500:])
    assert left == whole and left.from_arrow(left.to_arrow()) == whole


@pytest.mark.parametrize("value", [1e308, -1e308, 1e-308, math.inf, -math.inf, 10**400, 1e301, 3.5])
def test_numbers_of_any_size_have_answers_or_are_impossible(untrained, value):
    for name in ("height", "visits", "wait"):
        for query in (Marginal({name: value}), Sample(1, {name: value}), Map(("kind",), {name: value})):
            try:
                (told,) = untrained.answer([query])
            except ImpossibleEvidence:
                continue
            assert not math.isnan(told.get("log_probability", 0.0))


def test_a_row_that_cannot_be_has_the_class_distribution(table):
    model = learned(table, {**OTHERS, "learning": "none"})
    (prior,) = model.answer([Conditional(("kind",))])
    rows = [{"height": 170.0, "visits": 3.5, "wait": 1.0}, {"height": 170.0, "visits": 3, "wait": 1.0}]
    impossible, possible = model.predict_proba(encode_json_records(rows, model.schema))
    assert impossible.tolist() == pytest.approx(list(prior["distributions"]["kind"].values()), abs=1e-12)
    assert abs(possible - impossible).max() > 0.01


@pytest.mark.parametrize("learning", ["bmm", "adf"])
@pytest.mark.parametrize("distribution", ["gaussian", "exponential"])
def test_a_stream_learns_from_rows_far_from_all_that_it_has_seen(learning, distribution):
    """A thousand widths away every density is zero in doubles; such rows are not impossible, and tomorrow's may be."""
    rng = np.random.default_rng(0)
    start = pa.table({"x": rng.exponential(1.0, 500), "y": rng.choice(["a", "b"], 500)})
    model = learned(start, {**OTHERS, "learning": learning, "leaves": distribution}, None, {})
    posterior = model.posterior
    before = model.answer([Moments(("x",))])[0]["moments"]["x"]["mean"]
    tomorrow = pa.table({"x": np.full(500, 2000.0), "y": ["a"] * 500})
    posterior.update(encode(tomorrow, model.schema))
    assert posterior.n_impossible == 0 and posterior.n_rows == 1000
    after = type(model)(model.schema, posterior.circuit(), {}).answer([Moments(("x",))])[0]["moments"]["x"]["mean"]
    assert before == pytest.approx(1.0, abs=0.2) and after == pytest.approx(1000, rel=0.25)
    posterior.update(encode(pa.table({"x": [1e300], "y": ["a"]}), model.schema))
    assert posterior.n_impossible == 1, "no double has its square"
    assert np.all(np.isfinite(posterior.circuit().leaf_parameters))


def log_poisson(rate, n):
    """With 60 digits; log n! by Stirling's series for large n."""
    with localcontext(prec=60):
        n, rate = Decimal(n), Decimal(rate)
        pi = Decimal("3.14159265358979323846264338327950288419716939937510582097494")
        series = 1 / (12 * n) - 1 / (360 * n**3) + 1 / (1260 * n**5) - 1 / (1680 * n**7) + 1 / (1188 * n**9)
        log_factorial = n * n.ln() - n + (2 * pi * n).ln() / 2 + series
        if n < 1000:
            log_factorial = Decimal(math.factorial(int(n))).ln()
        return float(n * rate.ln() - rate - log_factorial)


@pytest.mark.parametrize("n", [1, 15, 16, 40, 1e3, 1e6, 1e9, 1e13, 2.0**53, 1e18])
@pytest.mark.parametrize("far", [0.0, 1e-12, 1e-9, 1e-6, 0.01, 0.5, 3.0, -0.9])
def test_counts_of_any_size_have_all_digits_of_their_probability(n, far):
    """By n log(rate) - rate - log n! they would have none above 1e13 or so."""
    rate = n * (1.0 + far)
    expected = pytest.approx(log_poisson(rate, n), rel=1e-14, abs=1e-14)
    circuit = flat_circuit([(POISSON, 0, [rate])], [0])
    assert log_values(circuit, [[n]]) == expected
    assert log_values(circuit, [[n] * 20]).tolist() == [expected] * 20
    if expected.expected > -700:
        p = math.exp(expected.expected)
        assert leaf_value(POISSON, 0, np.array([rate]), 0, 0.0, n) == pytest.approx(p, rel=1e-11)
