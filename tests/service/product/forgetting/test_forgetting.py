"""Forgetting rows."""

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from learners.errors import SchemaError
from learners.passes.sources.files import split_file_identity
from service import product
from service.jobs.steps import Run, ignore_report, run_job_steps
from service.product.datasets.dataset_statistics import statistics_ledger
from service.product.forgetting.forgetting import ForgottenMeanwhile, forget_steps
from service.requests import problems
from service.requests.problems import InvalidRequest, OutsideRoots
from service.requests.requests import DatasetRequest, ForgetRequest, TrainRequest
from service.settings import Settings
from service.workspace import Workspace
from storage.errors import InvalidPredicate
from tests.passes.test_statistic_reuse import write
from tests.service.asking import model_of
from tests.service.conftest import weather
from tests.service.product.test_refresh import COLUMNS, request_of

WHERE = "user = 3"
OF_ROWS = {"uris": None, "dataset": "rows", "target": None, "columns": {}}


def register(workspace, folder, **more):
    asked = {"name": "rows", "uris": [str(folder)], "target": "class", "columns": COLUMNS}
    product.register_dataset(workspace, DatasetRequest(**(asked | more)))


def n_left(folder):
    return int(pc.sum(pc.not_equal(pq.read_table(folder)["user"], 3)).as_py())


def test_versions_that_know_the_rows_are_named_without_training_too(workspace, folder):
    for _ in range(2):
        product.train_model_version(workspace, request_of(folder, learner="nb", parameters={}))
    done = product.forget_rows(workspace, ForgetRequest(model="daily", where=WHERE, retrain=False))
    assert done["still_holding"] == ["daily@1", "daily@2"]
    product.train_model_version(workspace, request_of(folder, learner="nb", parameters={}))
    assert WHERE not in str(product.version_lineage(workspace, "daily@3")), "models are carried elsewhere"
    again = product.forget_rows(workspace, ForgetRequest(model="daily", where=WHERE, retrain=False))
    assert again["still_holding"] == ["daily@1", "daily@2"], "the third was trained without them"


def test_the_same_files_under_another_name(workspace, folder):
    """Who learned from them is named, and who will learn from them leaves the rows out."""
    register(workspace, folder)
    product.train_model_version(workspace, request_of(folder, **OF_ROWS))
    by_files = request_of(folder, learner="nb", parameters={}, model="other", holdout=0)
    product.train_model_version(workspace, by_files)
    done = product.forget_rows(workspace, ForgetRequest(dataset="rows", where=WHERE, prove=False))
    assert done["still_holding"] == ["daily@1", "other@1"]
    assert product.train_model_version(workspace, by_files).n_rows == n_left(folder)
    entries = statistics_ledger(workspace, by_files, Run("local-look", {}, {}, ignore_report)).store.entries()
    assert entries and all(split_file_identity(file)[1] for entry in entries for file in entry.files)
    copy = folder.parent / "copy"
    copy.mkdir()
    for file in folder.glob("*.parquet"):
        (copy / file.name).write_bytes(file.read_bytes())
    moved = request_of(copy, learner="nb", parameters={}, model="moved", holdout=0, update=False)
    assert product.train_model_version(workspace, moved).n_rows == n_left(folder)


def test_the_newest_version_is_trained_again_whatever_the_champion_is(workspace, folder):
    product.train_model_version(workspace, request_of(folder, learner="nb", parameters={}, aliases=["champion"]))
    product.train_model_version(workspace, request_of(folder, learner="tan", parameters={}, aliases=["next"]))
    done = product.forget_rows(workspace, ForgetRequest(model="daily", where=WHERE, prove=False))
    assert product.find_version(workspace, "daily@3").learner == "tan"
    assert product.aliases_of(workspace, "daily") == {"champion": 1, "next": 3}
    assert done["still_holding"] == ["daily@1", "daily@2"]


def test_a_job_that_is_started_again_adds_nothing_and_moves_nothing_back(workspace, folder):
    product.train_model_version(workspace, request_of(folder, learner="nb", parameters={}, aliases=["champion"]))
    request = ForgetRequest(model="daily", where=WHERE).model_dump()
    mark, retrain, _ = product.job_steps_by_kind(workspace)["forget"].values()
    run = Run("local-again", request, {}, ignore_report)
    marked = Run(run.job_id, request, {"mark": mark(run)}, ignore_report)
    retrain(marked)
    assert product.aliases_of(workspace, "daily") == {"champion": 2}, "a version appears with its aliases"
    product.set_alias(workspace, "daily", "champion", 1)  # somebody decides otherwise
    assert retrain(marked)["versions"][0]["version"] == 2
    assert product.aliases_of(workspace, "daily") == {"champion": 1}


