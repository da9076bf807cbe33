"""The cross-validation harness: resumes, repeats itself, copes with rare classes."""

import dataclasses
import json
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.model_selection import StratifiedKFold

from learners import Source, drive, encode
from learners.errors import EmptyData, InvalidParameter, SourceError, UnknownColumn
from learners.evaluation import learner_specs, trial
from learners.evaluation.crossvalidation import OutcomeLog, cross_validate
from learners.evaluation.datasets import find_data_sets, load_data_set, nested_row_sample, stratified_folds
from learners.evaluation.learner_specs import LearnerSpec, learner_source_digest
from learners.evaluation.metrics import evaluate
from learners.evaluation.peers import PEERS, RawColumns
from learners.registry import recipes

LEARNERS = ["nb:m=1", "kdb:k=2,m=1"]


def losses(outcomes):
    """Everything that must not depend on the clock."""
    return [
        (o.key, o.n_train, o.n_test, o.error, {k: v for k, v in o.scores.items() if not k.endswith("_s")})
        for o in outcomes
    ]


def test_outcomes_are_those_of_training_on_the_fold_by_hand(folder):
    outcomes = cross_validate([folder / "two.parquet"], ["nb:m=1"], repetitions=2, seed=4)
    table = pq.read_table(folder / "two.parquet")
    y = np.array([int(name[1:]) for name in table["class"].to_pylist()])
    expected = []
    for seed in (4, 5):
        for train, test in stratified_folds(y, 2, seed):
            model = drive(recipes.learner("nb", {"m": 1}, "class"), Source.of_table(table.take(train)))
            chunk = encode(table.take(test), model.schema)
            metrics = dataclasses.asdict(evaluate(model.predict_proba(chunk), chunk.y))
            expected.append({name: float(f"{value:.6g}") for name, value in metrics.items()})
    measured = [{name: o.scores[name] for name in expected[0]} for o in outcomes]
    assert measured == expected
    assert {(o.n_train, o.n_test) for o in outcomes} == {(60, 60)}


@pytest.mark.parametrize("name", ["random-forest", "random-forest:discretised=true", "xgboost-raw:rounds=2"])
def test_peers_are_warm_before_their_first_time_is_taken(folder, monkeypatch, name):
    peer = PEERS[LearnerSpec.parse(name).name]
    fitted = []

    def fit(table, *arguments):
        fitted.append(table.column_names)
        return peer.fit(table, *arguments)

    monkeypatch.setitem(PEERS, LearnerSpec.parse(name).name, dataclasses.replace(peer, fit=fit))
    trial._warm_up.cache_clear()
    outcomes = cross_validate([folder / "two.parquet"], [name], repetitions=1)
    assert [outcome.error for outcome in outcomes] == [None, None]
    assert fitted == [["x", "z", "number"], ["word", "number"], ["word", "number"]]


def test_a_class_that_the_training_fold_lacks_gets_probability_zero(folder):
    outcomes = cross_validate(
        [folder / "rare.parquet"],
        ["nb:m=1", "random-forest:trees=5", "random-forest:trees=5,discretised=true"],
        repetitions=1,
    )
    assert [o.error for o in outcomes] == [None] * 6
    # One row of 45 with p = 1e-15 costs 34.5 / 45 = 0.77 nats.
    assert max(o.scores["log_loss"] for o in outcomes if o.learner == "nb:m=1") > 0.77


def test_one_class_and_no_informative_column_have_an_answer_that_says_so(tmp_path):
    path = tmp_path / "odd.parquet"
    pq.write_table(pa.table({"x": [1.0, 2.0, 3.0], "class": ["a", "a", "b"]}), path)
    notes = {o.note for o in cross_validate([path], ["nb"], repetitions=3)}
    assert "the training rows have one class only, which is always predicted" in notes
    noise = tmp_path / "noise.parquet"
    pq.write_table(pa.table({"x": [0.0, 0.0, 1.0, 1.0] * 10, "class": ["a", "b"] * 20}), noise)
    (first, *_) = cross_validate([noise], ["nb"], repetitions=1)
    assert first.note == "no attribute was left: the class shares are predicted"
    assert first.scores["rmse"] == pytest.approx(0.5)


