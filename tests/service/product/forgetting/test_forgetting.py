"""Forgetting rows."""

import re
import shutil
from unittest.mock import ANY, Mock

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from learners.errors import SchemaError
from learners.passes.sources.source_files import split_file_identity
from service import product
from service.jobs.steps import Run, ignore_report, run_job_steps
from service.product import train_steps
from service.product.datasets.dataset_statistics import statistics_ledger
from service.product.datasets.forgotten_rows import ForgottenMeanwhile
from service.product.forgetting.forgetting import forget_steps
from service.requests import problems
from service.requests.problems import InvalidRequest, OutsideRoots
from service.requests.requests import DatasetRequest, ForgetRequest, TrainRequest
from service.settings import Settings
from service.workspace import Workspace
from storage.errors import InvalidPredicate
from tests.service.asking import learned, model_of
from tests.service.conftest import weather
from tests.support.passes import same, write
from tests.support.product import COLUMNS, OF_ROWS, WHERE, forget, n_left, of_nb, register, request_of


def is_proved(done):
    return [proof["is_equal"] for proof in done["proofs"]] == [True]


def conditions_of_statistics(workspace, request):
    """Of each file that a statistic covers, by which conditions its rows were chosen."""
    entries = statistics_ledger(workspace, request, Run("local-look", {}, {}, ignore_report)).store.entries()
    return [split_file_identity(file)[1] for entry in entries for file in entry.files]


def without_users(folder, name):
    """The rows beside the folder, in one that lacks the column of which the rule speaks."""
    elsewhere = folder.parent / name
    elsewhere.mkdir()
    pq.write_table(pq.read_table(folder).drop_columns(["user"]), elsewhere / "a.parquet")
    return elsewhere


def test_versions_that_know_the_rows_are_named_without_training_too(workspace, folder):
    for _ in range(2):
        product.train_model_version(workspace, of_nb(folder))
    assert forget(workspace, retrain=False)["still_holding"] == ["daily@1", "daily@2"]
    warned = []
    product.train_and_report_passes(workspace, of_nb(folder), lambda _: None, warned.append)
    words = r"Left out [1-9]\d* forgotten rows \(1 rule of fewpass forget\)\."
    assert any(re.fullmatch(words, text) for text in warned)
    assert WHERE not in str(product.version_lineage(workspace, "daily@3")), "models are carried elsewhere"
    again = forget(workspace, retrain=False)
    assert again["still_holding"] == ["daily@1", "daily@2"], "the third was trained without them"


def test_the_same_files_under_another_name(workspace, folder):
    """Who learned from them is named, and who will learn from them leaves the rows out."""
    register(workspace, folder)
    product.train_model_version(workspace, request_of(folder, **OF_ROWS))
    by_files = of_nb(folder, model="other")
    product.train_model_version(workspace, by_files)
    assert forget(workspace, dataset="rows", prove=False)["still_holding"] == ["daily@1", "other@1"]
    assert product.train_model_version(workspace, by_files).n_rows == n_left(folder)
    conditions = conditions_of_statistics(workspace, by_files)
    assert conditions and all(conditions)
    copy = shutil.copytree(folder, folder.parent / "copy")
    moved = of_nb(copy, model="moved", update=False)
    assert product.train_model_version(workspace, moved).n_rows == n_left(folder)


def test_the_same_file_read_in_another_way(workspace, folder):
    """It is known by what is stored: who learned from it is named, and who will learn from it leaves the rows out."""
    table = pq.read_table(folder)
    shutil.rmtree(folder)
    folder.mkdir()
    pa.csv.write_csv(table, folder / "a.csv")
    product.train_model_version(workspace, of_nb(folder))
    other = of_nb(folder, model="other", columns={"*": {"missing": ["?"]}}, update=False)
    product.train_model_version(workspace, other)
    read = [product.version_lineage(workspace, f"{name}@1")["files"][0] for name in ("daily", "other")]
    assert read[0]["footer_sha256"] != read[1]["footer_sha256"]
    told = forget(workspace, dry_run=True)
    assert told["holding"] == ["daily@1", "other@1"]
    assert forget(workspace, prove=False)["still_holding"] == ["daily@1", "other@1"]
    assert product.train_model_version(workspace, other).n_rows == table.num_rows - told["n_rows"] > 0