def test_nothing_is_published_that_was_learned_before_the_rule(workspace, folder):
    request = request_of(folder, learner="nb", parameters={})
    steps, asked, receipts = product.job_steps_by_kind(workspace)["train"], request.model_dump(), {}
    for name in ("learn", "evaluate", "reserve"):
        receipts[name] = steps[name](Run("local-slow", asked, receipts, ignore_report))
    product.train_model_version(workspace, request)
    product.forget_rows(workspace, ForgetRequest(model="daily", where=WHERE, prove=False))
    with pytest.raises(ForgottenMeanwhile, match="Rows were forgotten while this job learned from them") as refused:
        steps["publish"](Run("local-slow", asked, receipts, ignore_report))
    assert problems.problem_from_error(refused.value).status == 409
    files = {path.name.partition("-")[0] for path in workspace.layout.model_directory("daily").glob("*.duckdb")}
    assert files == {"2", "3"}, "the number is a gap"


def test_rows_that_are_forgotten_meanwhile_are_forgotten_too(workspace, folder, monkeypatch):
    product.train_model_version(workspace, request_of(folder, learner="nb", parameters={}, holdout=0))
    steps = product.job_steps_by_kind(workspace)["train"]
    other_rules = ["user = 4"]

    def learn_slowly(run):
        receipt = steps["learn"](run)
        while other_rules:
            forgotten = statistics_ledger(workspace, TrainRequest(**run.request), run).forgotten
            forgotten.add(other_rules.pop())
            forgotten.save()
        return receipt

    slowly = {**steps, "learn": learn_slowly}
    monkeypatch.setattr("service.product.forgetting.forgetting.train_steps", lambda _: slowly)
    done = run_job_steps(
        forget_steps(workspace), "local-forget", ForgetRequest(model="daily", where=WHERE).model_dump(), ignore_report
    )
    assert [proof["is_equal"] for proof in done["proofs"]] == [True]
    users = pq.read_table(folder)["user"].to_pylist()
    assert product.find_version(workspace, "daily@latest").n_rows == len([user for user in users if user not in (3, 4)])


def test_statistics_of_files_that_are_gone_are_removed_too(workspace, folder):
    product.train_model_version(workspace, request_of(folder))
    product.forget_rows(workspace, ForgetRequest(model="daily", where=WHERE, prove=False))
    write(folder, 0, seed=99)
    product.train_model_version(workspace, request_of(folder))
    product.forget_rows(workspace, ForgetRequest(model="daily", where="user = 4", prove=False))
    run = Run("local-look", {}, {}, ignore_report)
    ledger = statistics_ledger(workspace, request_of(folder), run)
    parts = [split_file_identity(file) for entry in ledger.store.entries() for file in entry.files]
    assert parts
    assert all(set(conditions) >= {f"not ({WHERE})", "not (user = 4)"} for _, conditions in parts)


def test_a_name_keeps_its_rules_and_nothing_else(workspace, folder):
    """A data set is deleted to be registered again, with another target for example."""
    register(workspace, folder)
    product.train_model_version(workspace, request_of(folder, **OF_ROWS))
    product.forget_rows(workspace, ForgetRequest(dataset="rows", where=WHERE, retrain=False))
    product.delete_dataset(workspace, "rows")
    directory = workspace.layout.dataset_directory("rows")
    assert [path.name for path in directory.iterdir() if not path.name.startswith(".")] == ["forgotten.json"]
    register(workspace, folder, target="x0")
    version = product.train_model_version(
        workspace, request_of(folder, **OF_ROWS, holdout=0, learner="nb", parameters={})
    )
    assert version.n_rows == n_left(folder)
    product.delete_dataset(workspace, "rows")
    elsewhere = folder.parent / "elsewhere"
    elsewhere.mkdir()
    pq.write_table(pq.read_table(folder).drop_columns(["user"]), elsewhere / "a.parquet")
    with pytest.raises(problems.Conflict, match="these files have no column 'user'"):
        register(workspace, elsewhere, columns={"time": "drop"})
    left = directory / "schemas" / "left.json"  # by a deletion that was interrupted
    left.parent.mkdir()
    left.touch()
    register(workspace, folder)
    assert not left.exists()


def test_a_model_that_is_deleted_leaves_its_rules_and_nothing_else(workspace, folder):
    request = request_of(folder, learner="nb", parameters={}, holdout=0)
    product.train_model_version(workspace, request)
    product.forget_rows(workspace, ForgetRequest(model="daily", where=WHERE, prove=False))
    product.delete_model(workspace, "daily")
    directory = workspace.layout.model_directory("daily") / "data"
    assert [path.name for path in directory.iterdir() if not path.name.startswith(".")] == ["forgotten.json"]
    assert product.train_model_version(workspace, request).n_rows == n_left(folder)