def test_a_run_goes_on_where_it_stopped(folder, tmp_path):
    log = tmp_path / "outcomes.jsonl"
    whole = cross_validate([folder], LEARNERS, repetitions=2)

    class Stop(Exception):
        pass

    def stop_at(progress):
        if progress.n_done == 5:
            raise Stop

    with pytest.raises(Stop):
        cross_validate([folder], LEARNERS, repetitions=2, log=log, on_progress=stop_at)
    assert len(list(OutcomeLog(log))) == 5
    seen = []
    resumed = cross_validate([folder], LEARNERS, repetitions=2, log=log, on_progress=seen.append)
    assert losses(resumed) == losses(whole)
    assert (seen[0].n_done, seen[0].n_found, seen[-1].n_done, seen[-1].n_total) == (5, 5, 16, 16)
    again = cross_validate([folder], LEARNERS, repetitions=2, log=log, on_progress=seen.append)
    assert seen[-1].n_found == 16
    assert losses(again) == losses(whole)


def test_a_half_written_last_line_is_done_again_and_a_damaged_one_named(folder, tmp_path):
    log = tmp_path / "outcomes.jsonl"
    first = cross_validate([folder], ["nb:m=1"], repetitions=1, log=log)
    text = log.read_bytes()
    log.write_bytes(text[:-20])
    assert len(list(OutcomeLog(log))) == 3
    assert losses(cross_validate([folder], ["nb:m=1"], repetitions=1, log=log)) == losses(first)
    assert len([json.loads(line) for line in log.read_text().splitlines()]) == 4
    log.write_text("{}\n")
    with pytest.raises(SourceError, match=r"line 1 is not an outcome .* Remove the line"):
        cross_validate([folder], ["nb"], repetitions=1, log=log)


def n_outcomes_in_log(path, log, learner="nb:m=1", **more):
    """How many outcomes a run finds in its log."""
    seen = []
    cross_validate([path], [learner], repetitions=1, log=log, on_progress=seen.append, **more)
    return seen[-1].n_found


def test_other_data_and_other_code_are_measured_anew(folder, tmp_path, monkeypatch):
    path, log = folder / "two.parquet", tmp_path / "outcomes.jsonl"
    assert n_outcomes_in_log(path, log) == 0
    monkeypatch.setattr(LearnerSpec, "code_version", lambda self: "another")
    assert n_outcomes_in_log(path, log, any_code=True) == 2
    assert n_outcomes_in_log(path, log) == 0
    pq.write_table(pq.read_table(path).slice(1), path)
    assert n_outcomes_in_log(path, log) == 0


def test_processes_give_the_outcomes_of_one(folder, tmp_path):
    one = cross_validate([folder], LEARNERS, repetitions=1)
    two = cross_validate([folder], LEARNERS, repetitions=1, jobs=2, log=tmp_path / "outcomes.jsonl")
    assert losses(one) == losses(two)


def test_a_failure_is_an_outcome_and_is_tried_again(tmp_path):
    path, log = tmp_path / "lists.parquet", tmp_path / "outcomes.jsonl"
    pq.write_table(pa.table({"x": [[1], [2]] * 10, "class": ["a", "b"] * 10}), path)
    outcomes = cross_validate([path], ["random-forest"], repetitions=1, log=log)
    assert all("SchemaError: Column 'x' has type list" in str(o.error) for o in outcomes)
    assert n_outcomes_in_log(path, log, "random-forest") == 0


def test_learners_are_named_as_given_and_found_in_any_spelling(folder, tmp_path):
    log, seen = tmp_path / "outcomes.jsonl", []
    first = cross_validate([folder], ["kdb:m=1,k=2", "kdb:k=2,m=1"], repetitions=1, log=log)
    assert {o.learner for o in first} == {"kdb:m=1,k=2"}
    again = cross_validate([folder], ["kdb:k=2,m=1"], repetitions=1, log=log, on_progress=seen.append)
    assert seen[0].n_found == len(again) == 4
    assert {o.learner for o in again} == {"kdb:k=2,m=1"}


def test_limits_shrink_the_training_rows_only(folder):
    outcomes = cross_validate([folder / "two.parquet"], ["nb:m=1"], repetitions=1, limits=[20, 60, 500, None])
    # 60 is the whole training fold: no point of its own.
    assert [(o.limit, o.n_train, o.n_test) for o in outcomes] == [(20, 20, 60), (None, 60, 60)] * 2