def test_the_newest_version_is_trained_again_whatever_the_champion_is(workspace, folder):
    product.train_model_version(workspace, of_nb(folder, aliases=["champion"]))
    product.train_model_version(workspace, of_nb(folder, learner="tan", aliases=["next"]))
    done = forget(workspace, prove=False)
    assert product.find_version(workspace, "daily@3").learner == "tan"
    assert product.aliases_of(workspace, "daily") == {"champion": 1, "next": 3}
    assert done["still_holding"] == ["daily@1", "daily@2"]


def test_a_job_that_is_started_again_adds_nothing_and_moves_nothing_back(workspace, folder):
    product.train_model_version(workspace, of_nb(folder, aliases=["champion"]))
    request = ForgetRequest(model="daily", where=WHERE).model_dump()
    mark, retrain, *_ = product.job_steps_by_kind(workspace)["forget"].values()
    run = Run("local-again", request, {}, ignore_report)
    marked = Run(run.job_id, request, {"mark": mark(run)}, ignore_report)
    retrain(marked)
    assert product.aliases_of(workspace, "daily") == {"champion": 2}, "a version appears with its aliases"
    product.set_alias(workspace, "daily", "champion", 1)  # somebody decides otherwise
    assert retrain(marked)["versions"][0]["version"] == 2
    assert product.aliases_of(workspace, "daily") == {"champion": 1}


@pytest.fixture
def overtaken(workspace, monkeypatch):
    """Rules that are made one after another, each when a job has learned."""
    rules = []
    learn = train_steps.learn_model

    def learn_slowly(here, run, **how):
        receipt = learn(here, run, **how)
        if rules:
            forgotten = statistics_ledger(here, TrainRequest(**run.request), run).forgotten
            forgotten.add(rules.pop(0))
            forgotten.save()
        return receipt

    monkeypatch.setattr(train_steps, "learn_model", learn_slowly)
    return rules


def without(folder, *users):
    """How many rows of a folder are of none of the users."""
    return len([user for user in pq.read_table(folder)["user"].to_pylist() if user not in users])


@pytest.mark.parametrize("holdout", [0, 0.2])
def test_what_was_learned_before_the_rule_is_learned_again(workspace, folder, overtaken, holdout):
    asked = of_nb(folder, holdout=holdout)
    overtaken[:] = ["user = 3", "user = 4"]
    version = product.train_model_version(workspace, asked)
    afterwards = product.train_model_version(workspace, asked)
    assert version.n_rows == afterwards.n_rows
    assert same(model_of(version), model_of(afterwards))
    assert holdout or version.n_rows == without(folder, 3, 4)
    measured = [{name: x for name, x in each.metrics.items() if name[-2:] != "_s"} for each in (version, afterwards)]
    assert measured[0] == measured[1]


def test_nothing_is_published_that_was_learned_before_the_rule(workspace, folder, overtaken):
    overtaken[:] = ["user = 3", "user = 4", "user = 5"]
    with pytest.raises(ForgottenMeanwhile, match="Rows were forgotten while this job learned from them") as refused:
        product.train_model_version(workspace, of_nb(folder))
    assert problems.problem_from_error(refused.value).status == 409
    assert not list(workspace.layout.model_directory("daily").glob("*.duckdb"))
    assert product.train_model_version(workspace, of_nb(folder)).n_rows == without(folder, 3, 4, 5)


def test_rows_that_are_forgotten_meanwhile_are_forgotten_too(workspace, folder, overtaken):
    product.train_model_version(workspace, of_nb(folder))
    overtaken.append("user = 4")
    request = ForgetRequest(model="daily", where=WHERE).model_dump()
    assert is_proved(run_job_steps(forget_steps(workspace), "local-forget", request, ignore_report))
    assert product.find_version(workspace, "daily@latest").n_rows == without(folder, 3, 4)