def test_a_model_of_other_files_under_the_same_name_is_told_of_the_rule(workspace, folder):
    request = request_of(folder, learner="nb", parameters={})
    product.train_model_version(workspace, request)
    product.forget_rows(workspace, ForgetRequest(model="daily", where=WHERE, prove=False))
    elsewhere = folder.parent / "elsewhere"
    elsewhere.mkdir()
    pq.write_table(pq.read_table(folder).drop_columns(["user"]), elsewhere / "a.parquet")
    other = request.model_copy(update={"uris": [str(elsewhere)], "columns": {"time": "drop"}})
    with pytest.raises(problems.Conflict, match=r"Rows were forgotten under the name 'daily' \(user = 3\)"):
        product.train_model_version(workspace, other)


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
    product.train_model_version(workspace, request)
    write(folder, 5)
    product.train_model_version(workspace, request)
    done = product.forget_rows(workspace, ForgetRequest(model="daily", where=WHERE))
    assert [proof["is_equal"] for proof in done["proofs"]] == [True]
    done = product.forget_rows(workspace, ForgetRequest(model="daily", where="user = 77"))
    assert (done["n_rows"], done["versions"], done["proofs"]) == (0, [], []), "no row has to be forgotten"
    write(folder, 6)
    _, passes = product.train_and_report_passes(workspace, request)
    if parameters["learning"] == "adf":
        assert [(each["stage"], each["n_files_read"]) for each in passes] == [("learning row by row", 1)]


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
    write(folder, 5)
    version, passes = product.train_and_report_passes(workspace, request.model_copy(update=change))
    assert passes[0]["stage"].startswith("starting anew, as") and reason in passes[0]["stage"]
    assert version.n_rows > 1500
    schema = model_of(version).schema
    assert schema.target == change.get("target", "class")
    assert ("x0" in schema.columns) is ("columns" not in change)


def test_a_circuit_goes_on_from_the_newest_version(workspace, folder):
    request = request_of(folder, learner="spn", parameters={"learning": "adf"})
    product.train_model_version(workspace, request.model_copy(update={"aliases": ["champion"]}))
    for day in (5, 6):
        write(folder, day)
        _, passes = product.train_and_report_passes(workspace, request)
        assert [each["n_files_read"] for each in passes] == [1]


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
    request = ForgetRequest(model="daily", where=WHERE)
    done = product.forget_rows(workspace, request)
    assert [proof["is_equal"] for proof in done["proofs"]] == [True]
    entries = statistics_ledger(workspace, request_of(folder), Run("local-look", {}, {}, ignore_report)).store.entries()
    assert all(split_file_identity(file)[1] for entry in entries for file in entry.files)
    again = product.forget_rows(workspace, request)
    assert [entry["version"] for entry in again["versions"]] == [2], "the second time nothing is left to learn"
    assert [proof["is_equal"] for proof in again["proofs"]] == [True]


def test_a_proof_that_fails_leaves_no_statistic_with_the_rows(workspace, folder, monkeypatch):
    product.train_model_version(workspace, request_of(folder, learner="nb", parameters={}))

    def fails(*_):
        raise SchemaError("the proof cannot be made")

    with monkeypatch.context() as patch:
        patch.setattr("service.product.forgetting.forgetting._proof", fails)
        with pytest.raises(SchemaError, match="the proof cannot be made"):
            product.forget_rows(workspace, ForgetRequest(model="daily", where=WHERE))
    entries = statistics_ledger(workspace, request_of(folder), Run("local-look", {}, {}, ignore_report)).store.entries()
    assert all(split_file_identity(file)[1] for entry in entries for file in entry.files)
    again = product.forget_rows(workspace, ForgetRequest(model="daily", where=WHERE))
    assert [proof["version"] for proof in again["proofs"]] == [2]
    assert [proof["is_equal"] for proof in again["proofs"]] == [True]


UNUSABLE = {
    "usr = 3": r"names a column that is not in the data: 'usr' \(similar: user\)",
    "user = 3) FROM rows --": "closes a parenthesis too many",
    "CAST(user AS INT) = 3": "Write TRY_CAST",
    "60 // user = 3": "fails where the divisor is 0",
    "NOT " * 900 + "user = 3": "nested",
}


