"""From a table to a posterior over circuits and its answers, as a user of the library goes."""

from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from learners import Source, encode, load_model
from learners.circuits.bayesian.collapsed_sampler import FileStore
from learners.circuits.bayesian.gibbs_learning import CircuitTooLarge
from learners.circuits.bayesian.model import BayesianCircuit
from learners.circuits.bayesian.recipes import resume_sampling_recipe
from learners.errors import EmptyData, InvalidParameter, SchemaError
from learners.models.query import Conditional, Map, Marginal, Moments, Sample
from learners.passes.learner import Learner, Part, drive
from learners.passes.memory import memory_limit, set_memory_limit
from learners.registry import recipes
from service.product.datasets.dataset_statistics import JobCheckpoints
from tests.circuits.answer_circuits import learned
from tests.support.passes import same

SETTINGS = {"learner": "gibbs", "iterations": 60, "draws": 20}


def table_of(n, seed=0):
    """Two groups of rows, which all columns tell apart."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, n)
    x = np.where(rng.random(n) < 0.1, np.nan, rng.normal(5.0 * group, 1.0))
    return pa.table(
        {
            "x": pa.array(x, from_pandas=True),
            "wait": rng.exponential(1.0 + 4.0 * group),
            "word": pa.array(["u", "v", "w"]).take(pa.array((group + (rng.random(n) < 0.2)) % 3)),
            "class": pa.array(["a", "b"]).take(pa.array(group)),
        }
    )


sampled = partial(learned, target="class", threads=1, **SETTINGS)


@pytest.fixture(scope="module")
def model():
    return sampled(table_of(400))


def test_the_classes_are_told_apart_with_their_uncertainty(model):
    rows = encode(table_of(300, seed=9), model.schema)
    p = model.predict_proba(rows)
    assert p.sum(axis=1) == pytest.approx(np.ones(300))
    assert np.mean(p.argmax(axis=1) == rows.y) > 0.95
    low, high = model.credible_intervals(rows, 0.9)
    assert (low <= p + 1e-9).all() and (p <= high + 1e-9).all() and (high > low).all()
    narrow_low, narrow_high = model.credible_intervals(rows, 0.5)
    assert (narrow_low >= low - 1e-12).all() and (narrow_high <= high + 1e-12).all()
    logs = model.draws.log_likelihoods(model.columns.rows_of_chunk(rows))
    assert model.log_likelihood(rows) == pytest.approx(np.log(np.exp(logs).mean(axis=1))), "the mean over the draws"


def test_every_answer_is_a_mean_with_standard_error_and_interval(model):
    marginal, conditional, joint, moments, sample, best = model.answer(
        [
            Marginal({"word": "v"}),
            Conditional(("word", "class"), {"x": 5.0}),
            Conditional(("word", "class"), {"x": 5.0}, joint=True),
            Moments(("wait",), {"class": "b"}),
            Sample(5, {"class": "a"}, seed=1),
            Map(("class", "word"), {"x": 5.0}),
        ]
    )
    assert marginal["interval"][0] < marginal["probability"] < marginal["interval"][1]
    assert marginal["level"] == 0.9 and marginal["standard_error"] > 0
    assert np.exp(marginal["log_probability"]) == pytest.approx(marginal["probability"])
    assert marginal["log_interval"] == pytest.approx(np.log(marginal["interval"]), rel=0.01)
    of_class = conditional["distributions"]["class"]
    assert of_class["b"] > 0.9 and sum(of_class.values()) == pytest.approx(1)
    low, high = conditional["intervals"]["class"]["b"]
    assert low < of_class["b"] < high and conditional["standard_errors"]["class"]["b"] > 0
    cells = {tuple(cell["values"].values()): cell for cell in joint["distribution"]}
    assert sum(cell["probability"] for cell in cells.values()) == pytest.approx(1)
    of_b = sum(cell["probability"] for values, cell in cells.items() if values[1] == "b")
    assert of_b == pytest.approx(of_class["b"])
    told = moments["moments"]["wait"]
    assert told["interval"][0] < told["mean"] < told["interval"][1] and told["mean"] == pytest.approx(5.0, abs=1.0)
    assert [row["class"] for row in sample["rows"]] == ["a"] * 5
    assert best["assignment"] == {"class": "b", "word": "v"} and best["of"] == "the posterior mean circuit"


def test_a_stored_model_is_the_same(model):
    header, arrays = model.to_arrays()
    again = load_model(header, {name: array.copy() for name, array in arrays.items()}, is_trusted=False)
    assert isinstance(again, BayesianCircuit)
    rows = encode(table_of(40, seed=9), model.schema)
    assert np.array_equal(again.predict_proba(rows), model.predict_proba(rows))
    asked = [Marginal({"word": "v"}), Moments(("wait",))]
    assert again.answer(asked) == model.answer(asked)
    # As collapsed variational inference stored them: without states of chains.
    former = BayesianCircuit(model.schema, model.draws, model.n_chains, model.facts, model.trace, None)
    again = load_model(*former.to_arrays())
    assert np.array_equal(again.predict_proba(rows), model.predict_proba(rows)) and again.sampled is None


def test_its_tables_and_structure_tell_how_the_chains_went(model):
    sweeps, facts = model.tables()["sweeps"], model.structure()["facts"]
    assert (sweeps.num_rows, sweeps.column_names[:3]) == (2 * 60, ["chain", "sweep", "log_joint"])
    assert (facts["n_draws"], facts["n_chains"], facts["n_sweeps"]) == (20, 2, 60)
    assert facts["r_hat"] > 0 and facts["effective"] > 0 and facts["is_settled"] in (True, False)


def test_chains_that_have_not_settled_warn_with_every_answer(model):
    """What has settled answers without one."""
    found = model.facts["diagnostics"]
    for is_settled, n_warnings in ((False, 1), (True, 0)):
        facts = model.facts | {"diagnostics": found | {"is_settled": is_settled, "r_hat": 2.379}}
        one = BayesianCircuit(model.schema, model.draws, model.n_chains, facts, model.trace)
        assert len(one.warnings()) == n_warnings
        for answer in one.answer([Marginal({"word": "v"}), Map(), Sample(n=2)]):
            assert answer.get("warnings", []) == one.warnings()
    assert (
        "The chains have not settled after 60 sweeps (R-hat 2.38; "
        in BayesianCircuit(
            model.schema,
            model.draws,
            model.n_chains,
            {"diagnostics": found | {"is_settled": False, "r_hat": 2.379}},
            model.trace,
        ).warnings()[0]
    )


def test_leaves_without_rows_do_not_blow_up_variances():
    """Skewed columns, whose sums have exponential leaves that stay empty; the variance is within three times that of the rows."""
    rng = np.random.default_rng(0)
    table = pa.table({f"x{i}": rng.gamma(0.7, 3.0, 300) for i in range(4)})
    model = sampled(table, target=None, children=4, prior_variance=2.0)
    (told,) = model.answer([Moments()])
    for name, moments in told["moments"].items():
        variance = table[name].to_numpy().var()
        assert variance / 3 < moments["variance"] < 3 * variance
        assert moments["mean"] == pytest.approx(table[name].to_numpy().mean(), rel=0.3)


@pytest.mark.parametrize(
    ("settings", "overrides", "numeric"),
    [
        ({"leaves": "intervals"}, None, set()),
        ({"leaves": "gaussian"}, None, {"gaussian"}),
        ({"leaves": "paper"}, None, {"gaussian", "exponential"}),
        ({}, {"wait": {"distribution": "exponential"}, "x": {"distribution": "intervals"}}, {"exponential"}),
    ],
)
def test_leaves_are_as_asked_for_all_columns_or_for_one(settings, overrides, numeric):
    model = sampled(table_of(200), overrides=overrides, **settings)
    assert set(model.circuit.summary()["kinds"]) == {"sum", "product", "categorical"} | numeric


def test_a_run_that_is_killed_in_any_sweep_comes_to_the_same(tmp_path, monkeypatch):
    """From files, with checkpoints, through trials and sweeps; the second start finds what the first one left."""
    pq.write_table(table_of(300), tmp_path / "x.parquet")
    source, settings = Source.open(tmp_path / "x.parquet"), {"trials": 3, "trial_sweeps": 4, "iterations": 20}
    whole = sampled(source, **settings)
    checkpoints = JobCheckpoints(tmp_path / "scratch", 0.0)
    saved, n_saved = FileStore.save, []

    def dying(self, chain, kept):
        n_saved.append(chain)
        if len(n_saved) == 17:
            raise KeyboardInterrupt
        saved(self, chain, kept)

    monkeypatch.setattr(FileStore, "save", dying)
    with pytest.raises(KeyboardInterrupt):
        sampled(source, checkpoints=checkpoints, **settings)
    again = sampled(source, checkpoints=checkpoints, **settings)
    assert len(n_saved) == 17 + 40 - 16  # the sweeps that were complete are not made again
    assert same(again, whole)
    trials = next((tmp_path / "scratch").rglob("trials.jsonl")).read_text().splitlines()
    assert len(trials) == 3


def test_trials_choose_what_is_not_given():
    model, again = (sampled(table_of(200), trials=4, trial_sweeps=5, alpha=2.5) for _ in range(2))
    assert model.facts["strengths"]["alpha"] == 2.5
    assert len(model.facts["trials"]) == 4
    values, tried = zip(*model.facts["trials"], strict=True)
    best = tried[int(np.argmax(values))]
    assert model.facts["strengths"]["gaussian"] == best["prior_variance"]
    assert "alpha" not in best and "share.0" in best
    assert again.facts["trials"] == model.facts["trials"]


def test_new_rows_enter_and_all_are_sampled_further():
    old, new = table_of(200), table_of(100, seed=5)
    known = sampled(old)
    parts = [Part(Source.of_table(old)), Part(Source.of_table(new))]
    grown = drive(Learner("spn", resume_sampling_recipe(known), 1), parts, threads=1)
    assert grown.facts["n_rows"] == 300
    assert [len(choices) for choices in grown.sampled.choices] == [300, 300]
    assert grown.schema == known.schema
    rows = encode(table_of(300, seed=9), grown.schema)
    assert np.mean(grown.predict_proba(rows).argmax(axis=1) == rows.y) > 0.95
    assert grown.sampled.header["turn"] == 1
    stored = load_model(*grown.to_arrays())
    parts.append(Part(Source.of_table(table_of(50, seed=6))))
    again = drive(Learner("spn", resume_sampling_recipe(stored), 1), parts, threads=1)
    assert again.facts["n_rows"] == 350


def test_a_circuit_that_does_not_fit_is_refused_in_words():
    wide = pa.table({f"c{i}": np.random.default_rng(i).normal(size=30) for i in range(60)})
    before = memory_limit()
    try:
        set_memory_limit(64 << 20)
        with pytest.raises(CircuitTooLarge, match=r"60 columns whose sums have 8 children has .* sums: .* Use fewer"):
            sampled(wide, target=None, children=8)
    finally:
        set_memory_limit(before.n_bytes, before.directory)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"children": 1}, "children=1 .* from 2 to 256"),
        ({"alpha": 0.0}, "alpha=0.0 .* positive number"),
        ({"share": 1.5}, "share=1.5 .* above 0 and at most 1"),
        ({"iterations": "auto", "chains": 1}, "chains=1 .* two or more"),
        ({"iterations": 1}, "iterations=1 .* from 2 to"),
        ({"whole_moves": 0.0, "subtree_moves": 0.0}, "whole_moves=0.0 .* above zero"),
        ({"structure": "chow-liu"}, "structure='chow-liu' must be one of 'auto' or 'file'"),
        ({"states": 4}, "states=4 .*: learner 'gibbs' has the parameters children, "),
        ({"leaves": "lognormal"}, "leaves='lognormal' .* gibbs learns only gaussian"),
        ({"structure": "file", "circuit": "mine.txt", "children": 3}, "children=3 .* structure of a file does not use it"),
        ({"leaves": "auto"}, "leaves='auto' "),
    ],
)  # fmt: skip
def test_parameters_out_of_range_are_refused(settings, message):
    with pytest.raises(InvalidParameter, match=message):
        recipes.learner("gibbs", {"iterations": 60, "draws": 20} | settings, None)


def test_a_table_without_rows_is_refused():
    table = pa.table({"x": pa.array([], pa.float64()), "y": pa.array([], pa.float64())})
    with pytest.raises(
        (SchemaError, EmptyData), match=r"No column is left|holds no number|every value is missing|no rows"
    ):
        sampled(table, target=None)