def test_statistics_of_files_that_are_gone_are_removed_too(workspace, folder):
    product.train_model_version(workspace, request_of(folder))
    forget(workspace, prove=False)
    write(folder, 0, seed=99)
    product.train_model_version(workspace, request_of(folder))
    forget(workspace, "user = 4", prove=False)
    conditions = conditions_of_statistics(workspace, request_of(folder))
    assert conditions and all(set(each) >= {f"not ({WHERE})", "not (user = 4)"} for each in conditions)


def test_a_name_keeps_its_rules_and_nothing_else(workspace, folder):
    """A data set is deleted to be registered again, with another target for example."""
    register(workspace, folder)
    product.train_model_version(workspace, request_of(folder, **OF_ROWS))
    forget(workspace, dataset="rows", retrain=False)
    product.delete_dataset(workspace, "rows")
    directory = workspace.layout.dataset_directory("rows")
    assert [path.name for path in directory.iterdir() if not path.name.startswith(".")] == ["forgotten.json"]
    register(workspace, folder, target="x0")
    assert product.train_model_version(workspace, of_nb(folder, **OF_ROWS)).n_rows == n_left(folder)
    product.delete_dataset(workspace, "rows")
    with pytest.raises(problems.Conflict, match="these files have no column 'user'"):
        register(workspace, without_users(folder, "elsewhere"), columns={"time": "drop"})
    left = directory / "schemas" / "left.json"  # by a deletion that was interrupted
    left.parent.mkdir()
    left.touch()
    register(workspace, folder)
    assert not left.exists()


def test_a_model_that_is_deleted_leaves_its_rules_and_nothing_else(workspace, folder):
    product.train_model_version(workspace, of_nb(folder))
    forget(workspace, prove=False)
    with pytest.raises(problems.Conflict, match=r"Rows were forgotten under the name 'daily' \(user = 3\)"):
        product.train_model_version(workspace, of_nb(without_users(folder, "elsewhere"), columns={"time": "drop"}))
    product.delete_model(workspace, "daily")
    directory = workspace.layout.model_directory("daily") / "data"
    assert [path.name for path in directory.iterdir() if not path.name.startswith(".")] == ["forgotten.json"]
    assert product.train_model_version(workspace, of_nb(folder)).n_rows == n_left(folder)


def test_files_outside_the_data_roots_are_not_searched(workspace, folder, tmp_path):
    register(workspace, folder)
    settings = Settings(workspace=workspace.settings.workspace, data_roots=[str(tmp_path / "elsewhere")])
    mark = product.job_steps_by_kind(Workspace(settings))["forget"]["mark"]
    with pytest.raises(OutsideRoots, match="server may"):
        mark(Run("job-1", ForgetRequest(dataset="rows", where=WHERE).model_dump(), {}, ignore_report))


CIRCUITS = [{"learning": "adf", "states": 2}, {"learning": "em", "states": 2, "passes": 2}]


@pytest.mark.parametrize("parameters", CIRCUITS, ids=["stream", "em"])
def test_circuits_forget_and_prove_it(workspace, folder, parameters):
    """A stream is learned anew from the remaining rows, also if it had gone on from day to day."""
    request = request_of(folder, learner="spn", parameters=parameters)
    product.train_model_version(workspace, request.model_copy(update={"aliases": ["champion"]}))
    for day in (5, 6):  # each time from the newest version
        write(folder, day)
        _, passes = product.train_and_report_passes(workspace, request)
        of_stream = [("learning row by row", 1)] if parameters["learning"] == "adf" else ANY
        assert [(each["stage"], each["n_files_read"]) for each in passes] == of_stream
    assert is_proved(forget(workspace))
    done = forget(workspace, "user = 77")
    assert (done["n_rows"], done["versions"], done["proofs"]) == (0, [], []), "no row has to be forgotten"
    write(folder, 7)
    _, passes = product.train_and_report_passes(workspace, request)
    assert [(each["stage"], each["n_files_read"]) for each in passes] == of_stream


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"target": "x1"}, "the target, the columns"),
        ({"columns": COLUMNS | {"x0": "drop"}}, "the target, the columns"),
        ({"holdout": 0.5}, "choice of rows"),
        ({"parameters": {"learning": "bmm"}}, "the parameters"),
    ],
)
def test_a_circuit_that_is_asked_for_otherwise_starts_anew_and_says_why(workspace, folder, change, reason):
    request = request_of(folder, learner="spn", parameters={"learning": "adf"})
    product.train_model_version(workspace, request)
    write(folder, 5, n=100)
    version, passes = product.train_and_report_passes(workspace, request.model_copy(update=change))
    assert passes[0]["stage"].startswith("starting from scratch, because") and reason in passes[0]["stage"]
    assert version.n_rows > 250, "of all files"
    schema = model_of(version).schema
    assert schema.target == change.get("target", "class")
    assert ("x0" in schema.columns) is ("columns" not in change)