@pytest.mark.parametrize("name", [{"dataset": "rows"}, {"model": "daily"}], ids=["a data set", "a model"])
def test_a_condition_that_cannot_stand_is_refused_before_the_job(workspace, folder, name):
    if "dataset" in name:
        register(workspace, folder)
    else:
        product.train_model_version(workspace, request_of(folder, learner="nb", parameters={}))
    for where, reason in UNUSABLE.items():
        with pytest.raises((InvalidPredicate, InvalidRequest), match=reason) as refused:
            product.submit_job(workspace, ForgetRequest(where=where, **name), is_remote=True)
        assert problems.problem_from_error(refused.value).status == 422


def test_a_value_that_comes_later_does_not_end_the_trainings(workspace, folder):
    """The rule compares a column of text with a number; the text of a later file is none."""
    for path in folder.glob("*.parquet"):
        table = pq.read_table(path)
        pq.write_table(table.append_column("shop", pc.cast(table["user"], pa.string())), path)
    request = request_of(folder, learner="nb", parameters={}, holdout=0, columns=COLUMNS | {"shop": "nominal"})
    product.train_model_version(workspace, request)
    done = product.forget_rows(workspace, ForgetRequest(model="daily", where="shop = 3", prove=False))
    table = pq.read_table(next(folder.glob("*.parquet")))
    shops = pa.array(["x"] * table.num_rows)
    pq.write_table(table.drop_columns("shop").append_column("shop", shops), folder / "zz-later.parquet")
    n_rows = sum(pq.read_metadata(path).num_rows for path in folder.glob("*.parquet"))
    assert product.train_model_version(workspace, request).n_rows == n_rows - done["n_rows"]


def kept(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_dry_run_counts_and_changes_nothing(tmp_path):
    table = weather(400, 1)
    pq.write_table(table, tmp_path / "a.parquet")
    with Workspace(Settings(workspace=tmp_path / "workspace")) as workspace:
        product.register_dataset(
            workspace, DatasetRequest(name="sky", uris=[str(tmp_path / "a.parquet")], target="class")
        )
        train = TrainRequest(dataset="sky", learner="nb", parameters={"m": 1.0}, model="rain", holdout=0)
        product.train_model_version(workspace, train)
        place = workspace.layout.dataset_directory("sky")
        before = kept(place)
        where = "outlook = 'rain'"
        told = product.forget_rows(workspace, ForgetRequest(dataset="sky", where=where, dry_run=True))
        n_rain = table["outlook"].to_pylist().count("rain")
        assert told == {
            "is_dry_run": True,
            "n_rows": n_rain,
            "files": {str(tmp_path / "a.parquet"): n_rain},
            "would_retrain": ["rain"],
            "holding": ["rain@1"],
        }
        assert kept(place) == before and product.find_version(workspace, "rain").version == 1
        done = product.forget_rows(workspace, ForgetRequest(dataset="sky", where=where))
        assert done["n_rows"] == n_rain and product.find_version(workspace, "rain").version == 2
        nothing = ForgetRequest(dataset="sky", where="outlook = 'hail'", dry_run=True)
        told = product.forget_rows(workspace, nothing)
        assert (told["n_rows"], told["would_retrain"], told["holding"]) == (0, [], [])
        done = product.forget_rows(workspace, nothing.model_copy(update={"dry_run": False}))
        assert (done["n_rows"], done["versions"]) == (0, []) and product.find_version(workspace, "rain").version == 2


def test_a_stored_request_without_it_is_as_it_was():
    assert "dry_run" not in ForgetRequest(dataset="sky", where="x = 1").model_dump()
    assert ForgetRequest(dataset="sky", where="x = 1", dry_run=True).model_dump()["dry_run"] is True


def test_a_dry_run_names_the_versions_that_the_real_run_then_names(tmp_path):
    """Also those that learned the same files under another name, of which no data set is known."""
    pq.write_table(weather(400, 1), tmp_path / "a.parquet")
    files = [str(tmp_path / "a.parquet")]
    with Workspace(Settings(workspace=tmp_path / "workspace")) as workspace:
        product.register_dataset(workspace, DatasetRequest(name="sky", uris=files, target="class"))
        for _ in range(2):
            asked = TrainRequest(
                uris=files, target="class", learner="nb", parameters={"m": 1.0}, model="other", holdout=0
            )
            product.train_model_version(workspace, asked)
        request = {"dataset": "sky", "where": "outlook = 'rain'"}
        told = product.forget_rows(workspace, ForgetRequest(**request, dry_run=True))
        assert told["would_retrain"] == [] and told["holding"] == ["other@1", "other@2"]
        assert product.forget_rows(workspace, ForgetRequest(**request))["still_holding"] == told["holding"]
        none = product.forget_rows(workspace, ForgetRequest(dataset="sky", where="outlook = 'no such'", dry_run=True))
        assert none["holding"] == []