def test_specs_have_one_spelling():
    assert LearnerSpec.parse(" kdb:m=1,k=3 ").text == "kdb:k=3,m=1"
    assert LearnerSpec.parse("kdb:k=3").parameters == (("k", 3),)
    assert LearnerSpec.parse("random-forest").is_peer
    for text, message in (
        ("nbb", "'nbb' must be one of auto, eskdb, nb, tan"),
        ("kdb:k", "write 'k' as parameter=value"),
        ("kdb:k=9", "k=9"),
        ("random-forest:depth=2", "random-forest has the parameters trees"),
    ):
        with pytest.raises(InvalidParameter, match=message):
            LearnerSpec.parse(text)


def test_the_code_of_a_learner_is_what_it_imports(monkeypatch):
    names, original = set(), learner_specs._source_of
    monkeypatch.setattr(learner_specs, "_source_of", lambda name: names.add(name) or original(name))
    learner_source_digest.__wrapped__(("learners.classifiers.recipes",))
    assert {"learners.counts.kernels", "learners.schema.discretise", "learners.kernels.jit"} <= names
    assert not any(name.startswith(("learners.evaluation", "learners.classifiers.baselines")) for name in names)


def test_data_sets_are_found_and_refused_by_name(folder, tmp_path):
    sets = find_data_sets([folder])
    assert [(d.name, d.target, d.n_rows) for d in sets] == [("rare", "class", 90), ("two", "class", 120)]
    assert load_data_set(find_data_sets([folder / "two.parquet"])[0]).classes == ["c0", "c1"]
    with pytest.raises(UnknownColumn, match="'clas' is not in the table"):
        find_data_sets([folder], "clas")
    (tmp_path / "csv").mkdir()
    (tmp_path / "csv" / "t.csv").write_text("x,y\n1,a\n")
    (tmp_path / "empty").mkdir()
    assert [(d.name, d.target, d.n_rows) for d in find_data_sets([tmp_path / "csv"])] == [("t", "y", 1)]
    (tmp_path / "two.parquet").write_bytes((folder / "two.parquet").read_bytes())
    for paths, message in (
        ([tmp_path / "nowhere"], "no such file or folder"),
        ([tmp_path / "empty"], "is a folder without files of a known format"),
        ([folder, tmp_path / "two.parquet"], "second data set named 'two'"),
    ):
        with pytest.raises(SourceError, match=message):
            find_data_sets(paths)


def test_raw_columns_keep_numbers_and_mark_the_unknown():
    train = pa.table({"n": [1.5, None, 3.0], "s": ["b", "a", None], "empty": pa.nulls(3)})
    test = pa.table({"n": [2, None], "s": ["c", "b"], "empty": [1, 2]})
    raw = RawColumns(train)
    np.testing.assert_array_equal(raw.numbers_of(train), [[1.5, 1], [np.nan, 0], [3, np.nan]])
    np.testing.assert_array_equal(raw.numbers_of(test), [[2, np.nan], [np.nan, 1]])


def test_folds_are_those_of_scikit_learn():
    y = np.random.default_rng(0).integers(0, 3, 101)
    ours = stratified_folds(y, 2, seed=7)
    theirs = list(StratifiedKFold(2, shuffle=True, random_state=7).split(y, y))
    for (train, test), (their_train, their_test) in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(train, their_train)
        np.testing.assert_array_equal(test, their_test)


def test_classes_with_one_row_are_in_one_fold_and_nothing_warns():
    y = np.array([0] * 10 + [1] * 10 + [2])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        folds, of_singles = stratified_folds(y, 2, seed=3), stratified_folds(np.arange(5), 2, seed=0)
    assert sorted(int((y[test] == 2).sum()) for _, test in folds) == [0, 1]
    assert sorted(test.size for _, test in of_singles) == [2, 3]
    with pytest.raises(EmptyData, match="1 rows cannot be split into 2 folds"):
        stratified_folds(np.zeros(1), 2, seed=0)


def test_fewer_training_rows_are_a_subset_of_more():
    rows = np.arange(0, 200, 2)
    small, large = nested_row_sample(rows, 10, seed=1), nested_row_sample(rows, 40, seed=1)
    assert small.size == 10
    assert set(small) < set(large) < set(rows)
    assert nested_row_sample(rows, 100, seed=1) is rows


def test_an_unknown_learner_names_similar_ones():
    with pytest.raises(InvalidParameter, match=r"learner='xgb' must be one of auto, .*\(similar: xgboost\)"):
        LearnerSpec.parse("xgb")