SHOPS = {
    "integers": (pa.array([101, 205, 103], pa.int64()), "nominal"),
    "decimals": (pa.array([101, 205, 103], pa.decimal128(6, 0)), "nominal"),
    "floats": (pa.array([101.0, 205.0, 103.0]), {"kind": "nominal"}),
    "in an order of one's own": (pa.array([101, 205, 103], pa.int32()), {"kind": "nominal", "order": [103, 101, 205]}),
}


@pytest.mark.parametrize(("learner", "parameters"), [("nb", {}), ("xgboost", {"rounds": 5})])
def test_numbers_that_are_declared_to_be_names_are_forgotten_and_proved(workspace, folder, learner, parameters):
    for path in folder.glob("*.parquet"):
        table = pq.read_table(path)
        shop = pa.array([1 if user == 3 else user % 2 * 2 for user in table["user"].to_pylist()])
        for name, (column, _) in SHOPS.items():
            table = table.append_column(name, column.take(shop))
        pq.write_table(table, path)
    columns = COLUMNS | {name: given for name, (_, given) in SHOPS.items()}
    product.train_model_version(workspace, request_of(folder, learner=learner, parameters=parameters, columns=columns))
    done = forget(workspace)
    assert is_proved(done)
    assert all(conditions_of_statistics(workspace, request_of(folder)))
    again = forget(workspace)
    assert [entry["version"] for entry in again["versions"]] == [2], "the second time nothing is left to learn"
    assert is_proved(again)


def test_a_proof_that_fails_leaves_no_statistic_with_the_rows(workspace, folder, monkeypatch):
    product.train_model_version(workspace, of_nb(folder))
    with monkeypatch.context() as patch:
        failure = Mock(side_effect=SchemaError("the proof cannot be made"))
        patch.setattr("service.product.forgetting.forgetting._proof", failure)
        with pytest.raises(SchemaError, match="the proof cannot be made"):
            forget(workspace)
    assert all(conditions_of_statistics(workspace, request_of(folder)))
    again = forget(workspace)
    assert [proof["version"] for proof in again["proofs"]] == [2] and is_proved(again)


UNUSABLE = {
    "user = (SELECT 3)": "subquery",
    "1 = 1": "cannot be used",
    "usr = 3": r"The condition names a column that the data does not have: 'usr' \(similar: user\)",
    "user = 3) FROM rows --": "it ends too early, or has an extra closing parenthesis",
    "CAST(user AS INT) = 3": "Write TRY_CAST",
    "60 // user = 3": "fails where the divisor is 0",
    "NOT " * 900 + "user = 3": "nested",
}


@pytest.mark.parametrize("name", [{"dataset": "rows"}, {"model": "daily"}], ids=["a data set", "a model"])
def test_a_condition_that_cannot_stand_is_refused_before_the_job(workspace, folder, name):
    if "dataset" in name:
        register(workspace, folder)
    else:
        product.train_model_version(workspace, of_nb(folder))
    for where, reason in UNUSABLE.items():
        with pytest.raises((InvalidPredicate, InvalidRequest), match=reason) as refused:
            product.submit_job(workspace, ForgetRequest(where=where, **name), is_remote=True)
        assert problems.problem_from_error(refused.value).status == 422
    for where, reason in {"user = 'me'": "me", "user = 3 OR 1 = 1": "every row"}.items():  # of the rows themselves
        with pytest.raises(Exception, match=reason):
            product.forget_rows(workspace, ForgetRequest(where=where, **name))
    assert not [*workspace.layout.root.rglob("forgotten.json")], "nothing was changed"


def test_a_model_of_a_data_set_is_refused_before_the_job(workspace, folder):
    register(workspace, folder)
    product.train_model_version(workspace, request_of(folder, **OF_ROWS))
    with pytest.raises(InvalidRequest, match="daily was trained on the data set 'rows': forget rows of that"):
        product.submit_job(workspace, ForgetRequest(model="daily", where=WHERE), is_remote=True)


def test_a_value_that_comes_later_does_not_end_the_trainings(workspace, folder):
    """The rule compares a column of text with a number; the text of a later file is none."""
    for path in folder.glob("*.parquet"):
        table = pq.read_table(path)
        pq.write_table(table.append_column("shop", pc.cast(table["user"], pa.string())), path)
    request = of_nb(folder, columns=COLUMNS | {"shop": "nominal"})
    product.train_model_version(workspace, request)
    done = forget(workspace, "shop = 3", prove=False)
    table = pq.read_table(next(folder.glob("*.parquet")))
    shops = pa.array(["x"] * table.num_rows)
    pq.write_table(table.drop_columns("shop").append_column("shop", shops), folder / "zz-later.parquet")
    n_rows = sum(pq.read_metadata(path).num_rows for path in folder.glob("*.parquet"))
    assert product.train_model_version(workspace, request).n_rows == n_rows - done["n_rows"]


def kept(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_dry_run_counts_changes_nothing_and_names_what_the_real_run_then_names(workspace, tmp_path):
    """Also versions that learned the same files under another name, of which no data set is known."""
    table, path = weather(400, 1), tmp_path / "a.parquet"
    pq.write_table(table, path)
    product.register_dataset(workspace, DatasetRequest(name="sky", uris=[str(path)], target="class"))
    train = {"learner": "nb", "parameters": {"m": 1.0}, "holdout": 0}
    product.train_model_version(workspace, TrainRequest(dataset="sky", model="rain", **train))
    for _ in range(2):
        learned(workspace, path, "other", **train)
    before = kept(workspace.layout.dataset_directory("sky"))
    told = forget(workspace, "outlook = 'rain'", dataset="sky", dry_run=True)
    n_rain = table["outlook"].to_pylist().count("rain")
    assert told == {
        "is_dry_run": True,
        "n_rows": n_rain,
        "files": {str(path): n_rain},
        "would_retrain": ["rain"],
        "holding": ["other@1", "other@2", "rain@1"],
        "prices": [{"model": "rain@1", "cut_points_move": ["humidity"], "n_rows_again": 400}],
    }
    nothing = forget(workspace, "outlook = 'hail'", dataset="sky", dry_run=True)
    assert (nothing["n_rows"], nothing["would_retrain"], nothing["holding"]) == (0, [], [])
    assert kept(workspace.layout.dataset_directory("sky")) == before
    assert product.find_version(workspace, "rain").version == 1
    done = forget(workspace, "outlook = 'rain'", dataset="sky")
    assert (done["n_rows"], done["still_holding"]) == (n_rain, told["holding"])
    nothing = forget(workspace, "outlook = 'hail'", dataset="sky")
    assert (nothing["n_rows"], nothing["versions"]) == (0, [])
    assert product.find_version(workspace, "rain").version == 2


def test_a_stored_request_without_it_is_as_it_was():
    assert "dry_run" not in ForgetRequest(dataset="sky", where="x = 1").model_dump()
    assert ForgetRequest(dataset="sky", where="x = 1", dry_run=True).model_dump()["dry_run"] is True
